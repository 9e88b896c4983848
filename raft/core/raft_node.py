"""One replica of a Raft group: term, role, log, commit index and members, changed by events.

The events are a message, a connection that came up or broke, a tick of the clock, a disk sync that has ended, and a
proposal. After one or several of them Group calls ``progress``. RaftNode never waits, and takes time and random numbers
from its ports alone, so that a simulator can replay it. An exception that leaves it is fatal for the node.

RaftNode inherits from pysyncobj's ``SyncObj``: of that, four methods and four fields are in use (library.py).
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, NoReturn

from ..log.configuration import CONFIGURATION, Change, Configuration, InvalidChange, apply_change
from ..log.group_log import GroupLog
from ..log.origin import Origin
from ..machine import Machine
from ..messages import AppendAck, AppendEntries, PreVote, PreVoteReply, Quiesce, RaftMessage, TimeoutNow, Wake
from ..outcomes import Committed, Rejected, Unknown
from ..ports import NodePorts
from ..settings import RaftSettings
from .follower import Election, FollowerState, InvariantBroken, VoteGate, Voting
from .leader import LeaderState
from .library import CANDIDATE, FOLLOWER, SyncObj, arguments, check_library
from .membership import Membership
from .pending import PendingProposal, ProposalQueue, commands_of, entries_of
from .quiescence import Quiescence


class RaftNode(SyncObj):
    """The consensus of one replica. ``count_applied`` is called after each run of applies with the number of entries
    with commands that the machine applied in it, and the bytes of those commands.
    """

    def __init__(
        self,
        group_id: int,
        machine: Machine,
        log: GroupLog,
        settings: RaftSettings,
        ports: NodePorts,
        count_applied: Callable[[int, int], None],
    ) -> None:
        self.node_id: str = ports.node_id
        self.log = log
        self.settings = settings
        self.leader: str | None = None
        """The node id of the leader of the term, None while unknown."""
        self.leading: LeaderState | None = None
        """The state of the present leadership; None unless this node leads."""
        self.membership: Membership = Membership(self.node_id, ports.incarnation, log)
        self.quiescence: Quiescence = Quiescence(log, self.membership, settings, ports)
        self._ports = ports
        self._machine = machine
        self._count_applied = count_applied
        self._election_timeout_s = settings.election_timeout_ms_min / 1000
        send = partial(ports.send, group_id)
        self._gate = VoteGate(log, send)
        self._election = Election(lambda: self.membership.majority, settings, ports.time, ports.rng)
        self._voting = Voting(self, self.membership, log, self._election, self._gate, send, ports)
        self._following = FollowerState(self, group_id, log, self._gate, ports)
        self._queue, self._holds = ProposalQueue(), False
        self._ready_index: int | None = None
        self._handlers: dict[type[RaftMessage], Callable[[str, Any], None]] = {
            AppendAck: self._on_ack,
            Quiesce: self._on_quiesce,
            Wake: self._on_wake,
            **self._following.handlers,
            **self._voting.handlers,
        }
        super().__init__(**arguments(self.node_id, log))
        self._SyncObj__raftLastApplied = log.origin.index

    @property
    def term(self) -> int:
        """The current term."""
        return self._SyncObj__raftCurrentTerm  # type: ignore[no-any-return]

    @property
    def voted_for(self) -> str | None:
        """The node id that this node voted for in the current term; None if it has not voted."""
        return self.log.voted_for

    @property
    def commit_index(self) -> int:
        """The highest index that this node knows to be committed."""
        return self._SyncObj__raftCommitIndex

    @property
    def applied_index(self) -> int:
        """The highest index that the machine has applied; ``applied_index <= commit_index``."""
        return self._SyncObj__raftLastApplied

    @property
    def ready(self) -> bool:
        """Whether the machine has applied all that was committed when this node first heard of a leader."""
        return self._ready_index is not None and self.applied_index >= self._ready_index

    @property
    def role(self) -> tuple[object, ...]:
        """(whether this node does not lead, the leader, the term): a value that changes with each of them."""
        return self.leading is None, self.leader, self._SyncObj__raftCurrentTerm

    # Progress: commit, append, send, apply.

    def progress(self) -> bool:
        """Make progress: send the messages that waited for the disk; commit, append, send and apply. Returns whether to
        call it again, because proposals to append, entries to send or entries to apply are left.
        """
        if self._gate.withheld:
            self._gate.release()
        if self.leading is None and self.leader is None:
            self._voting.count_own_vote()
        if self.leading is None:
            self._following.acknowledge(beat=False)
        leading, queue, before = self.leading, self._queue, self.commit_index
        if leading is not None and before < self.log.last_index:
            self._SyncObj__raftCommitIndex = leading.committed(before)
        self._holds = before < self._SyncObj__raftCommitIndex and bool(queue.waiting) and not self._holds
        if queue.waiting and not self._holds and not self._queue_waits:
            self._take_queue()
        if leading is not None:
            self._replicate(leading)
        is_left, leading = self._apply_committed() or self._holds, self.leading
        if leading is None:
            return is_left
        if not leading.is_settled and self._has_left:
            self.step_down()
        elif leading.transferee is not None:
            leading.push_transferee(self.applied_index, self._ports.time())
        if self.quiescence.is_quiescent and not self.quiescence.is_settled(leading, self.commit_index):
            self.wake()
        return is_left or leading.has_more

    def enqueue(self, command: bytes, proposal: PendingProposal) -> bool:
        """Queue a command with its proposal. Returns whether ``progress`` has to be called for it."""
        self._queue.add(command, proposal)
        return not self._queue_waits

    @property
    def _queue_waits(self) -> bool:
        """Whether the queue, being small, waits until the log's last entry is committed (ProposalQueue says why)."""
        is_open = self._SyncObj__raftCommitIndex < self.log.last_index
        return is_open and self.leading is not None and self._queue.is_small

    @property
    def waits_for_disk(self) -> bool:
        """Whether the end of a disk sync may allow an ack, a withheld message or, if a majority has more on disk than
        this node, a commit.
        """
        leading = self.leading
        return self.log.unsynced and (leading is None or bool(self._gate.withheld) or leading.waits_for_disk())

    def acknowledge(self) -> bool:
        """Ack what is durable, after a disk sync on a follower. Returns whether ``progress`` must be called: not if
        only applies are left, and those may wait.
        """
        if self.leading is not None or self.leader is None or self._gate.withheld or self._queue.waiting:
            return True
        self._following.acknowledge(beat=False)
        return self.must_go_on(self._ports.time())

    def must_go_on(self, now: float) -> bool:
        """Whether ``progress`` must be called on a follower that has acked what is on disk."""
        if self._gate.withheld or self._queue.waiting:
            return True
        is_left = self._SyncObj__raftLastApplied < self._SyncObj__raftCommitIndex
        return is_left and (self._following.lag.is_enough(now) or not (self._machine.may_lag and self.ready))

    def _take_queue(self) -> None:
        """Append the queued proposals if this node leads; otherwise reject them: a deposed leader forwards nothing
        (D20). While the transferee of a leadership transfer receives the last entries and is not overdue, the queue
        waits.
        """
        leading = self.leading
        if leading is not None and leading.transferee is not None and leading.transferee_is_near(self._ports.time()):
            return
        if leading is None:
            for _, proposal in self._queue.take():
                proposal.settle(Rejected(self.leader, self.term))
            return
        for payload, proposals in entries_of(self._queue.take(), bundles=self._machine.bundles):
            self._append(payload, proposals)

    def _append(self, payload: bytes, proposals: list[PendingProposal]) -> None:
        """Append an entry; ``proposals`` wait for its commands, in their order."""
        index = self.log.last_index + 1
        self.log.add(payload, index, self.term)
        for proposal in proposals:
            proposal.index = index
        if proposals:
            self._SyncObj__commandsWaitingCommit[index] = proposals

    def _replicate(self, leading: LeaderState) -> None:
        """Begin the change of members that the leader decides itself, if any, and send."""
        if not leading.is_settled and not self.changing and (change := leading.next_change()) is not None:
            with suppress(InvalidChange):  # not possible yet: every event tries again
                self.change(change)
        leading.broadcast(self._SyncObj__raftCommitIndex, self._ports.time())

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802  # the library's __onBecomeLeader calls it
        assert self.leading is not None
        self.leading.broadcast(self.commit_index, self._ports.time())

    def _apply_committed(self) -> bool:
        """Apply committed entries, at least one, while there is time. Returns whether entries are left.

        Proposals are answered after the machine has flushed. An exception of the machine goes up, and stops the node:
        every replica would meet it (D6).
        """
        if self._SyncObj__raftLastApplied == self._SyncObj__raftCommitIndex:
            return False
        log, apply, waiting = self.log, self._machine.apply, self._SyncObj__commandsWaitingCommit
        until, entries, size = self._ports.apply_until(), 0, 0
        decided: list[tuple[PendingProposal, Committed]] = []
        try:
            while (index := self._SyncObj__raftLastApplied + 1) <= self._SyncObj__raftCommitIndex:
                payload, term = log.payload_at(index), log.term_at(index)
                if payload[:1] == CONFIGURATION:
                    results: list[object] = [Configuration.of_entry(payload)]
                else:
                    commands = commands_of(payload)
                    entries += bool(commands)
                    size += sum(map(len, commands))
                    results = [apply(index, term, command) for command in commands]
                self._SyncObj__raftLastApplied = index
                if index in waiting:
                    outcomes = [Committed(index, term, result) for result in results]
                    decided += zip(waiting.pop(index), outcomes, strict=False)
                if self._ports.time() >= until:
                    break
        finally:
            self._machine.flush()
            self._count_applied(entries, size)
            self._following.lag.end(self._ports.applied())
            for proposal, outcome in decided:
                proposal.settle(outcome)
        return self.applied_index < self.commit_index

    # Messages. Terms are compared here, before any handler runs.

    def receive(self, node_id: str, message: RaftMessage) -> None:
        """Handle a message of another node; the sender may be no member that this node knows: a node that joins does
        not know its leader. Most messages are entries and acks of the current term, which need no comparison of terms.
        A follower that a message wakes acks its leader, which may be quiescent and must send heartbeats again.
        """
        kind = type(message)
        was_quiescent = self.quiescence.is_quiescent
        is_usual = (kind is AppendEntries or kind is AppendAck) and message.term == self._SyncObj__raftCurrentTerm
        if is_usual and not was_quiescent:
            self._handlers[kind](node_id, message)
            return
        if was_quiescent and kind is not Quiesce:
            self.wake()
        if not self._voting.is_unwelcome(message):
            self._compare_terms(message)
            self._handlers[kind](node_id, message)
        if was_quiescent and not self.quiescence.is_quiescent and node_id != self.leader:
            self._wake_leader()

    def take(self, node_id: str, message: AppendEntries, now: float) -> bool:
        """Store entries as ``receive`` does, if their sender is the known leader of the current term, term and vote are
        on disk, and the entries follow this log's end. Otherwise do nothing, and return False (see coalescing.py).
        """
        is_usual = self._is_led_by(node_id, message.term) and not self.quiescence.is_quiescent
        if is_usual and self._following.take(message):
            self._election.heard_leader(now)
            return True
        return False

    def may_ack(self, node_id: str, message: AppendEntries) -> bool:
        """Whether entries that ``take`` stored, now on disk, may be acked: leader and term must still be the same."""
        return self._is_led_by(node_id, message.term) and self._following.acked(message)

    def _is_led_by(self, node_id: str, term: int) -> bool:
        return term == self._SyncObj__raftCurrentTerm and self.leader == node_id and self.log.state_is_durable

    def acked(self, node_id: str, message: AppendEntries, now: float) -> None:
        """Handle the ack of ``message``, which this node sent as a leader, as ``receive`` does an AppendAck."""
        if self.leading is not None and message.term == self.leading.term:
            self.wake()
            self.leading.acked(node_id, message.prev_index + len(message.entries), message.round, now)

    def _compare_terms(self, message: RaftMessage) -> None:
        is_hypothetical = isinstance(message, PreVote) or (isinstance(message, PreVoteReply) and message.granted)
        if message.term > self.term and not is_hypothetical:
            self._follow(message.term, None)
            if isinstance(message, PreVoteReply):
                self._election.hurry()  # our question was of an old term: ask again

    def _on_ack(self, node_id: str, ack: AppendAck) -> None:
        """Handle an ack, unless it is of another term: that says nothing about this one (D1)."""
        if self.leading is not None and ack.term == self.leading.term:
            self.leading.answered(node_id, ack, self._ports.time())

    def heard_leader(self, node_id: str) -> None:
        """Note that ``node_id``, leader of the current term, spoke. Raises InvariantBroken if this node leads, too."""
        if self.leading is not None:
            raise InvariantBroken(f"{node_id} leads term {self.term} as well")
        if self.leader != node_id:
            self._follow(self.term, node_id)
        self._election.heard_leader(self._ports.time())

    def learn_commit(self, known_index: int, leader_index: int) -> None:
        """Raise the commit index to ``known_index``, which is verified here; the leader's own is ``leader_index``."""
        self._SyncObj__raftCommitIndex = max(self._SyncObj__raftCommitIndex, known_index)
        if self._ready_index is None:
            self._ready_index = leader_index

    # Term and role.

    def _enter_term(self, term: int, voted_for: str | None) -> None:
        if term != self.term:
            self._gate.withheld.clear()
            self._following.new_term()
        self._SyncObj__setCurrentTerm(term, voted_for)

    def _follow(self, term: int, leader: str | None) -> None:
        """Become a follower in ``term``; ``leader`` is None while unknown. Proposals in flight become Unknown (D15).

        A leader that steps down while its followers are quiescent sends them Wake, since no other message would wake
        them. With ``beat_is_wanted`` they may be quiescent, too: the message that deposed the leader has just woken it,
        and its heartbeat was not sent yet.
        """
        if self.leading is not None and (self.quiescence.is_quiescent or self.leading.beat_is_wanted):
            for follower in self.leading.followers.values():
                if follower.connected:
                    self._gate.post(follower.node_id, Wake(self.term))
        self.wake()
        led, self.leading = self.leading is not None, None
        if term > self.term:
            self._enter_term(term, None)
        self._SyncObj__setState(FOLLOWER)
        self.leader = leader
        self._election.void()
        if not self.ready:
            self._ready_index = None
        if led:
            self._election.postpone()
        waiting = list(chain.from_iterable(self._SyncObj__commandsWaitingCommit.values()))
        self._SyncObj__commandsWaitingCommit.clear()
        for proposal in waiting:
            proposal.settle(Unknown(proposal.index))

    def forget_leader(self) -> None:
        """Forget the leader of the current term, which is lost or silent."""
        self.leader = None

    def become_candidate(self) -> None:
        """Enter the next term as a candidate that has voted for itself."""
        self.leader = None
        self._SyncObj__setState(CANDIDATE)
        self._enter_term(self.term + 1, self.node_id)

    def become_leader(self) -> None:
        """Begin to lead the current term, whose election is won: append the no-op and send it."""
        self._election.void()
        self.leading = LeaderState(self.log, self.membership, self.settings, self._gate.post, self._ports.time())
        if not self.ready:
            self._ready_index = self.leading.no_op_index
        self.leader = self.node_id
        self._SyncObj__onBecomeLeader()

    def vote_for(self, node_id: str) -> None:
        """Save a vote in the current term."""
        self._enter_term(self.term, node_id)

    def abandon(self) -> None:
        """Settle all proposals that wait, and break the cycles of references, as this replica stops. With cycles a
        deleted partition stays in memory until Python's garbage collector looks at old objects: an hour, or longer.
        """
        self._follow(self.term, None)
        self._take_queue()
        self._handlers.clear()
        del self._voting, self._following, self._election, self._SyncObj__transport

    # Connections and time.

    def peer_up(self, node_id: str, incarnation: int) -> None:
        """Handle a new connection to a node; ``incarnation`` is that of the node's disk."""
        self.membership.peers[node_id] = incarnation
        if self.leading is not None and node_id in self.leading.followers:
            self.leading.connected(node_id, incarnation, self._ports.time())
            self.leading.beat_is_wanted = True

    def peer_down(self, node_id: str, spread_s: float = 0.0, turn: int = 0) -> None:
        """Handle the loss of a connection, with what was in flight on it. If it led to the leader, that node may be
        gone and elections of many groups due at once: they are spread over ``spread_s`` seconds, and this node asks for
        votes after ``turn`` other nodes.
        """
        if self.leader == node_id:
            self.wake()
        self.membership.peers.pop(node_id, None)
        if self.leading is not None and node_id in self.leading.followers:
            self.leading.disconnected(node_id)
            if self.quiescence.is_quiescent:  # its heartbeats counted as its answers until now
                self.leading.followers[node_id].contact = self._ports.time()
        elif self.leader == node_id:
            self.forget_leader()
            self._election.take_turn(spread_s, turn)

    def peer_silent(self, node_id: str) -> None:
        """Wake a quiescent follower whose leader's node is silent: the election timeout runs from the node's last sign
        of life.
        """
        if self.leader == node_id:
            self.wake()

    def peer_heard(self, node_id: str) -> None:
        """Wake a leader's group when a silent follower gives signs of life again: it may have missed a Quiesce."""
        if self.leading is not None and node_id in self.leading.followers:
            self.wake()

    @property
    def next_tick(self) -> float:
        """When ``tick`` has to be called next, on the ports' clock, unless an event comes first."""
        if self.quiescence.is_quiescent:
            return self.quiescence.ends_at
        if self.leading is None:
            return self._election.deadline
        return min(self.leading.beat_at, self.leading.notice_at)

    def tick(self) -> bool:
        """Do what is due by the clock: quiesce, renew the Quiesce, wake, ask for votes, step down or send heartbeats.

        Returns whether ``progress`` must be called: not if a leader's heartbeat was put off or was not due after all.
        """
        now, leading = self._ports.time(), self.leading
        if self.quiescence.is_quiescent:
            if leading is None or not self._quiesce(leading):
                self.wake()
                self._wake_leader()
        elif leading is None:
            if now >= self._election.deadline:
                self._voting.leader_is_missed()
        elif now >= leading.beat_at and leading.puts_off_beat(now):
            self.quiescence.end()  # it is in use
            return False
        elif now >= leading.beat_at:
            if self.quiescence.is_due(leading, self.commit_index) and self._quiesce(leading):
                return True
            if leading.is_cut_off(now - self._election_timeout_s, self._ports.heard_at):
                self._follow(self.term, None)
            else:
                return leading.look_at_clock(self.commit_index, now)
        return True

    def campaign_soon(self) -> None:
        """Ask for votes soon. Called on the first founder of a new group, where its leader is preferred to be."""
        self._election.hurry()

    def want_round(self) -> int:
        """Let the next ``progress`` begin a round of heartbeats (ReadIndex). Returns the round's number. For a leader
        only.
        """
        self.wake()
        assert self.leading is not None
        self.leading.beat_is_wanted = True
        return self.leading.round + 1

    # Quiescence.

    def wake(self) -> None:
        """End quiescence. A follower counts its leader, and a leader its followers, as heard when their nodes gave
        their last sign of life.
        """
        if not self.quiescence.is_quiescent:
            return
        self.quiescence.end()
        if self.leading is not None:
            self.quiescence.wake(self.leading)
        elif self.leader is not None:
            self._election.heard_leader(self.quiescence.leader_heard_at(self.leader))

    def _wake_leader(self) -> None:
        """Send the leader an ack, if this node follows: the ack wakes the leader, whose heartbeat wakes the others."""
        if self.leading is None:
            self._following.acknowledge(beat=True)

    def _quiesce(self, leading: LeaderState) -> bool:
        """Send Quiesce to the present followers, then become quiescent; False if a follower cannot be sent it. A
        follower that lacks entries answers with an ack, and ``progress``, which runs next, wakes a group that may not
        quiesce.
        """
        message = Quiesce(self.term, self.commit_index)
        if not all(self._gate.post(follower.node_id, message) for follower in self.quiescence.present(leading)):
            return False
        self.quiescence.begin(is_leader=True)
        return True

    def _on_quiesce(self, node_id: str, message: Quiesce) -> None:
        """Become quiescent if this log ends at the leader's commit index, all committed; otherwise ack what it has."""
        if message.term < self.term:
            self._gate.post(node_id, AppendAck(self.term, False, self.log.last_index + 1, 0))
            return
        self.heard_leader(node_id)
        self.learn_commit(min(message.commit_index, self._following.verified_index), message.commit_index)
        if self.commit_index == message.commit_index == self.log.last_index:
            self.quiescence.begin(is_leader=False)
        else:
            self.wake()
            self._following.acknowledge(beat=True)

    def _on_wake(self, node_id: str, message: Wake) -> None:
        """Handle that our leader has stopped leading: forget it, and ask for votes soon."""
        if message.term == self.term and self.leader == node_id:
            self.forget_leader()
            self._election.hurry()

    # Members.

    @property
    def changing(self) -> bool:
        """Whether the configuration in force is not known to be committed."""
        return self.log.configuration_index > self.commit_index

    def change(self, change: Change, proposal: PendingProposal | None = None) -> None:
        """Append the configuration after ``change``, so it is in force. For a leader only. Raises InvalidChange."""
        leading = self.leading
        assert leading is not None
        if self.changing:
            raise InvalidChange("another change is under way")
        if self.commit_index < leading.no_op_index:
            raise InvalidChange("the leader has not committed anything of its term yet")
        if leading.transferee is not None:
            raise InvalidChange("the leadership is being transferred")
        configuration = apply_change(self.log.configuration, change)
        present = self.membership.peers | {self.node_id: self._ports.incarnation}
        voters = configuration.voters
        if 2 * sum(present.get(node_id) == voters[node_id] for node_id in voters) <= len(voters):
            raise InvalidChange("it would leave no majority within reach")
        self._append(configuration.entry(), [] if proposal is None else [proposal])
        leading.reconfigure(self._ports.time())

    @property
    def _has_left(self) -> bool:
        """Whether this node has applied its own removal as a voter. Until then it leads, without counting itself."""
        return not self.membership.is_voter and self.applied_index >= self.log.configuration_index

    def step_down(self) -> None:
        """Stop leading. Ask the voter with the longest matching log to campaign, if it has all committed entries."""
        if self.leading is not None:
            transferee = self.leading.furthest()
            if transferee is not None and transferee.match_index >= self.commit_index:
                self._gate.post(transferee.node_id, TimeoutNow(self.term))
            self._follow(self.term, None)

    # Where the log begins.

    def install(self, origin: Origin, restore: Callable[[], None]) -> bool:
        """Replace log and state by a checkpoint at ``origin`` that is on disk (``restore`` replaces the state). Returns
        False, with nothing changed, unless ``origin.index > commit_index``. All entries up to a checkpoint are
        committed, so a leader has them and needs no checkpoint.
        """
        if origin.index <= self.commit_index or self.leading is not None:
            return False
        restore()
        if origin.term > self.term:  # a leader of an older term may contradict what is committed in this one
            self._follow(origin.term, None)
        self._election.void()  # a tally of votes ends with the configuration that they are counted by
        self.log.install(origin)
        self._SyncObj__raftCommitIndex = self._SyncObj__raftLastApplied = origin.index
        return True

    # What the library calls, and what it must not.

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        return self._election.draw_timeout_s()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise InvariantBroken("this method of pysyncobj is replaced and must not run")

    _onTick = _checkCommandsToApply = _refuse  # noqa: N815
    _SyncObj__onMessageReceived = _SyncObj__applyLogEntries = _SyncObj__doApplyCommand = _refuse
    _SyncObj__tryLogCompaction = _SyncObj__loadDumpFile = _refuse


check_library(RaftNode)
