"""Whether memory or descriptors of nodes grow: a line through the samples of each process, and a verdict. Pure.

A fault may end a process, and the next process begins with little memory. So the lines have one intercept for each life
(of a process, from start to end) and one slope for all lives of a node; the first minutes of a life, in which caches
fill, are left out. The samples of one minute are one point, their mean: samples seconds apart are not independent.
"""

from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from statistics import fmean
from typing import Literal

import msgspec

from .samples import Sample

WARM_UP_S = 900.0
"""Seconds left out at the beginning of a life. Measured: under the load of the run a node goes from 165 to 230 MiB in
this time, and stays there.
"""
FAULTS_EVERY = 30
"""Faults strike in one of so many rounds, unless the command says otherwise. With rounds of a minute, and the checks
between them, a process lives for 40 minutes.
"""
POINT_S = 60.0
POINTS_MIN = 4
"""Fewest points of a life that counts."""
HOURS_MIN = 1.0
"""Hours of all lives together before a verdict: until then tables, caches and allocators fill, which looks like a leak.
"""
SIGMAS = 3.0
"""Half the width of the interval of a slope, in standard errors."""

Verdict = Literal["grows", "steady", "undecided"]


class Bound(msgspec.Struct, frozen=True):
    """Bounds of growth an hour. If the interval of a slope is above ``noise_max``, there is a leak; otherwise, if it is
    below ``steady_max``, the slope is called steady.
    """

    noise_max: float
    steady_max: float


MEMORY = Bound(noise_max=2 * 1024.0 * 1024.0, steady_max=16 * 1024.0 * 1024.0)
"""Bytes an hour."""
DESCRIPTORS = Bound(noise_max=0.5, steady_max=4.0)
"""Descriptors an hour."""


class Trend(msgspec.Struct, frozen=True):
    """The slope of one node's samples, per hour, and its interval, SIGMAS standard errors to each side; ``slope`` is
    None if there are too few points.
    """

    lives: int
    hours: float
    """Hours of all lives that count, without their beginnings."""
    slope: float | None = None
    low: float = float("-inf")
    high: float = float("inf")

    def verdict(self, bound: Bound) -> Verdict:
        """The verdict that the samples allow; "undecided" if they are too few, or scatter too much."""
        if self.slope is None or self.hours < HOURS_MIN:
            return "undecided"
        if self.low > bound.noise_max:
            return "grows"
        return "steady" if self.high < bound.steady_max else "undecided"


def lives(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of one node, cut into lives: a list for each of its processes, in their order."""
    found: list[list[Sample]] = []
    for each in samples:
        if found and found[-1][-1].pid == each.pid:
            found[-1].append(each)
        else:
            found.append([each])
    return found


def points(life: Sequence[Sample], value: Callable[[Sample], float]) -> list[tuple[float, float]]:
    """The points of a life without its first WARM_UP_S: for each minute the mean time, in hours, and the mean value."""
    began = life[0].at_ns
    warm_ns = began + WARM_UP_S * 1e9
    minutes: dict[int, list[Sample]] = {}
    for each in life:
        if each.at_ns >= warm_ns:
            minutes.setdefault(int((each.at_ns - began) / 1e9 // POINT_S), []).append(each)
    return [(fmean(s.at_ns for s in group) / 3.6e12, fmean(map(value, group))) for group in minutes.values()]


def trend(samples: Sequence[Sample], value: Callable[[Sample], float]) -> Trend:
    """The common slope of all lives of a node, by least squares."""
    counted = [found for life in lives(samples) if len(found := points(life, value)) >= POINTS_MIN]
    hours = sum(found[-1][0] - found[0][0] for found in counted)
    centred = [pair for found in counted for pair in _centred(found)]
    spread = sum(x * x for x, _ in centred)
    free = len(centred) - len(counted) - 1
    if spread == 0 or free < 1:
        return Trend(len(counted), hours)
    slope = sum(x * y for x, y in centred) / spread
    error = sqrt(sum((y - slope * x) ** 2 for x, y in centred) / free / spread)
    return Trend(len(counted), hours, slope, slope - SIGMAS * error, slope + SIGMAS * error)


def _centred(found: Sequence[tuple[float, float]]) -> Iterable[tuple[float, float]]:
    x_mean, y_mean = fmean(x for x, _ in found), fmean(y for _, y in found)
    return [(x - x_mean, y - y_mean) for x, y in found]


def memory(sample: Sample) -> float:
    """Resident memory, in bytes."""
    return float(sample.memory_bytes)


def descriptors(sample: Sample) -> float:
    """The number of open files and connections."""
    return float(sample.descriptors)
