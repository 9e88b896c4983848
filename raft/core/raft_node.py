"""One replica of a Raft group: term, role, log, commit index and members, changed by events.

The events are a message, a connection that came up or broke, a tick of the clock, a disk sync that has ended, and a
proposal. After one or several of them Group calls ``progress``. RaftNode never waits, and takes time and random numbers
from its ports alone, so that a simulator can replay it. An exception that leaves it is fatal for the node.

RaftNode inherits from pysyncobj's ``SyncObj``; no other module imports pysyncobj. After construction four methods of
``SyncObj`` run: ``__setCurrentTerm`` (sets term and vote, and saves them through our log), ``__setState`` (sets the
role), ``__onBecomeLeader`` (appends the no-op of a new leader) and ``__getCurrentLogIndex``, which that one calls. Four
of its fields hold our state: term, commit index, applied index, and the proposals that wait for their commit. The
methods of ``SyncObj`` that send, receive, tick, apply, dump or unpickle refuse to be called. Its transport and timers
are constructed and never used. docs/defects.md measures this, and names the defect behind each replacement.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import pysyncobj.syncobj as library
from pysyncobj import SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

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
from .library import check_library
from .membership import Membership
from .pending import PendingProposal, ProposalQueue, commands_of, entries_of
from .quiescence import Quiescence

if TYPE_CHECKING:
    from .library import Untyped as SyncObj
else:
    from pysyncobj import SyncObj


def _create_journal(file: Any, original: Callable[[Any], Any] = library.createJournal) -> Any:
    return file if isinstance(file, GroupLog) else original(file)


library.createJournal = _create_journal  # the library has no other way to be given one


class RaftNode(SyncObj):
    """One replica's consensus. ``count_applied`` is called after each run of applies: with how many entries that hold
    commands, and bytes of commands, the machine has applied.
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
        """The present leadership, if this node leads."""
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
        configuration = SyncObjConf(autoTick=False, useFork=False, commandsWaitLeader=False, journalFile=log)
        super().__init__(Node(self.node_id), [], configuration, transport=Transport(None, None, None))
        self._SyncObj__raftLastApplied = log.origin.index

    @property
    def term(self) -> int:
        """The current term."""
        return self._SyncObj__raftCurrentTerm  # type: ignore[no-any-return]

    @property
    def voted_for(self) -> str | None:
        """The vote in the current term."""
        return self.log.voted_for

    @property
    def commit_index(self) -> int:
        """All entries up to here are known to be committed."""
        return self._SyncObj__raftCommitIndex

    @property
    def applied_index(self) -> int:
        """All entries up to here are applied; ``applied_index <= commit_index``."""
        return self._SyncObj__raftLastApplied

    @property
    def ready(self) -> bool:
        """Whether all entries are applied that were committed when a leader was first heard of."""
        return self._ready_index is not None and self.applied_index >= self._ready_index

    @property
    def role(self) -> tuple[object, ...]:
        """Whether this node leads, which node does, and the term: for comparing."""
        return self.leading is None, self.leader, self._SyncObj__raftCurrentTerm

    # What follows from the events.

    def progress(self) -> bool:
        """Do what has become possible: send what waited for the disk; commit, append, send and apply. Returns whether
        it must be called again, because proposals are left to append or entries to apply.
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
        elif leading.heir is not None:
            leading.push_heir(self.applied_index, self._ports.time())
        if self.quiescence.is_quiescent and not self.quiescence.is_settled(leading, self.commit_index):
            self.wake()
        return is_left or leading.has_more

    def enqueue(self, command: bytes, proposal: PendingProposal) -> bool:
        """Take in a proposal. Returns whether ``progress`` has to be called for it."""
        self._queue.add(command, proposal)
        return not self._queue_waits

    @property
    def _queue_waits(self) -> bool:
        """Whether the queue waits for the commit of the last entry, since it is small (pending.py says why)."""
        is_open = self._SyncObj__raftCommitIndex < self.log.last_index
        return is_open and self.leading is not None and self._queue.is_small

    @property
    def waits_for_disk(self) -> bool:
        """Whether the end of a disk sync may make something possible here. A leader waits for the followers' first."""
        leading = self.leading
        return self.log.unsynced and (leading is None or bool(self._gate.withheld) or leading.waits_for_disk())

    def acknowledge(self) -> bool:
        """A disk sync has ended on a follower: ack what is durable now. Returns whether ``progress`` must be called:
        not if all that is left to do is to apply, and that may wait.
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
        """Append the queue if we lead. Otherwise reject it: a deposed leader forwards nothing (D20).

        While the heir of a leadership transfer receives the last entries and is not overdue, the queue waits.
        """
        leading = self.leading
        if leading is not None and leading.heir is not None and leading.heir_is_near(self._ports.time()):
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
            with suppress(InvalidChange):  # not yet, then: it is looked at again after every event
                self.change(change)
        leading.broadcast(self._SyncObj__raftCommitIndex, self._ports.time())

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802  # the library's __onBecomeLeader calls it, too
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
        """A message of another node, perhaps of no member as far as is known here: the leader of one that joins.

        Most are entries and acks of the current term, with no term to compare. If a message wakes a follower, its
        leader, which may have received none, must send heartbeats again.
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
        """Do what ``receive`` does with entries, if their sender leads the current term, as is known here and on disk,
        and they follow this log. Otherwise do nothing, and return False. (coalescing.py says what for.)
        """
        is_usual = self._is_led_by(node_id, message.term) and not self.quiescence.is_quiescent
        if is_usual and self._following.take(message):
            self._election.heard_leader(now)
            return True
        return False

    def may_ack(self, node_id: str, message: AppendEntries) -> bool:
        """What ``take`` took is on disk. Whether that may be acked: still under the same leader, in the same term."""
        return self._is_led_by(node_id, message.term) and self._following.acked(message)

    def _is_led_by(self, node_id: str, term: int) -> bool:
        return term == self._SyncObj__raftCurrentTerm and self.leader == node_id and self.log.state_is_durable

    def acked(self, node_id: str, message: AppendEntries, now: float) -> None:
        """Do what ``receive`` does with the ack of a message with entries that was sent as a leader."""
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
        """An ack of another term says nothing about this one (D1)."""
        if self.leading is not None and ack.term == self.leading.term:
            self.leading.answered(node_id, ack, self._ports.time())

    def heard_leader(self, node_id: str) -> None:
        """``node_id`` leads the current term and spoke."""
        if self.leading is not None:
            raise InvariantBroken(f"{node_id} leads term {self.term} as well")
        if self.leader != node_id:
            self._follow(self.term, node_id)
        self._election.heard_leader(self._ports.time())

    def learn_commit(self, known_index: int, leader_index: int) -> None:
        """Entries up to ``known_index`` are committed and verified here; the leader has committed ``leader_index``."""
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
        """Follow in ``term``, the ``leader`` if it is known. Proposals that wait for a commit become unknown (D15).

        A leader that stops while its followers are quiescent wakes them: nothing else would. They stay so until the
        heartbeat that the leader wants when it wakes itself, as it does before it handles the message that deposes it.
        """
        if self.leading is not None and (self.quiescence.is_quiescent or self.leading.beat_is_wanted):
            for follower in self.leading.followers.values():
                if follower.connected:
                    self._gate.post(follower.node_id, Wake(self.term))
        self.wake()
        led, self.leading = self.leading is not None, None
        if term > self.term:
            self._enter_term(term, None)
        self._SyncObj__setState(library._RAFT_STATE.FOLLOWER)
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
        """From now on no leader is known."""
        self.leader = None

    def become_candidate(self) -> None:
        """Enter the next term with a vote for ourselves."""
        self.leader = None
        self._SyncObj__setState(library._RAFT_STATE.CANDIDATE)
        self._enter_term(self.term + 1, self.node_id)

    def become_leader(self) -> None:
        """The election of the current term is won."""
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
        """This replica stops: settle all proposals that wait, and break the cycles of references. With them a deleted
        partition stayed in memory until Python's garbage collector looked at old objects: for an hour, or longer.
        """
        self._follow(self.term, None)
        self._take_queue()
        self._handlers.clear()
        del self._voting, self._following, self._election, self._SyncObj__transport

    # Connections and time.

    def peer_up(self, node_id: str, incarnation: int) -> None:
        """A connection came up, to a node with this disk."""
        self.membership.peers[node_id] = incarnation
        if self.leading is not None and node_id in self.leading.followers:
            self.leading.connected(node_id, incarnation, self._ports.time())
            self.leading.beat_is_wanted = True

    def peer_down(self, node_id: str, spread_s: float = 0.0, turn: int = 0) -> None:
        """A connection broke, and what was in flight on it is lost. If it led to the leader, that one may be gone, and
        elections of many groups may be due at once: they are spread over ``spread_s``, and this node asks first, or
        after ``turn`` others.
        """
        if self.leader == node_id:
            self.wake()
        self.membership.peers.pop(node_id, None)
        if self.leading is not None and node_id in self.leading.followers:
            self.leading.disconnected(node_id)
        elif self.leader == node_id:
            self.forget_leader()
            self._election.take_turn(spread_s, turn)

    def peer_silent(self, node_id: str) -> None:
        """A connected node gives no sign of life: if it leads, it is missed from its last sign of life on."""
        if self.leader == node_id:
            self.wake()

    def peer_heard(self, node_id: str) -> None:
        """A node that was silent gives signs of life again: it may have missed a Quiesce."""
        if self.leading is not None and node_id in self.leading.followers:
            self.wake()

    @property
    def next_tick(self) -> float:
        """When ``tick`` has something to do, if nothing happens before."""
        if self.quiescence.is_quiescent:
            return self.quiescence.ends_at
        if self.leading is None:
            return self._election.deadline
        return min(self.leading.beat_at, self.leading.notice_at)

    def tick(self) -> bool:
        """Time has passed: quiesce, renew the Quiesce, wake, ask for votes, step down or send heartbeats, as due.

        Returns whether ``progress`` must be called: not if a leader's followers were sent something anyhow.
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
        elif now >= leading.beat_at and not self._quiesces(leading):
            if leading.is_cut_off(now - self._election_timeout_s, self._ports.heard_at):
                self._follow(self.term, None)
            else:
                return leading.look_at_clock(self.commit_index, now)
        return True

    def campaign_soon(self) -> None:
        """Ask for votes soon: for the first founder of a new group, where placement wants the leader."""
        self._election.hurry()

    def want_round(self) -> int:
        """The next ``progress`` begins a round of empty messages. Returns its number. For a leader only."""
        self.wake()
        assert self.leading is not None
        self.leading.beat_is_wanted = True
        return self.leading.round + 1

    # Quiescence.

    def wake(self) -> None:
        """Quiescent no more. The last heartbeat of the leader, or the last answers of the followers, count as given at
        the last sign of life of their nodes.
        """
        if not self.quiescence.is_quiescent:
            return
        self.quiescence.end()
        if self.leading is not None:
            self.leading.beat_is_wanted = True
            for follower in self.leading.followers.values():
                follower.contact = max(follower.contact, self._ports.heard_at(follower.node_id))
        elif self.leader is not None:
            self._election.heard_leader(self.quiescence.leader_heard_at(self.leader))

    def _wake_leader(self) -> None:
        """An ack of a follower wakes the leader, whose heartbeat wakes the others."""
        if self.leading is None:
            self._following.acknowledge(beat=True)

    def _quiesces(self, leading: LeaderState) -> bool:
        """Let the group quiesce, if it may. Returns whether it is quiescent now."""
        return self.quiescence.is_due(leading, self.commit_index) and self._quiesce(leading)

    def _quiesce(self, leading: LeaderState) -> bool:
        """Tell the followers, and be quiescent; False if one of them cannot be told. A follower that is not where its
        leader takes it to be says so; and ``progress``, which runs next, wakes a group that may not quiesce.
        """
        message = Quiesce(self.term, self.commit_index)
        if not all(self._gate.post(follower.node_id, message) for follower in self.quiescence.present(leading)):
            return False
        self.quiescence.begin(is_leader=True)
        return True

    def _on_quiesce(self, node_id: str, message: Quiesce) -> None:
        """Quiesce, if this log ends where the leader has committed all; otherwise answer where it ends."""
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
        """Our leader leads no more."""
        if message.term == self.term and self.leader == node_id:
            self.forget_leader()
            self._election.hurry()

    # Members.

    @property
    def changing(self) -> bool:
        """Whether the configuration in force is not known to be committed."""
        return self.log.configuration_index > self.commit_index

    def change(self, change: Change, proposal: PendingProposal | None = None) -> None:
        """Put the configuration after ``change`` in force. For a leader only. Raises InvalidChange."""
        leading = self.leading
        assert leading is not None
        if self.changing:
            raise InvalidChange("another change is under way")
        if self.commit_index < leading.no_op_index:
            raise InvalidChange("the leader has not committed anything of its term yet")
        if leading.heir is not None:
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
        """Whether this node has applied that it is no voter any more. Until then it leads, without counting itself."""
        return not self.membership.is_voter and self.applied_index >= self.log.configuration_index

    def step_down(self) -> None:
        """Stop leading. The furthest follower is asked to campaign, if it has all that is committed and so can win."""
        if self.leading is not None:
            heir = self.leading.furthest()
            if heir is not None and heir.match_index >= self.commit_index:
                self._gate.post(heir.node_id, TimeoutNow(self.term))
            self._follow(self.term, None)

    # Where the log begins.

    def install(self, origin: Origin, restore: Callable[[], None]) -> bool:
        """Take the state of a checkpoint that is on disk, by ``restore``; False if nothing in it is new here.

        A checkpoint is committed, so all entries up to it are. A leader has them all and needs no checkpoint.
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


check_library(RaftNode, SyncObj, VERSION)
