"""`stockade backup …`: copies of a cluster's topics that outlive it, and the way back."""

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ...client.api.client import Client
from ...partition.errors import StockadeError
from ...partition.places.place import CannotReach, place_fault, without_arguments
from ..ui.completion_names import TOPIC
from ..ui.connection import with_client
from ..ui.exits import LOCAL, REFUSED, UNREACHABLE, sentence
from ..ui.manual import Adding, Manual
from ..ui.output import count, output_option, show_json, show_table
from ..ui.parameters import DurationType, InstantType, WholeNumber, collected
from ..ui.times import moment, seconds
from .begin import CannotBackUp
from .create import Progress as Copying
from .create import back_up
from .manifest import Damaged, Manifest
from .prune import Keep, Needed, Pruned, prune
from .restore import (
    CannotRestore,
    Manner,
    Restored,
    Until,
    check_principals,
    prepare,
    restore_principals,
    size_to_restore,
)
from .schedule import INTERVAL_S, Gauges, Schedule
from .store import Store
from .verify import verify

TELL_MS = 5_000
"""How long a command tries to tell the cluster of a backup that it has made."""
PRUNING_S = 3600.0
"""How often `create --every` removes older backups at most: to list a month of backups takes a store some time."""
FAILURES = CannotBackUp, CannotReach, CannotRestore, Damaged


class PlaceType(click.ParamType[str]):
    """A folder or a URL, which is never quoted where it is refused."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if fault := place_fault(str(value)):
            self.fail(fault, param, ctx)
        return str(value)


place_argument: Adding = click.argument("place", type=PlaceType())
name_option: Adding = click.option("--name", help="Of a backup that `stockade backup list` shows. Default: the newest.")
_KEEPING: list[Adding] = [
    click.option("--keep-last", type=WholeNumber(1), help="Keep so many of the newest backups."),
    click.option("--keep-for", "keep_for_s", type=DurationType(), help="Keep backups that are not older than this."),
]


class Kept(NamedTuple):
    """What to keep: at least one of them."""

    keep_last: int | None
    keep_for_s: float | None


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


def _explained(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    @wraps(command)
    async def body(*args: Any, **options: Any) -> None:
        try:
            await command(*args, **options)
        except FAILURES as error:
            _end(error)

    return body


def _end(error: Exception) -> NoReturn:
    click.echo(f"Error: {error}", err=True)
    sys.exit(REFUSED)


@backup.command(
    cls=Manual,
    short_help="Back up topics, only what is new.",
    examples=[
        ("Everything, every hour by a timer", "stockade backup create /mnt/backups/orders-prod"),
        ("Two topics, to an object store", "stockade backup create s3://backups/orders --topic orders --topic jobs"),
        (
            "As a service: each minute, for a month, with an alert when it gets old",
            "stockade backup create PLACE --every 1m --keep-for 30d --metrics-file /var/lib/node_exporter/backup.prom",
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
@collected(Schedule, "schedule", _SCHEDULE)
@output_option
@with_client
@_explained
async def create(
    client: Client,
    place: str,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    schedule: Schedule,
    output: str,
    *,
    principals: bool,
) -> None:
    """Copy what the topics have now, as far as earlier backups at PLACE do not have it. Writers go on.

    With --keep-last or --keep-for older backups are removed after it, as by `stockade backup prune`. With --every a
    backup that fails is reported, the next one is made when it is due, and older ones are removed once an hour.
    """
    gauges = Gauges(schedule.metrics_file, schedule.every_s or INTERVAL_S)
    pruning = Pruning(schedule)

    async def once() -> None:
        store = await asyncio.to_thread(Store, place)
        with _bar("copying") as (bar, task):

            def found(records: int) -> None:
                bar.update(task, total=(bar.tasks[0].total or 0) + records)

            progress = Copying(found, partial(bar.advance, task))
            made, damaged = await back_up(client, store, topics, groups, progress, principals=principals)
        _show_made(made, damaged, output)
        await _tell(client, place, made)
        gauges.succeeded(made)
        await asyncio.to_thread(pruning.run, store, time.monotonic())

    if schedule.every_s is None:
        with _counted(gauges):
            await once()
    else:
        await _again_and_again(once, gauges, schedule.every_s)


class Pruning:
    """What removes older backups after new ones: after the first one of a command, and then once in PRUNING_S."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, self._needed = schedule, Needed()
        self._due_s: float | None = None

    def run(self, store: Store, now_s: float) -> None:
        """Remove older backups, if that is due. The new one is none the worse if that cannot be. Blocks."""
        if not self._schedule.prunes or (self._due_s is not None and now_s < self._due_s):
            return
        try:
            prune(store, _keep(self._schedule.keep_last, self._schedule.keep_for_s), _now_ms(), self._needed)
            self._due_s = now_s + PRUNING_S
        except (CannotReach, Damaged) as error:
            click.echo(f"the backup is made; older ones could not be removed: {error}", err=True)


