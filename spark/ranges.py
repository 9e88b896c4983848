"""Which records each task reads: a pure function of the options and of where the logs start and end."""

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from .options import EARLIEST, LATEST, Offsets, ReadOptions

Ends = Mapping[str, Mapping[int, tuple[int, int]]]
"""By topic and partition: log start, and log end (the offset of the next record)."""


class Range(NamedTuple):
    """Records ``start`` to ``end`` (not included) of one partition."""

    topic: str
    partition: int
    start: int
    end: int


class OffsetsLost(ValueError):
    """Offsets were asked for that the log does not have."""


def plan(options: ReadOptions, ends: Ends) -> list[Range]:
    """The ranges to read, one a task, none of them empty.

    Raises OffsetsLost if the log lacks some of what was asked for (unless ``fail_on_data_loss`` is off: then that is
    left out), ValueError if offsets are given for partitions that do not exist, or not for all that do.
    """
    ranges = []
    for topic, partitions in ends.items():
        _check_partitions(options, topic, partitions)
        ranges += [
            _wanted(options, Range(topic, partition, *partitions[partition])) for partition in sorted(partitions)
        ]
    return split([each for each in ranges if each.start < each.end], options.min_partitions)


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


def _check_partitions(options: ReadOptions, topic: str, partitions: Mapping[int, object]) -> None:
    for name, offsets in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        if not isinstance(offsets, int) and offsets[topic].keys() != partitions.keys():
            raise ValueError(f"{name} must have an offset for each of the {len(partitions)} partitions of {topic}")


def _wanted(options: ReadOptions, log: Range) -> Range:
    start, end = _lookup(options.starting, log), _lookup(options.ending, log)
    wanted = log._replace(start=log.start if start == EARLIEST else start, end=log.end if end == LATEST else end)
    if log.start <= wanted.start <= wanted.end <= log.end:
        return wanted
    if options.fail_on_data_loss:
        raise OffsetsLost(
            f"{log.topic}/{log.partition} has offsets {log.start} to {log.end}, and {wanted.start} to {wanted.end} "
            "were asked for; the option failOnDataLoss=false leaves out what is missing"
        )
    return wanted._replace(start=max(wanted.start, log.start), end=min(wanted.end, log.end))


def _lookup(offsets: int | Offsets, log: Range) -> int:
    return offsets if isinstance(offsets, int) else offsets[log.topic][log.partition]
