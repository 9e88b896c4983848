"""Figures over time from a history: throughput, and how long partitions took no writes.

Pure. Spans are (invoked, ended) of acknowledged appends in nanoseconds.
"""

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from .history import Operation

Span = tuple[int, int]
NS = 1_000_000_000
RETRY_NS = 2 * NS
"""Longest pause of a client between an append that was refused and the next one."""


class Rate(msgspec.Struct, frozen=True):
    """Records acknowledged per second, from ``at_s`` on for the width of a bucket."""

    at_s: float
    per_s: float


class Outage(msgspec.Struct, frozen=True):
    """How long a fault kept each partition from taking writes, in seconds."""

    by_partition: dict[int, float]
    led: list[int]
    """Partitions that the killed node led."""

    def worst_s(self, *, led_only: bool = False) -> float:
        """The longest outage, over all partitions or those that the killed node led."""
        return max(self._chosen(led_only), default=0.0)

    def median_s(self, *, led_only: bool = False) -> float:
        """The median outage, over the same partitions."""
        return median(self._chosen(led_only) or [0.0])

    def _chosen(self, led_only: bool) -> list[float]:
        return [s for partition, s in self.by_partition.items() if not led_only or partition in self.led]


def acknowledged_spans(operations: Iterable[Operation]) -> dict[int, list[Span]]:
    """The spans of every partition's acknowledged appends."""
    spans: dict[int, list[Span]] = {}
    for op in operations:
        if op.invoke.f == "append" and op.end is not None and op.outcome == "ok" and op.invoke.partition is not None:
            spans.setdefault(op.invoke.partition, []).append((op.invoke.t_mono_ns, op.end.t_mono_ns))
    return spans


def longest_gap_ns(spans: Iterable[Span], since_ns: int, until_ns: int, tried: Sequence[Span] = ()) -> int:
    """The longest time that overlaps ``since_ns`` to ``until_ns`` in which appends were in flight and none was
    acknowledged. Time without an append in flight does not count, so a pause of the writers is no outage.

    ``tried``: appends that the partition could not take. A client's pause between two of them counts, up to RETRY_NS.
    """
    ordered = sorted(spans, key=lambda span: span[1])
    open_since = [0] * len(ordered)
    earliest = until_ns
    for k in range(len(ordered) - 1, -1, -1):
        earliest = open_since[k] = min(earliest, ordered[k][0])
    longest = previous = 0
    for k, (_, ended) in enumerate(ordered):
        if ended - previous > longest:  # else it cannot be the longest one
            own = max(previous, open_since[k]), ended
            longest = max(longest, _longest_ns([*_within(tried, previous, ended), own], since_ns, until_ns))
        previous = ended
    return max(longest, _longest_ns(_within(tried, previous, max(previous, until_ns)), since_ns, until_ns))


def _within(spans: Sequence[Span], since_ns: int, until_ns: int) -> list[Span]:
    """The parts of the spans between these times."""
    return [
        (max(invoked, since_ns), min(ended, until_ns))
        for invoked, ended in spans
        if ended > since_ns and invoked < until_ns
    ]


def _longest_ns(spans: Iterable[Span], since_ns: int, until_ns: int) -> int:
    """The longest of the spans that overlap ``since_ns`` to ``until_ns``, joined where at most RETRY_NS are between."""
    longest, joined = 0, None
    for invoked, ended in sorted(spans):
        if joined is not None and invoked <= joined[1] + RETRY_NS:
            joined = joined[0], max(joined[1], ended)
        else:
            joined = invoked, ended
        if joined[1] > since_ns and joined[0] < until_ns:
            longest = max(longest, joined[1] - joined[0])
    return longest


def outage(operations: Iterable[Operation], led: Sequence[int], since_ns: int, until_ns: int) -> Outage:
    """The outages of every partition from a fault at ``since_ns`` until ``until_ns``."""
    spans = acknowledged_spans(operations)
    by_partition = {p: longest_gap_ns(spans[p], since_ns, until_ns) / NS for p in sorted(spans)}
    return Outage(by_partition, sorted(led))


def throughput(operations: Iterable[Operation], start_ns: int, bucket_s: float) -> list[Rate]:
    """Records acknowledged per second in buckets of ``bucket_s``, from ``start_ns`` to the last acknowledgement."""
    buckets: dict[int, int] = {}
    for op in operations:
        if op.invoke.f == "append" and op.end is not None and op.outcome == "ok":
            bucket = int((op.end.t_mono_ns - start_ns) / NS / bucket_s)
            buckets[bucket] = buckets.get(bucket, 0) + (op.invoke.count or 0)
    return [Rate(k * bucket_s, buckets.get(k, 0) / bucket_s) for k in range(max(buckets, default=-1) + 1)]
