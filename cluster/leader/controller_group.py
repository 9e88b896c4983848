"""The controller group as its members run it: commands are stamped with the lease clock, proposed, and answered.

Only the leader decides; other members answer NotLeaderOrFollower. This module keeps no state of its own: all state that
must survive is in the machine. Replicas never read the leader's lease clock (SEMANTICS 8); they obey what it stamped on
commands.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from ...partition.errors import InternalError, NotEnoughReplicas, RequestTimedOut, StockadeError
from ...raft.core.group import Group
from .. import rpc
from ..access.store import PrincipalStore
from ..condition import Condition, aligned_s
from ..controller import commands
from ..controller.commands import (
    Command,
    Done,
    FenceInstalled,
    FenceRef,
    OpenSession,
    RaiseFeatureLevel,
    ReaderRef,
    RenewSession,
    RenewSessions,
    SessionState,
    Tick,
)
from ..controller.ledger import BeginLedger
from ..controller.machine import ControllerMachine
from ..controller.sessions import RENEWALS_PER_COMMAND_MAX, Leases
from ..controller.timed import Asked
from ..controller.topology.catalog import Topic, topic_partition
from ..controller.topology.placement import Node, default_factor, within_reach
from ..features import LEDGER, Features
from ..groups import ServedGroup
from ..rpc import Catalog, Placement

RETRY_AFTER_MS = 200
"""Time after which a command that the controller group was too busy for may be tried again."""
TICK_S = 0.2
"""How often the leader looks whether a session is due."""

_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


def _placement(topic: Topic, first_slots: dict[int, int]) -> Placement:
    return Placement(
        topic.name,
        topic.topic_id,
        topic.config,
        topic.replication_factor,
        topic.placements,
        topic.founders,
        topic.sealed,
        topic.config_order,
        first_slots,
    )


class ControllerGroup(ServedGroup):
    """Proposes commands to the controller group and reads its state."""

    def __init__(
        self,
        open_group: Callable[[ControllerMachine], Group],
        features: Features,
        urls: Mapping[str | None, str],
        timeout_s: float,
        principals: PrincipalStore,
        is_present: Callable[[str], bool],
    ) -> None:
        """``open_group`` runs a fresh machine. ``principals`` takes the machine's principals in the turn of the loop in
        which they change, so that this node never answers as the controller by older ones. ``is_present``: whether a
        node is this one, or connected with it.
        """
        self.changed: Condition = Condition()
        """Notified after each command that was applied here."""
        self.queue_changed: Condition = Condition()
        """Notified when a ticket left the wait queue."""
        self.catalog_changed: Condition = Condition()
        """Notified when there is a newer catalog, or there are newer principals."""
        self._principals = principals
        self.machine: ControllerMachine = ControllerMachine(
            self.changed.notify, self.queue_changed.notify, self.catalog_changed.notify, self._take_principals
        )
        super().__init__(open_group(self.machine), features, urls, timeout_s, RETRY_AFTER_MS)
        self.is_present: Callable[[str], bool] = is_present
        self.leases: Leases = Leases(lambda: self.machine.sessions)
        self.takeovers: int = 0
        """Slots that were taken from their holders by decisions that this node, as leader, carried out."""
        self._told: dict[bool, tuple[tuple[int, str | None, int], bytes]] = {}

    @property
    def replicated_ms(self) -> int:
        """The lease clock as the machine has it."""
        return self.machine.lease_clock_ms

    def catalog(self) -> Catalog:
        """The catalog as of now, for the nodes that follow it."""
        machine, assignment = self.machine, self.machine.assignment
        first_slots = self._first_slots()
        return Catalog(
            machine.catalog_index,
            [_placement(topic, first_slots[topic.topic_id]) for topic in machine.catalog.topics()],
            self.group.leader,
            self.group.term,
            list(assignment.nodes.rows.values()),
            assignment.nodes.removed,
            assignment.controllers,
            list(assignment.moves.values()),
            feature_level=assignment.feature_level,
            balance=assignment.balance,
        )

    def _first_slots(self) -> defaultdict[int, dict[int, int]]:
        """By topic id and partition, the order of the last decision about a slot that has confirmed none."""
        fences, found = self.machine.slots.fences, defaultdict[int, dict[int, int]](dict)
        for group, decision in fences.due.items():
            if not fences.reached(group):
                topic_id, partition = topic_partition(group)
                found[topic_id][partition] = decision.order
        return found

    def has_news(self, after: int, principals_after: int) -> bool:
        """Whether the catalog or the principals are newer than these indexes. A restarted replica that applies its log
        again passes through states of the past, and has no news before it is ready.
        """
        machine = self.machine
        is_newer = machine.catalog_index > after or machine.principals.index > principals_after
        return self.group.ready and is_newer

    def encoded_news(self, after: int, principals_after: int) -> bytes:
        """The encoded answer to nodes that ask for news: the principals before the catalog, so that a node that gets
        replicas knows who may read them. Encoded once for all that ask: 100,000 partitions are 8 MB.
        """
        principals = self.machine.principals
        of_principals = principals.index > principals_after
        index = principals.index if of_principals else self.machine.catalog_index
        key = index, self.group.leader, self.group.term
        told, encoded = self._told.get(of_principals, (None, b""))
        if told != key:
            news = Catalog(0, [], *key[1:], principals=principals.table()) if of_principals else self.catalog()
            encoded = rpc.encode(news)
            self._told[of_principals] = key, encoded
        return encoded

    def _take_principals(self) -> None:
        """A node that does not know the principals yet takes them only from a replica that is ready (catalog_sync): a
        replica that catches up passes through older tables, and might report that a closed cluster has no principals.
        """
        if self._principals.has_heard:
            self._principals.take(self.machine.principals.table())
        self.catalog_changed.notify()

    @property
    def eligible(self) -> list[Node]:
        """The nodes that new replicas may be placed on, those that are away included."""
        return [(entry.node_id, entry.zone) for entry in self.machine.assignment.nodes.eligible()]

    @property
    def away(self) -> list[str]:
        """Those of ``eligible`` that are not present."""
        return [node_id for node_id, _ in self.eligible if not self.is_present(node_id)]

    def default_factor(self) -> int:
        """The replication factor of a new topic that leaves it to the cluster. Raises NotEnoughReplicas while founding
        nodes have not registered that would make it greater: a topic keeps the factor that it began with.
        """
        assignment, known = self.machine.assignment, len(self.eligible)
        awaited = sorted({*assignment.controllers} - assignment.nodes.registered())
        found = default_factor(known + len(awaited))
        if found > known and awaited:
            names = ", ".join(awaited)
            raise NotEnoughReplicas(f"replication factor {found} with {known} nodes; not joined yet: {names}")
        return found

    def nodes_for(self, replication_factor: int) -> list[Node]:
        """The nodes on which new partitions with so many replicas are placed now. Raises NotEnoughReplicas."""
        return within_reach(self.eligible, self.is_present, replication_factor)

    def placement(self, name: str) -> Placement | None:
        """The placement of a topic; None: there is no such topic."""
        topic = self.machine.catalog.topic(name)
        return _placement(topic, {}) if topic is not None else None

    async def decide(self, make: Callable[[int], Command], answer: type[_Answer]) -> _Answer:
        """Propose the command that ``make`` makes of the lease clock, which is held below the horizon of ``leases``;
        returns the machine's answer, which is of the type ``answer``.

        Raises the refusal that the machine answered, NotLeaderOrFollower, ThrottlingQuotaExceeded, RequestTimedOut.
        """
        if not self.group.is_leader:
            raise self.not_leading()
        command = make(self.leases.stamp(self.group.term, self.now_ms()))
        command = msgspec.structs.replace(command, wall_ms=time.time_ns() // 1_000_000)
        if not self.keeps_ledger:
            command = _without_ledger(command)
        result = await self.answer_to(commands.encode_command(command), self.timeout_s)
        if not isinstance(result, answer):
            raise InternalError(f"the controller answered {result!r}")
        return result

    async def decide_lease(
        self, make: Callable[[int], OpenSession | RenewSession], session: str, ttl_ms: int
    ) -> SessionState:
        """``decide`` a command that gives this session its full ttl, counted from now. Stalled commits hold back the
        stamp of the command, and with it the deadline. So a second command with the true deadline follows at once, with
        no other command between the two in the log whose later stamp might end the session.
        """
        now_ms = self.now_ms()
        if not self.leases.lags(self.group.term, now_ms):
            return await self.decide(make, SessionState)
        deadline_ms = now_ms + ttl_ms
        # Two tasks begin one after the other, in one turn of the loop, and each proposes before it waits.
        state, is_written = await asyncio.gather(
            self.decide(make, SessionState), quietly(self.decide(partial(_renewals, [(session, deadline_ms)]), Done))
        )
        return msgspec.structs.replace(state, deadline_ms=deadline_ms) if is_written else state

    @property
    def keeps_ledger(self) -> bool:
        """Whether all members know of ledgers."""
        return self.features.at_least(LEDGER)

    async def begin_ledger(self) -> None:
        """Begin the ledger, if all members know of ledgers: it records the decisions after this. The command that
        raises the level begins it, too; this call is for a cluster that had the level before there were ledgers. Raises
        as ``decide`` does.
        """
        if self.keeps_ledger and not self.machine.ledger.is_recording:
            await self.decide(lambda now: BeginLedger(now_ms=now), Done)

    async def installed(self, fences: Collection[FenceRef], readers: Collection[ReaderRef]) -> None:
        """Return when the partitions have committed these fences. Raises RequestTimedOut."""
        machine = self.machine  # its parts are looked up late: a checkpoint may replace them meanwhile

        def is_installed(reader: ReaderRef) -> bool:
            return machine.reader_fences.is_installed(reader)

        over = [partial(machine.is_over, fence) for fence in fences]
        installed = [partial(is_installed, reader) for reader in readers]
        await self.until_all([*over, *installed], "decided, but not every partition has committed it in time")

    async def until_all(self, conditions: Collection[Callable[[], bool]], late: str) -> None:
        """Return when each condition has held once. A condition that held is not evaluated again: ten thousand
        partitions that commit one after the other cost ten thousand evaluations. Raises RequestTimedOut with ``late``.
        """
        left = list(conditions)

        def held() -> bool | None:
            while left and left[-1]():
                left.pop()
            return None if left else True

        if await self.changed.until(held, self.timeout_s) is None:
            raise RequestTimedOut(late)

    async def keep_time(self) -> None:
        """While this node leads, write the renewals that it has heard to the log in time, and let the other sessions
        expire. The first tick of a term gives every session its full ttl. Runs until cancelled.
        """
        while True:
            if self.group.is_leader:
                await quietly(self._keep_leases(self.group.term))
            await asyncio.sleep(aligned_s(TICK_S))

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


def _without_ledger(command: Command) -> Command:
    """The command without the fields that only the ledger needs, for a cluster with older software. Such software
    would drop fields that it does not know from its state, and its replicas would later make other entries.
    The command that raises the level keeps them: it is for newer software anyhow.
    """
    match command:
        case FenceInstalled():
            return msgspec.structs.replace(command, log_end=None, previous=None)
        case Asked() if not isinstance(command, RaiseFeatureLevel):
            return msgspec.structs.replace(command, by=msgspec.structs.replace(command.by, request="", client=""))
        case _:
            return command


async def quietly(work: Awaitable[object]) -> bool:
    """Await background work; returns whether it succeeded. After a refusal the work is still due by the replicated
    state.
    """
    try:
        await work
    except StockadeError as refusal:
        if not refusal.retriable:
            _log.warning("background work was refused: %s", refusal)
        return False
    return True
