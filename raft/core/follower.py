"""The parts of a replica that does not lead: storing the leader's entries, the election timeout, votes, campaigns.

``FollowerState`` verifies and acknowledges entries; ``ApplyLag`` says when they are applied. ``Election`` keeps the
election deadline, until when the leader counts as heard, and the votes counted so far. ``Voting``
exchanges the messages (pre-vote, vote, leadership transfer). ``VoteGate`` withholds messages until the term and the
vote that they rest on are on disk. RaftNode keeps term, vote and role.
"""

from collections.abc import Callable
from typing import Any, Protocol

from ..log.group_log import GroupLog
from ..messages import (
    AppendAck,
    AppendEntries,
    Commit,
    Offer,
    PreVote,
    PreVoteReply,
    RaftMessage,
    RequestVote,
    TimeoutNow,
    VoteReply,
)
from ..ports import NodePorts
from ..settings import RaftSettings
from .membership import Membership

Send = Callable[[str, RaftMessage], bool]
"""Sends a message to a node; returns False if the message surely will not arrive."""


class InvariantBroken(Exception):
    """Something that Raft excludes has happened: a bug, here or on a peer. The node must stop before it spreads."""


class RaftState(Protocol):
    """The part of RaftNode that Voting and FollowerState read and change."""

    node_id: str
    leader: str | None

    @property
    def term(self) -> int: ...
    @property
    def voted_for(self) -> str | None: ...
    @property
    def commit_index(self) -> int: ...

    def heard_leader(self, node_id: str) -> None: ...
    def learn_commit(self, known_index: int, leader_index: int) -> None: ...
    def forget_leader(self) -> None: ...
    def become_candidate(self) -> None: ...
    def become_leader(self) -> None: ...
    def vote_for(self, node_id: str) -> None: ...


class VoteGate:
    """Withholds every message but a pre-vote until the term and the vote that it rests on are on disk.

    Of the withheld messages of one kind to one node only the latest is kept, which bounds their number on a slow disk;
    Raft repeats the others. RaftNode drops all of them when its term changes, so none is sent in a later term.
    """

    def __init__(self, log: GroupLog, send: Send) -> None:
        self._log = log
        self._send = send
        self.withheld: dict[tuple[str, type[RaftMessage]], RaftMessage] = {}
        """The messages that wait for the disk, by receiver and kind."""

    def post(self, node_id: str, message: RaftMessage) -> bool:
        """Send the message now, or when term and vote are on disk. Returns False if it surely will not arrive."""
        if self._log.state_is_durable:
            return self._send(node_id, message)
        assert not isinstance(message, AppendEntries), "a leader's vote for itself was not on disk"
        self.withheld[node_id, type(message)] = message
        return True

    def release(self) -> None:
        """Send the withheld messages if term and vote are on disk. Called after a disk sync."""
        if self._log.state_is_durable:
            withheld, self.withheld = self.withheld, {}
            for (node_id, _), message in withheld.items():
                self._send(node_id, message)


LAG_ENTRIES_MAX = 16
LAG_BYTES_MAX = 64 << 10
LAG_S = 0.25


class ApplyLag:
    """Decides when a follower applies: with many groups on a node a run of applies costs more than an apply in it.

    A follower whose machine may lag (``Machine.may_lag``) applies what is committed when LAG_ENTRIES_MAX entries, or
    LAG_BYTES_MAX bytes of them, came since it applied last, or when entries come LAG_S seconds after that. It also
    applies with every message without entries, and so within a heartbeat period after the last entry. A leader applies
    at once.
    """

    def __init__(self, now: float) -> None:
        self._entries = 0
        self._bytes = 0
        self._applied_at = now

    def add(self, entries: int, size: int) -> None:
        """Count ``entries`` entries that came, of ``size`` bytes together."""
        self._entries += entries
        self._bytes += size

    def end(self, now: float) -> None:
        """Start to count anew: a run of applies has ended, at ``now``."""
        self._entries = self._bytes = 0
        self._applied_at = now

    def is_enough(self, now: float) -> bool:
        """Whether it is time to apply."""
        return self._entries >= LAG_ENTRIES_MAX or self._bytes >= LAG_BYTES_MAX or now >= self._applied_at + LAG_S


