"""pysyncobj's defects, each as the accident that it causes, played step by step. D1 to D21 number them as RAFT does."""

import pickle
from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import pytest
from simulation.checker import Attempt
from simulation.mutants import acks_of_any_term
from simulation.world import Process, Setting, World

from stockade.raft.core.follower import InvariantBroken
from stockade.raft.core.group import Committed, NotLeader, Outcome, Rejected, Unknown
from stockade.raft.messages import (
    AppendAck,
    AppendEntries,
    PreVoteReply,
    RaftMessage,
    RequestVote,
    TimeoutNow,
    VoteReply,
)

FOREVER_S = 1000.0


def started(nodes: int = 3) -> tuple[World, str, list[str]]:
    """A cluster at peace, its leader and its followers."""
    world = World(1, Setting(nodes))
    world.run_until(lambda: bool(world.leaders()))
    world.run(0.5)
    (leader,) = world.leaders()
    return world, leader, [node for node in world.nodes if node != leader]


def propose(world: World, node: str, *commands: str) -> list[Attempt]:
    return [world.checker.propose(world.processes[node], 1, command.encode(), 10.0) for command in commands]


def outcomes(attempts: Iterable[Attempt]) -> set[type | None]:
    return {type(attempt.outcome) for attempt in attempts}


def transfer_leadership(world: World, leader: str, transferee: str) -> None:
    """``leader`` steps down in favour of ``transferee``."""
    raft_node = world.group(leader)._node
    assert raft_node.leading is not None
    with patch.object(raft_node.leading, "furthest", return_value=raft_node.leading.followers[transferee]):
        world.group(leader).step_down()
    world.run_until(lambda: transferee in world.leaders(), 2.0)


def sent_messages(world: World) -> list[tuple[str, str, RaftMessage]]:
    """Everything that is sent from now on: source, target, message."""
    seen: list[tuple[str, str, RaftMessage]] = []
    check = world.network.on_sent

    def on_sent(source: str, target: str, group_id: int, message: RaftMessage) -> None:
        check(source, target, group_id, message)
        seen.append((source, target, message))

    world.network.on_sent = on_sent
    return seen


def may_stop(world: World) -> list[Process]:
    """Let nodes of this world stop themselves; answers those that did."""
    stopped: list[Process] = []
    world.checker.failed = lambda process, error: stopped.append(process)  # type: ignore[method-assign]
    return stopped


def late_acks_arrive_in_a_later_leadership() -> list[Attempt]:
    """Acks of term 1 for entries that term 2 has replaced reach their leader when it leads term 3."""
    world, leader, (near, *far) = started(5)
    world.network.link(leader, near).slow_s[leader] = FOREVER_S
    for node in far:
        world.network.hold(leader, node)
    propose(world, leader, *[f"lost {number}" for number in range(30)])
    world.run_until(lambda: any(node in far for node in world.leaders()), 5.0)
    for node in far:
        world.network.mend(leader, node)
    world.run(0.5)
    (second,) = world.leaders()
    transfer_leadership(world, second, leader)
    for node in [near, *far[1:]]:
        world.network.hold(leader, node)
    attempts = propose(world, leader, *[f"new {number}" for number in range(30)])
    world.run(0.05)
    world.network.mend(leader, near)
    world.run(0.002)
    return attempts


def test_d1_a_late_ack_of_an_earlier_leadership_counts_for_nothing() -> None:
    assert outcomes(late_acks_arrive_in_a_later_leadership()) == {type(None)}


def test_d1_without_the_term_the_late_ack_would_count() -> None:
    with acks_of_any_term(), pytest.raises(AssertionError):
        late_acks_arrive_in_a_later_leadership()


def test_d2_a_success_ack_never_sets_next_index_back() -> None:
    world, leader, (follower, _) = started()
    propose(world, leader, *"abcdef")
    world.run(0.1)
    leading = world.group(leader)._node.leading
    assert leading is not None
    before = leading.followers[follower].next_index
    world.group(leader).receive(follower, AppendAck(leading.term, True, 3, 1))
    assert leading.followers[follower].next_index == before


