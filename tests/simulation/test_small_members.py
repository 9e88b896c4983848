"""Members of a group share its partitions, whatever claims come late: every interleaving of small worlds."""

from typing import Any
from unittest.mock import patch

import pytest
from simulation.explorer import explore, refute
from simulation.slot_mutants import Mutant
from simulation.small_members import MemberWorld

from stockade.client.consumer import group
from stockade.client.consumer.group import GroupReading
from stockade.partition.api.ownership import Resource

WORLDS = {"two": ((2, 2, 2), 290), "odd": ((2, 3, 2), 290), "three": ((3, 1, 1), 780)}
"""Members, partitions and late claims; and a number of states below which the world no longer is what it was."""


@pytest.mark.parametrize("name", WORLDS)
def test_members_share_the_partitions_in_every_interleaving_with_late_claims(name: str) -> None:
    size, states_min = WORLDS[name]
    world = MemberWorld(*size)
    assert explore(world).states >= states_min
    assert world.controllers.compare_with_one_life() > 0


def a_member_does_not_look_for_what_it_owns() -> Any:
    """The fault that this world was made for."""
    return patch.object(GroupReading, "_unknown", lambda reading, resources: set())


def a_member_takes_the_resources_of_all_for_its_own() -> Any:
    def unknown(reading: GroupReading, resources: list[Resource]) -> set[str]:
        return {each.resource for each in resources if each.owned}.difference(reading._claims, [reading._member])

    return patch.object(GroupReading, "_unknown", unknown)


def a_member_gives_nothing_up() -> Any:
    plan = group.plan
    return patch.object(group, "plan", lambda *args: plan(*args)._replace(give_up=[]))


SHOWN: dict[Mutant, tuple[str, int]] = {
    a_member_does_not_look_for_what_it_owns: ("s0 owns", 4),
    a_member_takes_the_resources_of_all_for_its_own: ("the shares are not equal", 0),
    a_member_gives_nothing_up: ("the shares are not equal", 0),
}
"""Of each mutant: the invariant that it breaks, and the length of the shortest way."""


@pytest.mark.parametrize("mutant", SHOWN, ids=lambda mutant: str(mutant.__name__))
def test_each_mutant_of_the_members_has_a_shortest_counterexample(mutant: Mutant) -> None:
    violated, steps = SHOWN[mutant]
    with mutant():
        refute(MemberWorld(2, 2, 1), violated, steps)
