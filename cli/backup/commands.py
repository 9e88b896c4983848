"""`stockade backup …`: create, list, verify, prune and restore backups of a cluster's topics."""

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...partition.api.cluster import NotedBackups
from ...partition.errors import StockadeError
from ...partition.places.place import CannotReach
from ...partition.places.urls import without_arguments
from ..ui.completion_names import TOPIC
from ..ui.connection import with_config
from ..ui.exits import LOCAL, REFUSED, refuse, sentence
from ..ui.manual import Adding, Manual
from ..ui.output import count, output_option, show_json, show_table
from ..ui.parameters import DurationType, WholeNumber, collected
from ..ui.times import moment, seconds
from .create import Progress, back_up
from .frame import FAILURES, end_with, explained, local, name_option, place_argument, progress_bar, say, written
from .manifest import Damaged, Manifest
from .prune import Keep, Needed, Pruned, prune
from .rescue import rescue_disk
from .restore_command import restore_backup
from .schedule import INTERVAL_S, Gauges, Schedule
from .store import Store
from .verify import verify

TELL_MS = 5_000
"""How long a command tries to report a backup to the cluster, in ms."""
UNSHOWN = "the backup is made; standard output cannot be written, so nothing is shown there"
COUNTED: tuple[type[Exception], ...] = (StockadeError, *FAILURES)
"""Errors with which an attempt makes no backup; the gauges count it as failed."""
PRUNING_S = 3600.0
"""Seconds between two prunings of `create --every` at least: to list a month of backups takes a store some time."""
_KEEPING: list[Adding] = [
    click.option("--keep-last", type=WholeNumber(1), help="Keep so many of the newest backups."),
    click.option("--keep-for", "keep_for_s", type=DurationType(), help="Keep backups that are not older than this."),
    click.option(
        "--keep-hourly-for",
        "keep_hourly_for_s",
        type=DurationType(),
        help="Keep the newest backup of each hour that is not older than this.",
    ),
]


class Kept(NamedTuple):
    """What `prune` keeps: at least one of the options is given."""

    keep_last: int | None
    keep_for_s: float | None
    keep_hourly_for_s: float | None


_SCHEDULE: list[Adding] = [
    click.option("--every", "every_s", type=DurationType(), help="Go on, and make a backup each time this is over."),
    click.option(
        "--metrics-file",
        metavar="FILE",
        help="Write gauges for the textfile collector of node_exporter: the age of the last backup above all.",
    ),
    *_KEEPING,
]


@click.group(short_help="Backups: make, verify and restore them.")
def backup() -> None:
    """Backups of topics while the cluster runs. PLACE is a folder, or a URL: s3://BUCKET/PATH, gs://…, abfs://…, or
    what fsspec knows, if that is installed. Further arguments of an object store are in the URL
    (s3://BUCKET/PATH?region=…&endpoint_override=…), credentials where its other tools have them.
    """


@backup.command(
    cls=Manual,
    short_help="Back up topics, only what is new.",
    examples=[
        ("Everything, every hour by a timer", "stockade backup create /mnt/backups/orders-prod"),
        ("Two topics, to an object store", "stockade backup create s3://backups/orders --topic orders --topic jobs"),
        (
            "As a service: each minute, of a month one an hour, with an alert when it gets old",
            "stockade backup create PLACE --every 1m --keep-for 1d --keep-hourly-for 30d --metrics-file FILE.prom",
        ),
    ],
)
@place_argument
@click.option("--topic", "topics", multiple=True, shell_complete=TOPIC, help="Repeat it for several. Default: all.")
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="Keep the positions of this group in any case. Without it: on each partition of the 1,000 groups that are"
    " furthest behind.",
)
@click.option(
    "--principals", is_flag=True, help="Also keep the principals of the cluster with their rights, without tokens."
)
@click.option(
    "--anew",
    is_flag=True,
    help="PLACE has no backup, although the cluster was told of one there: make the first again.",
)
@collected(Schedule, "schedule", _SCHEDULE)
@output_option
@with_config
@explained
async def create(
    config: ClientConfig,
    place: str,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    schedule: Schedule,
    output: str,
    *,
    principals: bool,
    anew: bool,
) -> None:
    """Copy what the topics have now, as far as earlier backups at PLACE do not have it. Writers go on.

    With an option --keep-… older backups are removed after it, as by `stockade backup prune`. With --every a
    backup that fails is reported, the next one is made when it is due, and older ones are removed once an hour; it goes
    on also when standard output, the metrics file or the cluster cannot take the news of a backup.
    """
    gauges, pruning = Gauges(schedule.metrics_file, schedule.every_s or INTERVAL_S), Pruning(schedule)
    had_backups = False

    async def once() -> OSError | None:
        """Make one backup. Returns the error if it is made and standard output does not take its summary."""
        nonlocal had_backups
        store = await asyncio.to_thread(Store, place)
        async with Client(config) as client:
            had_backups = had_backups or not (anew or await _is_new(client, place))
            with _copying() as progress:
                made, damaged = await back_up(
                    client, store, topics, groups, progress, principals=principals, had_backups=had_backups
                )
            had_backups = True
            _noted(partial(gauges.succeeded, made), "the backup is made; the gauges are old: ")
            await _tell(client, place, made)
        await asyncio.to_thread(pruning.run, store, time.monotonic())
        return written(lambda: _show_made(made, damaged, output))

    if schedule.every_s is not None:
        await _again_and_again(once, gauges, schedule.every_s)
    with _counted(gauges):
        fault = await once()
    if fault is not None and not isinstance(fault, BrokenPipeError):  # a reader such as `head` may have closed it
        refuse("OUTPUT_NOT_WRITTEN", f"{UNSHOWN}: {fault}", as_json=output == "json", no_side_effects=False)