@pytest.mark.parametrize("entries", [0, 1])
def test_d2_a_repeated_append_cuts_nothing_that_matches(entries: int) -> None:
    world, leader, (follower, _) = started()
    propose(world, leader, *"abcdef")
    world.run(0.1)
    view, term = world.processes[follower].log.views[1], world.group(leader).term
    before = list(view.entries)
    repeated = [(4, *before[2])][:entries]
    world.group(follower).receive(leader, AppendEntries(term, 5, 3, term, 1, repeated))
    world.run(0.1)
    assert view.entries == before


def test_d2_a_leader_that_contradicts_a_committed_entry_stops_the_node() -> None:
    world, leader, (follower, _) = started()
    stopped = may_stop(world)
    propose(world, leader, *"abcdef")
    world.run(0.5)
    term = world.group(leader).term
    world.group(follower).receive(leader, AppendEntries(term + 1, 9, 3, term, 1, [(4, term + 1, b"\x00other")]))
    assert stopped == [world.processes[follower]]
    assert isinstance(stopped[0].failure, InvariantBroken)


def test_d3_a_leader_that_comes_back_commits_nothing_of_its_own_tail() -> None:
    world, leader, others = started()
    world.isolate([leader])
    lost = propose(world, leader, *[f"isolated {number}" for number in range(5)])
    world.run_until(lambda: any(node in others for node in world.leaders()))
    (second,) = [node for node in world.leaders() if node in others]
    kept = propose(world, second, *[f"good {number}" for number in range(50)])
    world.run(0.5)
    world.heal()
    world.run(2.0)
    assert (outcomes(lost), outcomes(kept)) == ({Unknown}, {Committed})
    commands = [command for _, _, command in world.processes[leader].machines[1].applied]
    assert commands == [f"good {number}".encode() for number in range(50)]


def test_d3_d7_d9_d10_nothing_is_ever_dropped_from_the_front_of_the_log() -> None:
    world, leader, _ = started()
    raft_node = world.group(leader)._node
    raft_node.forceLogCompaction()
    propose(world, leader, *"abc")
    world.run(5.0)
    assert (raft_node.log[0][1], len(raft_node.log), raft_node.log.last_index) == (1, 5, 5)
    with pytest.raises(InvariantBroken):
        raft_node._SyncObj__loadDumpFile(clearJournal=True)


def test_d4_the_voters_of_a_group_cannot_be_changed() -> None:
    world, leader, _ = started()
    with pytest.raises(Exception, match="dynamicMembershipChange is disabled"):
        world.group(leader)._node.addNodeToCluster("n9")


def test_d5_an_exception_of_a_waiting_callback_does_not_apply_an_entry_again() -> None:
    world, leader, _ = started()

    def fail(_: Outcome) -> None:
        raise RuntimeError("the client's own bug")

    world.group(leader).submit(b"once", 5.0, fail)
    after = propose(world, leader, "after")
    world.run(0.5)
    assert outcomes(after) == {Committed}
    for node in world.nodes:
        assert [command for _, _, command in world.processes[node].machines[1].applied] == [b"once", b"after"]


def test_d6_an_exception_in_apply_stops_the_node_and_is_not_retried() -> None:
    world, leader, _ = started()
    stopped = may_stop(world)
    calls = []

    def fail(process: Process) -> None:
        calls.append(process)
        raise ZeroDivisionError

    with patch.object(Process, "spend_time", fail):
        attempts = propose(world, leader, "poison", "next")
        world.run(3.0)
    assert calls == stopped
    assert [process.node_id for process in stopped[:1]] == [leader]
    assert len(stopped) == 2, "the third never hears that the command is committed"
    assert outcomes(attempts) == {Unknown}
    refused = propose(world, leader, "later")
    assert outcomes(refused) == {Rejected}


def test_d8_a_node_alone_commits_nothing_after_a_restart() -> None:
    world, leader, _ = started()
    propose(world, leader, *"abc")
    world.run(0.5)
    world.crash(leader)
    world.isolate([leader])
    world.restart(leader)
    world.run(5.0)
    assert (world.group(leader).commit_index, world.group(leader).is_leader) == (1, False)


