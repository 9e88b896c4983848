"""Which records each task reads: a pure function of where reading starts and ends, and of where the logs do."""

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

Bounds = tuple[int, int]
"""Log start, and log end (the offset of the next record)."""


class Seen(NamedTuple):
    """A topic as it was seen: its incarnation, and the bounds of the partitions that are read."""

    topic_id: int
    bounds: Mapping[int, Bounds]


Topics = Mapping[str, Seen]
"""By name."""


class Range(NamedTuple):
    """Records ``start`` to ``end`` (not included) of one partition of one incarnation of a topic."""

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
    """Records were to be read that the logs do not have, or not any more."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; the option failOnDataLoss=false leaves out what is missing")


def within(wanted: Range, seen: Topics, *, fail: bool) -> Range | None:
    """What of ``wanted`` the logs have; None when that is nothing. Raises DataLost when it is not all, if ``fail``."""
    now = seen.get(wanted.topic)
    if now is None or wanted.partition not in now.bounds:
        _lost(f"{wanted.place} is gone, and {wanted.start} to {wanted.end} of it were not read yet", fail)
        return None
    if wanted.topic_id is not None and wanted.topic_id != now.topic_id:
        _lost(f"{wanted.topic} was deleted and made anew before {wanted.place} was read to {wanted.end}", fail)
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
    """Those of the ranges, or of their parts, that have records. Raises DataLost if ``fail`` and some are missing."""
    found = [within(each, seen, fail=fail) for each in wanted]
    return [each for each in found if each is not None and each.start < each.end]


def split(ranges: list[Range], count_min: int) -> list[Range]:
    """Cut ranges so that there are at least ``count_min`` (or one a record), in proportion to their sizes."""
    total = sum(each.end - each.start for each in ranges)
    return [piece for each in ranges for piece in _pieces(each, count_min, total)]


def _pieces(whole: Range, count_min: int, total: int) -> list[Range]:
    size = whole.end - whole.start
    # Rounded up: shares of all ranges together are then never below the minimum.
    count = min(size, -(-count_min * size // total))
    cuts = [whole.start + size * number // count for number in range(count + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(cuts)]
