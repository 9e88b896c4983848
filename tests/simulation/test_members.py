"""Members that come, go, lose their disks and hand over; and followers that lack what is gone: step by step."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from simulation.checker import Attempt, Violation
from simulation.checkpoints import NOWHERE, Checkpoints
from simulation.disk import View
from simulation.member_mutants import forgets_what_it_had_promised, keeps_votes_of_an_older_configuration
from simulation.members import Members
from simulation.world import Setting, World

from stockade.raft.core.group import Committed, NotLeader, Rejected
from stockade.raft.log.configuration import AddLearner, ChangeRefused, Configuration, RemoveMember, apply_change
from stockade.raft.messages import (
    AppendAck,
    AppendEntries,
    Offer,
    PreVote,
    PreVoteReply,
    RaftMessage,
    RequestVote,
    TimeoutNow,
    VoteReply,
)
from stockade.raft.settings import RaftSettings

DEFAULTS = RaftSettings()


def started(nodes: int = 3, spares: int = 0, raft: RaftSettings = DEFAULTS) -> tuple[World, str, list[str]]:
    """A cluster at peace, its leader and its followers."""
    world = World(1, Setting(nodes, spares=spares, raft=raft))
    world.run_until(lambda: bool(world.leaders()))
    world.run(0.5)
    (leader,) = world.leaders()
    return world, leader, [node for node in world.nodes[:nodes] if node != leader]


def propose(world: World, node: str, *commands: str) -> list[Attempt]:
    return [world.checker.propose(world.processes[node], 1, command.encode(), 10.0) for command in commands]


def change(world: World, node: str, wanted: AddLearner | RemoveMember) -> list[Any]:
    """Ask for a change; what becomes of it is added to the answer."""
    outcomes: list[Any] = []
    world.group(node).submit_change(wanted, 5.0, outcomes.append)
    return outcomes


def learner(world: World, node: str) -> AddLearner:
    return AddLearner(node, world.disks[node].incarnation)


def transfer(world: World, node: str, transferee: str | None, timeout_s: float = 2.0) -> list[Exception | None]:
    settled: list[Exception | None] = []
    world.group(node).submit_transfer(transferee, timeout_s, settled.append)
    return settled


def sent_by(world: World, node: str) -> list[RaftMessage]:
    """Everything that a node sends from now on."""
    seen: list[RaftMessage] = []
    check = world.network.on_sent

    def on_sent(source: str, target: str, group_id: int, message: RaftMessage) -> None:
        check(source, target, group_id, message)
        if source == node:
            seen.append(message)

    world.network.on_sent = on_sent
    return seen


def commands(world: World, node: str) -> list[bytes]:
    return [command for _, _, command in world.processes[node].machines[1].applied]


# Coming and going.


def test_a_learner_gets_the_log_and_becomes_a_voter_by_itself() -> None:
    world, leader, _ = started(3, spares=1)
    propose(world, leader, "before")
    outcomes = change(world, leader, learner(world, "n4"))
    world.run_until(lambda: "n4" in world.group(leader).voters and not world.group(leader).changing)
    world.run(0.5)
    assert isinstance(outcomes[0], Committed)
    assert isinstance(outcomes[0].result, Configuration)
    assert commands(world, "n4") == [b"before"]
    assert {world.group(node).voters for node in world.nodes} == {("n1", "n2", "n3", "n4")}


def test_a_node_that_joins_neither_campaigns_nor_votes() -> None:
    world, leader, followers = started(3, spares=1)
    sent = sent_by(world, "n4")
    world.group("n4").receive("n1", PreVote(50, 100, 49))
    world.run(0.1)
    world.group("n4").receive("n1", RequestVote(50, 100, 49))
    world.run(0.1)
    for node in (leader, *followers):
        world.crash(node)
    world.run(5.0)
    assert sent == [PreVoteReply(0, False), VoteReply(50, False)]
    assert world.disks["n4"].durable[1].voted_for is None


def test_a_membership_change_is_refused_while_another_is_not_committed() -> None:
    world, leader, _ = started(3, spares=2)
    first, second = change(world, leader, learner(world, "n4")), change(world, leader, learner(world, "n5"))
    assert second == [ChangeRefused("another change is under way")]
    world.run(1.0)
    assert isinstance(first[0], Committed)


def test_a_leader_that_has_committed_nothing_changes_no_members() -> None:
    world, leader, _ = started(3, spares=1)
    world.group(leader).step_down()
    world.run_until(lambda: bool(world.leaders()))
    (second,) = world.leaders()
    for node in world.nodes:
        if node != second:
            world.network.hold(second, node)
    assert change(world, second, learner(world, "n4")) == [
        ChangeRefused("the leader has not committed anything of its term yet")
    ]


def test_a_membership_change_is_refused_by_a_follower() -> None:
    world, leader, (follower, _) = started()
    assert change(world, follower, RemoveMember(leader)) == [Rejected(leader, 1)]


def test_a_change_that_no_majority_could_commit_is_refused() -> None:
    world, leader, (one, other) = started()
    world.crash(one)
    world.run(0.2)
    assert change(world, leader, RemoveMember(other)) == [ChangeRefused("it would leave no majority within reach")]


def test_a_removed_node_disturbs_no_leader_and_no_quorum_needs_it() -> None:
    world, leader, (gone, _) = started()
    outcomes = change(world, leader, RemoveMember(gone))
    world.run(5.0)
    assert isinstance(outcomes[0], Committed)
    assert (world.leaders(), world.group(leader).term) == ([leader], 1)
    world.crash(gone)
    attempts = propose(world, leader, "without it")
    world.run(0.5)
    assert isinstance(attempts[0].outcome, Committed)


def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    world, leader, followers = started()
    outcomes = change(world, leader, RemoveMember(leader))
    world.run(1.0)
    assert isinstance(outcomes[0], Committed)
    assert set(world.leaders()) < set(followers)


def test_a_leader_that_dies_while_it_removes_itself_comes_back_and_finishes_that() -> None:
    """Of two voters it has the only copy of its removal: the other one cannot win against its longer log."""
    world, leader, (other,) = started(2)
    world.network.hold(leader, other)
    change(world, leader, RemoveMember(leader))
    world.run(0.1)
    world.crash(leader)
    world.heal()
    world.run(3.0)
    assert world.leaders() == [other]
    assert world.group(other).voters == (other,)


def test_a_voter_with_a_new_disk_that_dies_while_it_removes_itself_finishes_that_too() -> None:
    """After a restart it knows of no commit: neither the founders nor the latest configuration name this disk."""
    world, leader, (third, second) = started(3)
    world.wipe(second)
    world.restart(second)
    world.run_until(lambda: world.group(leader).configuration.voters.get(second) == world.disks[second].incarnation)
    world.run(0.5)
    change(world, leader, RemoveMember(third))
    world.run(0.5)
    transfer(world, leader, second)
    world.run_until(lambda: world.leaders() == [second])
    world.run(0.5)
    world.network.hold(second, leader)
    change(world, second, RemoveMember(second))
    world.run(0.1)
    world.crash(second)
    world.crash(leader)
    world.heal()
    world.run(3.0)
    assert world.leaders() == [leader]
    assert world.group(leader).voters == (leader,)


def test_a_promotion_that_has_not_arrived_does_not_cost_the_majority() -> None:
    """The new voter does not know that it is one; its vote is needed, and given."""
    world, leader, (second,) = started(2, spares=1)
    change(world, leader, learner(world, "n3"))
    world.run_until(lambda: "n3" in world.group(leader).voters)
    world.network.hold(leader, "n3")
    world.run_until(lambda: world.group(second).voters == ("n1", "n2", "n3"), 1.0)
    world.crash(leader)
    assert world.group("n3").voters == ("n1", "n2")
    world.run_until(lambda: world.leaders() == [second], 5.0)


# Disks.


def test_a_wiped_voter_counts_for_nothing_until_it_has_everything_again() -> None:
    """What the leader and the wiped node had acknowledged is on the leader's disk alone: only it may win."""
    world, leader, (wiped, behind) = started()
    world.network.cut(leader, behind)
    attempts = propose(world, leader, "acknowledged")
    world.run_until(lambda: attempts[0].outcome is not None)
    world.crash(leader)
    world.wipe(wiped)
    world.restart(wiped)
    world.run(5.0)
    assert world.leaders() == []
    world.heal()
    world.run(3.0)
    assert {tuple(commands(world, node)) for node in world.nodes} == {(b"acknowledged",)}
    (second,) = world.leaders()
    assert world.group(second).configuration.voters == {node: world.disks[node].incarnation for node in world.nodes}


