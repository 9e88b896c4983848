"""What a read is about, as the cluster has it now: topics, incarnations, bounds, leaders, offsets of times."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ..client.blocking import BlockingClient
from ..partition.errors import UnknownTopicOrPartition
from .narrow import Narrowed
from .options import ReadOptions, Selection
from .places import EARLIEST, LATEST, Place
from .ranges import DataLost, Range, Seen, available


class Found(NamedTuple):
    """What was found: ``seen`` by topic, and ``leaders`` (base URLs) by topic and partition."""

    seen: dict[str, Seen]
    leaders: dict[tuple[str, int], str | None]


def look(client: BlockingClient, selection: Selection, *, must_exist: bool = True) -> Found:
    """Ask the cluster. Raises UnknownTopicOrPartition if ``must_exist`` and a topic that was named does not."""
    seen: dict[str, Seen] = {}
    leaders: dict[tuple[str, int], str | None] = {}
    for name in names(client, selection):
        try:
            topic = client.topic(name)
            wanted = None if selection.partitions is None else selection.partitions[name]
            _check_assigned(name, wanted, len(topic.partitions))
            chosen = [each for each in topic.partitions if wanted is None or each.partition in wanted]
            bounds = {each.partition: client.offsets(name, each.partition, topic.topic_id) for each in chosen}
        except UnknownTopicOrPartition:
            if must_exist and selection.pattern is None:
                raise
            continue
        seen[name] = Seen(topic.topic_id, bounds)
        leaders |= {(name, each.partition): each.leader for each in chosen}
    return Found(seen, leaders)


def names(client: BlockingClient, selection: Selection) -> list[str]:
    """The topics that are meant, ascending."""
    if selection.pattern is None:
        return sorted(selection.topics)
    pattern = re.compile(selection.pattern)
    return [name for name in client.topics() if pattern.fullmatch(name)]


def starts(client: BlockingClient, options: ReadOptions, seen: Mapping[str, Seen]) -> dict[str, dict[int, int]]:
    """The first offset to be read, by topic and partition. Raises DataLost, ValueError."""
    _check_strangers(options.starting, seen)
    return {topic: {p: _start(client, options, topic, now, p) for p in now.bounds} for topic, now in seen.items()}


def stops(client: BlockingClient, options: ReadOptions, seen: Mapping[str, Seen]) -> dict[str, dict[int, int]]:
    """The offset behind the last one to be read, by topic and partition."""
    _check_strangers(options.ending, seen)
    return {
        topic: {p: _resolved(client, options.ending, topic, now, p, now.bounds[p][1]) or 0 for p in now.bounds}
        for topic, now in seen.items()
    }


def _start(client: BlockingClient, options: ReadOptions, topic: str, now: Seen, partition: int) -> int:
    late = None if options.fail_late_start else now.bounds[partition][1]
    offset = _resolved(client, options.starting, topic, now, partition, late)
    if offset is None:
        raise DataLost(
            f"{topic}/{partition} has no record at or after the time of {options.starting.option};"
            " startingOffsetsByTimestampStrategy=latest starts such partitions at their end"
        )
    return offset


def _resolved(
    client: BlockingClient, place: Place, topic: str, now: Seen, partition: int, late: int | None
) -> int | None:
    """The offset of a place; ``late`` when it is a time behind the last record."""
    number = place.of(topic, partition)
    if place.by == "timestamp":
        found = client.offset_at(topic, partition, number, now.topic_id)
        return late if found is None else found
    log_start, log_end = now.bounds[partition]
    return {EARLIEST: log_start, LATEST: log_end}.get(number, number)


def _check_strangers(place: Place, seen: Mapping[str, Seen]) -> None:
    strangers = place.strangers({topic: now.bounds for topic, now in seen.items()})
    if strangers:
        raise ValueError(f"{place.option} names {', '.join(strangers)}, which the query does not read")


def _check_assigned(name: str, wanted: frozenset[int] | None, count: int) -> None:
    missing = [p for p in sorted(wanted or ()) if p >= count]
    if missing:
        raise UnknownTopicOrPartition(f"assign names {name}/{missing[0]}, and {name} has {count} partitions")


def planned(client: BlockingClient, options: ReadOptions, seen: Mapping[str, Seen], narrowed: Narrowed) -> list[Range]:
    """The records of a batch read, a range a partition that has some. Raises DataLost, ValueError."""
    begin, end = starts(client, options, seen), stops(client, options, seen)
    wanted = [
        Range(topic, p, begin[topic][p], end[topic][p], now.topic_id)
        for topic, now in seen.items()
        for p in sorted(now.bounds)
    ]
    there = available(wanted, seen, fail=options.fail_on_data_loss)
    return [each for each in _since(client, narrowed.cut(there), narrowed.since_ms) if each.start < each.end]


def _since(client: BlockingClient, ranges: Iterable[Range], since_ms: int | None) -> Iterator[Range]:
    """Without what lies before the first record of that time: all of it is older."""
    for each in ranges:
        if since_ms is None:
            yield each
        elif (first := client.offset_at(each.topic, each.partition, since_ms, each.topic_id)) is not None:
            yield each._replace(start=max(each.start, first))
