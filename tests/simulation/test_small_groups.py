"""All interleavings of small worlds of owners of a partition keep the invariants that small_groups.py checks; each
mutant breaks one, and the explorer finds the shortest way.
"""

import pytest
from simulation.explorer import explore, refute
from simulation.owner_mutants import MUTANTS
from simulation.slot_mutants import Mutant
from simulation.small_groups import GroupWorld, Scope

SEVERING = Scope(ends=("disown", "close", "expire"), writes=True)
ALONE = SEVERING._replace(sever="resource")
GRANTS = Scope(holds=True, decisions=3)
THREE = Scope(sessions="abc", ends=("close",))
WORLDS = {"severing": (SEVERING, 5_000), "alone": (ALONE, 5_000), "grants": (GRANTS, 1_200), "three": (THREE, 1_000)}
"""Each with a number of states below which it no longer is what it was."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", WORLDS)
def test_every_interleaving_of_a_small_group_keeps_the_invariants(name: str) -> None:
    scope, states_min = WORLDS[name]
    world = GroupWorld(scope)
    explored = explore(world)
    assert explored.states >= states_min, explored
    assert world.controllers.compare_with_one_life() > 0
    assert world.partitions.compare_with_one_life() > 0


KNOWN = "is known, and t/0 judges otherwise"
ENDED = "has ended, was answered, and writes"
LATE = "at rest, a late message changes t/0"
SHOWN: dict[str, tuple[Scope, str, int]] = {
    "a_claim_does_not_wait_for_the_grants_that_it_ended": (GRANTS, ENDED, 4),
    "a_close_does_not_wait_for_what_was_given_up": (SEVERING, ENDED, 4),
    "a_former_owner_writes": (SEVERING, "is there at rest, and t/0 judges otherwise", 2),
    "a_loaded_controller_forgot_what_owners_are_due": (SEVERING, "saved and loaded saves something else", 1),
    "a_partition_takes_an_owner_that_comes_late": (SEVERING, LATE, 2),
    "a_report_of_an_older_owner_counts_for_the_last": (SEVERING, KNOWN, 4),
    "a_takeover_keeps_the_fence_epoch": (SEVERING, "two sessions have one fence_epoch", 2),
    "an_answer_waits_for_no_partition": (SEVERING, KNOWN, 1),
    "an_owner_is_not_told_to_its_partition": (SEVERING, KNOWN, 1),
    "an_owner_that_left_comes_back": (SEVERING, LATE, 2),
}
"""Of each mutant: the world that shows it, the invariant that it breaks, and the length of the shortest way."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.__name__))
def test_each_mutant_of_the_owners_has_a_shortest_counterexample(mutant: Mutant) -> None:
    scope, violated, steps = SHOWN[mutant.__name__]
    with mutant():
        refute(GroupWorld(scope), violated, steps)