def test_disks_may_be_wiped_one_after_the_other() -> None:
    world, leader, _ = started()
    attempts = propose(world, leader, "kept")
    world.run(0.5)
    for node in world.nodes:
        assert world.checker.members.may_lose(node)
        world.wipe(node)
        assert not any(world.checker.members.may_lose(other) for other in world.nodes if other != node)
        world.restart(node)
        world.run(3.0)
    assert isinstance(attempts[0].outcome, Committed)
    assert {tuple(commands(world, node)) for node in world.nodes} == {(b"kept",)}


# Handing over.


def test_a_leadership_transfer_to_a_named_voter_loses_no_proposal() -> None:
    world, leader, (transferee, _) = started()
    before = propose(world, leader, "before")
    world.run(0.001)
    settled = transfer(world, leader, transferee)
    held = propose(world, leader, "held")
    world.run(1.0)
    assert (settled, world.leaders()) == ([None], [transferee])
    assert isinstance(before[0].outcome, Committed)
    assert isinstance(held[0].outcome, Committed | Rejected)


def test_a_transfer_leaves_no_proposal_without_an_answer() -> None:
    """The transferee has it on disk before the leader has: without the leader's own copy it is not committed."""
    world, leader, (transferee, third) = started()
    world.isolate([third])
    world.disks[leader].latency_s = lambda: 0.3
    attempts = propose(world, leader, "the transferee has it first")
    world.run(0.001)
    settled = transfer(world, leader, transferee)
    world.run(1.0)
    assert (settled, world.leaders()) == ([None], [transferee])
    assert isinstance(attempts[0].outcome, Committed)


