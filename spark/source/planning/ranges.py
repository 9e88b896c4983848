"""Ranges of offsets for tasks, from the start and end of a read and the bounds of the logs. Pure."""

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

Bounds = tuple[int, int]
"""Log start, and log end (the offset of the next record)."""


class Seen(NamedTuple):
    """A topic as the cluster described it: its id, and the bounds of the partitions that are read."""

    topic_id: int
    bounds: Mapping[int, Bounds]


Topics = Mapping[str, Seen]
"""Topics by name."""


class Range(NamedTuple):
    """Records ``start`` to ``end`` (exclusive) of one partition of the topic with this id."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: int | None = None

    @property
    def place(self) -> str:
        """The partition, for messages."""
        return f"{self.topic}/{self.partition}"


class DataLost(ValueError):
    """The query must read records that the logs do not have (any more)."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; with the option failOnDataLoss=false the query goes on without them")


def within(wanted: Range, seen: Topics, *, fail: bool) -> Range | None:
    """The part of ``wanted`` that the logs have, perhaps empty; None if the topic or the partition is gone. Raises
    DataLost if ``fail`` and a record is missing.
    """
    now = seen.get(wanted.topic)
    if now is None or wanted.partition not in now.bounds:
        _lost(f"{wanted.place} is gone, and {wanted.start} to {wanted.end} of it were not read yet", fail)
        return None
    if wanted.topic_id is not None and wanted.topic_id != now.topic_id:
        _lost(f"{wanted.topic} was deleted and created again before {wanted.place} was read to {wanted.end}", fail)
        return None
    start, end = now.bounds[wanted.partition]
    if not start <= wanted.start <= wanted.end <= end:
        asked = f"{wanted.start} to {wanted.end} were asked for"
        _lost(f"{wanted.place} has offsets {start} to {end}, and {asked}", fail)
    return wanted._replace(start=max(wanted.start, start), end=min(wanted.end, end))


def _lost(what: str, fail: bool) -> None:
    if fail:
        raise DataLost(what)


def available(wanted: list[Range], seen: Topics, *, fail: bool) -> list[Range]:
    """The parts of the ranges that the logs have, without empty ones. Raises DataLost as ``within`` does."""
    found = [within(each, seen, fail=fail) for each in wanted]
    return [each for each in found if each is not None and each.start < each.end]


def split(ranges: list[Range], count_min: int) -> list[Range]:
    """Cut ranges into at least ``count_min`` ranges, in proportion to their sizes; with fewer records, one for each."""
    total = sum(each.end - each.start for each in ranges)
    return [piece for each in ranges for piece in _pieces(each, count_min, total)]


def _pieces(whole: Range, count_min: int, total: int) -> list[Range]:
    size = whole.end - whole.start
    # Rounded up, so that the counts of all ranges add up to ``count_min`` at least.
    count = min(size, -(-count_min * size // total))
    cuts = [whole.start + size * number // count for number in range(count + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(cuts)]
