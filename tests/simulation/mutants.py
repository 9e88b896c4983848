"""A Raft node, broken on purpose: each mutant is a mistake that Raft implementations have made, pysyncobj's among them.

The checker must catch every one of them, or it would not catch the mistake either.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from simulation.disk import Record

from stockade.raft.core.coalescing import Coalescer
from stockade.raft.core.follower import FollowerState, VoteGate, Voting
from stockade.raft.core.group import Rejected
from stockade.raft.core.leader import LeaderState, Progress
from stockade.raft.core.pending import PendingProposal, ReadBarriers, commands_of, entries_of
from stockade.raft.core.quiescence import Quiescence
from stockade.raft.core.raft_node import RaftNode
from stockade.raft.log.group_log import GroupLog
from stockade.raft.messages import AckMany, AppendAck, AppendEntries, AppendMany, Commit, RequestVote
from stockade.raft.net import codec

Mutant = Callable[[], Any]


def acks_of_any_term() -> Any:
    """D1: an ack that was on its way when the term changed counts for the new one."""

    def on_ack(node: RaftNode, node_id: str, ack: AppendAck) -> None:
        if node.leading is not None:
            node.leading.answered(node_id, ack, node._ports.time())

    return patch.object(RaftNode, "_on_ack", on_ack)


def refusals_of_another_term_name_their_round() -> Any:
    """The refusal of an old message counts as an answer in the term that its sender leads when it arrives."""
    refuse = FollowerState._refuse

    def naming(following: FollowerState, node_id: str, next_index: int, round_: int) -> None:
        refuse(following, node_id, next_index, round_ or following._refused_round)  # type: ignore[attr-defined]

    on_append = FollowerState.on_append

    def remembering(following: FollowerState, node_id: str, message: AppendEntries) -> None:
        following._refused_round = message.round  # type: ignore[attr-defined]
        on_append(following, node_id, message)

    return patch.multiple(FollowerState, _refuse=naming, on_append=remembering)


def success_rewinds() -> Any:
    """D2, first half: a success ack sets next_index back over what is in flight."""
    matched = Progress.matched

    def rewinding(follower: Progress, index: int) -> None:
        matched(follower, index)
        follower.next_index = index + 1

    return patch.object(Progress, "matched", rewinding)


def truncates_what_matches() -> Any:
    """D2, second half: whatever follows prev_index is cut, even if it is the same."""
    on_append = FollowerState.on_append

    def cutting(following: FollowerState, node_id: str, message: AppendEntries) -> None:
        log = following._log
        matches = log.conflict(message.prev_index, message.prev_term) is None
        if message.entries and matches and message.term == following._node.term and message.prev_index < log.last_index:
            log.truncate(message.prev_index + 1)
        on_append(following, node_id, message)

    return patch.object(FollowerState, "on_append", cutting)


def commits_what_is_not_verified() -> Any:
    """D3: a follower commits up to its own end, not up to what the leader has verified."""
    learn = RaftNode.learn_commit

    def learn_all(node: RaftNode, known_index: int, leader_index: int) -> None:
        learn(node, min(leader_index, node.log.last_index), leader_index)

    return patch.object(RaftNode, "learn_commit", learn_all)


def forgets_the_vote() -> Any:
    """D16: a restart forgets term and vote."""
    init = GroupLog.__init__

    def forgetful(journal: GroupLog, group_id: int, log: Any, recovered: Any, *rest: Any) -> None:
        recovered.voted_for = None
        recovered.term = recovered.entries[-1].term if recovered.entries else 0
        init(journal, group_id, log, recovered, *rest)

    return patch.object(GroupLog, "__init__", forgetful)


def acks_before_the_disk() -> Any:
    """A follower acks what is only in memory."""
    acknowledge = FollowerState.acknowledge

    def early(following: FollowerState, *, beat: bool) -> None:
        with patch.object(GroupLog, "durable_index", property(lambda journal: journal.last_index)):
            acknowledge(following, beat=beat)

    return patch.object(FollowerState, "acknowledge", early)


def leader_counts_its_memory() -> Any:
    """A leader counts itself before its own disk has the entry."""
    majority = LeaderState.majority_index

    def early(leading: LeaderState) -> int:
        with patch.object(GroupLog, "durable_index", property(lambda journal: journal.last_index)):
            return majority(leading)

    return patch.object(LeaderState, "majority_index", early)


def votes_before_the_disk() -> Any:
    """Votes, and what speaks for a new term, leave at once."""
    return patch.object(VoteGate, "post", lambda gate, node_id, message: gate._send(node_id, message))


def commits_old_terms() -> Any:
    """Entries of an older term are committed by counting copies (figure 8 of the Raft paper)."""

    replicate = RaftNode._replicate

    def advancing(node: RaftNode, leading: LeaderState) -> None:
        node._SyncObj__raftCommitIndex = max(node.commit_index, leading.majority_index())
        replicate(node, leading)

    return patch.object(RaftNode, "_replicate", advancing)


def minority_commits() -> Any:
    """One copy too few is counted."""

    def majority_index(leading: LeaderState) -> int:
        indexes = sorted([*(f.match_index for f in leading.followers.values()), leading._log.durable_index])
        return indexes[min(leading._majority_others + 1, len(indexes) - 1)]

    return patch.object(LeaderState, "majority_index", majority_index)


def votes_twice() -> Any:
    """A node votes for each candidate that asks, also in a term in which it has voted."""
    on_request_vote = Voting.on_request_vote

    def generous(voting: Voting, node_id: str, request: RequestVote) -> None:
        with patch.object(RaftNode, "voted_for", None):
            on_request_vote(voting, node_id, request)

    return patch.object(Voting, "on_request_vote", generous)


def votes_for_shorter_logs() -> Any:
    """A node votes for a candidate that lacks entries."""
    return patch.object(Voting, "_is_up_to_date", lambda *_: True)


def keeps_what_was_verified() -> Any:
    """What one leader has verified is acknowledged to the next one."""
    new_term = FollowerState.new_term

    def keep(following: FollowerState) -> None:
        kept = getattr(following, "verified_index", 0)
        new_term(following)
        following.verified_index = min(kept, following._log.last_index)

    return patch.object(FollowerState, "new_term", keep)


def truncates_in_memory_only() -> Any:
    """A truncation is not written to the log."""

    @contextmanager
    def mutated() -> Iterator[None]:
        truncate = GroupLog.truncate

        def silent(journal: GroupLog, from_index: int) -> None:
            log: Any = journal._log

            def cut(group_id: int, index: int) -> None:
                log.views[group_id].take(Record("truncate", group_id, index), 0)

            with patch.object(log, "truncate", cut):
                truncate(journal, from_index)

        with patch.object(GroupLog, "truncate", silent):
            yield

    return mutated()


def rejects_what_it_appended() -> Any:
    """On losing the leadership, what was appended is answered as rejected (as pysyncobj's documentation has it)."""
    return patch("stockade.raft.core.raft_node.Unknown", lambda _: Rejected(None, 0))


def answers_the_wrong_proposal() -> Any:
    """D15: what waits at an index is kept when the leadership is lost, and answered for another's entry."""
    follow = RaftNode._follow

    def keeping(node: RaftNode, term: int, leader: Any) -> None:
        waiting = dict(node._SyncObj__commandsWaitingCommit)
        node._SyncObj__commandsWaitingCommit.clear()
        follow(node, term, leader)
        node._SyncObj__commandsWaitingCommit.update(waiting)

    return patch.object(RaftNode, "_follow", keeping)


def reads_without_a_round() -> Any:
    """A read trusts the leader's own belief."""
    check = ReadBarriers.check

    def trusting(barriers: ReadBarriers, leading: LeaderState | None, applied_index: int, refusal: Any) -> None:
        with patch.object(LeaderState, "majority_round", lambda _: float("inf")):
            check(barriers, leading, applied_index, refusal)

    return patch.object(ReadBarriers, "check", trusting)


def reads_before_its_own_term() -> Any:
    """A new leader serves reads before it has committed an entry of its own term."""
    add = ReadBarriers.add

    def hasty(barriers: ReadBarriers, barrier: Any) -> None:
        barrier.index = 1
        add(barriers, barrier)

    return patch.object(ReadBarriers, "add", hasty)


def never_wakes() -> Any:
    """A quiescent follower misses no leader."""
    wake = RaftNode.wake

    def sleeping(node: RaftNode) -> None:
        if node.leading is not None:
            wake(node)

    return patch.object(RaftNode, "wake", sleeping)


def quiesces_too_early() -> Any:
    """A leader quiesces although a follower lacks entries."""

    def settled(quiescence: Quiescence, leading: LeaderState, commit_index: int) -> bool:
        return commit_index == quiescence._log.last_index and not leading.beat_is_wanted

    return patch.object(Quiescence, "is_settled", settled)


def answers_in_another_order() -> Any:
    """The callers whose commands share an entry get each other's answers."""

    def swapping(*arguments: Any, bundles: bool) -> Iterator[tuple[bytes, list[PendingProposal]]]:
        for payload, proposals in entries_of(*arguments, bundles=bundles):
            yield payload, proposals[::-1]

    return patch("stockade.raft.core.raft_node.entries_of", swapping)


def applies_the_first_alone() -> Any:
    """Of commands that share an entry, all but one are forgotten."""
    return patch("stockade.raft.core.raft_node.commands_of", lambda payload: commands_of(payload)[:1])


def sends_what_the_peer_does_not_speak() -> Any:
    """A kind of message that is new is sent to nodes of the release before."""
    return patch.dict(codec.SINCE, {Commit: codec.PROTOCOL_VERSION})


def acks_many_before_the_disk() -> Any:
    """What came in one frame is acked when it is in memory."""
    take = Coalescer.take

    def hasty(coalescer: Coalescer, node_id: str, many: AppendMany) -> None:
        with (
            patch.object(coalescer._node, "wake_when_durable", lambda wake: wake()),
            patch.object(GroupLog, "durable_index", property(lambda journal: journal.last_index)),
        ):
            take(coalescer, node_id, many)

    return patch.object(Coalescer, "take", hasty)


def takes_silence_for_an_ack() -> Any:
    """What a follower leaves out of the ack of a frame counts as acked."""
    acked = Coalescer.acked

    def trusting(coalescer: Coalescer, node_id: str, ack: AckMany) -> None:
        acked(coalescer, node_id, AckMany(ack.number, []))

    return patch.object(Coalescer, "acked", trusting)


def acks_of_frames_of_any_term() -> Any:
    """The ack of a frame, sent in an earlier leadership of this node, counts for the present one."""

    def acked(node: RaftNode, node_id: str, message: AppendEntries, now: float) -> None:
        if node.leading is not None:
            node.wake()
            node.leading.acked(node_id, message.prev_index + len(message.entries), message.round, now)

    return patch.object(RaftNode, "acked", acked)


def spares_every_full_disk() -> Any:
    """A full disk is sent no entries, even where a majority cannot do without it."""

    def with_room(leading: LeaderState, followers: list[Progress]) -> list[Progress]:
        return [follower for follower in followers if follower.node_id not in leading._membership.full_disks]

    return patch.object(LeaderState, "_with_room", with_room)


FRAME_MUTANTS: tuple[Mutant, ...] = (acks_many_before_the_disk, takes_silence_for_an_ack, acks_of_frames_of_any_term)
"""Mistakes with the frames of many groups."""
MUTANTS: tuple[Mutant, ...] = (
    *FRAME_MUTANTS,
    acks_of_any_term,
    refusals_of_another_term_name_their_round,
    success_rewinds,
    truncates_what_matches,
    commits_what_is_not_verified,
    forgets_the_vote,
    acks_before_the_disk,
    leader_counts_its_memory,
    votes_before_the_disk,
    commits_old_terms,
    minority_commits,
    votes_twice,
    votes_for_shorter_logs,
    keeps_what_was_verified,
    truncates_in_memory_only,
    rejects_what_it_appended,
    answers_the_wrong_proposal,
    reads_without_a_round,
    reads_before_its_own_term,
    never_wakes,
    quiesces_too_early,
    answers_in_another_order,
    applies_the_first_alone,
    sends_what_the_peer_does_not_speak,
    spares_every_full_disk,
)