async def _again_and_again(once: Callable[[], Coroutine[Any, Any, None]], gauges: Gauges, every_s: float) -> NoReturn:
    while True:
        due = time.monotonic() + every_s
        try:
            with _counted(gauges):
                await once()
        except StockadeError as error:
            click.echo(f"no backup: {sentence(error)}", err=True)
        except FAILURES as error:
            click.echo(f"no backup: {error}", err=True)
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def _tell(client: Client, place: str, made: Manifest) -> None:
    """Let the cluster show it. A backup is none the worse if that cannot be."""
    sizes = {"topics": len(made.topics), "records": made.records, "bytes": made.size}
    body = {"place": shown(place), "name": made.name, "cut_ms": made.cut_ms} | sizes
    body["took_ms"] = max(0, made.ended_ms - made.started_ms)
    try:
        await client.calls.send("POST", "/v1/cluster/backups", body=body, patience_ms=TELL_MS)
    except StockadeError as error:
        click.echo(f"the backup is made; the cluster does not show it: {sentence(error)}", err=True)


def shown(place: str) -> str:
    """A place for all who may see the cluster: without credentials and options; a folder with its machine."""
    path = place.removeprefix("file://")
    return without_arguments(place) if "://" in path else f"{socket.gethostname()}:{Path(path).absolute()}"


@contextmanager
def _counted(gauges: Gauges) -> Iterator[None]:
    try:
        yield
    except (StockadeError, *FAILURES):
        gauges.failed()
        raise


def _show_made(made: Manifest, damaged: list[str], output: str) -> None:
    if output == "json":
        show_json(_summary(made))
    else:
        took = seconds(made.ended_ms - made.started_ms)
        click.echo(f"{made.name}: {count(len(made.topics), 'topic')}, {count(made.records, 'record')}, in {took}")
    for topic in made.left_out:
        click.echo(f"left out, deleted meanwhile: {topic}", err=True)
    for topic in made.deleted:
        click.echo(f"deleted since the last backup: {topic}", err=True)
    if made.positions_left_out:
        click.echo(
            f"left out: {count(made.positions_left_out, 'position')} of groups that this principal may not see (the"
            " right `read group:*`), or beyond the 1,000 of a partition (--group)",
            err=True,
        )
    for path in made.copied_again:
        click.echo(f"missing or damaged, so its records were copied again: {path}", err=True)
    for fault in damaged:
        click.echo(f"passed over: {fault}", err=True)


