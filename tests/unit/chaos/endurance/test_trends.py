"""A leak is called one, noise is not, a restart is no drop, and too few samples say nothing."""

import random
from collections.abc import Callable, Sequence

import pytest

from stockade.chaos.endurance.samples import Sample
from stockade.chaos.endurance.trends import FAULTS_EVERY, MEMORY, Trend, lives, memory, trend

MIB = 1024 * 1024
HOUR_S = 3600


def samples(hours: float, mib: Callable[[float], float], *, pid: int = 1, from_s: float = 0.0) -> list[Sample]:
    """One every ten seconds; ``mib`` of the hours since the process began."""
    return [
        Sample(int((from_s + at_s) * 1e9), "n1", pid, int(mib(at_s / HOUR_S) * MIB), 50)
        for at_s in range(0, int(hours * HOUR_S), 10)
    ]


def noisy(level: float, slope: float, seed: int) -> Callable[[float], float]:
    """A process that fills caches for a quarter of an hour, then grows by so much an hour, and scatters by 3 MiB."""
    chance = random.Random(seed)
    return lambda hours: level - 40 * max(0.0, 1 - hours * 4) + slope * hours + chance.gauss(0, 3)


@pytest.mark.parametrize(
    ("hours", "slope", "said"),
    [
        (2, 30.0, "grows"),
        (2, 0.0, "steady"),
        (24, 8.0, "grows"),
        (24, 0.0, "steady"),
        (0.05, 0.0, "undecided"),
        (0.5, 90.0, "undecided"),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_growth_is_told_from_noise_and_from_the_filling_of_caches(
    hours: float, slope: float, said: str, seed: int
) -> None:
    found = trend(samples(hours, noisy(200, slope, seed)), memory)
    assert found.verdict(MEMORY) == said, found
    if said != "undecided":
        assert found.low <= slope * MIB <= found.high


@pytest.mark.parametrize(("slope", "said"), [(8.0, "grows"), (0.0, "steady")])
def test_a_day_with_the_faults_of_the_default_tells_of_a_leak_of_8_mib_an_hour(slope: float, said: str) -> None:
    """A round of 60 seconds takes 80 with its checks, and the faults of the last one end the processes."""
    hours = FAULTS_EVERY * 80 / HOUR_S
    found: list[Sample] = []
    for number in range(int(24 / hours)):
        found += samples(hours, noisy(200, slope, number), pid=number, from_s=number * hours * HOUR_S)
    assert trend(found, memory).verdict(MEMORY) == said, trend(found, memory)


@pytest.mark.parametrize(("slope", "said"), [(30.0, "grows"), (0.0, "steady")])
def test_processes_that_were_restarted_have_one_slope_together(slope: float, said: str) -> None:
    """A leak that begins small again with each process is one; the drop at a restart is none of its slope."""
    found: list[Sample] = []
    for number in range(6):
        found += samples(0.5, noisy(200 - 30 * number, slope, number), pid=number, from_s=number * 1800)
    assert len(lives(found)) == 6
    together = trend(found, memory)
    assert together.lives == 6
    assert together.hours == pytest.approx(6 * 14 / 60, abs=0.2)
    assert together.verdict(MEMORY) == said, together


@pytest.mark.parametrize("few", [[], samples(0.01, noisy(1, 0, 0))])
def test_too_few_samples_decide_nothing(few: Sequence[Sample]) -> None:
    assert trend(few, memory).verdict(MEMORY) == "undecided"


def test_an_interval_around_nothing_but_wide_decides_nothing() -> None:
    assert Trend(1, 1.0, 0.0, -100.0 * MIB, 100.0 * MIB).verdict(MEMORY) == "undecided"
