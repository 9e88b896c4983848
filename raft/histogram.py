"""A histogram of durations for metrics, cheap enough to be fed on the path of each append."""

from bisect import bisect_left
from collections.abc import Callable

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the buckets, inclusive."""


class Histogram:
    """Counts of durations by bucket: ``counts[i]`` are those above ``SECONDS[i - 1]`` and up to ``SECONDS[i]``, the
    last count those above all SECONDS.

    One thread adds; ``on_slow`` is called in it with a duration of ``slow_s`` or more. Another thread may read
    meanwhile, and then see the count but not yet the sum of the last duration.
    """

    __slots__ = ("_on_slow", "_slow_s", "counts", "total_s")

    def __init__(self, slow_s: float = float("inf"), on_slow: Callable[[float], None] = lambda seconds: None) -> None:
        self.counts: list[int] = [0] * (len(SECONDS) + 1)
        self.total_s: float = 0.0
        self._slow_s = slow_s
        self._on_slow = on_slow

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total_s += seconds
        if seconds >= self._slow_s:
            self._on_slow(seconds)