class FollowerState:
    """How far the log is verified against that of this term's leader, and how far it is acked. A new term clears both,
    so what one leader has verified is acked to no other.
    """

    def __init__(self, node: RaftState, group_id: int, log: GroupLog, gate: VoteGate, ports: NodePorts) -> None:
        self._node = node
        self._group_id = group_id
        self._log = log
        self._gate = gate
        self._ports = ports
        self.lag: ApplyLag = ApplyLag(ports.time())
        self.new_term()

    @property
    def handlers(self) -> dict[type[RaftMessage], Callable[[str, Any], None]]:
        """The handler of each kind of message that a leader sends."""
        return {AppendEntries: self.on_append, Commit: self.on_commit, Offer: self.on_offer}

    def new_term(self) -> None:
        """Forget what is verified, and what acks are owed to the leader of the term before."""
        self.verified_index: int = 0
        """Up to here the log equals that of this term's leader. Entries beyond it may differ."""
        self._acked_index = 0
        self._round = 0
        self._owes = False

    def on_append(self, node_id: str, message: AppendEntries) -> None:
        """Handle entries or a heartbeat. The log is truncated only where an entry really differs (D2).

        A message of an older term is refused, so that its sender learns the newer term. Such a refusal names no round:
        the deposed leader may lead the newer term when the refusal arrives, and number its rounds anew.
        """
        if message.term < self._node.term:
            self._refuse(node_id, self._log.last_index + 1, round_=0)
            return
        self._node.heard_leader(node_id)
        log, commit_index = self._log, self._node.commit_index
        prev_index = message.prev_index
        retry_index = None
        if prev_index != log.last_index or message.prev_term != log.last_term:
            retry_index = log.conflict(prev_index, message.prev_term)
        if retry_index is not None:
            if message.prev_index <= commit_index:
                raise InvariantBroken(f"{node_id} contradicts the committed entry {message.prev_index}")
            self._refuse(node_id, max(retry_index, commit_index + 1), message.round)
            return
        if message.entries and self._ports.log_is_full():
            return
        size = 0
        for due, (index, term, payload) in enumerate(message.entries, message.prev_index + 1):
            if index != due:
                raise InvariantBroken(f"entry {index} where {due} was due")
            if index <= log.last_index:
                if index < log.base_index or log.term_at(index) == term:
                    continue
                if index <= max(commit_index, self.verified_index):
                    raise InvariantBroken(f"the leader contradicts entry {index}, committed up to {commit_index}")
                log.truncate(index)
            log.add(payload, index, term)
            size += len(payload)
        self._verified(message, size)
        self.acknowledge(beat=not message.entries)

    def take(self, message: AppendEntries) -> bool:
        """Store entries of this term's leader as ``on_append`` does, but without an ack, if they follow the end of this
        log; otherwise do nothing, and return False. The caller has made sure that there is room for entries.
        """
        log = self._log
        if message.prev_index != log.last_index or message.prev_term != log.last_term:
            return False
        size = 0
        for index, term, payload in message.entries:
            log.add(payload, index, term)
            size += len(payload)
        self._verified(message, size)
        return True

    def _verified(self, message: AppendEntries, size: int) -> None:
        """Note that the log equals the leader's up to the last entry of ``message``; ``size`` bytes of them are new."""
        count, commit_index = len(message.entries), message.commit_index
        self.lag.add(count, size)
        self.verified_index = max(self.verified_index, self._log.base_index, message.prev_index + count)
        self._round = max(self._round, message.round)
        self._owes = True
        self._node.learn_commit(min(commit_index, self.verified_index), commit_index)

    def on_commit(self, node_id: str, message: Commit) -> None:
        """Raise the commit index. A leader of an older term learns the newer term from the answer to a heartbeat."""
        if message.term == self._node.term:
            self._node.heard_leader(node_id)
            self._node.learn_commit(min(message.commit_index, self.verified_index), message.commit_index)

    def on_offer(self, node_id: str, offer: Offer) -> None:
        """Begin to fetch a checkpoint that our leader offers: it no longer has the entries that this log lacks.

        An offer says nothing about this log, so it commits nothing (D3). It is answered at once, as a heartbeat is,
        with the end of the committed entries here: the leader goes on from there once it can.
        """
        if offer.term < self._node.term:
            self._refuse(node_id, self._log.last_index + 1, round_=0)
            return
        self._node.heard_leader(node_id)
        commit_index = self._node.commit_index
        self._node.learn_commit(commit_index, offer.commit_index)
        if offer.index > commit_index:
            self._ports.fetch_checkpoint(self._group_id, node_id, offer.index)
        self._refuse(node_id, commit_index + 1, offer.round)

    def _refuse(self, node_id: str, next_index: int, round_: int) -> None:
        self._gate.post(node_id, AppendAck(self._node.term, False, next_index, round_))

    def acknowledge(self, *, beat: bool) -> None:
        """Ack the entries that are verified *and* on disk, if some are not acked yet; with ``beat``, in any case.

        So one ack answers all entries that became durable together, and a slow disk delays no answer to a heartbeat.
        """
        if not (beat or self._owes):
            return
        durable = min(self.verified_index, self._log.durable_index)
        complete = durable == self.verified_index
        if not (beat or complete or durable > self._acked_index):
            return
        leader = self._node.leader
        if leader is not None:
            self._owes = self._owes and not complete
            self._acked_index = durable
            self._gate.post(leader, AppendAck(self._node.term, True, durable + 1, self._round))

    def acked(self, message: AppendEntries) -> bool:
        """Whether entries that ``take`` stored are verified and on disk. If so they count as acked: the caller acks."""
        index = message.prev_index + len(message.entries)
        if min(self.verified_index, self._log.durable_index) < index:
            return False
        self._owes = self._owes and self.verified_index > index
        self._acked_index = max(self._acked_index, index)
        return True