def test_a_leadership_transfer_waits_for_a_transferee_that_is_behind() -> None:
    world, leader, (transferee, _) = started()
    world.network.cut(leader, transferee)
    attempts = propose(world, leader, *[f"c{number}" for number in range(50)])
    world.run(0.3)
    settled = transfer(world, leader, transferee, timeout_s=5.0)
    meanwhile = propose(world, leader, "meanwhile")
    world.run(0.3)
    assert isinstance(meanwhile[0].outcome, Committed), "as long as much is missing, work goes on"
    assert settled == []
    world.heal()
    world.run(2.0)
    assert (settled, world.leaders()) == ([None], [transferee])
    assert all(isinstance(attempt.outcome, Committed) for attempt in attempts)


def test_a_transfer_that_times_out_appends_the_proposals_that_waited() -> None:
    world, leader, (transferee, _) = started()
    world.network.link(leader, transferee).slow_s[transferee] = 1000.0
    settled = transfer(world, leader, transferee, timeout_s=0.3)
    held = propose(world, leader, "held")
    world.run(1.0)
    assert isinstance(settled[0], TimeoutError)
    assert world.leaders() == [leader]
    assert isinstance(held[0].outcome, Committed)


def test_a_transferee_whose_disk_hangs_delays_proposals_for_an_election_timeout_at_most() -> None:
    """They waited for as long as the handover might take: 10 s where a replica was moved, and again after each try."""
    world, leader, (transferee, _) = started()
    world.disks[transferee].latency_s = lambda: 1000.0
    settled = transfer(world, leader, transferee, timeout_s=60.0)
    held = propose(world, leader, "held")
    world.run(3 * world.settings.election_timeout_ms_max / 1000)
    assert isinstance(held[0].outcome, Committed)
    assert (settled, world.leaders()) == ([], [leader])


@pytest.mark.parametrize(
    ("asked", "transferee", "error"),
    [("leader", "n9", ValueError), ("leader", "itself", ValueError), ("follower", None, NotLeader)],
)
def test_a_transfer_that_makes_no_sense_is_refused(asked: str, transferee: str | None, error: type) -> None:
    world, leader, (follower, _) = started()
    transferee = leader if transferee == "itself" else transferee
    settled = transfer(world, leader if asked == "leader" else follower, transferee)
    assert [type(each) for each in settled] == [error]


# A configuration that changes while votes are counted.


def a_candidate_installs_a_checkpoint() -> World:
    """Two of five voters left while n2 was cut off. One of them votes for n2 before n2 installs the checkpoint that
    tells of that; the three that are left commit a command meanwhile, without n2.
    """
    world, leader, (late, gone, other, voter) = started(5)
    for each in (late, gone):
        world.isolate([each])
    for each in (gone, other):
        change(world, leader, RemoveMember(each))
        world.run(0.5)
    world.processes[leader].checkpoints.take(1)
    world.run(0.5)
    journal = world.group(leader)._node.log
    journal.compact(journal.origin.index)
    offers: list[tuple[int, str, int]] = []
    world.processes[late].fetch_checkpoint = lambda *offer: offers.append(offer)
    for each in (leader, gone):
        world.network.mend(each, late)
    world.run_until(lambda: bool(offers), 2.0)
    world.group(late).receive(leader, TimeoutNow(world.group(leader).term))
    world.network.cut(leader, late)
    (attempt,) = propose(world, leader, "acknowledged")
    world.run_until(lambda: world.group(late)._node._election._votes == {late, gone}, 0.1)
    world.run_until(lambda: isinstance(attempt.outcome, Committed), 0.1)
    world.disks[late].checkpoints[1] = checkpoint = world.disks[leader].checkpoints[1]
    assert world.group(late).install(checkpoint, NOWHERE)
    assert world.group(late).voters == (leader, late, voter)
    world.run(0.1)
    return world


