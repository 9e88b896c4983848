"""`stockade backup …`: copies of a cluster's topics that outlive it, and the way back."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, NamedTuple, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ...client.api.client import Client
from ..ui.completion_names import TOPIC
from ..ui.connection import with_client
from ..ui.exits import LOCAL, REFUSED
from ..ui.manual import Adding, Manual
from ..ui.output import count, output_option, show_json, show_table
from ..ui.parameters import InstantType, WholeNumber, collected
from ..ui.times import moment, seconds
from .create import CannotBackUp, back_up
from .create import Progress as Copying
from .manifest import Damaged, Manifest
from .restore import CannotRestore, Restored, Until, restore, size_to_restore
from .store import CannotReach, Store
from .verify import verify

place_argument: Adding = click.argument("place")
name_option: Adding = click.option("--name", help="Of a backup that `stockade backup list` shows. Default: the newest.")


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
        except (CannotBackUp, CannotReach, CannotRestore, Damaged) as error:
            _end(error)

    return body


def _end(error: Exception) -> NoReturn:
    click.echo(f"Error: {error}", err=True)
    sys.exit(REFUSED)


@backup.command(
    cls=Manual,
    short_help="Back up topics, only what is new.",
    examples=[
        ("Everything, every hour", "stockade backup create /mnt/backups/orders-prod"),
        ("Two topics, to an object store", "stockade backup create s3://backups/orders --topic orders --topic jobs"),
    ],
)
@place_argument
@click.option("--topic", "topics", multiple=True, shell_complete=TOPIC, help="Repeat it for several. Default: all.")
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="Also keep the positions of this group. Without it: of groups that own partitions.",
)
@output_option
@with_client
@_explained
async def create(client: Client, place: str, topics: tuple[str, ...], groups: tuple[str, ...], output: str) -> None:
    """Copy what the topics have now, as far as earlier backups at PLACE do not have it. Writers go on."""
    with _bar("copying") as (bar, task):

        def found(records: int) -> None:
            bar.update(task, total=(bar.tasks[0].total or 0) + records)

        progress = Copying(found, partial(bar.advance, task))
        made = await back_up(client, await asyncio.to_thread(Store, place), topics, groups, progress)
    if output == "json":
        show_json(_summary(made))
        return
    took = seconds(made.ended_ms - made.started_ms)
    click.echo(f"{made.name}: {count(len(made.topics), 'topic')}, {count(made.records, 'record')}, in {took}")
    for topic in made.left_out:
        click.echo(f"left out, deleted meanwhile: {topic}", err=True)


@backup.command(
    "list", cls=Manual, exits=LOCAL, examples=[("What is there?", "stockade backup list /mnt/backups/orders-prod")]
)
@place_argument
@output_option
def list_backups(place: str, output: str) -> None:
    """List the backups at PLACE, the oldest first. No node is asked."""
    found = _local(lambda: [store.manifest(name) for store in [Store(place)] for name in store.manifests()])
    if output == "json":
        show_json([_summary(each) for each in found])
        return
    rows = [
        (each.name, moment(each.cut_ms), each.cluster_id, len(each.topics), each.records, each.size) for each in found
    ]
    show_table(["NAME", "UP TO", "CLUSTER", "TOPICS", "RECORDS", "BYTES"], rows)


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


class Stop(NamedTuple):
    """Where a restore stops."""

    until_ms: int | None
    offsets: tuple[tuple[str, int, int], ...]


_STOPPING: list[Adding] = [
    click.option(
        "--until",
        "until_ms",
        type=InstantType(),
        help="Stop each partition before its first record of this time or later.",
    ),
    click.option(
        "--until-offset", "offsets", multiple=True, type=OffsetType(), help="Stop a partition before this offset."
    ),
]


@backup.command(
    "restore",
    cls=Manual,
    short_help="Restore topics from a backup.",
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
@collected(Stop, "stop", _STOPPING)
@click.option("--resume", is_flag=True, help="Go on with a restore that was cut short.")
@click.option("--replication-factor", type=WholeNumber(1, 7), help="Default: that of the cluster for new topics.")
@output_option
@with_client
@_explained
async def restore_backup(
    client: Client,
    place: str,
    name: str | None,
    topics: tuple[str, ...],
    as_name: str | None,
    stop: Stop,
    replication_factor: int | None,
    output: str,
    *,
    resume: bool,
) -> None:
    """Create topics of a backup, with their records and positions. A topic that has records already is not touched."""
    if as_name is not None and len(topics) != 1:
        raise click.UsageError("--as takes exactly one --topic")
    store = await asyncio.to_thread(Store, place)
    manifest = await asyncio.to_thread(store.manifest, name)
    names = {each: as_name or each for each in topics or [topic.topic for topic in manifest.topics]}
    until = Until(stop.until_ms, {(topic, number): offset for topic, number, offset in stop.offsets})
    with _bar("restoring", size_to_restore(manifest, names, until)) as (bar, task):
        done = await restore(
            client,
            store,
            manifest,
            names=names,
            until=until,
            replication_factor=replication_factor,
            resume=resume,
            restored=partial(bar.advance, task),
        )
    _show(done, output)


def _show(done: list[Restored], output: str) -> None:
    if output == "json":
        show_json([each._asdict() for each in done])
        return
    show_table(["TOPIC", "PARTITION", "RECORDS", "OFFSETS"], [(*each[:3], _shift(each.shift)) for each in done])


def _shift(shift: int) -> str:
    return "as before" if shift == 0 else f"less by {-shift}"


def _summary(manifest: Manifest) -> dict[str, object]:
    return {
        "name": manifest.name,
        "cluster_id": manifest.cluster_id,
        "cut_ms": manifest.cut_ms,
        "took_ms": manifest.ended_ms - manifest.started_ms,
        "topics": len(manifest.topics),
        "records": manifest.records,
        "bytes": manifest.size,
        "left_out": manifest.left_out,
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
