"""Members, wiped disks and checkpoints, treated wrongly on purpose: the checker must catch each of these, too."""

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from simulation.mutants import Mutant

from stockade.raft.configuration import Change, Configuration, Demote
from stockade.raft.follower import Follower
from stockade.raft.following import Following
from stockade.raft.history import Configurations
from stockade.raft.journal import Journal
from stockade.raft.leading import Leading
from stockade.raft.membership import Membership
from stockade.raft.messages import AppendAck, Offer
from stockade.raft.origin import Left, Origin
from stockade.raft.steering import Steering


def counts_a_wiped_disk() -> Any:
    """Votes, acks and answers count by the node's name, whatever disk it has."""
    stack = ExitStack()
    named = lambda membership, node_id: node_id in membership.configuration.voters  # noqa: E731
    stack.enter_context(patch.object(Membership, "counts", named))
    stack.enter_context(patch.object(Follower, "counts", property(lambda follower: follower.is_voter)))
    return stack


def takes_back_no_wiped_voter() -> Any:
    """A voter that comes back with another disk is neither counted nor made a learner."""
    next_change = Leading.next_change

    def ignoring(leading: Leading) -> Change | None:
        change = next_change(leading)
        return None if isinstance(change, Demote) else change

    return patch.object(Leading, "next_change", ignoring)


def changes_twice_at_once() -> Any:
    """D4: a change begins while another one is not committed."""
    return patch.object(Steering, "changing", False)


def changes_before_its_own_term() -> Any:
    """A new leader changes members before it has committed an entry of its own term (the bug in the first paper)."""
    change = Steering.change

    def hasty(steering: Steering, wanted: Change, proposal: Any = None) -> None:
        leading: Any = steering.leading
        kept, leading.no_op_index = leading.no_op_index, 0
        try:
            change(steering, wanted, proposal)
        finally:
            leading.no_op_index = kept

    return patch.object(Steering, "change", hasty)


def in_force_on_commit_only() -> Any:
    """A configuration decides only from when it is committed."""
    tick = Steering._onTick

    def late(steering: Steering, time_to_wait: float = 0.0) -> bool:
        vars(steering.journal)["committed"] = steering.commit_index
        if steering.leading is not None:
            steering.leading.reconfigure(steering._ports.clock())
        return tick(steering, time_to_wait)

    def committed(membership: Membership) -> Configuration:
        journal = membership._journal
        return journal.configuration_at(max(journal.origin.index, vars(journal).get("committed", 0)))

    stack = ExitStack()
    stack.enter_context(patch.object(Steering, "_onTick", late))
    stack.enter_context(patch.object(Membership, "configuration", property(committed)))
    return stack


def promotes_at_once() -> Any:
    """A learner becomes a voter before it has caught up."""
    return patch.object(Leading, "has_caught_up", lambda leading, follower: follower.connected)


def counts_learners() -> Any:
    """What a learner has counts as a voter's."""
    reconfigure = Leading.reconfigure

    def counting(leading: Leading, now: float) -> None:
        reconfigure(leading, now)
        leading._voters = [*leading.followers.values()]

    stack = ExitStack()
    stack.enter_context(patch.object(Leading, "reconfigure", counting))
    stack.enter_context(patch.object(Follower, "counts", True))
    return stack


def counts_a_leader_that_left() -> Any:
    """A leader that removes itself counts its own copy on."""
    reconfigure = Leading.reconfigure

    def keeping(leading: Leading, now: float) -> None:
        reconfigure(leading, now)
        leading._is_voter = True

    return patch.object(Leading, "reconfigure", keeping)


def gives_up_when_it_left() -> Any:
    """A node that is not in its own configuration never campaigns, though nobody else knows of its removal."""
    return patch.object(Membership, "may_campaign", lambda membership, commit_index: membership.is_voter)


def truncates_no_configuration() -> Any:
    """A configuration stays in force when its entry is cut off."""
    return patch.object(Configurations, "cut", lambda *_: None)


def forgets_configurations() -> Any:
    """A restart finds no configuration in the log."""
    recover = Journal._recover

    def forgetful(journal: Journal, entries: Any) -> None:
        with patch.object(Configurations, "add", lambda *_: None):
            recover(journal, entries)

    return patch.object(Journal, "_recover", forgetful)


def forgets_what_it_had_promised() -> Any:
    """A replica that was erased, and joins again with the same disk, votes as if it had never been there."""
    return patch.object(Journal, "leave", lambda _: Left(1, 0, 0))


def offers_commit() -> Any:
    """D3: an offer raises the commit index over entries that nobody has compared."""
    on_offer = Following.on_offer

    def committing(following: Following, node_id: str, offer: Offer) -> None:
        on_offer(following, node_id, offer)
        if offer.term == following._seat.term:
            following._seat.learn_commit(min(offer.commit_index, following._journal.last_index), offer.commit_index)

    return patch.object(Following, "on_offer", committing)


def acks_an_offer() -> Any:
    """A follower acknowledges a checkpoint that it has not fetched yet."""
    on_offer = Following.on_offer

    def early(following: Following, node_id: str, offer: Offer) -> None:
        on_offer(following, node_id, offer)
        if offer.term == following._seat.term:
            following._gate.post(node_id, AppendAck(offer.term, True, offer.index + 1, offer.round))

    return patch.object(Following, "on_offer", early)


def keeps_a_stray_tail() -> Any:
    """Whatever follows an installed checkpoint stays, though the log has another entry at its place."""
    install = Journal.install

    def keeping(journal: Journal, origin: Origin) -> None:
        if journal.base_index <= origin.index <= journal.last_index:
            journal._rebase(origin)
        else:
            install(journal, origin)

    return patch.object(Journal, "install", keeping)


def ignores_offers() -> Any:
    """A follower that lacks what is gone is offered a checkpoint, and does not fetch it."""

    def on_offer(following: Following, node_id: str, offer: Offer) -> None:
        following._refuse(node_id, following._seat.commit_index + 1, offer.round)

    return patch.object(Following, "on_offer", on_offer)


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
