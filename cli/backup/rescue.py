"""`stockade backup rescue`: what the disk of a stopped node has, behind a backup, into a new cluster."""

import asyncio
from contextlib import nullcontext, suppress
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click
from msgspec import structs

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...client.errors import ClusterUnreachable
from ...cluster.replica.stopped import StoppedPartition, StoppedPartitions
from ...partition.api.topics import TopicConfig
from ...partition.errors import NotOwner, StockadeError, UnknownTopicOrPartition
from ...partition.internal_names import INTERNAL_TOPIC_PREFIX, LEDGER_TOPIC
from ...raft.wal.errors import DiskRefused, WalLocked
from ..ui.connection import with_config
from ..ui.exits import REFUSED, sentence
from ..ui.manual import Manual
from ..ui.output import count, numbers, output_option, show_json, show_table
from .create import patiently, record_at
from .frame import end_with, explained, progress_bar
from .restore import CannotRestore, append_once, merge, split

WRITERS = "require_fence", "writer_group"
"""Settings by which a topic refuses the records of a rescue."""
FAULTS = CannotRestore, DiskRefused, OSError, StockadeError
"""Errors with which one partition is left as it is; the others go on."""


class Rescued(NamedTuple):
    """A partition on the disk. Records below ``known_end`` are known to be committed, those up to ``log_end`` may be.
    ``added``: so many were appended to the new cluster; None: it was not asked, or the partition has a ``fault``.
    """

    topic: str
    partition: int
    first: int | None = None
    known_end: int | None = None
    log_end: int | None = None
    last_term: int | None = None
    last_index: int | None = None
    added: int | None = None
    added_unknown: int | None = None
    """How many of ``added`` are not known to be committed."""
    positions: int | None = None
    """So many groups were behind their position on the disk, or had none, and have it now."""
    fault: str | None = None


@click.command(
    "rescue",
    cls=Manual,
    short_help="Save what a stopped node's disk has.",
    means={REFUSED: "Refused; or a part could not be rescued: each is named, and all else was. Run it again."},
    examples=[
        ("What does this disk have?", "stockade backup rescue /var/lib/stockade --dry-run"),
        ("All of it, behind the restored backup", "stockade backup rescue /var/lib/stockade --url http://new:7101"),
    ],
)
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--known-only", is_flag=True, help="Leave out records that are not known to be committed.")
@click.option("--dry-run", "dry", is_flag=True, help="Only show what the disk has. No node is asked.")
@output_option
@with_config
@explained
async def rescue_disk(config: ClientConfig, data: Path, output: str, *, known_only: bool, dry: bool) -> None:
    """Append what the data folder DATA of a stopped node has to the partitions of a new cluster, behind the records
    that are there: for the day on which a majority of the disks is lost. DATA is not changed. It may be repeated.

    Records below KNOWN are known to be committed. Those from it up to END are in the log of this node, and only a
    majority could say whether they were committed: acknowledged ones are among them, and perhaps some that were not.
    Groups that are behind their position on the disk, or have none, get it. Of a topic that is not there, the message
    says how to create it.
    """
    try:
        with StoppedPartitions(data) as found:
            done = await _rescued(found, None if dry else config, known_only=known_only)
            faults = found.faults
    except (WalLocked, OSError) as error:
        raise CannotRestore(str(error)) from error
    except DiskRefused as error:
        raise CannotRestore(_told(error)) from error
    _show(done, output)
    if left := [each for each in done if each.fault is not None]:
        alike = groupby(left, lambda each: (each.topic, each.fault))
        named = [f"{topic}/{numbers([each.partition for each in of])}: {fault}" for (topic, fault), of in alike]
        faults = [f"{count(len(left), 'partition')} could not be rescued", *named, *faults]
    if faults:
        end_with(CannotRestore("\n".join(faults)), output, no_side_effects=False)


async def _rescued(found: StoppedPartitions, config: ClientConfig | None, *, known_only: bool) -> list[Rescued]:
    """Every partition of the disk, added to the cluster of ``config``; None: only read."""
    names = [each for each in found if each[0] != LEDGER_TOPIC and not each[0].startswith(INTERNAL_TOPIC_PREFIX)]
    done: list[Rescued] = []
    async with nullcontext() if config is None else Client(config) as client:
        if client is not None:
            await client.connect()
        with progress_bar("rescuing", len(names)) as (bar, task):
            for topic, number in names:
                with TemporaryDirectory(prefix="stockade-rescue-") as scratch:
                    done.append(await _one(client, found, topic, number, Path(scratch), known_only=known_only))
                bar.advance(task)
    return done


async def _one(
    client: Client | None, found: StoppedPartitions, topic: str, number: int, scratch: Path, *, known_only: bool
) -> Rescued:
    done = Rescued(topic, number)
    try:
        partition = await asyncio.to_thread(found.open, topic, number, scratch)
        known, end = partition.known_end, partition.log.log_end
        done = Rescued(topic, number, partition.first, known, end, *partition.end)
        if client is not None:
            topic_id, begin, end = await _add(client, partition, known if known_only else end)
            done = done._replace(added=end - begin, added_unknown=max(0, end - max(begin, known)))
            done = done._replace(positions=await _bring_forward(client, partition, topic_id, end))
    except ClusterUnreachable:  # as it would be for all others
        raise
    except UnknownTopicOrPartition:
        done = done._replace(fault=_missing(topic, *found.definition(topic)))
    except FAULTS as error:
        done = done._replace(fault=_told(error))
    return done


