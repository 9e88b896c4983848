"""Members, wiped disks and checkpoints, treated wrongly on purpose: the checker must catch each of these, too."""

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from simulation.mutants import Mutant

from stockade.raft.core.follower import FollowerState
from stockade.raft.core.leader import LeaderState, Progress
from stockade.raft.core.membership import Membership
from stockade.raft.core.raft_node import RaftNode
from stockade.raft.log.configuration import Change, Configuration, Demote
from stockade.raft.log.group_log import ConfigurationHistory, GroupLog
from stockade.raft.log.origin import GroupTombstone, Origin
from stockade.raft.messages import AppendAck, Offer


def counts_a_wiped_disk() -> Any:
    """Votes, acks and answers count by the node's name, whatever disk it has."""
    stack = ExitStack()
    named = lambda membership, node_id: node_id in membership.configuration.voters  # noqa: E731
    stack.enter_context(patch.object(Membership, "counts", named))
    stack.enter_context(patch.object(Progress, "counts", property(lambda follower: follower.is_voter)))
    return stack


def takes_back_no_wiped_voter() -> Any:
    """A voter that comes back with another disk is neither counted nor made a learner."""
    next_change = LeaderState.next_change

    def ignoring(leading: LeaderState) -> Change | None:
        change = next_change(leading)
        return None if isinstance(change, Demote) else change

    return patch.object(LeaderState, "next_change", ignoring)


def changes_twice_at_once() -> Any:
    """D4: a change begins while another one is not committed."""
    return patch.object(RaftNode, "changing", False)


def changes_before_its_own_term() -> Any:
    """A new leader changes members before it has committed an entry of its own term (the bug in the first paper)."""
    change = RaftNode.change

    def hasty(node: RaftNode, wanted: Change, proposal: Any = None) -> None:
        leading: Any = node.leading
        kept, leading.no_op_index = leading.no_op_index, 0
        try:
            change(node, wanted, proposal)
        finally:
            leading.no_op_index = kept

    return patch.object(RaftNode, "change", hasty)


def in_force_on_commit_only() -> Any:
    """A configuration decides only from when it is committed."""
    progress = RaftNode.progress

    def late(node: RaftNode) -> bool:
        vars(node.log)["committed"] = node.commit_index
        if node.leading is not None:
            node.leading.reconfigure(node._ports.time())
        return progress(node)

    def committed(membership: Membership) -> Configuration:
        journal = membership._log
        return journal.configuration_at(max(journal.origin.index, vars(journal).get("committed", 0)))

    stack = ExitStack()
    stack.enter_context(patch.object(RaftNode, "progress", late))
    stack.enter_context(patch.object(Membership, "configuration", property(committed)))
    return stack


def promotes_at_once() -> Any:
    """A learner becomes a voter before it has caught up."""
    return patch.object(LeaderState, "has_caught_up", lambda leading, follower: follower.connected)


def counts_learners() -> Any:
    """What a learner has counts as a voter's."""
    reconfigure = LeaderState.reconfigure

    def counting(leading: LeaderState, now: float) -> None:
        reconfigure(leading, now)
        leading._voters = [*leading.followers.values()]
        leading._look_at_disks()

    stack = ExitStack()
    stack.enter_context(patch.object(LeaderState, "reconfigure", counting))
    stack.enter_context(patch.object(Progress, "counts", True))
    return stack


def counts_a_leader_that_left() -> Any:
    """A leader that removes itself counts its own copy on."""
    reconfigure = LeaderState.reconfigure

    def keeping(leading: LeaderState, now: float) -> None:
        reconfigure(leading, now)
        leading._is_voter = True

    return patch.object(LeaderState, "reconfigure", keeping)


def gives_up_when_it_left() -> Any:
    """A node that is not in its own configuration never campaigns, though no other node knows of its removal."""
    return patch.object(Membership, "may_campaign", lambda membership, commit_index: membership.is_voter)


def truncates_no_configuration() -> Any:
    """A configuration stays in force when its entry is cut off."""
    return patch.object(ConfigurationHistory, "truncate", lambda *_: None)


def forgets_configurations() -> Any:
    """A restart finds no configuration in the log."""
    recover = GroupLog._recover

    def forgetful(journal: GroupLog, entries: Any) -> None:
        with patch.object(ConfigurationHistory, "add", lambda *_: None):
            recover(journal, entries)

    return patch.object(GroupLog, "_recover", forgetful)


def forgets_what_it_had_promised() -> Any:
    """A replica that was erased, and joins again with the same disk, votes as if it had never been there."""
    return patch.object(GroupLog, "tombstone", lambda _: GroupTombstone(1, 0, 0))


def offers_commit() -> Any:
    """D3: an offer raises the commit index over entries that were not compared."""
    on_offer = FollowerState.on_offer

    def committing(following: FollowerState, node_id: str, offer: Offer) -> None:
        on_offer(following, node_id, offer)
        if offer.term == following._node.term:
            following._node.learn_commit(min(offer.commit_index, following._log.last_index), offer.commit_index)

    return patch.object(FollowerState, "on_offer", committing)


def acks_an_offer() -> Any:
    """A follower acknowledges a checkpoint that it has not fetched yet."""
    on_offer = FollowerState.on_offer

    def early(following: FollowerState, node_id: str, offer: Offer) -> None:
        on_offer(following, node_id, offer)
        if offer.term == following._node.term:
            following._gate.post(node_id, AppendAck(offer.term, True, offer.index + 1, offer.round))

    return patch.object(FollowerState, "on_offer", early)


def keeps_a_stray_tail() -> Any:
    """Whatever follows an installed checkpoint stays, though the log has another entry at its place."""
    install = GroupLog.install

    def keeping(journal: GroupLog, origin: Origin) -> None:
        if journal.base_index <= origin.index <= journal.last_index:
            journal._rebase(origin)
        else:
            install(journal, origin)

    return patch.object(GroupLog, "install", keeping)


def keeps_votes_of_an_older_configuration() -> Any:
    """A candidate that installs a checkpoint goes on counting votes, by the majority that the checkpoint tells."""
    install = RaftNode.install

    def keeping(node: RaftNode, origin: Origin, restore: Any) -> bool:
        with patch.object(node._election, "void", lambda: None):
            return install(node, origin, restore)

    return patch.object(RaftNode, "install", keeping)


def ignores_offers() -> Any:
    """A follower that lacks what is gone is offered a checkpoint, and does not fetch it."""

    def on_offer(following: FollowerState, node_id: str, offer: Offer) -> None:
        following._refuse(node_id, following._node.commit_index + 1, offer.round)

    return patch.object(FollowerState, "on_offer", on_offer)


MEMBER_MUTANTS: tuple[Mutant, ...] = (
    counts_a_wiped_disk,
    takes_back_no_wiped_voter,
    changes_twice_at_once,
    changes_before_its_own_term,
    in_force_on_commit_only,
    promotes_at_once,
    counts_learners,
    counts_a_leader_that_left,
    gives_up_when_it_left,
    truncates_no_configuration,
    forgets_configurations,
    offers_commit,
    acks_an_offer,
    keeps_a_stray_tail,
    ignores_offers,
)