def test_votes_end_with_the_configuration_that_they_were_counted_by() -> None:
    world = a_candidate_installs_a_checkpoint()
    assert world.leaders() == ["n1"]
    world.heal()
    world.run(3.0)
    assert len(world.leaders()) == 1
    assert {tuple(commands(world, node)) for node in world.group("n1").voters} == {(b"acknowledged",)}


def test_votes_that_outlived_their_configuration_would_make_a_second_leader() -> None:
    with keeps_votes_of_an_older_configuration(), pytest.raises(Violation, match="without the votes of a majority"):
        a_candidate_installs_a_checkpoint()


@pytest.mark.parametrize("is_taken_back", [False, True])
def test_a_candidate_counts_no_vote_after_entries_that_change_the_configuration(is_taken_back: bool) -> None:
    """The votes come late: after the leader of the same term, which sent the entries, is lost again."""
    world, leader, (candidate, gone, other) = started(4)
    if is_taken_back:
        for each in (gone, other):
            world.network.hold(leader, each)
        change(world, leader, RemoveMember(gone))
        world.run_until(lambda: gone not in world.group(candidate).voters, 0.1)
    for each in (leader, gone, other):
        world.network.hold(candidate, each)
    group, before = world.group(candidate), world.group(candidate).configuration
    group.receive(leader, TimeoutNow(1))
    world.run_until(lambda: group._node._election._votes == {candidate}, 0.1)
    entry = b"\1" if is_taken_back else apply_change(before, RemoveMember(gone)).entry()
    group.receive(other, AppendEntries(2, 2, 2, 1, 1, [(3, 2, entry)]))
    assert group.configuration != before
    group.peer_down(other)
    group.peer_up(other, world.founders[other])
    for each in (leader, gone, other):
        group.receive(each, VoteReply(2, True))
    assert not group.is_leader


# Followers that lack what is gone.


def left_behind(fetch: Callable[..., None] | None = None) -> tuple[World, str, str, str]:
    """A leader whose log begins at a checkpoint, a follower that lacks what came before, and the other follower."""
    world, leader, (behind, other) = started()
    world.crash(behind)
    propose(world, leader, *[f"c{number}" for number in range(20)])
    world.run(0.5)
    world.processes[leader].checkpoints.take(1)
    world.run(0.5)
    journal = world.group(leader)._node.log
    journal.compact(journal.origin.index)
    if fetch is not None:
        with patch.object(Checkpoints, "fetch", fetch):
            world.restart(behind)
    else:
        world.restart(behind)
    return world, leader, behind, other


def test_a_follower_behind_the_compacted_log_installs_a_checkpoint() -> None:
    world, leader, behind, _ = left_behind()
    world.run(3.0)
    after = propose(world, leader, "after")
    world.run(0.5)
    assert isinstance(after[0].outcome, Committed)
    assert commands(world, behind) == commands(world, leader)
    assert world.group(behind)._node.log.origin.index == 22


def test_a_follower_that_is_offered_a_checkpoint_counts_as_heard_and_confirms_reads() -> None:
    world, leader, _, other = left_behind(lambda *_: None)
    world.run(1.0)
    world.crash(other)
    world.run(2.0)
    assert world.leaders() == [leader], "it hears from a majority"
    settled: list[Exception | None] = []
    world.group(leader).submit_barrier(1.0, settled.append)
    world.run(0.3)
    assert settled == [None]


def test_an_offer_commits_nothing_and_promises_nothing() -> None:
    world, leader, (follower, _) = started()
    world.network.hold(leader, follower)
    group, sent = world.group(follower), sent_by(world, follower)
    with patch.object(group._ports, "fetch_checkpoint") as fetch:
        group.receive(leader, Offer(1, 50, 40, 1, 99))
        world.run(0.01)
    assert (group.commit_index, group.applied_index) == (2, 2)
    assert fetch.call_args.args == (1, leader, 40)
    assert AppendAck(1, False, 3, 99) in sent


def test_an_offer_of_an_older_term_is_refused_and_names_no_round() -> None:
    world, leader, (follower, _) = started()
    sent = sent_by(world, follower)
    world.group(follower).receive(leader, Offer(0, 50, 40, 0, 99))
    world.run(0.001)
    assert AppendAck(1, False, 3, 0) in sent