@contextmanager
def _copying() -> Iterator[Progress]:
    """A progress bar that counts the records of a backup during the block."""
    with progress_bar("copying") as (bar, task):

        def found(records: int) -> None:
            bar.update(task, total=(bar.tasks[0].total or 0) + records)

        yield Progress(found, partial(bar.advance, task))


class Pruning:
    """Removes older backups after the first new backup of a command, and then after a new one once in PRUNING_S."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, self._needed = schedule, Needed()
        self._due_s: float | None = None

    def run(self, store: Store, now_s: float) -> None:
        """Remove older backups, if that is due. A failure is only reported: the new backup stands. Blocks."""
        if not self._schedule.prunes or (self._due_s is not None and now_s < self._due_s):
            return
        try:
            kept = Kept(self._schedule.keep_last, self._schedule.keep_for_s, self._schedule.keep_hourly_for_s)
            prune(store, _keep(kept), _now_ms(), self._needed)
            self._due_s = now_s + PRUNING_S
        except (CannotReach, Damaged) as error:
            say(f"the backup is made; older ones could not be removed: {error}")


async def _again_and_again(
    once: Callable[[], Coroutine[Any, Any, OSError | None]], gauges: Gauges, every_s: float
) -> NoReturn:
    while True:
        due = time.monotonic() + every_s
        try:
            with _counted(gauges):
                fault = await once()
            if fault is not None:
                say(f"{UNSHOWN} any more: {fault}")
        except StockadeError as error:
            say(f"no backup: {sentence(error)}")
        except FAILURES as error:
            say(f"no backup: {error}")
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def _is_new(client: Client, place: str) -> bool:
    """Whether the cluster knows of no backup in this place, as far as it tells: a caller without the right hears of
    none. Raises ClusterUnreachable.
    """
    await client.connect()
    try:
        noted = await client.calls.call(NotedBackups, "GET", "/v1/cluster/backups", patience_ms=TELL_MS)
    except StockadeError:
        return True
    return all(each.place != shown(place) for each in noted.backups)


async def _tell(client: Client, place: str, made: Manifest) -> None:
    """Report the backup to the cluster, so that the cluster shows it. A failure is only printed: the backup stands."""
    sizes = {"topics": len(made.topics), "records": made.records, "bytes": made.size}
    body = {"place": shown(place), "name": made.name, "cut_ms": made.cut_ms} | sizes
    body["took_ms"] = max(0, made.ended_ms - made.started_ms)
    try:
        await client.calls.send("POST", "/v1/cluster/backups", body=body, patience_ms=TELL_MS)
    except StockadeError as error:
        say(f"the backup is made; the cluster does not show it: {sentence(error)}")


def shown(place: str) -> str:
    """The place as all who may see the cluster see it: a URL without credentials and options, or MACHINE:FOLDER."""
    path = place.removeprefix("file://")
    return without_arguments(place) if "://" in path else f"{socket.gethostname()}:{Path(path).absolute()}"


@contextmanager
def _counted(gauges: Gauges) -> Iterator[None]:
    try:
        yield
    except COUNTED:
        _noted(gauges.failed, "the gauges are old: ")
        raise


def _noted(write: Callable[[], None], otherwise: str) -> None:
    """Write the gauges. If that fails, print ``otherwise`` and the reason: it is no failure of the backup."""
    try:
        write()
    except CannotReach as error:
        say(f"{otherwise}{error}")


def _show_made(made: Manifest, damaged: list[str], output: str) -> None:
    for topic in made.left_out:
        say(f"left out, deleted meanwhile: {topic}")
    for topic in made.deleted:
        say(f"deleted since the last backup: {topic}")
    if made.positions_left_out:
        say(
            f"left out: {count(made.positions_left_out, 'position')} of groups that this principal may not see (the"
            " right `read group:*`), or beyond the 1,000 of a partition (--group)"
        )
    for path in made.copied_again:
        say(f"missing or damaged, so its records were copied again: {path}")
    for fault in damaged:
        say(f"passed over: {fault}")
    if output == "json":
        show_json(_summary(made))
    else:
        took = seconds(made.ended_ms - made.started_ms)
        click.echo(f"{made.name}: {count(len(made.topics), 'topic')}, {count(made.records, 'record')}, in {took}")


def _keep(kept: Kept) -> Keep:
    now_ms = _now_ms()

    def since(age_s: float | None) -> int | None:
        return None if age_s is None else now_ms - int(age_s * 1000)

    return Keep(kept.keep_last or 1, since(kept.keep_for_s), since(kept.keep_hourly_for_s))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@backup.command(
    "prune",
    cls=Manual,
    short_help="Remove old backups.",
    exits=LOCAL,
    examples=[
        ("What would go?", "stockade backup prune PLACE --keep-for 30d --dry-run"),
        ("Keep those of a month, and ten at least", "stockade backup prune PLACE --keep-for 30d --keep-last 10"),
        ("All of a day, of a year one an hour", "stockade backup prune PLACE --keep-for 1d --keep-hourly-for 365d"),
    ],
)
@place_argument
@collected(Kept, "kept", _KEEPING)
@click.option("--dry-run", "dry", is_flag=True, help="Only say what would be removed.")
@output_option
def prune_backups(place: str, kept: Kept, output: str, *, dry: bool) -> None:
    """Remove backups, and files of records that no other backup needs; never the newest backup. No node is asked.

    A backup stays if any option keeps it. One that is being made at PLACE meanwhile notices it, and is refused.
    """
    if kept == Kept(None, None, None):
        raise click.UsageError("say what to keep: --keep-last, --keep-for, --keep-hourly-for, or more of them")

    def work() -> Pruned:
        store = Store(place)
        if not store.manifests():
            raise Damaged(f"there is no backup at {store.url}")
        with progress_bar("removing") as (bar, task):
            keep = _keep(kept)
            return prune(store, keep, _now_ms(), dry=dry, removed=lambda size: bar.advance(task, size))

    done = local(work, output, no_side_effects=False)
    if output == "json":
        show_json(done._asdict())
        return
    for name in done.backups:
        click.echo(name)
    went = "would be removed" if dry else "removed"
    size = f"{count(done.files, 'file')}, {count(done.bytes, 'byte')}"
    click.echo(f"{went}: {count(len(done.backups), 'backup')}, {size}")


@backup.command(
    "list",
    cls=Manual,
    exits=LOCAL,
    means={REFUSED: "There is no backup that can be read, or the place cannot be reached."},
    examples=[("What is there?", "stockade backup list /mnt/backups/orders-prod")],
)
@place_argument
@output_option
def list_backups(place: str, output: str) -> None:
    """List the backups at PLACE, the oldest first. No node is asked. Manifests that cannot be read are passed over."""

    def work() -> tuple[list[dict[str, Any]], int]:
        store, found, damaged = Store(place), [], 0
        for name in store.manifests():
            manifest, fault = store.manifest_or_fault(name)
            if manifest is not None:
                found.append(_summary(manifest))
            elif fault:
                damaged += 1
                click.echo(f"damaged: {fault}", err=True)
        return found, damaged

    found, damaged = local(work, output)
    if output == "json":
        show_json(found)
    elif found:
        columns = "cluster_id", "topics", "records", "bytes"
        rows = [(each["name"], moment(each["cut_ms"]), *(each[column] for column in columns)) for each in found]
        show_table(["NAME", "UP TO", "CLUSTER", "TOPICS", "RECORDS", "BYTES"], rows)
    if not found:
        where = without_arguments(place)
        end_with(Damaged(f"no backup at {where} can be read" if damaged else f"there is no backup at {where}"), output)


@backup.command(
    "verify",
    cls=Manual,
    short_help="Verify a backup.",
    exits=LOCAL,
    means={REFUSED: "The backup is damaged, or cannot be read."},
    examples=[("Is all of it there, as it was written?", "stockade backup verify s3://backups/orders")],
)
@place_argument
@name_option
@output_option
def verify_backup(place: str, name: str | None, output: str) -> None:
    """Read every file of a backup again: digests, records, offsets without a gap, times. No node is asked."""

    def work() -> tuple[Manifest, list[str]]:
        store = Store(place)
        manifest = store.manifest(name)
        with progress_bar("verifying", manifest.size) as (bar, task):
            return manifest, verify(store, manifest, lambda file: bar.advance(task, file.bytes))

    manifest, faults = local(work, output)
    if output == "json":
        show_json({**_summary(manifest), "faults": faults})
    else:
        for fault in faults:
            click.echo(f"damaged: {fault}")
        verdict = f"{count(len(faults), 'fault')}" if faults else "as it was written"
        click.echo(f"{manifest.name}: {count(len(manifest.files), 'file')}, {count(manifest.size, 'byte')}, {verdict}")
    if faults:
        sys.exit(REFUSED)


backup.add_command(restore_backup)
backup.add_command(rescue_disk)


def _summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "cluster_id": manifest.cluster_id,
        "cut_ms": manifest.cut_ms,
        "took_ms": manifest.ended_ms - manifest.started_ms,
        "topics": len(manifest.topics),
        "records": manifest.records,
        "bytes": manifest.size,
        "left_out": manifest.left_out,
        "deleted": manifest.deleted,
        "positions_left_out": manifest.positions_left_out,
    }
