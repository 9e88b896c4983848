"""The messages of an election: who asks whom, and who grants what. The engine keeps term, vote and role."""

from collections.abc import Callable
from typing import Any, Protocol

from .election import Election
from .gate import Gate
from .journal import Journal
from .membership import Membership
from .messages import PreVote, PreVoteReply, RaftMessage, RequestVote, TimeoutNow, VoteReply
from .ports import Ports

_OF_ELECTIONS = (PreVote, PreVoteReply, RequestVote, VoteReply)


class Seat(Protocol):
    """The engine, as far as an election changes it."""

    node_id: str

    @property
    def term(self) -> int: ...  # noqa: D102
    @property
    def leader(self) -> str | None: ...  # noqa: D102
    @property
    def voted_for(self) -> str | None: ...  # noqa: D102
    @property
    def commit_index(self) -> int: ...  # noqa: D102

    def forget_leader(self) -> None:
        """From now on no leader is known."""
        ...

    def become_candidate(self) -> None:
        """Enter the next term with a vote for ourselves."""
        ...

    def become_leader(self) -> None:
        """The vote of the current term is won."""
        ...

    def vote_for(self, node_id: str) -> None:
        """Save a vote in the current term."""
        ...


class Voting:
    """A pre-vote is asked freely, since it promises nothing; everything else leaves through the gate."""

    def __init__(
        self, seat: Seat, membership: Membership, journal: Journal, election: Election, gate: Gate, ports: Ports
    ) -> None:
        self._seat = seat
        self._membership = membership
        self._journal = journal
        self._election = election
        self._gate = gate
        self._ports = ports
        self.handlers: dict[type[RaftMessage], Callable[[str, Any], None]] = {
            PreVote: self.on_prevote,
            PreVoteReply: self.on_prevote_reply,
            RequestVote: self.on_request_vote,
            VoteReply: self.on_vote_reply,
            TimeoutNow: self.on_timeout_now,
        }

    def is_unwelcome(self, message: RaftMessage) -> bool:
        """Whether somebody asks for support, or answers what nobody asks any more, while the leader is well: that is
        ignored, term and all (stickiness). Whoever counts and knows a newer term tells the leader of it, too.
        """
        is_of_an_election = isinstance(message, _OF_ELECTIONS) and not (
            isinstance(message, RequestVote) and message.is_handover
        )
        leader = self._seat.leader
        return is_of_an_election and leader is not None and (leader == self._seat.node_id or self._election.leased)

    def ask_around(self) -> None:
        """The leader is silent: ask whether an election would be won, before any term is spent on it."""
        self._seat.forget_leader()
        if not self._membership.may_campaign(self._seat.commit_index):
            self._election.postpone()
            return
        self._election.begin_prevote()
        if self._membership.is_voter and self._election.promised(self._seat.node_id):
            self._campaign(is_handover=False)
            return
        question = PreVote(self._seat.term + 1, self._journal.last_index, self._journal.last_term)
        for node_id in self._membership.others:
            self._ports.send(node_id, question)

    def _campaign(self, *, is_handover: bool) -> None:
        """Vote for ourselves in a new term. Once that vote is on disk it counts, and the others are asked."""
        self._seat.become_candidate()
        self._election.begin_vote()
        journal = self._journal
        request = RequestVote(self._seat.term, journal.last_index, journal.last_term, is_handover)
        for node_id in self._membership.others:
            self._gate.post(node_id, request)

    def count_own_vote(self) -> None:
        """To be called when the disk has moved on."""
        own_id = self._seat.node_id
        is_on_disk = self._seat.voted_for == own_id and self._journal.state_is_durable
        if is_on_disk and self._membership.is_voter and self._election.voted(own_id):
            self._seat.become_leader()

    def _may_support(self, message: PreVote | RequestVote) -> bool:
        """Whether we have a say, and the candidate's journal holds all that ours does."""
        return self._membership.has_a_say(self._seat.commit_index) and self._is_up_to_date(message)

    def _is_up_to_date(self, message: PreVote | RequestVote) -> bool:
        return (message.last_term, message.last_index) >= self._journal.promised_end

    def on_prevote(self, node_id: str, question: PreVote) -> None:
        """Would we vote for it? Nothing is promised by the answer."""
        if self._seat.leader is None and not self._is_up_to_date(question):
            self._election.hurry()  # the leader is gone, and it cannot win: we, whose log is longer, may
        granted = question.term > self._seat.term and self._may_support(question)
        self._gate.post(node_id, PreVoteReply(question.term if granted else self._seat.term, granted))

    def on_prevote_reply(self, node_id: str, reply: PreVoteReply) -> None:
        """With promises of a majority of the voters, the election begins."""
        counts = reply.granted and reply.term == self._seat.term + 1 and self._membership.counts(node_id)
        if counts and self._election.promised(node_id):
            self._campaign(is_handover=False)

    def on_request_vote(self, node_id: str, request: RequestVote) -> None:
        """One vote a term, and only for a journal that holds all that ours does."""
        seat = self._seat
        granted = (
            request.term == seat.term
            and seat.leader is None
            and seat.voted_for in {None, node_id}
            and self._may_support(request)
        )
        if granted:
            self._election.postpone()
            if seat.voted_for is None:
                seat.vote_for(node_id)
        self._gate.post(node_id, VoteReply(seat.term, granted))

    def on_vote_reply(self, node_id: str, reply: VoteReply) -> None:
        """With a majority of votes we lead. A refusal may mean a split vote: that is not waited out, but asked anew
        soon.
        """
        if reply.term != self._seat.term or self._seat.leader is not None:
            return
        if not reply.granted:
            self._election.hurry()
        elif self._membership.counts(node_id) and self._election.voted(node_id):
            self._seat.become_leader()

    def on_timeout_now(self, node_id: str, request: TimeoutNow) -> None:
        """Our leader hands over: campaign at once, without asking around."""
        if request.term == self._seat.term and self._seat.leader == node_id and self._membership.is_voter:
            self._campaign(is_handover=True)
