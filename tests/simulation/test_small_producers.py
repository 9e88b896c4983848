"""All interleavings of small worlds of a producer's name keep the invariants that small_producers.py checks; each
mutant breaks one, and the explorer finds the shortest way.
"""

import pytest
from simulation.explorer import explore, refute
from simulation.name_mutants import MUTANTS
from simulation.slot_mutants import Mutant
from simulation.small_producers import ProducerWorld, Scope

TAKEOVERS = Scope(partitions=2, batches=2)
FENCES = Scope(bumps=True, fences=True, batches=1, decisions=5)
FORGETTING = Scope(forgets=True, decisions=5)
ONE = FORGETTING._replace(instances="a")
FENCED = Scope(forgets=True, fences=True)
WORLDS = {
    "takeovers": (TAKEOVERS, 3_000),
    "fences": (FENCES, 5_000),
    "forgetting": (FORGETTING, 30_000),
    "fenced": (FENCED, 7_000),
}
"""Each with a number of states below which it no longer is what it was."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", WORLDS)
def test_every_interleaving_of_instances_of_a_name_keeps_the_invariants(name: str) -> None:
    scope, states_min = WORLDS[name]
    world = ProducerWorld(scope)
    explored = explore(world)
    assert explored.states >= states_min, explored
    assert world.controllers.compare_with_one_life() > 0
    assert world.partitions.compare_with_one_life() > 0


IN_FORCE = "is fenced, and writes"
SHOWN: dict[str, tuple[Scope, str, int]] = {
    "a_former_instance_writes": (FENCES, IN_FORCE, 5),
    "a_forgotten_producer_is_installed_late": (FORGETTING, IN_FORCE, 7),
    "a_late_install_lowers_an_epoch": (FENCES, IN_FORCE, 6),
    "a_loaded_controller_forgot_enrolments": (FENCES, "saved and loaded saves something else", 2),
    "a_name_is_forgotten_that_a_partition_knows": (ONE, IN_FORCE, 4),
    "a_report_of_an_older_epoch_counts_for_the_last": (FENCES, IN_FORCE, 6),
    "a_takeover_keeps_the_pair": (FENCES, "two instances have one pair", 2),
    "an_answer_waits_for_no_partition": (FENCES, IN_FORCE, 4),
    "an_enrolment_is_not_remembered": (FENCES, IN_FORCE, 4),
    "an_enrolment_since_the_question_is_withdrawn": (FORGETTING, IN_FORCE, 8),
    "an_epoch_is_not_told_to_partitions": (FENCES, IN_FORCE, 4),
}
"""Of each mutant: the world that shows it, the invariant that it breaks, and the length of the shortest way."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.__name__))
def test_each_mutant_of_a_name_has_a_shortest_counterexample(mutant: Mutant) -> None:
    scope, violated, steps = SHOWN[mutant.__name__]
    with mutant():
        refute(ProducerWorld(scope), violated, steps)