def _keep(keep_last: int | None, keep_for_s: float | None) -> Keep:
    return Keep(keep_last or 1, None if keep_for_s is None else _now_ms() - int(keep_for_s * 1000))


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
    ],
)
@place_argument
@collected(Kept, "kept", _KEEPING)
@click.option("--dry-run", "dry", is_flag=True, help="Only say what would be removed.")
@output_option
def prune_backups(place: str, kept: Kept, output: str, *, dry: bool) -> None:
    """Remove backups, and files of records that no other backup needs; never the newest backup. No node is asked.

    A backup stays if either option keeps it. One that is being made at PLACE meanwhile notices it, and is refused.
    """
    if kept == Kept(None, None):
        raise click.UsageError("say what to keep: --keep-last, --keep-for, or both")

    def work() -> Pruned:
        store = Store(place)
        if not store.manifests():
            raise Damaged(f"there is no backup at {store.url}")
        with _bar("removing") as (bar, task):
            keep = _keep(*kept)
            return prune(store, keep, _now_ms(), dry=dry, removed=lambda size: bar.advance(task, size))

    done = _local(work)
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

    found, damaged = _local(work)
    if output == "json":
        show_json(found)
    elif found:
        columns = "cluster_id", "topics", "records", "bytes"
        rows = [(each["name"], moment(each["cut_ms"]), *(each[column] for column in columns)) for each in found]
        show_table(["NAME", "UP TO", "CLUSTER", "TOPICS", "RECORDS", "BYTES"], rows)
    if not found:
        where = without_arguments(place)
        _end(Damaged(f"no backup at {where} can be read" if damaged else f"there is no backup at {where}"))


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
        with _bar("verifying", manifest.size) as (bar, task):
            return manifest, verify(store, manifest, lambda file: bar.advance(task, file.bytes))

    manifest, faults = _local(work)
    if output == "json":
        show_json({**_summary(manifest), "faults": faults})
    else:
        for fault in faults:
            click.echo(f"damaged: {fault}")
        verdict = f"{count(len(faults), 'fault')}" if faults else "as it was written"
        click.echo(f"{manifest.name}: {count(len(manifest.files), 'file')}, {count(manifest.size, 'byte')}, {verdict}")
    if faults:
        sys.exit(REFUSED)


class OffsetType(click.ParamType[tuple[str, int, int]]):
    """TOPIC/PARTITION=OFFSET."""

    name = "TOPIC/PARTITION=OFFSET"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int, int]:
        where, _, offset = str(value).partition("=")
        topic, _, number = where.rpartition("/")
        if not topic or not number.isdecimal() or not offset.isdecimal():
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        return topic, int(number), int(offset)


class How(NamedTuple):
    """Where a restore stops, and how it restores."""

    until_ms: int | None
    offsets: tuple[tuple[str, int, int], ...]
    renumber: bool
    resume: bool
    replication_factor: int | None


_HOW: list[Adding] = [
    click.option(
        "--until",
        "until_ms",
        type=InstantType(),
        help="Stop each partition before its first record of this time or later.",
    ),
    click.option(
        "--until-offset", "offsets", multiple=True, type=OffsetType(), help="Stop a partition before this offset."
    ),
    click.option(
        "--renumber",
        is_flag=True,
        help="Let logs begin at offset 0, where they began later: for a cluster that cannot keep offsets.",
    ),
    click.option("--resume", is_flag=True, help="Go on with a restore that was cut short."),
    click.option("--replication-factor", type=WholeNumber(1, 7), help="Default: that of the cluster for new topics."),
]


