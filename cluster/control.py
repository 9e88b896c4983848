"""The controller group as its members run it: commands stamped with the lease clock, proposed, and their outcome told.

Only the leader decides; everybody else answers that another node leads. Nothing here is remembered: what must
survive is in the machine.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..partition.errors import (
    InternalError,
    NotLeaderOrFollower,
    RequestTimedOut,
    StockadeError,
)
from ..partition.image import FileExtent, Image
from ..raft.group import Group, NotLeader
from . import commands
from .catalog import Topic
from .commands import Command, Done, RenewSessions, Tick
from .controller import ControllerMachine
from .handover import hand_over
from .lease_clock import LeaseClock
from .leases import RENEWALS_PER_COMMAND_MAX, Leases
from .messages import Catalog, Placement
from .model import Leader
from .outcomes import barrier, decided
from .refs import FenceRef, ReaderRef
from .signal import Signal

TICK_S = 0.2
"""How often the leader looks whether a session is due."""

_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class AppliedController:
    """The controller machine, waking whoever waits for its state to change; ``left``: for a ticket to leave its line.

    Many may wait in line for long, so they have a signal of their own, and cost other commands nothing.
    """

    def __init__(self, machine: ControllerMachine) -> None:
        self.machine = machine
        self.changed: Signal = Signal()
        self.left: Signal = Signal()
        self.start: Callable[[object], None] = machine.start
        self.capture: Callable[[], Image] = machine.capture
        self.inspect: Callable[[object, bytes, Sequence[FileExtent]], None] = machine.inspect

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply, then notify."""
        departures = self.machine.ownership.queue.departures
        result = self.machine.apply(index, term, command)
        self.changed.notify()
        if self.machine.ownership.queue.departures != departures:
            self.left.notify()
        return result

    def restore(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        """Be what was captured, then notify."""
        self.machine.restore(directory, state, files)
        self.changed.notify()
        self.left.notify()

    def placement(self, name: str) -> Placement | None:
        """One topic, if it exists."""
        topic = self.machine.topic(name)
        return _placement(topic) if topic is not None else None


def _placement(topic: Topic) -> Placement:
    return Placement(
        topic.name,
        topic.topic_id,
        topic.config,
        topic.replication_factor,
        topic.placements,
        topic.founders,
        topic.sealed,
        topic.config_order,
    )


class Control:
    """Proposes commands to the controller group and reads its state."""

    def __init__(
        self,
        state: AppliedController,
        group: Group,
        url_of: Callable[[str | None], str | None],
        timeout_s: float,
    ) -> None:
        """``url_of`` gives the base URL of a node id; ``timeout_s`` bounds every call."""
        self.state = state
        self.machine: ControllerMachine = state.machine
        self.group = group
        self.timeout_s = timeout_s
        self._url_of = url_of
        self._clock = LeaseClock(lambda: self.machine.lease_clock_ms, time.monotonic)
        self.leases: Leases = Leases(lambda: self.machine.sessions)

    def leader(self) -> Leader:
        """Who leads the controller group, as far as this node knows."""
        return Leader(self.group.leader, self._url_of(self.group.leader), self.group.term)

    def not_leading(self) -> NotLeaderOrFollower:
        """The answer that sends the caller to the leader."""
        leader = self.leader()
        return NotLeaderOrFollower(leader.url, leader.term if leader.url else None)

    async def hand_over(self, node_id: str | None) -> Leader:
        """Let another member lead the controller group (None: any); answers when it does."""
        if not self.group.is_leader:
            raise self.not_leading()
        try:
            await hand_over(self.group, node_id, self.timeout_s)
        except NotLeader as error:
            raise self.not_leading() from error
        return self.leader()

    def catalog(self) -> Catalog:
        """All topics and nodes, for the nodes that follow."""
        machine, membership = self.machine, self.machine.membership
        return Catalog(
            machine.catalog_index,
            [_placement(topic) for topic in machine.topics()],
            self.group.leader,
            self.group.term,
            list(membership.nodes.rows.values()),
            membership.nodes.removed,
            membership.controllers,
            list(membership.moves.values()),
        )

    def now_ms(self) -> int:
        """The lease clock; only the leader's counts."""
        return self._clock.now_ms(self.group.term)

    def stamp_ms(self) -> int:
        """What a command may say that the lease clock is: not more than the leader may let pass."""
        return self.leases.stamp(self.group.term, self.now_ms())

    async def decide(self, make: Callable[[int], Command], answer: type[_Answer]) -> _Answer:
        """Propose what ``make`` makes of the lease clock."""
        return await self.propose(make(self.stamp_ms()), answer)

    async def propose(self, command: Command, answer: type[_Answer]) -> _Answer:
        """Propose a command; its answer, of the type that this command gives.

        Raises the refusal that the machine answered, NotLeaderOrFollower, ThrottlingQuotaExceeded, RequestTimedOut.
        """
        if not self.group.is_leader:
            raise self.not_leading()
        outcome = await self.group.propose(commands.encode_command(command), self.timeout_s)
        result = decided(outcome, self.not_leading, retry_after_ms=200)
        if not isinstance(result, answer):
            raise InternalError(f"the controller answered {result!r}")
        return result

    async def barrier(self) -> None:
        """Return when a read of the machine is linearizable. Raises NotLeaderOrFollower, LeaderNotAvailable."""
        await barrier(self.group, self.timeout_s, self.not_leading)

    async def until(self, look: Callable[[], _Answer | None], timeout_s: float) -> _Answer | None:
        """What ``look`` answers as soon as it is not None; None after ``timeout_s``."""
        return await self.state.changed.until(look, timeout_s)

    async def told(self, fences: Collection[FenceRef], readers: Collection[ReaderRef]) -> None:
        """Return when partitions have committed what was decided about them. Raises RequestTimedOut."""
        machine = self.machine

        def committed() -> bool | None:
            is_over = all(map(machine.is_over, fences)) and all(map(machine.is_reader_installed, readers))
            return True if is_over else None

        if await self.until(committed, self.timeout_s) is None:
            raise RequestTimedOut("decided, but not every partition could be told in time")

    async def keep_time(self) -> None:
        """While this node leads: write down what it heard of sessions in time, and let the others expire. The first
        tick of a term re-arms all of them. Runs for ever.
        """
        while True:
            if self.group.is_leader:
                await quietly(self._keep_leases(self.group.term))
            await asyncio.sleep(TICK_S)

    async def _keep_leases(self, term: int) -> None:
        if not self.leases.has_begun(term):
            await self.decide(lambda now: Tick(now_ms=now), Done)
            self.leases.begin(term, self.machine.lease_clock_ms)
        horizon_ms, renewals = self.leases.look_ahead(self.now_ms())
        for start in range(0, len(renewals), RENEWALS_PER_COMMAND_MAX):
            some = renewals[start : start + RENEWALS_PER_COMMAND_MAX]
            await self.decide(partial(_renewals, some), Done)
            self.leases.written(some)
        self.leases.advance(horizon_ms)
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.now_ms():
            await self.decide(lambda now: Tick(now_ms=now), Done)


def _renewals(renewals: list[tuple[str, int]], now_ms: int) -> RenewSessions:
    return RenewSessions(now_ms=now_ms, deadlines_ms=renewals)


async def quietly(work: Awaitable[object]) -> bool:
    """Whether background work succeeded. A refusal loses nothing: the replicated state still says what is to be
    done.
    """
    try:
        await work
    except StockadeError as refusal:
        if not refusal.retriable:
            _log.warning("background work was refused: %s", refusal)
        return False
    return True
