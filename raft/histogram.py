"""Durations by size, cheap enough for the way of each append: numbers that a monitor reads later."""

from bisect import bisect_left
from collections.abc import Callable

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper ends of the buckets."""


class Histogram:
    """How many durations were at most each of SECONDS and longer than the one before; those beyond come last.

    One thread adds; ``on_slow`` is called there with a duration of ``slow_s`` or more. Another thread may read
    meanwhile, and then miss a part of the last duration.
    """

    __slots__ = ("_on_slow", "_slow_s", "counts", "total_s")

    def __init__(self, slow_s: float = float("inf"), on_slow: Callable[[float], None] = lambda seconds: None) -> None:
        self.counts: list[int] = [0] * (len(SECONDS) + 1)
        self.total_s: float = 0.0
        self._slow_s = slow_s
        self._on_slow = on_slow

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total_s += seconds
        if seconds >= self._slow_s:
            self._on_slow(seconds)
