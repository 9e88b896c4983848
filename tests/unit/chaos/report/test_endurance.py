"""The lines of a run of days: means of many samples, each of one process."""

import pytest

from stockade.chaos.endurance.samples import Sample
from stockade.chaos.report.endurance import POINTS_MAX, Endurance, picture

MIB = 1024 * 1024
SAMPLES = 10 * POINTS_MAX


def drawn(restart_at: int) -> list[list[float]]:
    """The pieces of the memory's line, as heights: 400 MiB until the restart, 100 after it."""
    samples = [
        Sample(k * 1_000_000_000, "n1", *((1, 400 * MIB) if k < restart_at else (2, 100 * MIB)), 50)
        for k in range(SAMPLES)
    ]
    svg = picture(Endurance("A run", 0, samples, [], [], [], 0))
    memory = svg.split('class="name"')[1]
    pieces = [piece.split('"')[0] for piece in memory.split('points="')[1:]]
    return [[float(point.split(",")[1]) for point in piece.split()] for piece in pieces]


@pytest.mark.parametrize("restart_at", [3000, 3001, 3007, SAMPLES - 1])
def test_no_point_of_a_long_run_is_the_mean_of_two_processes(restart_at: int) -> None:
    """It would show memory that no process ever had."""
    before, after = drawn(restart_at)
    assert len(set(before)) == len(set(after)) == 1 and set(before) != set(after)
    assert len(before) + len(after) <= POINTS_MAX + 1
