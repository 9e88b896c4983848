"""A replica of a Raft group, driven by events: messages, connections, time, "the disk moved on".

It turns events into calls of its member, and what that did into callbacks. It is sans-IO: clock, timers, network and
disk belong to its surroundings, so a simulator can drive it without asyncio. What is asked of a group is group.py's.
"""

import logging
from collections.abc import Callable
from typing import Any, Self

from .configuration import Configuration
from .hibernation import Hibernating
from .journal import Journal
from .machine import Machine
from .messages import AppendAck, AppendEntries, RaftMessage
from .outcomes import NotLeader
from .ports import Surroundings, Timer
from .proposals import Barriers, Handovers, Proposals
from .settings import RaftSettings

_log = logging.getLogger(__name__)

STALL_S = 0.05
"""A timer that is later than this has not fired late by chance."""
WAKING_S = 0.002


class Replica:
    """A replica of one group. Everything happens on the node's event loop; nothing here is thread-safe.

    ``journal`` and ``machine`` stand at the same place: at the journal's origin.
    """

    group_id: int
    on_role_change: Callable[[Self], None] | None
    """Called on the loop after the leader, the term or the role of this node changed. An exception in it is logged."""
    on_applied: Callable[[Self], None] | None
    """Called on the loop after a run of applies: ``applied_index`` has grown. An exception in it is logged."""

    def __init__(
        self, group_id: int, machine: Machine, journal: Journal, settings: RaftSettings, surroundings: Surroundings
    ) -> None:
        self.group_id = group_id
        self.on_role_change = None
        self.on_applied = None
        self._settings = settings
        self._around = surroundings
        self._machine = machine
        ports = _Ports(group_id, machine, surroundings)
        self._member = Hibernating(surroundings.node_id, surroundings.incarnation, journal, settings, ports)
        self._proposals = Proposals(settings)
        self._barriers = Barriers()
        self._handovers = Handovers()
        self._told_role = self._role()
        self._told_applied = self.applied_index
        self._is_scheduled = False
        self._is_stopped = False
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._is_waking = False
        if journal.is_new and next(iter(self.voters), None) == surroundings.node_id:
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

    @property
    def configuration(self) -> Configuration:
        """The members as this node knows them: the latest configuration in its log, committed or not."""
        return self._member.journal.configuration

    @property
    def voters(self) -> tuple[str, ...]:
        """Node ids of the voters as this node knows them; none in a group that this node has only just joined."""
        return tuple(self.configuration.voters)

    @property
    def changing(self) -> bool:
        """Whether that configuration is not known to be committed."""
        return self._member.changing

    # What the surroundings tell.

    def receive(self, node_id: str, message: RaftMessage) -> None:
        """A message for this group arrived."""
        if self._is_stopped:
            return
        try:
            self._member.receive(node_id, message)
        except Exception as error:
            self._fail(error)
        else:
            self._react(message)

    def peer_up(self, node_id: str, incarnation: int) -> None:
        """A connection came up, to a node whose disk has this incarnation."""
        self._run(lambda: self._member.peer_up(node_id, incarnation))

    def peer_down(self, node_id: str, spread_s: float = 0.0) -> None:
        """A connection broke. If that takes leaders of many groups, their elections are spread over ``spread_s``."""
        left = sorted({*self.voters, self._around.node_id} - {node_id})
        turn = (left.index(self._around.node_id) + self.group_id) % len(left)
        self._run(lambda: self._member.peer_down(node_id, spread_s, turn))

    def peer_silent(self, node_id: str) -> None:
        """A node that is connected gives no sign of life."""
        self._run(lambda: self._member.peer_silent(node_id))

    def peer_heard(self, node_id: str) -> None:
        """A node that was silent gives signs of life again."""
        self._run(lambda: self._member.peer_heard(node_id))

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
        if self._barriers.waiting:
            self._barriers.check(self._member.leading, self.applied_index, NotLeader(self.leader, self.term))
        if self._handovers.waiting:
            self._handovers.check(self._around.node_id, self.leader, self.term)
        self._tell()
        if self._is_stopped:  # by whoever was told
            return
        if self._member.journal.unsynced:
            self._around.wake_when_durable(self._disk_moved_on)
        if more:
            self._schedule()
        self._arm()

    def _disk_moved_on(self) -> None:
        if self._member.leading is None or self._member.has_work():
            self.progress()
        elif self._member.journal.unsynced:
            self._around.wake_when_durable(self._disk_moved_on)

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
        self._handovers.expire(float("inf"))

    # Inside.

    def _react(self, message: RaftMessage) -> None:
        """See to what a message may have brought about. With many groups on a node it matters that most need nothing.

        The entries of a leader that is known wait for the disk; most acks come when a majority has answered already.
        """
        kind, member = type(message), self._member
        if kind is AppendEntries and member.journal.unsynced and self._told_role == self._role():
            self._around.wake_when_durable(self._disk_moved_on)
        elif kind is not AppendAck or self._barriers.waiting or member.has_work():
            self._schedule()

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
        if self._handovers.waiting:
            when = min(when, self._handovers.next_deadline)
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
        self._expire_handovers(now)
        if now >= self._member.next_tick:
            self._run(self._member.tick)
        else:
            self._arm()

    def _expire_handovers(self, now: float) -> None:
        if self._handovers.waiting:
            self._handovers.expire(now)
            if not self._handovers.waiting:
                self._run(self._member.keep_leading)

    def _role(self) -> tuple[object, ...]:
        return self._member.role

    def _tell(self) -> None:
        if self._told_role != (role := self._role()):
            self._told_role = role
            self._call(self.on_role_change)
        if self._told_applied != (applied_index := self._member.applied_index):
            self._told_applied = applied_index
            self._call(self.on_applied)

    def _call(self, hook: Callable[[Any], None] | None) -> None:
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
        self.bundles: bool = getattr(machine, "bundles", False)
        self.clock = surroundings.time
        self.rng = surroundings.rng
        self.log_is_full = surroundings.log_is_full
        self.apply_until = surroundings.apply_until
        self._flush: Callable[[], None] | None = getattr(machine, "flush", None)
        self.heard_at = surroundings.heard_at

    def applied(self) -> None:
        if self._flush is not None:
            self._flush()
        self._around.applied()

    def send(self, node_id: str, message: RaftMessage) -> bool:
        return self._around.send(node_id, self._group_id, message)

    def fetch_checkpoint(self, node_id: str, index: int) -> None:
        self._around.fetch_checkpoint(self._group_id, node_id, index)
