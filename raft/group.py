"""One Raft group on this node, as the floors above use it: propose, read barrier, step down, and who leads.

The group turns events (messages, connections, time, "the disk moved on") into calls of its member, and the member's
answers into callbacks. It is sans-IO: clock, timers, network and disk belong to its surroundings, so a simulator can
drive it without asyncio; only ``propose`` and ``read_barrier`` are coroutines.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from .journal import Journal
from .machine import Machine
from .member import Member
from .messages import RaftMessage
from .outcomes import Committed, NotLeader, Outcome, Overloaded, Rejected, Unknown
from .ports import Surroundings, Timer
from .proposals import Barrier, Barriers, Proposals
from .settings import RaftSettings

__all__ = ["Committed", "Group", "NotLeader", "Outcome", "Overloaded", "Rejected", "Unknown"]

_log = logging.getLogger(__name__)

STALL_S = 0.05
"""A timer that is later than this has not fired late by chance."""
WAKING_S = 0.002


class Group:
    """A replica of one group. Everything happens on the node's event loop; nothing here is thread-safe."""

    group_id: int
    voters: tuple[str, ...]
    on_role_change: Callable[["Group"], None] | None
    """Called on the loop after the leader, the term or the role of this node changed. An exception in it is logged."""
    on_applied: Callable[["Group"], None] | None
    """Called on the loop after a run of applies: ``applied_index`` has grown. An exception in it is logged."""

    def __init__(
        self,
        group_id: int,
        voters: Sequence[str],
        machine: Machine,
        journal: Journal,
        settings: RaftSettings,
        surroundings: Surroundings,
    ) -> None:
        self.group_id = group_id
        self.voters = tuple(voters)
        self.on_role_change = None
        self.on_applied = None
        self._settings = settings
        self._around = surroundings
        self._member = Member(surroundings.node_id, voters, journal, settings, _Ports(group_id, machine, surroundings))
        self._proposals = Proposals(settings)
        self._barriers = Barriers()
        self._told_role = self._role()
        self._told_applied = self.applied_index
        self._is_scheduled = False
        self._is_stopped = False
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._is_waking = False
        if journal.is_new and voters[0] == surroundings.node_id:
            self._member.go_first()
        self._arm()

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, as far as it knows. Only ``read_barrier`` and a commit prove it."""
        return self._member.leading is not None

    @property
    def leader(self) -> str | None:
        """Node id of the leader of ``term``, None while unknown."""
        return self._member.leader

    @property
    def term(self) -> int:
        """The current term of this node."""
        return self._member.term

    @property
    def commit_index(self) -> int:
        """The highest index that this node knows to be committed."""
        return self._member.commit_index

    @property
    def applied_index(self) -> int:
        """The highest index that the machine has applied. Index 1 is empty and counts as applied from the start."""
        return self._member.applied_index

    @property
    def ready(self) -> bool:
        """True once this node has heard of a leader and applied what was committed at that moment."""
        return self._member.ready

    async def propose(self, command: bytes, timeout_s: float) -> Outcome:
        """Append ``command`` to the replicated log and wait until it is applied here.

        Proposals that arrive in one turn of the loop share one message a follower and one disk sync. Returns:

        - Committed: durable on a majority, applied here; its result is the machine's answer (a refusal, too).
        - Rejected: this node does not lead; surely not appended.
        - Overloaded: beyond ``pending_count_max`` or ``pending_bytes_max``, or the disk is far behind; surely not
          appended.
        - Unknown: the deadline passed, leadership was lost or the group closed while the command was under way.

        Raises ValueError for a command longer than ``entry_bytes_max``. Cancelling the wait does not withdraw the
        command.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.submit(command, timeout_s, lambda outcome: None if future.done() else future.set_result(outcome))
        return await future

    def submit(self, command: bytes, timeout_s: float, settle: Callable[[Outcome], None]) -> None:
        """Like ``propose``; ``settle`` is called with the outcome, exactly once."""
        if len(command) > self._settings.entry_bytes_max:
            raise ValueError(f"a command of {len(command)} bytes exceeds {self._settings.entry_bytes_max}")
        if self._is_stopped or not self.is_leader:
            settle(Rejected(self.leader, self.term))
            return
        proposal = None
        if not self._around.log_is_full():
            proposal = self._proposals.add(len(command), self._around.time() + timeout_s, settle)
        if proposal is None:
            settle(Overloaded())
            return
        self._member.propose(command, proposal)
        self._schedule()

    async def read_barrier(self, timeout_s: float) -> None:
        """Return when a read of the machine here is linearizable.

        That is: a round of messages begun after the call proved to a majority that this node leads its term, and
        everything committed at the call, including an entry of this term, is applied here. Barriers called in one turn
        of the loop share a round. Raises NotLeader (at once, or when leadership is lost meanwhile) or TimeoutError.
        """
        future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.submit_barrier(timeout_s, lambda error: None if future.done() else future.set_result(error))
        error = await future
        if error is not None:
            raise error

    def submit_barrier(self, timeout_s: float, settle: Callable[[Exception | None], None]) -> None:
        """Like ``read_barrier``; ``settle`` is called with None or the exception, exactly once."""
        leading = self._member.leading
        if self._is_stopped or leading is None:
            settle(NotLeader(self.leader, self.term))
            return
        index = max(self.commit_index, leading.no_op_index)
        deadline = self._around.time() + timeout_s
        self._barriers.add(Barrier(leading, self._member.want_round(), index, deadline, settle))
        self._schedule()

    def step_down(self) -> None:
        """Stop leading, and ask the follower that is furthest to take over. Does nothing on a node that does not lead.

        Proposals under way end as Unknown, barriers as NotLeader.
        """
        self._run(self._member.step_down)

    # What the surroundings tell.

    def receive(self, node_id: str, message: RaftMessage) -> None:
        """A message for this group arrived."""
        self._run(lambda: self._member.receive(node_id, message))

    def peer_up(self, node_id: str) -> None:
        """A connection came up."""
        self._run(lambda: self._member.peer_up(node_id))

    def peer_down(self, node_id: str) -> None:
        """A connection broke."""
        self._run(lambda: self._member.peer_down(node_id))

    def progress(self) -> None:
        """Do what has become possible: after events, and after the disk moved on."""
        self._is_scheduled = False
        if self._is_stopped:
            return
        try:
            more = self._member.progress()
        except Exception as error:
            self._fail(error)
            return
        self._barriers.check(self._member.leading, self.applied_index, NotLeader(self.leader, self.term))
        self._tell()
        if self._is_stopped:  # by whoever was told
            return
        if self._member.journal.unsynced:
            self._around.wake_when_durable(self.progress)
        if more:
            self._schedule()
        self._arm()

    def close(self) -> None:
        """Stop this replica; what waits is settled, nothing is sent or applied any more."""
        if not self._is_stopped:
            self._run(self._member.abandon)
            self.halt()

    def halt(self) -> None:
        """Stop at once, without touching the member: it may be what failed."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._proposals.abandon()
        self._barriers.check(None, self.applied_index, NotLeader(None, self.term))

    # Inside.

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
        self._around.fail(error)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._around.call_soon(self.progress)

    def _arm(self) -> None:
        """Keep one timer. It is moved only to fire earlier; when it fires too early, it is set again."""
        when = min(self._member.next_tick, self._proposals.next_deadline, self._barriers.next_deadline)
        if self._timer is None or when < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_at = self._around.call_at(when, self._on_time), when

    def _on_time(self) -> None:
        self._timer = None
        now = self._around.time()
        if now - self._timer_at > STALL_S and not self._is_waking:
            # The loop stood still, and uvloop runs timers before it reads: first hear what the sockets hold.
            self._is_waking = True
            self._member.stood_still(now - self._timer_at)
            self._timer, self._timer_at = self._around.call_at(now + WAKING_S, self._on_time), now + WAKING_S
            return
        self._is_waking = False
        self._proposals.expire(now)
        self._barriers.expire(now)
        if now >= self._member.next_tick:
            self._run(self._member.tick)
        else:
            self._arm()

    def _role(self) -> tuple[bool, str | None, int]:
        return self.is_leader, self.leader, self.term

    def _tell(self) -> None:
        if self._told_role != (role := self._role()):
            self._told_role = role
            self._call(self.on_role_change)
        if self._told_applied != self.applied_index:
            self._told_applied = self.applied_index
            self._call(self.on_applied)

    def _call(self, hook: Callable[["Group"], None] | None) -> None:
        if hook is not None:
            try:
                hook(self)
            except Exception:
                _log.exception("a hook of group %d failed", self.group_id)


class _Ports:
    """The engine's ports, made of a group's machine and surroundings."""

    def __init__(self, group_id: int, machine: Machine, surroundings: Surroundings) -> None:
        self._group_id = group_id
        self._around = surroundings
        self.apply = machine.apply
        self.clock = surroundings.time
        self.rng = surroundings.rng
        self.log_is_full = surroundings.log_is_full
        self.apply_until = surroundings.apply_until

    def send(self, node_id: str, message: RaftMessage) -> bool:
        return self._around.send(node_id, self._group_id, message)