class Election:
    """Decides when a node asks for votes, and counts them; Voting and RaftNode act.

    No tally outlives the configuration that it was begun under: another configuration may lack some of the voters
    counted so far, and have another majority. Entries bring a configuration or take one back; they come from a leader,
    and ``heard_leader`` ends the tally first. A candidate may install a checkpoint: then ``void`` ends the tally.
    """

    def __init__(
        self, majority: Callable[[], int], settings: RaftSettings, clock: Callable[[], float], rng: Callable[[], float]
    ) -> None:
        """``majority`` returns how many voters are a majority, ``clock`` seconds on a monotonic clock, ``rng`` a number
        in [0, 1).
        """
        self._majority = majority
        self._timeout_s_min = settings.election_timeout_ms_min / 1000
        self._timeout_s_spread = (settings.election_timeout_ms_max - settings.election_timeout_ms_min) / 1000
        self._hurry_s_max = settings.heartbeat_ms / 1000
        self._clock = clock
        self._rng = rng
        self._lease_end = float("-inf")
        self._pre_votes: set[str] | None = None
        self._votes: set[str] | None = None
        self._spread_s = self._timeout_s_spread * rng()
        self.deadline: float = clock() + self.draw_timeout_s()

    def draw_timeout_s(self) -> float:
        """A new random election timeout, in seconds."""
        return self._timeout_s_min + self._timeout_s_spread * self._rng()

    @property
    def leased(self) -> bool:
        """CheckQuorum: whether this node heard its leader within the shortest election timeout, and so votes for no
        candidate but one to which that leader transfers the leadership.
        """
        return self._clock() < self._lease_end

    def postpone(self) -> None:
        """Set the deadline to a whole new election timeout from now."""
        self.deadline = self._clock() + self.draw_timeout_s()

    def hurry(self) -> None:
        """Bring the deadline nearer: at most a heartbeat period from now, drawn so that two nodes do not ask at once.

        A false alarm is harmless, since nodes that hear a leader refuse.
        """
        self.deadline = min(self.deadline, self._clock() + self._hurry_s_max * self._rng())

    def take_turn(self, spread_s: float, turn: int) -> None:
        """Draw the deadline from the next ``spread_s`` seconds, so that elections of many groups that are due at once
        are spread.

        ``turn`` is the number of nodes that ask before this one: ``deadline = now + spread_s * (turn + rng())``.
        Without turns, two nodes would often ask for votes in the same group at the same time, and split them. A node
        whose log is longer than a candidate's does not wait for its turn: the candidate's pre-vote makes it ``hurry``.
        """
        if spread_s <= self._hurry_s_max:
            self.hurry()
        else:
            self.deadline = self._clock() + spread_s * (turn + self._rng())

    def heard_leader(self, at: float) -> None:
        """Begin the lease anew at ``at``, when the leader of the current term spoke, and end any tally."""
        self._lease_end = lease_end = at + self._timeout_s_min
        self._pre_votes = self._votes = None
        self.deadline = lease_end + self._spread_s

    def void(self) -> None:
        """End any tally, so that no answer to an earlier question counts, and draw the next leader's timeout anew."""
        self._pre_votes = self._votes = None
        self._spread_s = self._timeout_s_spread * self._rng()

    def begin_prevote(self) -> None:
        """Count pre-votes from now on. Votes of this term still count, too.

        A pre-vote costs nothing, so it is repeated after a quarter of an election timeout: the nodes that were asked
        may learn only a moment later that the leader is gone.
        """
        self._pre_votes = set()
        self.deadline = self._clock() + self.draw_timeout_s() / 4

    def count_pre_vote(self, node_id: str) -> bool:
        """Count the pre-vote of a node, perhaps this one. Returns whether an election may begin."""
        return self._is_majority(self._pre_votes, node_id)

    def begin_vote(self) -> None:
        """Count votes from now on."""
        self._pre_votes = None
        self._votes = set()
        self.postpone()

    def count_vote(self, node_id: str) -> bool:
        """Count the vote of a node, perhaps this one, in this term. Returns whether the election is won."""
        return self._is_majority(self._votes, node_id)

    def _is_majority(self, votes: set[str] | None, node_id: str) -> bool:
        if votes is None:
            return False
        votes.add(node_id)
        return len(votes) >= self._majority()


