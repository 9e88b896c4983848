"""`stockade backup restore`."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import click

from ...client.api.client import Client
from ..ui.connection import with_client
from ..ui.exits import REFUSED, UNREACHABLE
from ..ui.manual import Adding, Manual
from ..ui.output import count, output_option, show_json, show_table
from ..ui.parameters import InstantType, WholeNumber, collected
from .frame import FAILURES, end_with, explained, name_option, place_argument, progress_bar, say, written
from .manifest import Manifest
from .restore import (
    Manner,
    Restored,
    Until,
    check_principals,
    prepare,
    restore_principals,
    size_to_restore,
)
from .store import Store


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
    """The options that say where a restore stops, and how it restores."""

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


@click.command(
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
@explained
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
        with progress_bar("restoring", size_to_restore(manifest, names, until)) as (bar, task):
            for topic in work:
                done += await topic.run(partial(bar.advance, task))
        if principals:
            async for each in restore_principals(client, manifest):
                say(f"principal {each.principal} has its rights, and no token: give it one")
    _show(done, output)


def _targets(
    offsets: Sequence[tuple[str, int, int]], manifest: Manifest, names: Collection[str]
) -> dict[tuple[str, int], int]:
    """The offsets before which to stop, by topic and partition of the backup. Raises click.UsageError with every fault:
    a topic that is not restored, a partition that it lacks, a partition given twice.
    """
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
    """If the restore in the block fails, show the complete partitions, as after a success, and how to go on."""
    try:
        yield
    except BaseException as error:
        if output != "json":
            complete = count(len({each.topic for each in done}), "topic")
            say(f"cut short, with {complete} complete: --resume goes on")
        if done:
            written(lambda: _show(done, output))
        if isinstance(error, FAILURES):
            end_with(error, output, no_side_effects=False)
        raise


def _show(done: list[Restored], output: str) -> None:
    if output == "json":
        show_json([each._asdict() for each in done])
        return
    show_table(["TOPIC", "PARTITION", "RECORDS", "OFFSETS"], [(*each[:3], _shift(each.shift)) for each in done])


def _shift(shift: int) -> str:
    return "as before" if shift == 0 else f"less by {-shift}"
