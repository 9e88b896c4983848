"""The steps from one membership to another, followed to the end."""

from itertools import combinations

import pytest

from stockade.cluster.controller.topology.moves import Add, Arrived, Remove, Step, TransferLeadership, Wait, next_step
from stockade.raft.log.configuration import AddLearner, Configuration, Promote, RemoveMember, apply_change

NODES = ("n1", "n2", "n3", "n4", "n5", "n6")


def carried_out(now: Configuration, leader: str, step: Step) -> tuple[Configuration, str]:
    """The membership and the leader after a step, the learner caught up."""
    match step:
        case Add(node_id):
            return apply_change(apply_change(now, AddLearner(node_id, 1)), Promote(node_id)), leader
        case Remove(node_id):
            assert node_id != leader
            return apply_change(now, RemoveMember(node_id)), leader
        case TransferLeadership(node_id):
            assert node_id in now.voters
            return now, node_id
        case _:
            raise AssertionError(step)


def of(*voters: str) -> Configuration:
    return Configuration(dict.fromkeys(voters, 1))


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("wanted", [1, 3, 5])
def test_every_move_ends_and_never_has_fewer_voters_than_before_or_after_it(size: int, wanted: int) -> None:
    for target in combinations(NODES, wanted):
        now, leader = of(*NODES[:size]), NODES[size - 1]
        for _ in range(20):
            step = next_step(now, leader, target, NODES)
            if isinstance(step, Arrived):
                break
            now, leader = carried_out(now, leader, step)
            assert min(size, wanted) <= len(now.voters) <= max(size, wanted) + 1
            assert leader in now.voters
        assert sorted(now.voters) == sorted(target)


def test_nothing_is_done_while_a_learner_catches_up() -> None:
    now = Configuration({"n1": 1, "n2": 1, "n3": 1}, {"n4": 1})
    assert next_step(now, "n1", ["n1", "n2", "n4"], NODES) == Wait(("n4",))


def test_a_learner_outside_the_target_is_removed_first() -> None:
    now = Configuration({"n1": 1, "n2": 1, "n3": 1}, {"n4": 1})
    assert next_step(now, "n1", ["n1", "n2", "n3"], NODES) == Remove("n4")


def test_a_move_waits_for_unreachable_targets_and_removes_unreachable_leavers_first() -> None:
    assert next_step(of("n1"), "n1", ["n2"], ["n1"]) == Wait(("n2",))
    assert next_step(of("n1", "n2"), "n1", ["n2", "n3", "n1"], ["n1", "n3"]) == Add("n3")
    assert next_step(of("n1", "n2", "n3", "n4", "n5"), "n1", ["n1"], ["n1", "n2", "n4", "n5"]) == Remove("n3")


def test_no_reachable_replica_is_removed_while_one_of_the_target_is_unreachable() -> None:
    now = of("n1", "n2", "n3", "n4")
    assert next_step(now, "n1", ["n1", "n2", "n4"], ["n1", "n3", "n4"]) == Wait(("n2",))
    assert next_step(now, "n1", ["n1", "n2", "n4"], ["n1", "n2", "n3", "n4"]) == Remove("n3")
    assert next_step(now, "n1", ["n1", "n2", "n4"], ["n1", "n4"]) == Remove("n3"), "a node that is away is no help"


def test_a_leader_outside_the_target_transfers_leadership_to_a_reachable_voter_of_the_target() -> None:
    now = of("n1", "n2", "n3", "n4")
    assert next_step(now, "n1", ["n2", "n3", "n4"], ["n1", "n3", "n4"]) == TransferLeadership("n3")
    assert next_step(now, "n1", ["n2", "n3", "n4"], ["n1"]) == Wait(("n2", "n3", "n4"))
    assert next_step(now, "n2", ["n2", "n3", "n4"], NODES) == Remove("n1")


def test_a_group_of_one_takes_a_second_voter_when_a_third_one_is_there() -> None:
    """Two voters stop when either of them is lost: the group was worse off than before, for as long as n2 was away."""
    assert next_step(of("n1"), "n1", ["n1", "n2", "n3"], ["n1", "n3"]) == Wait(("n2",))
    assert next_step(of("n1"), "n1", ["n1", "n2", "n3"], ["n1", "n2", "n3"]) == Add("n2")
    assert next_step(of("n1"), "n1", ["n1", "n2", "n3"], ["n1"]) == Wait(("n2", "n3"))
    assert next_step(of("n1"), "n1", ["n2"], ["n1", "n2"]) == Add("n2")
