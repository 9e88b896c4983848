"""The Raft core of one group: pysyncobj's ``SyncObj``, its defective methods replaced. The only import of pysyncobj.

From ``SyncObj`` come roles, term, vote, the command queue and what a new leader does. Whatever speaks to other nodes,
counts copies, commits, applies, compacts or unpickles is replaced, by the mangled names: private methods are called
through ``self``, so a subclass wins. Its timer settings and its transport are not used.

member.py drives an engine by events. It never waits, and it reads no clock and draws no number but through its ports,
so that a simulator can replay it. An exception that leaves it is fatal for the node.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import pysyncobj.syncobj as library
from pysyncobj import SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from ..partition.switches import stop_at
from .bundles import commands_of, entries_of
from .configuration import CONFIGURATION, Configuration
from .election import Election
from .following import Following, InvariantBroken
from .gate import Gate
from .journal import Journal
from .leading import Leading
from .library import check_library
from .membership import Membership
from .messages import AppendAck, PreVote, PreVoteReply, RaftMessage
from .outcomes import Committed, Rejected, Unknown
from .ports import Ports, Proposal
from .settings import RaftSettings
from .voting import Voting

if TYPE_CHECKING:
    from .library import Untyped as SyncObj
else:
    from pysyncobj import SyncObj

COMMIT_NOTICE_S = 0.02  # an idle leader tells of a commit so much later; a busy one tells with its next entries


def _create_journal(file: Any, original: Callable[[Any], Any] = library.createJournal) -> Any:
    return file if isinstance(file, Journal) else original(file)


_node = lru_cache(maxsize=1024)(Node)
library.createJournal = _create_journal  # the library has no other way to be given one


class Engine(SyncObj):
    """One replica's consensus state. ``incarnation`` tells the disk that its journal is on."""

    def __init__(self, node_id: str, incarnation: int, journal: Journal, settings: RaftSettings, ports: Ports) -> None:
        self.node_id = node_id
        self.journal = journal
        self.settings = settings
        self._ports = ports
        self.membership: Membership = Membership(node_id, incarnation, journal)
        self._election = Election(lambda: self.membership.majority, settings, ports.clock, ports.rng)
        self._gate = Gate(journal, ports.send)
        self._voting = Voting(self, self.membership, journal, self._election, self._gate, ports)
        self._following = Following(self, journal, self._gate, ports)
        self.leading: Leading | None = None
        """The present leadership, if this node leads."""
        self._queue: list[tuple[bytes, Proposal]] = []  # without a bound: group.py bounds what waits
        self._beat_at = 0.0
        self._notice_at = float("inf")
        self._beat_is_wanted = False
        self._holds = False
        self._ready_index: int | None = None
        self._handlers: dict[type[RaftMessage], Callable[[str, Any], None]] = {
            AppendAck: self._on_ack,
            **self._following.handlers,
            **self._voting.handlers,
        }
        configuration = SyncObjConf(autoTick=False, useFork=False, commandsWaitLeader=False, journalFile=journal)
        super().__init__(Node(node_id), [], configuration, transport=Transport(None, None, None))
        self._SyncObj__raftLastApplied = journal.origin.index

    @property
    def term(self) -> int:
        """The current term."""
        return self._SyncObj__raftCurrentTerm  # type: ignore[no-any-return]

    @property
    def voted_for(self) -> str | None:
        """The vote in the current term."""
        return self.journal.voted_for

    @property
    def leader(self) -> str | None:
        """The node id of the leader of the term, None while unknown."""
        node = self._SyncObj__raftLeader
        return None if node is None else node.id

    @property
    def commit_index(self) -> int:
        """Everything up to here is known to be committed."""
        return self._SyncObj__raftCommitIndex

    @property
    def applied_index(self) -> int:
        """Everything up to here is applied."""
        return self._SyncObj__raftLastApplied

    @property
    def ready(self) -> bool:
        """Whether what was committed when a leader was first heard of is applied."""
        return self._ready_index is not None and self.applied_index >= self._ready_index

    def _onTick(self, timeToWait: float = 0.0) -> bool:  # noqa: N802, N803
        """Make progress: append what was proposed, commit, send, apply. Answers whether something is left to do.

        What has just been committed will be answered, and whoever is answered proposes again: what little waits to be
        sent is sent the next time, together with that. Otherwise the two would take turns, in twice as many messages.
        """
        if self._queue:
            self._checkCommandsToApply()
        leading = self.leading
        if leading is not None:
            committed_index = self._SyncObj__raftCommitIndex
            self._advance_commit(leading)
            is_answering = self._SyncObj__raftCommitIndex > committed_index and not self._beat_is_wanted
            self._holds = is_answering and not self._holds and leading.has_few_to_send()
            if not self._holds:
                self._SyncObj__sendAppendEntries()
        return bool(self._SyncObj__applyLogEntries()) or (self._holds and self.leading is not None)

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Append the queue if we lead. Otherwise reject it: a deposed leader forwards nothing (D20)."""
        queue, self._queue = self._queue, []
        if self.leading is None:
            for _, proposal in queue:
                proposal.settle(Rejected(self.leader, self.term))
            return
        for payload, proposals in entries_of(queue, bundles=self._ports.bundles):
            self._append(payload, proposals)

    def _append(self, payload: bytes, proposals: list[Proposal]) -> None:
        """Append an entry; ``proposals`` wait for its commands, in their order."""
        index = self.journal.last_index + 1
        self.journal.add(payload, index, self.term)
        for proposal in proposals:
            proposal.index = index
        if proposals:
            self._SyncObj__commandsWaitingCommit[index] = proposals

    def _advance_commit(self, leading: Leading) -> None:
        """Only an entry of our own term is committed by counting copies; those before it are committed with it."""
        index = leading.majority_index()
        if index > self.commit_index and self.journal.term_at(index) == leading.term:
            self._SyncObj__raftCommitIndex = index

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """Apply what is committed, at least one entry, while there is time; answers whether something is left.
        Nobody is told of what was applied before the machine has written what it keeps of it.
        """
        if self._SyncObj__raftLastApplied == self._SyncObj__raftCommitIndex:
            return False
        until = self._ports.apply_until()
        decided: list[tuple[Proposal, Committed]] = []
        try:
            while self._SyncObj__raftLastApplied < self._SyncObj__raftCommitIndex:
                self._apply(self._SyncObj__raftLastApplied + 1, decided)
                if self._ports.clock() >= until:
                    break
        finally:
            self._ports.applied()
            for proposal, outcome in decided:
                proposal.settle(outcome)
        return self.applied_index < self.commit_index

    def _apply(self, index: int, decided: list[tuple[Proposal, Committed]]) -> None:
        """An exception of the machine goes up, and stops the node: every replica would meet it (D6)."""
        payload, term = self.journal.payload_at(index), self.journal.term_at(index)
        if payload[:1] == CONFIGURATION:
            results: list[object] = [Configuration.of_entry(payload)]
        else:
            apply = self._ports.apply
            results = [apply(index, term, command) for command in commands_of(payload)]
        self._SyncObj__raftLastApplied = index
        proposals = self._SyncObj__commandsWaitingCommit.pop(index, ())
        decided += [(it, Committed(index, term, result)) for it, result in zip(proposals, results, strict=False)]

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """Send what followers lack, and heartbeats where due or wanted for a read."""
        assert self.leading is not None
        beat, self._beat_is_wanted = self._beat_is_wanted, False
        now = self._ports.clock()
        self.leading.broadcast(self.commit_index, now, beat=beat)
        if beat:
            self._beat_at = now + self.settings.heartbeat_ms / 1000
        told = self.leading.all_told(self.commit_index)
        self._notice_at = float("inf") if told else min(self._notice_at, now + COMMIT_NOTICE_S)

    def _SyncObj__setCurrentTerm(self, term: int, voted_for: str | None) -> None:  # noqa: N802
        if term != self.term:
            self._gate.clear()
            self._following.new_term()
        SyncObj._SyncObj__setCurrentTerm(self, term, voted_for)

    def _SyncObj__onBecomeLeader(self) -> None:  # noqa: N802
        self._election.void()
        now = self._ports.clock()
        self.leading = Leading(self.journal, self.membership, self.settings, self._gate.post, now)
        if not self.ready:
            self._ready_index = self.leading.no_op_index
        self._beat_is_wanted = True
        SyncObj._SyncObj__onBecomeLeader(self)

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        return self._election.draw_timeout_s()

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Checkpoints are the host's."""

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803
        raise InvariantBroken("there are no dumps")

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:  # noqa: N802
        raise InvariantBroken("nothing is unpickled: the machine applies commands")

    # Messages. Terms are compared here, before any handler runs.

    def receive(self, node_id: str, message: RaftMessage) -> None:
        """A message of another node, perhaps of no member as far as is known here: the leader of one that joins."""
        self._SyncObj__onMessageReceived(_node(node_id), message)

    def _SyncObj__onMessageReceived(self, node: Node, message: RaftMessage) -> None:  # noqa: N802
        if self._voting.is_unwelcome(message):
            return
        hypothetical = isinstance(message, PreVote) or (isinstance(message, PreVoteReply) and message.granted)
        if message.term > self.term and not hypothetical:
            self._follow(message.term, None)
            if isinstance(message, PreVoteReply):
                self._election.hurry()  # our question was of an old term: ask again
        self._handlers[type(message)](node.id, message)

    def _on_ack(self, node_id: str, ack: AppendAck) -> None:
        """An ack of another term says nothing about this one (D1)."""
        if self.leading is not None and ack.term == self.leading.term:
            if ack.success and ack.next_index > self.commit_index + 1:
                stop_at("append-copied")
            self.leading.answered(node_id, ack, self._ports.clock())

    def _follow(self, term: int, leader: Node | None) -> None:
        """Follow in ``term``, the ``leader`` if it is known. What waited for a commit here becomes unknown (D15)."""
        led, self.leading = self.leading is not None, None
        if term > self.term:
            self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(library._RAFT_STATE.FOLLOWER)
        self._SyncObj__raftLeader = leader
        self._election.void()
        if not self.ready:
            self._ready_index = None
        if led:
            self._election.postpone()
        waiting = list(chain.from_iterable(self._SyncObj__commandsWaitingCommit.values()))
        self._SyncObj__commandsWaitingCommit.clear()
        for proposal in waiting:
            proposal.settle(Unknown(proposal.index))

    def heard_leader(self, node_id: str) -> None:
        """``node_id`` leads the current term and spoke."""
        if self.leading is not None:
            raise InvariantBroken(f"{node_id} leads term {self.term} as well")
        if self.leader != node_id:
            self._follow(self.term, _node(node_id))
        self._election.heard_leader(self._ports.clock())

    def learn_commit(self, known_index: int, leader_index: int) -> None:
        """Entries up to ``known_index`` are committed and verified here; the leader has committed ``leader_index``."""
        self._SyncObj__raftCommitIndex = max(self.commit_index, known_index)
        if self._ready_index is None:
            self._ready_index = leader_index

    def forget_leader(self) -> None:
        """From now on no leader is known."""
        self._SyncObj__raftLeader = None

    def become_candidate(self) -> None:
        """Enter the next term with a vote for ourselves."""
        self.forget_leader()
        self._SyncObj__setState(library._RAFT_STATE.CANDIDATE)
        self._SyncObj__setCurrentTerm(self.term + 1, self.node_id)

    def become_leader(self) -> None:
        """The vote of the current term is won."""
        self._SyncObj__onBecomeLeader()

    def vote_for(self, node_id: str) -> None:
        """Save a vote in the current term."""
        self._SyncObj__setCurrentTerm(self.term, node_id)


check_library(Engine, SyncObj, VERSION)
