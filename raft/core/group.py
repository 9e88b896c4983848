"""One Raft group on this node, as the floors above use it: propose, read, change members, transfer, checkpoint.

Group drives a RaftNode: it turns events of the node (messages, connections, timers, disk syncs) and calls of the floors
above into calls of the RaftNode, lets that make progress once in a turn of the loop, and answers the calls that have
become true, cannot become true any more, or are late. It is sans-IO: clock, timers, network and disk belong to its
ports, so a simulator can drive it without asyncio.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ..log.configuration import AddLearner, ChangeRefused, Configuration, InvalidChange, RemoveMember
from ..log.group_log import GroupLog
from ..log.origin import CapturedState, InstallableCheckpoint, Origin
from ..machine import Machine
from ..messages import AppendAck, AppendEntries, RaftMessage
from ..outcomes import Committed, NotLeader, Outcome, Overloaded, Rejected, Unknown
from ..ports import NodePorts, Timer
from ..settings import RaftSettings
from .leader import LeaderState
from .pending import LeadershipTransfer, LeadershipTransfers, PendingProposal, Proposals, ReadBarrier, ReadBarriers
from .raft_node import RaftNode

__all__ = ["ChangeRefused", "Committed", "Group", "NotLeader", "Outcome", "Overloaded", "Rejected", "Unknown"]

_log = logging.getLogger(__name__)

STALL_S = 0.05
"""A timer that fires later than by this much shows that the event loop stood still."""
WAKING_S = 0.002
"""Time after a stall in which the sockets are read before timers act."""


class Group:
    """A replica of one group. Everything happens on the node's event loop; nothing here is thread-safe.

    At construction ``machine`` has the state at the origin of ``log``. ``count_applied`` is called after each run of
    applies with the number of entries with commands that the machine applied in it, and the bytes of those commands.
    """

    group_id: int
    on_role_change: Callable[["Group"], None] | None
    """Called on the loop after the leader, the term or the role of this node changed. An exception in it is logged."""
    on_applied: Callable[["Group"], None] | None
    """Called on the loop after a run of applies: ``applied_index`` has grown. An exception in it is logged."""

    def __init__(
        self,
        group_id: int,
        machine: Machine,
        log: GroupLog,
        settings: RaftSettings,
        ports: NodePorts,
        count_applied: Callable[[int, int], None] = lambda entries, size: None,
    ) -> None:
        self.group_id = group_id
        self.on_role_change = None
        self.on_applied = None
        self._settings = settings
        self._ports = ports
        self._machine = machine
        self._node = RaftNode(group_id, machine, log, settings, ports, count_applied)
        if machine.may_lag:  # every node acts on what the others apply at once, and it is small
            self._node.membership.full_disks = ports.full_disks
        self._proposals = Proposals(settings)
        self._barriers = ReadBarriers()
        self._transfers = LeadershipTransfers()
        self._queues = (self._proposals, self._barriers, self._transfers)
        self._known_role = self._node.role
        self._known_applied = self._node.applied_index
        self._is_scheduled = False
        self._is_stopped = False
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._is_waking = False
        if log.is_new and next(iter(self.voters), None) == ports.node_id:
            self._node.campaign_soon()
        self._arm()

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, as far as it knows. Only ``read_barrier`` and a commit prove it."""
        return self._node.leading is not None

    @property
    def leader(self) -> str | None:
        """Node id of the leader of ``term``, None while unknown."""
        return self._node.leader

    @property
    def term(self) -> int:
        """The current term of this node."""
        return self._node.term

    @property
    def commit_index(self) -> int:
        """The highest index that this node knows to be committed."""
        return self._node.commit_index

    @property
    def applied_index(self) -> int:
        """The highest index that the machine has applied. Index 1 is empty and counts as applied from the start."""
        return self._node.applied_index

    @property
    def ready(self) -> bool:
        """True once this node has heard of a leader and applied what was committed at that moment."""
        return self._node.ready

    @property
    def is_quiescent(self) -> bool:
        """Whether the group is quiescent on this node."""
        return self._node.quiescence.is_quiescent

    @property
    def configuration(self) -> Configuration:
        """The members as this node knows them: the latest configuration in its log, committed or not."""
        return self._node.log.configuration

    @property
    def voters(self) -> tuple[str, ...]:
        """Node ids of the voters as this node knows them; none in a group that this node has only just joined."""
        return tuple(self.configuration.voters)

    @property
    def changing(self) -> bool:
        """Whether the configuration in force is not known to be committed: a membership change is in flight."""
        return self._node.changing

    @property
    def is_learner(self) -> bool:
        """Whether this node is no voter of the group, as far as it knows: it is catching up, or was removed."""
        return not self._node.membership.is_voter

    @property
    def lags(self) -> Mapping[str, int]:
        """How many committed entries each other member lacks on its disk, by node id; empty unless this node leads."""
        leading = self._node.leading
        return {} if leading is None else leading.lags(self.commit_index)

    @property
    def out_of_sync(self) -> Sequence[str]:
        """The members that are disconnected, no voters yet, or far behind; empty unless this node leads."""
        leading = self._node.leading
        return () if leading is None else leading.out_of_sync(self.commit_index)

    def needs_room_without(self, node_id: str) -> Sequence[str]:
        """The voters with full disks that every commit would have to wait for if the voter ``node_id`` were removed
        now, because they are far behind; empty unless this node leads.
        """
        leading = self._node.leading
        return () if leading is None else leading.needs_room_without(node_id)

    @property
    def pending(self) -> tuple[int, int]:
        """The number of proposals that wait for an answer here, and their bytes."""
        return len(self._proposals.waiting), self._proposals.bytes

    @property
    def apply_began(self) -> float:
        """When the present or last run of applies on this node began, in seconds of its clock."""
        return self._ports.apply_began

    # Events of the node.

    def receive(self, node_id: str, message: RaftMessage) -> None:
        """Handle a message for this group. Most messages need no ``progress``, which matters with many groups on a
        node: entries of a known leader only wait for the disk, and most acks come after a majority has answered.
        """
        if self._is_stopped:
            return
        node, kind = self._node, type(message)
        try:
            node.receive(node_id, message)
        except Exception as error:
            self._fail(error)
            return
        if kind is AppendEntries and node.log.unsynced and self._known_role == node.role:
            self._wait_for_disk()
        elif kind is not AppendAck or node.leading is None:
            self._schedule()
        else:
            self._follower_acked(node.leading)

    def _follower_acked(self, leading: LeaderState) -> None:
        """Schedule ``progress`` if an ack may have made a commit, a send or a read possible."""
        if self._barriers.waiting or leading.has_news(self._node.commit_index):
            self._schedule()
        elif self._node.waits_for_disk:
            self._wait_for_disk()

    def take(self, node_id: str, message: AppendEntries, now: float) -> bool:
        """Store entries as ``receive`` does, except that the caller calls ``taken_is_durable`` once they are on disk.
        Returns False, and has done nothing, unless the fast path applies (``RaftNode.take`` says when).
        """
        try:
            return not self._is_stopped and self._node.take(node_id, message, now)
        except Exception as error:
            self._fail(error)
            return False

    def taken_is_durable(self, node_id: str, message: AppendEntries, now: float) -> bool:
        """Go on after a disk sync of what ``take`` stored. Returns True if the caller must ack it, not this group."""
        node = self._node
        try:
            may_ack = not self._is_stopped and node.may_ack(node_id, message)
            must_go_on = may_ack and node.must_go_on(now)
        except Exception as error:
            self._fail(error)
            return False
        if must_go_on:
            self._schedule()
        elif not may_ack:
            self._disk_has_synced()
        return may_ack

    def acked(self, node_id: str, message: AppendEntries, now: float) -> None:
        """Handle the ack of ``message``, which this group sent as a leader, as ``receive`` does an AppendAck."""
        if self._is_stopped:
            return
        try:
            self._node.acked(node_id, message, now)
        except Exception as error:
            self._fail(error)
            return
        leading = self._node.leading
        if leading is not None and not self._is_scheduled:
            self._follower_acked(leading)

    def peer_up(self, node_id: str, incarnation: int) -> None:
        """Handle a new connection to a node; ``incarnation`` is that of the node's disk."""
        self._run(partial(self._node.peer_up, node_id, incarnation))

    def peer_down(self, node_id: str, spread_s: float = 0.0) -> None:
        """Handle the loss of a connection. If ``node_id`` led many groups, their elections spread over ``spread_s``."""
        left = sorted({*self.voters, self._ports.node_id} - {node_id})
        turn = (left.index(self._ports.node_id) + self.group_id) % len(left)
        self._run(partial(self._node.peer_down, node_id, spread_s, turn))

    def peer_silent(self, node_id: str) -> None:
        """Handle that a connected node gives no sign of life."""
        self._run(partial(self._node.peer_silent, node_id))

    def peer_heard(self, node_id: str) -> None:
        """Handle that a silent node gives signs of life again."""
        self._run(partial(self._node.peer_heard, node_id))

    def _disk_has_synced(self) -> None:
        """Go on after a disk sync: a follower acks what is durable before it applies; a leader may commit."""
        if self._is_stopped:
            return
        node, leading = self._node, self._node.leading
        try:
            must_go_on = node.acknowledge() if leading is None else leading.has_news(node.commit_index)
        except Exception as error:
            self._fail(error)
            return
        if must_go_on and leading is None:
            self._schedule()
        elif must_go_on:
            self.progress()
        elif node.waits_for_disk:
            self._wait_for_disk()

    def _wait_for_disk(self) -> None:
        """Have ``_disk_has_synced`` called. A follower waits for all that it has appended, and acks that at once; a
        leader, which begins to wait later, only for its first unsynced entry, since that alone may be committed.
        """
        lsn = None if self._node.leading is None else self._node.log.unsynced_lsn
        self._ports.wake_when_durable(self._disk_has_synced, lsn)

    def close(self) -> None:
        """Stop this replica: calls that wait are answered, and nothing is sent or applied any more."""
        if not self._is_stopped:
            self._run(self._node.abandon)
            self.halt()

    def halt(self) -> None:
        """Stop at once and answer the calls that wait, without touching the RaftNode: it may be what failed."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._proposals.expire(float("inf"))
        self._barriers.check(None, self.applied_index, NotLeader(None, self.term))
        self._transfers.expire(float("inf"))

    # Progress.

    def progress(self) -> None:
        """Do what events or a disk sync have made possible, answer barriers and transfers, and call the hooks."""
        self._is_scheduled = False
        if self._is_stopped:
            return
        node = self._node
        try:
            is_left = node.progress()
        except Exception as error:
            self._fail(error)
            return
        if self._barriers.waiting:
            self._barriers.check(node.leading, node.applied_index, NotLeader(node.leader, node.term))
        if self._transfers.waiting:
            self._transfers.check(node.node_id, node.leader, node.term)
        role, applied_index = node.role, node.applied_index
        if self._known_role != role:
            self._known_role = role
            self._tell(self.on_role_change)
        if self._known_applied != applied_index:
            self._known_applied = applied_index
            self._tell(self.on_applied)
        if self._is_stopped:  # by one of the callbacks above
            return
        if node.waits_for_disk:
            self._wait_for_disk()
        if is_left:
            self._schedule()
        self._arm()

    def _tell(self, hook: Callable[["Group"], None] | None) -> None:
        if hook is not None:
            try:
                hook(self)
            except Exception:
                _log.exception("a hook of group %d failed", self.group_id)

    def _run(self, event: Callable[[], None]) -> None:
        if self._is_stopped:
            return
        try:
            event()
        except Exception as error:
            self._fail(error)
        else:
            self._schedule()

    def _fail(self, error: Exception) -> None:
        _log.critical("group %d stops this node", self.group_id, exc_info=error)
        self.halt()
        self._ports.fail(error)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._ports.call_soon(self.progress)

    def _arm(self) -> None:
        """Set the timer for the next tick or the next deadline of a call, whichever is earlier. There is one timer,
        which is only ever set to an earlier time; when it fires too early, it is set again.
        """
        when = self._node.next_tick
        for queue in self._queues:
            when = min(when, queue.next_deadline)
        if self._timer is None or when < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_at = self._ports.call_at(when, self._on_time), when

    def _on_time(self) -> None:
        self._timer = None
        now = self._ports.time()
        if now - self._timer_at > STALL_S and not self._is_waking:
            # The loop stood still, and uvloop runs timers before it reads: first receive the messages that the sockets
            # hold.
            self._is_waking = True
            if self._node.leading is not None:  # it sent its followers nothing, so their silence does not count
                self._node.leading.forgive(now - self._timer_at)
            self._timer, self._timer_at = self._ports.call_at(now + WAKING_S, self._on_time), now + WAKING_S
            return
        self._is_waking = False
        transfers = len(self._transfers.waiting)
        for queue in self._queues:
            queue.expire(now)
        if transfers and not self._transfers.waiting:
            self._run(self._keep_leading)
        leading = self._node.leading
        if leading is not None and now >= leading.notice_at:
            leading.tell_commit(self.commit_index, now)
        if now >= self._node.next_tick:
            self._tick()
        else:
            self._arm()

    def _keep_leading(self) -> None:
        """Give up the leadership transfer, which timed out: this leader appends the proposals that waited for the
        transferee.
        """
        if self._node.leading is not None:
            self._node.leading.transferee = None

    def _tick(self) -> None:
        try:
            must_go_on = self._node.tick()
        except Exception as error:
            self._fail(error)
            return
        if must_go_on:
            self._schedule()
        self._arm()  # the next heartbeat is not to wait for ``progress``, which waits behind that of other groups

    # Calls of the floors above.

    async def propose(self, command: bytes, timeout_s: float) -> Outcome:
        """Propose a command, and wait until it is committed and applied here, or cannot be.

        Raises ValueError for a command that is longer than ``entry_bytes_max``. If the caller is cancelled, the command
        may be committed all the same.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.submit(command, timeout_s, lambda it: None if future.done() else future.set_result(it))
        return await future

    def submit(self, command: bytes, timeout_s: float, settle: Callable[[Outcome], None]) -> None:
        """Like ``propose``; ``settle`` is called with the outcome, exactly once."""
        if len(command) > self._settings.entry_bytes_max:
            raise ValueError(f"a command of {len(command)} bytes exceeds {self._settings.entry_bytes_max}")
        proposal = self._admit(len(command), timeout_s, settle)
        if proposal is not None and self._node.enqueue(command, proposal):
            self._schedule()

    def _admit(self, size: int, timeout_s: float, settle: Callable[[Outcome], None]) -> PendingProposal | None:
        """Accept a proposal of ``size`` bytes; None if it was answered at once."""
        if self._is_stopped or not self.is_leader:
            settle(Rejected(self.leader, self.term))
            return None
        proposal = None
        if not self._ports.log_is_full():
            proposal = self._proposals.accept(size, self._ports.time() + timeout_s, settle)
        if proposal is None:
            settle(Overloaded())
        return proposal

    async def read_barrier(self, timeout_s: float) -> None:
        """Return when a read of the machine here is linearizable (Raft's ReadIndex).

        That is: a round of messages begun after the call proved to a majority that this node leads its term, and
        everything committed at the call, including an entry of this term, is applied here. Barriers called in one turn
        of the loop share a round. Raises NotLeader (at once, or when leadership is lost meanwhile) or TimeoutError.
        """
        future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.submit_barrier(timeout_s, lambda it: None if future.done() else future.set_result(it))
        error = await future
        if error is not None:
            raise error

    def submit_barrier(self, timeout_s: float, settle: Callable[[Exception | None], None]) -> None:
        """Like ``read_barrier``; ``settle`` is called with None or the exception, exactly once."""
        leading = self._node.leading
        if self._is_stopped or leading is None:
            settle(NotLeader(self.leader, self.term))
            return
        index = max(self.commit_index, leading.no_op_index)
        deadline = self._ports.time() + timeout_s
        round_ = self._node.want_round()
        self._barriers.add(ReadBarrier(self._barriers, leading, round_, index, deadline, settle))
        self._schedule()

    async def change(self, change: AddLearner | RemoveMember, timeout_s: float) -> Outcome | ChangeRefused:
        """Change the members, and wait until that is committed and applied here.

        The result of Committed is the Configuration. A learner becomes a voter by itself once it has caught up; a voter
        whose disk was wiped becomes a learner by itself. Returns ChangeRefused, with nothing begun, while another
        change is not committed, before the leader has committed anything of its term, while it transfers its
        leadership, if the change makes no sense, or if no majority of the new voters is connected. All other outcomes
        are those of ``propose``.
        """
        future: asyncio.Future[Outcome | ChangeRefused] = asyncio.get_running_loop().create_future()
        self.submit_change(change, timeout_s, lambda it: None if future.done() else future.set_result(it))
        return await future

    def submit_change(
        self,
        change: AddLearner | RemoveMember,
        timeout_s: float,
        settle: Callable[[Outcome | ChangeRefused], None],
    ) -> None:
        """Like ``change``; ``settle`` is called with the outcome, exactly once."""
        proposal = self._admit(0, timeout_s, settle)
        if proposal is not None:
            try:
                self._node.change(change, proposal)
            except InvalidChange as refusal:
                self._proposals.remove(proposal)
                settle(ChangeRefused(str(refusal)))
            else:
                self._schedule()

    async def transfer(self, node_id: str | None, timeout_s: float) -> None:
        """Transfer the leadership to the voter ``node_id`` (the transferee); None: to the voter with the longest
        matching log. Returns when the transferee leads.

        Proposals made while the transferee receives the last entries wait, and are rejected when it leads; once it was
        asked to campaign, they wait for one election timeout at most. Raises NotLeader if this node does not lead or a
        third node takes over, ValueError if ``node_id`` is no other voter, TimeoutError if the transferee does not lead
        in time; this node then leads on, if it still can.
        """
        future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.submit_transfer(node_id, timeout_s, lambda it: None if future.done() else future.set_result(it))
        error = await future
        if error is not None:
            raise error

    def submit_transfer(
        self, node_id: str | None, timeout_s: float, settle: Callable[[Exception | None], None]
    ) -> None:
        """Like ``transfer``; ``settle`` is called with None or the exception, exactly once."""
        if self._is_stopped or not self.is_leader:
            settle(NotLeader(self.leader, self.term))
            return
        assert self._node.leading is not None
        try:
            self._node.leading.transfer_to(node_id, self._node.membership.others)
        except ValueError as error:
            settle(error)
            return
        deadline = self._ports.time() + timeout_s
        self._transfers.add(LeadershipTransfer(self._transfers, node_id, self.term, deadline, settle))
        self._schedule()

    def step_down(self) -> None:
        """Stop leading, and ask the follower with the longest matching log to campaign. Does nothing unless this node
        leads.

        A follower that lacks committed entries, as far as is known here, is not asked: it cannot win. Unlike
        ``transfer``, this does not wait until the follower has the entries in flight, of which there are always some
        under load. Proposals in flight end as Unknown, barriers as NotLeader.
        """
        self._run(self._node.step_down)

    # Checkpoints.

    def capture(self) -> CapturedState | None:
        """The machine's image after the last apply, with the index, term and configuration there.

        None while that configuration is not known, as on a node that joins and has only begun to catch up.
        """
        log, index = self._node.log, self.applied_index
        configuration = log.configuration_at(index)
        if not configuration.voters:
            return None
        return CapturedState(index, log.term_at(index), configuration, self._machine.capture())

    def install(self, checkpoint: InstallableCheckpoint, directory: Path) -> bool:
        """Replace the state by that of another node's checkpoint, which is on disk here, its files in ``directory``.

        Returns False, with nothing changed, if the checkpoint is not ahead of this replica, or the replica has stopped.
        An exception of the machine stops the node.
        """
        origin = Origin(checkpoint.index, checkpoint.term, checkpoint.configuration)
        if self._is_stopped:
            return False
        try:
            restore = partial(self._machine.restore, directory, checkpoint.state, checkpoint.files)
            is_new = self._node.install(origin, restore)
        except Exception as error:
            self._fail(error)
            return False
        self._schedule()
        return is_new
