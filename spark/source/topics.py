"""Asks the cluster about the topics of a read: ids, log bounds, leaders, offsets of timestamps."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from ...client.blocking.reader import BlockingClient
from ...partition.errors import InconsistentTopicId, UnknownTopicOrPartition
from .filters import AcceptedFilters
from .planning.options import EARLIEST, LATEST, OffsetSpec, ReadOptions, Selection, parse_read_options
from .planning.ranges import Range, Seen, available

_BOUNDS = [f"{side}{by}" for side in ("starting", "ending") for by in ("offsets", "timestamp", "offsetsbytimestamp")]
"""Lower-case names of the options that say where a read starts and ends."""

_Offsets = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""


class Found(NamedTuple):
    """The selected topics that exist: ``seen`` by topic, and ``leaders`` (base URLs) by (topic, partition). ``nodes``:
    base URLs of all nodes that are known.
    """

    seen: dict[str, Seen]
    leaders: dict[tuple[str, int], str | None]
    nodes: tuple[str, ...]


def look(client: BlockingClient, selection: Selection, *, must_exist: bool = True) -> Found:
    """Ask the cluster about the selected topics. Raises UnknownTopicOrPartition for a named topic, or an assigned
    partition, that does not exist; without ``must_exist`` that topic is left out, and so is one that is created again
    meanwhile.
    """
    seen: dict[str, Seen] = {}
    leaders: dict[tuple[str, int], str | None] = {}
    for name in names(client, selection):
        try:
            topic = client.topic(name)
            wanted = None if selection.partitions is None else selection.partitions[name]
            _check_assigned(name, wanted, len(topic.partitions))
            chosen = [each for each in topic.partitions if wanted is None or each.partition in wanted]
            bounds = {each.partition: client.offsets(name, each.partition, topic.topic_id) for each in chosen}
        except (UnknownTopicOrPartition, InconsistentTopicId):  # the latter: created again since the line above
            if must_exist and selection.pattern is None:
                raise
            continue
        seen[name] = Seen(topic.topic_id, bounds)
        leaders |= {(name, each.partition): each.leader for each in chosen}
    return Found(seen, leaders, client.nodes)


def names(client: BlockingClient, selection: Selection) -> list[str]:
    """The selected topics, ascending."""
    if selection.pattern is None:
        return sorted(selection.topics)
    pattern = re.compile(selection.pattern)
    return [name for name in client.topics() if pattern.fullmatch(name)]


def starts(client: BlockingClient, options: ReadOptions, seen: Mapping[str, Seen]) -> dict[str, dict[int, int]]:
    """The first offset to read, by topic and partition. Raises ValueError."""
    _check_named(options.starting, seen)
    return {topic: {p: _start(client, options, topic, now, p) for p in now.bounds} for topic, now in seen.items()}


def stops(client: BlockingClient, options: ReadOptions, seen: Mapping[str, Seen]) -> dict[str, dict[int, int]]:
    """The offset after the last one to read, by topic and partition."""
    _check_named(options.ending, seen)
    return {
        topic: {p: _resolved(client, options.ending, topic, now, p, now.bounds[p][1]) or 0 for p in now.bounds}
        for topic, now in seen.items()
    }


def _start(client: BlockingClient, options: ReadOptions, topic: str, now: Seen, partition: int) -> int:
    late = None if options.fail_late_start else now.bounds[partition][1]
    offset = _resolved(client, options.starting, topic, now, partition, late)
    if offset is None:
        raise ValueError(
            f"{topic}/{partition} has no record at or after the time of {options.starting.option};"
            " startingOffsetsByTimestampStrategy=latest starts such partitions at their end"
        )
    return offset


def _resolved(
    client: BlockingClient, spec: OffsetSpec, topic: str, now: Seen, partition: int, late: int | None
) -> int | None:
    """The offset that ``spec`` has for a partition; ``late`` if it is a time after the last record."""
    number = spec.of(topic, partition)
    if spec.by == "timestamp":
        found = client.offset_at(topic, partition, number, now.topic_id)
        return late if found is None else found
    log_start, log_end = now.bounds[partition]
    return {EARLIEST: log_start, LATEST: log_end}.get(number, number)


def _check_named(spec: OffsetSpec, seen: Mapping[str, Seen]) -> None:
    unread = spec.unread({topic: now.bounds for topic, now in seen.items()})
    if unread:
        raise ValueError(f"{spec.option} names {', '.join(unread)}, which the query does not read")


def _check_assigned(name: str, wanted: frozenset[int] | None, count: int) -> None:
    missing = [p for p in sorted(wanted or ()) if p >= count]
    if missing:
        raise UnknownTopicOrPartition(f"assign names {name}/{missing[0]}, and {name} has {count} partitions")


def planned(
    client: BlockingClient, options: ReadOptions, seen: Mapping[str, Seen], filters: AcceptedFilters
) -> list[Range]:
    """The ranges of a batch read, one for each partition with records to read. Raises DataLost, ValueError."""
    begin, end = _span(client, options, seen)
    wanted = [
        Range(topic, p, begin[topic][p], end[topic][p], now.topic_id)
        for topic, now in seen.items()
        for p in sorted(now.bounds)
    ]
    there = available(wanted, seen, fail=options.fail_on_data_loss)
    return [each for each in _since(client, filters.cut(there), filters.since_ms) if each.start < each.end]


def _span(client: BlockingClient, options: ReadOptions, seen: Mapping[str, Seen]) -> tuple[_Offsets, _Offsets]:
    """Where a batch read begins and ends, by topic and partition. Raises ValueError if it ends before it begins."""
    begin = _not_behind(seen, options.starting, starts(client, options, seen))
    end = _not_behind(seen, options.ending, stops(client, options, seen))
    for topic, now in seen.items():
        for p, (log_start, log_end) in now.bounds.items():
            # Beyond the log's bounds it would be lost data, and not a mistake in the options.
            if log_start <= end[topic][p] < begin[topic][p] <= log_end:
                raise ValueError(
                    f"{topic}/{p} would be read from {begin[topic][p]} ({options.starting.option}) to {end[topic][p]}"
                    f" ({options.ending.option}): let the read begin before it ends"
                )
    return begin, end


def _not_behind(seen: Mapping[str, Seen], spec: OffsetSpec, found: _Offsets) -> _Offsets:
    """Bound offsets of timestamps by the log ends that were seen: records that came since are not part of the read."""
    if spec.by != "timestamp":
        return found
    return {
        topic: {p: min(offset, seen[topic].bounds[p][1]) for p, offset in of.items()} for topic, of in found.items()
    }


def _since(client: BlockingClient, ranges: Iterable[Range], since_ms: int | None) -> Iterator[Range]:
    """Move the start of each range to its first record at or after ``since_ms``; drop a range without such a record."""
    for each in ranges:
        if since_ms is None:
            yield each
        elif (first := client.offset_at(each.topic, each.partition, since_ms, each.topic_id)) is not None:
            yield each._replace(start=max(each.start, first))


def pinned(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a batch read with its start and end replaced by explicit offsets, as they are now, so that every
    query with these options reads the same records. Raises OptionsError, ValueError.
    """
    parsed = parse_read_options(options, "batch")
    with closing(BlockingClient(parsed.urls, parsed.access)) as client:
        client.connect()
        seen = look(client, parsed.selection).seen
        begin, end = _span(client, parsed, seen)
    others = {name: value for name, value in options.items() if name.lower() not in _BOUNDS}
    return others | {"startingOffsets": json.dumps(begin), "endingOffsets": json.dumps(end)}
