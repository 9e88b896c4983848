"""Groups in which nothing happens: what they cost, and how they notice what does happen."""

from functools import partial

import pytest
from simulation.world import Process, Setting, World

from stockade.raft.core.group import Committed, Outcome
from stockade.raft.core.quiescence import QUIESCENT_S_MAX, RENEWAL_S_MIN
from stockade.raft.messages import AppendAck, AppendEntries, Quiesce, RaftMessage, Wake
from stockade.raft.settings import RaftSettings

RAFT = RaftSettings()
LONGEST_S = RAFT.election_timeout_ms_max / 1000
PULSE_S = RAFT.heartbeat_ms / 1000


def at_rest(seed: int = 1, groups: int = 1) -> World:
    """Three nodes, every group of which is quiescent."""
    world = World(seed, Setting(nodes=3, groups=groups))
    world.run_until(lambda: quiescent(world) == 3 * groups)
    return world


def quiescent(world: World) -> int:
    return sum(group.is_quiescent for process in world.processes.values() for group in process.groups.values())


def led(world: World, leader: str) -> list[int]:
    return [group_id for group_id in world.group_ids if world.leaders(group_id) == [leader]]


def listen(world: World) -> list[RaftMessage]:
    """What is sent from now on."""
    sent: list[RaftMessage] = []
    check = world.network.on_sent

    def on_sent(source: str, target: str, group_id: int, message: RaftMessage) -> None:
        sent.append(message)
        check(source, target, group_id, message)

    world.network.on_sent = on_sent
    return sent


def commit(world: World, group_id: int = 1) -> float:
    """Propose on the leader; answers how long it took."""
    outcomes: list[Outcome] = []
    (leader,) = world.leaders(group_id)
    began = world.now
    world.group(leader, group_id).submit(b"x%d" % len(world.checker.attempts), 5.0, outcomes.append)
    world.run_until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], Committed)
    return world.now - began


def test_an_idle_group_stays_quiescent_with_one_rare_message_to_each_follower() -> None:
    world = at_rest()
    leaders, terms = world.leaders(), [world.group(node).term for node in world.nodes]
    sent = listen(world)
    world.run(RENEWAL_S_MIN - 1.0)
    assert sent == []
    for _ in range(30):
        world.run(QUIESCENT_S_MAX / 10)
        assert quiescent(world) == 3
    assert (world.leaders(), [world.group(node).term for node in world.nodes]) == (leaders, terms)
    assert {type(message) for message in sent} == {Quiesce}
    assert len(sent) <= 2 * 3 * QUIESCENT_S_MAX / RENEWAL_S_MIN


def test_quiescence_ends_at_whole_seconds_so_that_groups_wake_their_node_together() -> None:
    world = at_rest(groups=20)
    groups = [group for process in world.processes.values() for group in process.groups.values()]
    assert all(group._node.quiescence.ends_at % 1 == 0 for group in groups)


def test_a_quiescent_leader_that_finds_a_follower_behind_wakes_instead_of_renewing() -> None:
    """No event leads there without waking the group: it is the safety net that looks again."""
    world = at_rest()
    (leader,) = world.leaders()
    group = world.group(leader)
    assert group._node.leading is not None
    follower = next(iter(group._node.leading.followers.values()))
    world.run(group._node.quiescence.ends_at - world.now - 0.01)
    assert group.is_quiescent
    follower.match_index -= 1
    world.run(0.02)
    assert not group.is_quiescent
    world.run_until(lambda: quiescent(world) == 3, 1.0)


def test_a_proposal_wakes_a_quiescent_group_without_delay_and_it_quiesces_again() -> None:
    world = at_rest()
    assert commit(world) < 0.02
    assert quiescent(world) < 3
    world.run_until(lambda: quiescent(world) == 3, 1.0)
    assert len({world.group(node).applied_index for node in world.nodes}) == 1


def test_a_linearizable_read_of_a_quiescent_group_still_asks_a_majority() -> None:
    world = at_rest()
    (leader,) = world.leaders()
    world.isolate([leader])
    passed: list[Exception | None] = []
    world.group(leader).submit_barrier(2.0, passed.append)
    world.run_until(lambda: bool(passed))
    assert passed[0] is not None