def test_a_restarted_replica_begins_at_its_checkpoint() -> None:
    world, leader, (follower, _) = started()
    propose(world, leader, *"abc")
    world.run(0.5)
    world.processes[follower].checkpoints.take(1)
    world.run(0.5)
    world.crash(follower)
    world.isolate([follower])
    world.restart(follower)
    group = world.group(follower)
    assert (group.commit_index, group.applied_index, commands(world, follower)) == (5, 5, [b"a", b"b", b"c"])


def test_a_crash_before_the_rename_leaves_the_checkpoint_before() -> None:
    world, leader, _ = started()
    propose(world, leader, "a")
    world.run(0.5)
    world.disks[leader].latency_s = lambda: 1.0
    world.processes[leader].checkpoints.take(1)
    world.run(0.5)
    world.crash(leader)
    assert world.disks[leader].checkpoints == {}


# Erased replicas.


def a_stale_candidate_asks_a_replica_that_was_erased() -> World:
    """n3 was a voter, acknowledged something, was removed and erased, and joins again with the same disk.

    While it copies the log it meets its old configuration. The follower that was cut off at that time asks it for a
    vote: together they would be a majority of that configuration.
    """
    one_by_one = RaftSettings(message_bytes_max=1, window_messages_max=1)
    world, leader, (stale,) = started(2, spares=2, raft=one_by_one)
    change(world, leader, learner(world, "n3"))
    world.run_until(lambda: "n3" in world.group(stale).voters)
    promoted = world.group(leader).configuration
    index = world.group(leader)._node.log.configuration_index
    world.run(0.5)
    world.isolate([stale])
    propose(world, leader, "acknowledged")
    change(world, leader, learner(world, "n4"))
    world.run_until(lambda: "n4" in world.group(leader).voters and not world.group(leader).changing)
    change(world, leader, RemoveMember("n3"))
    world.run_until(lambda: "n3" not in world.group(leader).voters and not world.group(leader).changing)
    world.processes["n3"].erase_group(1)
    world.run(0.5)
    change(world, leader, learner(world, "n3"))
    world.run_until(lambda: world.group("n3")._node.log.last_index == index)
    assert world.group("n3").configuration == promoted
    world.isolate(["n3"])
    world.network.mend("n3", stale)
    world.run(5.0)
    return world


def test_a_replica_that_rejoins_votes_for_no_candidate_with_a_shorter_log_than_its_tombstone() -> None:
    world = a_stale_candidate_asks_a_replica_that_was_erased()
    (leader,) = world.leaders()
    world.heal()
    world.run(3.0)
    assert world.leaders() == [leader]
    assert {tuple(commands(world, node)) for node in world.nodes} == {(b"acknowledged",)}


def test_without_its_tombstone_a_replica_that_rejoins_would_elect_a_stale_candidate() -> None:
    with forgets_what_it_had_promised(), pytest.raises(Violation, match="lacks committed entry"):
        a_stale_candidate_asks_a_replica_that_was_erased()


@pytest.mark.parametrize("is_durable", [False, True])
def test_an_erased_replica_has_its_checkpoint_until_the_log_says_that_it_is_erased(is_durable: bool) -> None:
    """Seed 9360753: the simulated disk forgot it at once, and the log's first entries were gone already."""
    world, leader, followers = started()
    propose(world, leader, "a", "b")
    world.run(0.5)
    node, process = followers[0], world.processes[followers[0]]
    process.checkpoints.take(1)
    world.run(0.5)
    assert 1 in world.disks[node].checkpoints
    process.erase_group(1)
    assert 1 not in world.disks[node].checkpoints
    if is_durable:
        world.disks[node].sync(len(world.disks[node].records))
    with patch.object(world.disks[node]._rng, "randint", lambda low, high: low):
        world.crash(node)
    assert (1 in world.disks[node].checkpoints) is not is_durable


@pytest.mark.parametrize("learner_term", [5, 6])
def test_the_invariant_of_promotion_allows_a_learner_that_a_newer_leader_has_truncated(learner_term: int) -> None:
    """Seed 9455755: the leader of term 5 promoted a learner that had been caught up, but was in term 6 by then."""
    log = View(term=5, entries=[(5, b"a" * 149), (5, b"b" * 336)])
    durable = View(term=learner_term, entries=[(learner_term, b"")])
    disk = SimpleNamespace(durable={1: durable}, covered=lambda group_id: 0)
    members = Members(cast(Any, SimpleNamespace(disk=lambda node, incarnation: disk)))
    assert members.has_caught_up(log, 5, 1, "n1", 7, 300) is (learner_term > 5)