def test_d13_a_divergent_tail_is_repaired_in_a_message_or_two_a_term() -> None:
    world, leader, others = started()
    world.isolate([leader])
    propose(world, leader, *[f"z{number}" for number in range(300)])
    world.run_until(lambda: any(node in others for node in world.leaders()))
    (second,) = [node for node in world.leaders() if node in others]
    propose(world, second, *[f"g{number}" for number in range(300)])
    world.run(0.5)
    seen = sent_messages(world)
    world.heal()
    world.run_until(lambda: world.group(leader).applied_index == world.group(second).applied_index, 1.0)
    refusals = [message for _, _, message in seen if isinstance(message, AppendAck) and not message.success]
    of_logs = [message for message in refusals if message.round]  # the others refuse the leader of an older term
    assert len(of_logs) <= 2


def test_d15_proposals_and_barriers_in_flight_are_answered_when_the_leader_steps_down() -> None:
    world, leader, followers = started()
    for follower in followers:
        world.network.hold(leader, follower)
    appended = propose(world, leader, "appended")
    barrier: list[Exception | None] = []
    world.group(leader).submit_barrier(5.0, barrier.append)
    world.run(0.1)
    assert outcomes(appended) == {type(None)}
    queued = propose(world, leader, "queued")
    world.group(leader).step_down()
    world.run(0.01)
    assert (outcomes(appended), outcomes(queued)) == ({Unknown}, {Rejected})
    assert isinstance(barrier[0], NotLeader)


def test_d15_without_a_leader_a_proposal_is_rejected_at_once() -> None:
    world, leader, _ = started()
    world.isolate([leader])
    world.run(2.0)
    assert outcomes(propose(world, leader, "late")) == {Rejected}


def test_d16_a_restart_does_not_forget_the_vote() -> None:
    world, leader, (voter, candidate) = started()
    world.isolate([voter])
    world.run(3.0)
    process = world.processes[voter]
    term = process.groups[1].term + 1
    process.groups[1].receive(leader, RequestVote(term, 10, term))
    world.run(0.1)
    world.crash(voter)
    world.restart(voter)
    view = world.disks[voter].durable[1]
    assert (view.term, view.voted_for) == (term, leader)
    seen: list[RaftMessage] = []
    with patch.object(world.network, "send", lambda source, target, group, message: seen.append(message)):
        world.group(voter).receive(candidate, RequestVote(term, 10, term))
    assert seen == [VoteReply(term, False)]


@pytest.mark.parametrize("size", [131_000, 17 << 20])
def test_d17_a_large_entry_travels_whole(size: int) -> None:
    world, leader, _ = started()
    seen = sent_messages(world)
    (attempt,) = propose(world, leader, "k" * size)
    world.run(0.5)
    assert isinstance(attempt.outcome, Committed)
    appends = [message.entries for _, _, message in seen if isinstance(message, AppendEntries) and message.entries]
    assert [[len(payload) for _, _, payload in entries] for entries in appends] == [[size + 1], [size + 1]]


def test_d18_a_power_loss_of_all_nodes_loses_nothing_that_was_acked() -> None:
    world, leader, _ = started()
    attempts = propose(world, leader, *[f"c{number}" for number in range(200)])
    world.run_until(lambda: outcomes(attempts) == {Committed})
    for node in world.nodes:
        world.crash(node)
    world.heal()
    world.run(4.0)
    for node in world.nodes:
        assert len(world.processes[node].machines[1].applied) == 200


def test_d19_d21_commands_are_never_pickled_and_grow_by_one_byte() -> None:
    with (
        patch.object(pickle, "loads", side_effect=AssertionError),
        patch("pysyncobj.pickle.loads", side_effect=AssertionError),
        patch("pysyncobj.pickle.dumps", side_effect=AssertionError),
    ):
        world, leader, _ = started()
        attempts = propose(world, leader, "\x00\xff binary")
        world.run(0.5)
    assert outcomes(attempts) == {Committed}
    assert world.disks[leader].durable[1].entries[-1][1] == b"\x00" + "\x00\xff binary".encode()


def test_d20_a_node_that_was_cut_off_neither_raises_the_term_nor_unseats_the_leader() -> None:
    world, leader, (lonely, _) = started()
    term = world.group(leader).term
    world.isolate([lonely])
    world.run(10.0)
    assert world.group(lonely).term == term
    world.heal()
    world.run(3.0)
    assert (world.leaders(), world.group(leader).term) == ([leader], term)


