"""Simulated clusters from seeds. A failure names the line that replays it."""

import pytest
from simulation.schedule import run_seed

SEEDS = 160
SEEDS_A_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_no_schedule_of_faults_breaks_an_invariant(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run_seed(seed)


def test_acks_that_are_late_by_a_leadership_break_nothing() -> None:
    for seed in range(20):
        run_seed(seed, "late_acks")
