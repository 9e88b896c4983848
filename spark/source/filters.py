"""Filters on topic, partition, offset and timestamp that shorten a read. Without Spark.

The source accepts a filter only if the shortened read returns exactly the rows that pass it. Timestamps may be in any
order in a log, so a lower bound only moves the start, and Spark still applies the filter to every row.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .planning.ranges import Range


@dataclass
class AcceptedFilters:
    """The bounds that the accepted filters set on a read; None means no bound. Offsets are ``offset_min`` to
    ``offset_end`` (exclusive); ``since_ms`` is Unix time.
    """

    topics: set[str] | None = None
    partitions: set[int] | None = None
    offset_min: int = 0
    offset_end: int | None = None
    since_ms: int | None = None

    def take(self, kind: str, column: tuple[str, ...], value: Any) -> bool:
        """Accept a filter; ``kind`` is the name of Spark's class. Returns False if Spark must still apply it."""
        if value is None or value == ():
            return False
        match kind, column:
            case (("EqualTo" | "In"), ("topic",)):
                self.topics = _both(self.topics, _several(kind, value))
            case (("EqualTo" | "In"), ("partition",)):
                self.partitions = _both(self.partitions, _several(kind, value))
            case (("EqualTo" | "GreaterThan" | "GreaterThanOrEqual" | "LessThan" | "LessThanOrEqual"), ("offset",)):
                self._take_offset(kind, value)
            case (("EqualTo" | "GreaterThan" | "GreaterThanOrEqual"), ("timestamp",)):
                self.since_ms = max(self.since_ms or 0, _milliseconds(value))
                return False
            case _:
                return False
        return True

    def cut(self, ranges: Iterable[Range]) -> list[Range]:
        """The parts of the ranges that pass the filters on topic, partition and offset, but not yet ``since_ms``."""
        kept = []
        for each in ranges:
            if self.topics is not None and each.topic not in self.topics:
                continue
            if self.partitions is not None and each.partition not in self.partitions:
                continue
            end = each.end if self.offset_end is None else min(each.end, self.offset_end)
            kept.append(each._replace(start=max(each.start, self.offset_min), end=end))
        return [each for each in kept if each.start < each.end]

    def _take_offset(self, kind: str, value: int) -> None:
        if kind in ("EqualTo", "GreaterThanOrEqual", "GreaterThan"):
            self.offset_min = max(self.offset_min, value + (kind == "GreaterThan"))
        if kind in ("EqualTo", "LessThanOrEqual", "LessThan"):
            end = value + (kind != "LessThan")
            self.offset_end = end if self.offset_end is None else min(self.offset_end, end)


def _several(kind: str, value: Any) -> set[Any]:
    return set(value) if kind == "In" else {value}


def _both(known: set[Any] | None, more: set[Any]) -> set[Any]:
    return more if known is None else known & more


def _milliseconds(moment: datetime) -> int:
    """Unix time in ms, rounded down, minus 1, because a lower bound may be too low. A time without zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000) - 1