def test_d20_a_candidate_is_ignored_while_the_leader_is_well() -> None:
    world, leader, (follower, candidate) = started()
    term = world.group(leader).term
    for node in (leader, follower):
        world.group(node).receive(candidate, RequestVote(term + 5, 100, term + 4))
    world.run(1.0)
    assert (world.leaders(), world.group(leader).term) == ([leader], term)


@pytest.mark.parametrize("answer", [PreVoteReply, VoteReply])
def test_d20_an_answer_without_a_waiting_caller_deposes_no_leader_that_is_well(answer: Any) -> None:
    """Seed 9340896: a removed node, in a newer term, refused what a member had asked it before it heard its leader."""
    world, leader, (follower, removed) = started()
    term = world.group(leader).term
    for node in (leader, follower):
        world.group(node).receive(removed, answer(term + 5, False))
    world.run(1.0)
    assert (world.leaders(), world.group(leader).term) == ([leader], term)


def test_d20_a_leader_without_a_majority_steps_down_within_an_election_timeout() -> None:
    world, leader, _ = started()
    world.isolate([leader])
    settings = world.settings
    world.run((settings.election_timeout_ms_min + settings.heartbeat_ms) / 1000)
    assert not world.group(leader).is_leader


def test_d20_a_stale_leader_serves_no_linearizable_read() -> None:
    world, leader, others = started()
    for other in others:
        world.network.hold(leader, other)
    settled: list[Exception | None] = []
    world.group(leader).submit_barrier(5.0, settled.append)
    world.run(2.0)
    assert [type(error) for error in settled] == [NotLeader]


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("nodes", [3, 5])
def test_a_leader_hands_over_without_a_timeout(nodes: int, in_flight: bool) -> None:
    world, leader, _ = started(nodes)
    seen = sent_messages(world)
    if in_flight:
        propose(world, leader, "first")
        world.run_until(lambda: world.group(leader).applied_index == 3, 0.1)
        propose(world, leader, "second")
        world.run(0.0001)
    group = world.group(leader)
    assert (group._node.log.last_index > group.commit_index) == in_flight
    group.step_down()
    world.run_until(lambda: bool(world.leaders()), 0.1)
    assert world.leaders() != [leader]
    assert any(isinstance(message, TimeoutNow) for _, _, message in seen)


def test_a_leader_that_steps_down_asks_no_follower_that_lacks_committed_entries_to_campaign() -> None:
    world, leader, (behind, voter) = started()
    world.network.cut(leader, behind)
    (attempt,) = propose(world, leader, "acknowledged")
    world.run_until(lambda: isinstance(attempt.outcome, Committed), 0.1)
    world.network.cut(leader, voter)
    world.network.mend(leader, behind)
    leading = world.group(leader)._node.leading
    assert leading is not None
    world.run_until(lambda: leading.followers[behind].connected and not leading.followers[voter].connected, 1.0)
    assert leading.followers[behind].match_index == 2
    seen = sent_messages(world)
    world.group(leader).step_down()
    world.heal()
    world.run(2.0)
    assert not any(isinstance(message, TimeoutNow) for _, _, message in seen)
    assert len(world.leaders()) == 1


def test_a_follower_that_comes_back_with_an_empty_disk_is_filled_again_and_votes_again() -> None:
    world, leader, (follower, _) = started()
    propose(world, leader, *"abcdef")
    world.run(0.5)
    world.wipe(follower)
    world.restart(follower)
    world.run(1.0)
    assert world.group(follower).applied_index == world.group(leader).applied_index == 10
    assert world.group(follower).configuration.voters[follower] == world.disks[follower].incarnation


def test_the_death_of_the_leader_is_noticed_by_its_connection() -> None:
    world, leader, _ = started()
    world.crash(leader)
    world.run_until(lambda: bool(world.leaders()), world.settings.election_timeout_ms_min / 1000)


def test_the_refusal_of_an_old_terms_message_answers_no_round() -> None:
    """Its sender may lead the term of the refusal when it arrives, with rounds counted from one again."""
    world, leader, (follower, _) = started()
    seen = sent_messages(world)
    world.group(follower).receive(leader, AppendEntries(0, 1, 1, 0, 500, []))
    world.run(0.001)
    assert (follower, leader, AppendAck(1, False, 3, 0)) in seen