def test_quiescent_groups_whose_leader_stalls_elect_another_within_an_election_timeout() -> None:
    for seed in range(20):
        world = at_rest(seed)
        (leader,) = world.leaders()
        world.pause(leader)
        began = world.now
        world.run_until(lambda: any(node != leader for node in world.leaders()))  # noqa: B023
        assert world.now - began < LONGEST_S + PULSE_S + 0.05, seed


def test_quiescent_groups_replace_a_crashed_leader_as_fast_as_others() -> None:
    for seed in range(20):
        world = at_rest(seed)
        (leader,) = world.leaders()
        world.crash(leader)
        began = world.now
        world.run_until(lambda: any(node != leader for node in world.leaders()))  # noqa: B023
        assert world.now - began < 0.6, seed


def test_many_groups_that_lose_their_leaders_at_once_all_get_others_soon() -> None:
    world = at_rest(groups=60)
    (leader,) = world.leaders()
    groups = led(world, leader)
    assert groups == list(world.group_ids), "the first voter leads new groups"
    world.pause(leader)
    began = world.now
    others = [node for node in world.nodes if node != leader]
    world.run_until(lambda: all(any(world.group(node, g).is_leader for node in others) for g in groups))
    assert world.now - began < LONGEST_S + 0.6
    assert all(world.group(node, group).term <= 6 for node in others for group in groups), "few votes were split"


def test_elections_of_many_groups_at_once_do_not_collide() -> None:
    """Each asks in its turn: the votes of no group are split, and both survivors get their share."""
    world = at_rest(groups=60)
    (leader,) = world.leaders()
    others = [node for node in world.nodes if node != leader]
    for node in others:
        process = world.processes[node]
        process.on_down = partial(lose, process)  # type: ignore[method-assign]
    world.crash(leader)
    world.run_until(lambda: all(any(world.group(node, g).is_leader for node in others) for g in world.group_ids))
    assert {world.group(node, group).term for node in others for group in world.group_ids} == {2}
    assert [led(world, node) for node in others] == [[*range(2, 61, 2)], [*range(1, 61, 2)]]


def lose(process: Process, node_id: str) -> None:
    """As a host that many groups were led from tells them that it is gone."""
    process.liveness.down(node_id)
    for group in process.groups.values():
        group.peer_down(node_id, 1.0)


def test_a_longer_log_that_is_asked_by_a_shorter_one_asks_soon_itself() -> None:
    world = at_rest()
    (leader,) = world.leaders()
    longer, shorter = (node for node in world.nodes if node != leader)
    world.network.hold(leader, shorter)
    commit(world)
    for node, turn in ((longer, 1), (shorter, 0)):
        process = world.processes[node]
        process.on_down = lambda lost, node=node, turn=turn: world.group(node)._run(  # type: ignore[method-assign,misc]
            lambda: world.group(node)._node.peer_down(lost, 1000.0 * turn + 0.2, turn)
        )
    world.crash(leader)
    began = world.now
    world.run_until(lambda: world.group(longer).is_leader)
    assert world.now - began < 1.0


def test_a_node_that_only_quiescent_followers_hear_deposes_no_leader() -> None:
    """Asked for its vote, a follower awakes; its leader, which was not asked, must beat again or will be missed."""
    world = at_rest()
    (leader,) = world.leaders()
    cut_off = next(node for node in world.nodes if node != leader)
    world.network.hold(leader, cut_off)
    world.run(10.0)
    assert world.leaders() == [leader]
    assert {world.group(node).term for node in world.nodes} == {1}


def test_a_follower_that_was_away_finds_the_group_awake_again() -> None:
    world = at_rest()
    (leader,) = world.leaders()
    away = next(node for node in world.nodes if node != leader)
    world.crash(away)
    commit(world)
    world.run_until(lambda: quiescent(world) == 2)
    world.restart(away)
    world.run_until(lambda: quiescent(world) == 3, 3.0)
    assert world.leaders() == [leader]
    assert world.group(away).applied_index == world.group(leader).applied_index


