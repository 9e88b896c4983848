from itertools import pairwise

import pytest

from stockade.chaos.harness.schedule import OVERLAP_MAX, schedule

FAULTS = ["kill-leader", "stall-leader", "partition"]


def test_the_same_seed_gives_the_same_schedule_and_another_one_another() -> None:
    assert schedule(7, FAULTS, 60) == schedule(7, FAULTS, 60)
    assert schedule(7, FAULTS, 60) != schedule(8, FAULTS, 60)


@pytest.mark.parametrize("seed", range(20))
def test_strikes_lie_within_the_round_and_overlap_at_most_as_often_as_they_may(seed: int) -> None:
    plan = schedule(seed, FAULTS, 60)
    assert plan == sorted(plan)
    assert all(0 <= planned.at_s < planned.until_s <= 60 for planned in plan)
    for planned in plan:
        assert sum(other.at_s <= planned.at_s < other.until_s for other in plan) <= OVERLAP_MAX


def test_some_seeds_let_faults_overlap() -> None:
    plans = [schedule(seed, FAULTS, 60) for seed in range(20)]
    assert any(a.at_s < b.at_s < a.until_s for plan in plans for a in plan for b in plan)


@pytest.mark.parametrize("seed", range(20))
def test_the_faults_of_a_workload_strike_in_every_round(seed: int) -> None:
    assert "rolling-restart" in {planned.fault for planned in schedule(seed, FAULTS, 60, ["rolling-restart"])}


@pytest.mark.parametrize("seconds", [5.0, 10.0, 20.0])
@pytest.mark.parametrize("seed", range(20))
def test_the_faults_of_workloads_strike_in_short_rounds_too(seed: int, seconds: float) -> None:
    always = {"divergent-tail", "rolling-restart", "transfer-leader"}
    plan = schedule(seed, FAULTS, seconds, sorted(always))
    assert always <= {planned.fault for planned in plan}
    assert all(planned.at_s < planned.until_s <= seconds for planned in plan)


@pytest.mark.parametrize("seed", range(20))
def test_strikes_that_are_kept_apart_have_that_time_to_themselves(seed: int) -> None:
    plan = schedule(seed, FAULTS, 120, apart_s=10)
    assert len(plan) >= 4
    assert plan[0].at_s >= 10
    assert all(later.at_s - earlier.until_s >= 10 for earlier, later in pairwise(plan))


def test_without_faults_nothing_strikes() -> None:
    assert schedule(7, [], 60) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_fault_that_a_cluster_bears_only_once_strikes_at_most_once(seed: int) -> None:
    once = {"corrupt-wal", "corrupt-vote"}
    plan = schedule(seed, ["kill-leader", *sorted(once)], 60, (), once)
    assert sum(planned.fault in once for planned in plan) <= 1