_OF_ELECTIONS = (PreVote, PreVoteReply, RequestVote, VoteReply)


class Voting:
    """Sends and answers the messages of elections. A PreVote promises nothing, so it is sent at once; every other
    message leaves through the gate.
    """

    def __init__(
        self,
        node: RaftState,
        membership: Membership,
        log: GroupLog,
        election: Election,
        gate: VoteGate,
        send: Send,
        ports: NodePorts,
    ) -> None:
        self._node = node
        self._membership = membership
        self._log = log
        self._election = election
        self._gate = gate
        self._send = send
        self._ports = ports

    @property
    def handlers(self) -> dict[type[RaftMessage], Callable[[str, Any], None]]:
        """The handler of each kind of message of an election."""
        return {
            PreVote: self.on_prevote,
            PreVoteReply: self.on_prevote_reply,
            RequestVote: self.on_request_vote,
            VoteReply: self.on_vote_reply,
            TimeoutNow: self.on_timeout_now,
        }

    def is_unwelcome(self, message: RaftMessage) -> bool:
        """Whether a message of an election must be dropped, and its term ignored, because the leader was heard lately
        (leader stickiness). A node with a newer term reaches the leader itself, too.
        """
        is_of_an_election = isinstance(message, _OF_ELECTIONS) and not (
            isinstance(message, RequestVote) and message.is_transfer
        )
        leader = self._node.leader
        return is_of_an_election and leader is not None and (leader == self._node.node_id or self._election.leased)

    def leader_is_missed(self) -> None:
        """Begin a pre-vote, as the leader has sent nothing for an election timeout: it asks whether an election would
        be won, before a term is spent on it. Wait while a frame of the leader's node is arriving: on a slow link a long
        frame takes longer than a timeout, and the heartbeats of all groups wait behind it.
        """
        leader = self._node.leader
        if leader is not None and self._ports.is_amid_frame(leader):
            self._election.heard_leader(self._ports.heard_at(leader))
            if self._ports.time() < self._election.deadline:
                return
        self._node.forget_leader()
        if not self._membership.may_campaign(self._node.commit_index):
            self._election.postpone()
            return
        self._election.begin_prevote()
        if self._membership.is_voter and self._election.count_pre_vote(self._node.node_id):
            self._campaign(is_transfer=False)
            return
        question = PreVote(self._node.term + 1, self._log.last_index, self._log.last_term)
        for node_id in self._membership.others:
            self._send(node_id, question)

    def _campaign(self, *, is_transfer: bool) -> None:
        """Vote for this node in a new term. Once that vote is on disk it counts, and the requests leave the gate."""
        self._node.become_candidate()
        self._election.begin_vote()
        request = RequestVote(self._node.term, self._log.last_index, self._log.last_term, is_transfer)
        for node_id in self._membership.others:
            self._gate.post(node_id, request)

    def count_own_vote(self) -> None:
        """Count this node's vote for itself if it is on disk; become leader if that wins the election."""
        own_id = self._node.node_id
        is_on_disk = self._node.voted_for == own_id and self._log.state_is_durable
        if is_on_disk and self._membership.is_voter and self._election.count_vote(own_id):
            self._node.become_leader()

    def _may_support(self, message: PreVote | RequestVote) -> bool:
        """Whether this node may vote, and the candidate's log holds all that ours does."""
        return self._membership.may_vote(self._node.commit_index) and self._is_up_to_date(message)

    def _is_up_to_date(self, message: PreVote | RequestVote) -> bool:
        return (message.last_term, message.last_index) >= self._log.promised_end

    def on_prevote(self, node_id: str, question: PreVote) -> None:
        """Answer whether this node would vote for the candidate. The answer promises nothing."""
        if self._node.leader is None and not self._is_up_to_date(question):
            self._election.hurry()  # there is no leader, and the candidate cannot win: this longer log may
        granted = question.term > self._node.term and self._may_support(question)
        self._gate.post(node_id, PreVoteReply(question.term if granted else self._node.term, granted))

    def on_prevote_reply(self, node_id: str, reply: PreVoteReply) -> None:
        """Count a pre-vote that was granted; with those of a majority of the voters, begin the election."""
        counts = reply.granted and reply.term == self._node.term + 1 and self._membership.counts(node_id)
        if counts and self._election.count_pre_vote(node_id):
            self._campaign(is_transfer=False)

    def on_request_vote(self, node_id: str, request: RequestVote) -> None:
        """Grant one vote a term, and only to a candidate whose log is at least as up to date as this one."""
        node = self._node
        granted = (
            request.term == node.term
            and node.leader is None
            and node.voted_for in {None, node_id}
            and self._may_support(request)
        )
        if granted:
            self._election.postpone()
            if node.voted_for is None:
                node.vote_for(node_id)
        self._gate.post(node_id, VoteReply(node.term, granted))

    def on_vote_reply(self, node_id: str, reply: VoteReply) -> None:
        """Count a vote; with those of a majority, become leader. A refusal may mean a split vote: ask again soon, not
        after a whole timeout.
        """
        if reply.term != self._node.term or self._node.leader is not None:
            return
        if not reply.granted:
            self._election.hurry()
        elif self._membership.counts(node_id) and self._election.count_vote(node_id):
            self._node.become_leader()

    def on_timeout_now(self, node_id: str, request: TimeoutNow) -> None:
        """Campaign at once, without a pre-vote: the leader transfers its leadership to this node."""
        if request.term == self._node.term and self._node.leader == node_id and self._membership.is_voter:
            self._campaign(is_transfer=True)