def test_a_quiescent_leader_catches_up_a_paused_follower_when_it_is_heard_again() -> None:
    world = at_rest()
    (leader,) = world.leaders()
    away = next(node for node in world.nodes if node != leader)
    world.pause(away)
    commit(world)
    world.run_until(lambda: quiescent(world) == 3 and world.group(leader).commit_index > 2, 5.0)
    world.resume(away)
    world.run_until(lambda: world.group(away).applied_index == world.group(leader).applied_index, 1.0)
    world.run_until(lambda: quiescent(world) == 3, 3.0)
    assert world.leaders() == [leader]


def test_a_quiescent_leader_that_closes_its_group_wakes_its_followers() -> None:
    world = at_rest()
    (leader,) = world.leaders()
    sent = listen(world)
    world.processes[leader].close_group(1)
    assert [type(message) for message in sent] == [Wake, Wake]
    began = world.now
    world.run_until(lambda: bool(world.leaders()))
    assert world.now - began < 0.6


def test_quiescence_times_out_when_the_leaders_group_is_gone_without_a_wake() -> None:
    world = at_rest()
    (leader,) = world.leaders()
    world.processes[leader].groups.pop(1).halt()
    world.run_until(lambda: bool(world.leaders()), QUIESCENT_S_MAX + 2 * LONGEST_S)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_leader_deposed_by_a_message_wakes_its_quiescent_followers(is_read: bool) -> None:
    """It wakes itself for the message, or for a read of the same turn, and has sent no heartbeat since."""
    world = at_rest()
    (leader,) = world.leaders()
    group, other = world.group(leader), next(node for node in world.nodes if node != leader)
    if is_read:
        group.submit_barrier(5.0, lambda error: None)
    group.receive(other, AppendAck(group.term + 1, False, 3, 0))
    world.processes[leader].close_group(1)
    world.run_until(lambda: bool(world.leaders()), LONGEST_S)


def test_a_follower_that_lacks_entries_answers_a_quiesce() -> None:
    world = at_rest()
    (leader,) = world.leaders()
    follower = next(node for node in world.nodes if node != leader)
    group = world.group(follower)
    sent = listen(world)
    group.receive(leader, Quiesce(group.term, group.commit_index + 5))
    world.run(0.05)
    assert not group.is_quiescent
    assert any(isinstance(message, AppendEntries) for message in sent), "the leader looks after it"
    world.run_until(lambda: quiescent(world) == 3, 1.0)


def test_a_quiesce_of_an_older_term_is_refused() -> None:
    world = at_rest()
    (leader,) = world.leaders()
    other, third = (node for node in world.nodes if node != leader)
    world.group(leader).step_down()
    world.run_until(lambda: quiescent(world) == 3 and world.leaders() != [leader])
    term = world.group(other).term
    sent = listen(world)
    world.group(third).receive(other, Quiesce(term - 1, 1))
    world.run(0.01)
    assert [getattr(message, "term", None) for message in sent[:1]] == [term]


@pytest.mark.parametrize("rested_s", [0.0, 60.0])
@pytest.mark.parametrize("way", ["crash", "pause", "isolate"])
def test_a_quiescent_leader_that_loses_its_majority_steps_down(way: str, rested_s: float) -> None:
    for seed in range(10):
        world = at_rest(seed)
        (leader,) = world.leaders()
        world.run(rested_s)
        if way == "isolate":
            world.isolate([leader])
        for node in world.nodes:
            if node != leader and way != "isolate":
                getattr(world, way)(node)
        began = world.now
        world.run_until(lambda: leader not in world.leaders())  # noqa: B023
        assert world.now - began < LONGEST_S + PULSE_S, seed


def test_a_quiescent_leader_survives_a_short_loss_of_the_connection_to_its_last_follower() -> None:
    for seed in range(10):
        world = at_rest(seed)
        (leader,) = world.leaders()
        last, dead = (node for node in world.nodes if node != leader)
        world.crash(dead)
        world.run(60.0)
        assert world.group(leader).is_quiescent
        term = world.group(leader).term
        world.network.cut(leader, last)
        world.run(0.05)
        world.network.mend(*sorted((leader, last)))
        world.run(3.0)
        assert world.leaders() == [leader], seed
        assert world.group(leader).term == term, seed
