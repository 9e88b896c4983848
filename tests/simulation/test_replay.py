"""A plan is all that a run depends on, its one line holds all of the plan, and a failing run shrinks."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.mutants import votes_before_the_disk, votes_twice
from simulation.plan import SCRIPT, Plan, add_options, plan_of
from simulation.schedule import Run
from simulation.shrink import failure, shrunk
from simulation.trace import Trace

ROOT = Path(__file__).resolve().parents[2]


def fingerprint(plan: Plan) -> str:
    run = Run(plan)
    trace = Trace(run)
    run.go()
    assert trace.events > 500
    return trace.fingerprint


@pytest.mark.parametrize("plan", [Plan(5), Plan(6, luck=1), Plan(7, "late_acks"), Plan(8, nodes=3, calm=True)])
def test_a_plan_repeats_to_the_last_event(plan: Plan) -> None:
    assert fingerprint(plan) == fingerprint(plan)


def test_a_plan_repeats_in_another_process_with_other_hashes() -> None:
    plan = Plan(5)
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    command = [sys.executable, *plan.line().split()[1:]]
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == f"fingerprint {fingerprint(plan)}"


def test_every_part_of_a_plan_makes_another_run() -> None:
    plans = [Plan(5), Plan(6), Plan(5, nodes=4), Plan(5, groups=3), Plan(5, chaos_s=3.0), Plan(5, luck=1)]
    plans += [Plan(5, without=frozenset({0, 1, 2})), Plan(5, "rivals")]
    assert len({fingerprint(plan) for plan in plans}) == len(plans)


def test_the_line_of_a_plan_holds_all_of_it() -> None:
    plan = Plan(7, "late_acks", 3, 2, 1.25, 4, True, frozenset({3, 11}), frozenset({"cut", "mend"}))
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    add_options(parser)
    arguments = parser.parse_args(plan.line().removeprefix(SCRIPT).split())
    assert plan_of(arguments, arguments.seed) == plan
    assert Plan(7).line() == f"{SCRIPT} --seed 7"


def test_a_failing_run_shrinks_to_one_that_fails_alike_and_replays() -> None:
    with votes_twice():
        plan = next(plan for plan in map(Plan, range(400)) if failure(plan) is not None)
        found = failure(plan)
        small = shrunk(plan)
        again = failure(small)
        assert found is not None
        assert again is not None
        assert again[0] == found[0]
        assert (small.chaos_s, len(small.line())) < (plan.chaos_s, 200)
        assert failure(small) == again
    assert failure(small) is None, "without the mistake it passes"


def test_a_run_that_passes_does_not_shrink() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrunk(Plan(5))


def test_the_smallest_run_of_a_gross_mistake_has_no_fault_at_all() -> None:
    with votes_before_the_disk():
        small = shrunk(Plan(0))
        run = Run(small)
        with pytest.raises(AssertionError):
            run.go()
        assert run.struck == []