@backup.command(
    "restore",
    cls=Manual,
    short_help="Restore topics from a backup.",
    means={
        REFUSED: "Refused: nothing was changed. Or cut short, which is said: the topics that are complete are shown.",
        UNREACHABLE: "No node could be reached, or none answered. The topics that are complete are shown.",
    },
    examples=[
        ("All of it into a new cluster", "stockade backup restore s3://backups/orders --url http://new:7101"),
        ("One topic beside the one that is there", "stockade backup restore PLACE --topic orders --as orders-before"),
        ("What there was before an accident", "stockade backup restore PLACE --until 2026-01-31T12:00:00Z"),
    ],
)
@place_argument
@name_option
@click.option("--topic", "topics", multiple=True, help="Restore this topic; repeat it for several. Default: all.")
@click.option("--as", "as_name", help="The name of the restored topic, for one --topic.")
@collected(How, "how", _HOW)
@click.option(
    "--principals",
    is_flag=True,
    help="Also restore principals with their rights; those that are there stay as they are. Their tokens are new ones.",
)
@output_option
@with_client
@_explained
async def restore_backup(
    client: Client,
    place: str,
    name: str | None,
    topics: tuple[str, ...],
    as_name: str | None,
    how: How,
    output: str,
    *,
    principals: bool,
) -> None:
    """Create topics of a backup, with their records, offsets and positions. A topic that has records already is not
    touched. All topics are checked before the first one is written to; principals come last.
    """
    if as_name is not None and len(topics) != 1:
        raise click.UsageError("--as takes exactly one --topic")
    store = await asyncio.to_thread(Store, place)
    manifest = await asyncio.to_thread(store.manifest, name)
    names = {each: as_name or each for each in topics or [topic.topic for topic in manifest.topics]}
    until = Until(how.until_ms, _targets(how.offsets, manifest, names))
    manner = Manner(until, how.renumber, how.resume, how.replication_factor)
    work = await prepare(client, store, manifest, names, manner)
    if principals:
        await check_principals(client)
    done: list[Restored] = []
    with _told_of_a_part(done, output):
        with _bar("restoring", size_to_restore(manifest, names, until)) as (bar, task):
            for topic in work:
                done += await topic.run(partial(bar.advance, task))
        if principals:
            async for each in restore_principals(client, manifest):
                click.echo(f"principal {each.principal} has its rights, and no token: give it one", err=True)
    _show(done, output)


def _targets(
    offsets: Sequence[tuple[str, int, int]], manifest: Manifest, names: Collection[str]
) -> dict[tuple[str, int], int]:
    """Where to stop, by topic and partition of the backup. Raises click.UsageError: all that are none of ``names``."""
    partitions = {topic.topic: len(topic.partitions) for topic in manifest.topics if topic.topic in names}
    found: dict[tuple[str, int], int] = {}
    faults = []
    for topic, number, offset in offsets:
        where = f"{topic}/{number}"
        if topic not in partitions:
            faults.append(f"{where}: no topic {topic} is to be restored; topics have their names of the backup here")
        elif number >= partitions[topic]:
            faults.append(f"{where}: the topic has {count(partitions[topic], 'partition')} in the backup")
        elif (topic, number) in found:
            faults.append(f"{where} is given twice")
        found[topic, number] = offset
    if faults:
        raise click.UsageError(f"--until-offset: {'; '.join(faults)}")
    return found


@contextmanager
def _told_of_a_part(done: list[Restored], output: str) -> Iterator[None]:
    """When a restore fails that has begun: what is complete, as it is shown without a failure, and how to go on."""
    try:
        yield
    except BaseException:
        complete = count(len({each.topic for each in done}), "topic")
        _say(f"cut short, with {complete} complete: --resume goes on")
        if done:
            _written(lambda: _show(done, output))
        raise


def _say(text: str) -> None:
    """Say it on standard error. The work is none the worse if that cannot be written."""
    with suppress(OSError):
        click.echo(text, err=True)


def _written(show: Callable[[], None]) -> OSError | None:
    """Print on standard output; answers why that cannot be written. Nothing more is printed there then: what is still
    buffered would fail again when the process ends, and change its exit code.
    """
    try:
        show()
    except OSError as error:
        sys.stdout = None
        return error
    return None


def _show(done: list[Restored], output: str) -> None:
    if output == "json":
        show_json([each._asdict() for each in done])
        return
    show_table(["TOPIC", "PARTITION", "RECORDS", "OFFSETS"], [(*each[:3], _shift(each.shift)) for each in done])


def _shift(shift: int) -> str:
    return "as before" if shift == 0 else f"less by {-shift}"


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


def _local(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (CannotReach, Damaged) as error:
        _end(error)


@contextmanager
def _bar(what: str, total: int = 0) -> Iterator[tuple[Progress, TaskID]]:
    """A bar on standard error, if that is a terminal."""
    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar, bar.add_task(what, total=total)