async def _add(client: Client, partition: StoppedPartition, stop: int) -> tuple[int, int, int]:
    """Append the records below ``stop`` that the cluster does not have; returns the id of the topic there, and from
    where to where. Raises CannotRestore if those before them are not this disk's, DiskRefused, StockadeError.
    """
    topic = await patiently(client, lambda: client.topic(partition.topic))
    if topic.topic_id == partition.topic_id:  # never of a restored topic
        raise CannotRestore(
            f"the topic there has the id {topic.topic_id}, too: is it the cluster of this disk? It has decided already"
            " which of these records it keeps. If it is a new one, delete the topic there and create it again"
        )
    if partition.partition >= len(topic.partitions):
        has = count(len(topic.partitions), "partition")
        raise CannotRestore(f"the topic there has {has} only: `stockade topics alter {topic.name} --partitions N`")
    there = await patiently(client, lambda: client.offsets(partition.topic, partition.partition))
    at, first = there.log_end, partition.first
    if at == 0 < first == partition.log.log_start and first < stop:  # there is no backup; older records were dropped
        await client.begin_at(partition.topic, partition.partition, first, topic_id=topic.topic_id)
        at = first
    if at < min(first, stop):
        gap = f"it ends at {at} there, and begins at {first} on this disk"
        if first > partition.log.log_start:
            raise CannotRestore(f"{gap}; older records are in the tiered store: restore the last backup first")
        raise CannotRestore(
            f"{gap}; older records were dropped: restore the last backup first. If that is what is there, these records"
            " need a topic without any: delete it there, and create it again; the backup may go into another topic"
        )
    both = min(at, partition.log.log_end) - 1  # the last record that both should have
    if both >= max(first, there.log_start):
        present = await record_at(client, partition.topic, partition.partition, both, topic.topic_id)
        mine = await asyncio.to_thread(lambda: next(partition.records(both, both + 1)))
        if present is not None and not present.equals(mine):
            raise CannotRestore(f"the record at offset {both} is another one there than on this disk")
    begin = at
    for batch in merge(partition.records(at, stop), topic.config):
        for part in split(batch, topic.config):
            await append_once(client, partition.topic, partition.partition, topic.topic_id, part, at)
            at += part.num_rows
    return topic.topic_id, begin, at


async def _bring_forward(client: Client, partition: StoppedPartition, topic_id: int, log_end: int) -> int:
    """Give groups the position that they have on the disk, at most ``log_end``, where theirs is not as far; returns how
    many. A group that may have read on in the new cluster stays where it is. Raises StockadeError.
    """
    moved = 0
    for group, position in partition.machine.readers.positions.items():
        where, offset = (group, partition.topic, partition.partition), min(position.offset, log_end)
        there = (await client.position(*where)).offset
        if there is None or there < offset:
            with suppress(NotOwner):
                await client.commit_position(*where, offset, topic_id=topic_id, metadata=position.metadata)
                moved += 1
    return moved


def _missing(topic: str, config: TopicConfig, partitions: int) -> str:
    """How to create a topic as the disk shows it, but for what refuses the records: it can be set later."""
    default, wanted = structs.asdict(TopicConfig()), structs.asdict(config)
    settings = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in wanted.items()
        if name == "retention_ms" or value != default[name]
    }
    now = "".join(f" --config {name}={value}" for name, value in settings.items() if name not in WRITERS)
    later = "".join(f" --config {name}={value}" for name, value in settings.items() if name in WRITERS)
    order = f"`stockade topics create {topic} --partitions {partitions}{now}`"
    text = f"the topic is not there: create it, with as many partitions as it had, and run this again: {order}"
    return f"{text}, and when all is there `stockade topics alter {topic}{later}`" if later else text


def _told(error: Exception) -> str:
    if isinstance(error, DiskRefused):  # without its advice, to copy all from the others
        return f"{error.path}: {error.fault}"
    return sentence(error) if isinstance(error, StockadeError) else str(error)


def _show(done: list[Rescued], output: str) -> None:
    if output == "json":
        show_json([each._asdict() for each in done])
        return
    headings = ["TOPIC", "PARTITION", "FIRST", "KNOWN", "END", "LAST ENTRY", "POSITIONS", "ADDED"]
    rows = [(*each[:2], *map(_cell, each[2:5]), _last(each), _cell(each.positions), _added(each)) for each in done]
    show_table(headings, rows)


def _cell(number: int | None) -> str:
    return "" if number is None else str(number)


def _last(each: Rescued) -> str:
    return "" if each.last_index is None else f"{each.last_index} of term {each.last_term}"


def _added(each: Rescued) -> str:
    if each.added is None:
        return "" if each.fault is None else "refused"
    return (
        f"{each.added}, {each.added_unknown} of them not known to be committed"
        if each.added_unknown
        else f"{each.added}"
    )
