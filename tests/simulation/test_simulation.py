"""Simulated clusters from seeds. A failure names the line that replays it."""

import io
import os

import pytest
from simulation.campaign import Tally, campaign, run_task
from simulation.mutants import votes_twice
from simulation.plan import Plan
from simulation.schedule import run_seed

SEEDS = 1500


@pytest.mark.timeout(600)
def test_no_schedule_of_faults_breaks_an_invariant() -> None:
    tally = campaign(Plan(0), range(SEEDS), os.cpu_count() or 1, None, lambda _: None)
    assert [failure.line for failure in tally.failures] == []
    assert tally.done == SEEDS


@pytest.mark.parametrize("accident", ["late_acks", "late_refusals", "lost_ballots", "stray_tail"])
def test_known_accidents_break_nothing(accident: str) -> None:
    for seed in range(20):
        run_seed(seed, accident)


def test_a_failure_is_one_line_that_replays_it() -> None:
    with votes_twice():
        done, failures = run_task(Plan(0), range(20))
    assert done == 20
    assert failures
    assert all(failure.line.startswith(f"{failure.plan.line()}  # at ") for failure in failures)
    assert all("\n" not in failure.line for failure in failures)


def test_progress_is_told_and_failures_are_written() -> None:
    told: list[int] = []

    def tell(tally: Tally) -> None:
        told.append(tally.done)

    file = io.StringIO()
    tally = campaign(Plan(0, accident="no such accident"), range(60), 1, file, tell)
    assert told == [20, 40, 60]
    assert file.getvalue().splitlines() == [failure.line for failure in tally.failures]
    assert len(tally.failures) == 60
    assert tally.line().startswith("60 of 60 schedules, ")
