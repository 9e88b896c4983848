"""Brings the cluster into balance: asks the nodes for reports, has a plan made of them, and begins what the plan says.

Runs on every member of the controller group and acts only on the leader. It knows only what the last reports said. So
after a failover it starts anew, and waits until it has seen for long enough that nodes are well. Safety never rests on
reports: a move is refused if the partition is not where the plan has it, and is carried out like one that an operator
orders; a leadership is transferred only by the leader itself, in the term of its report, to a voter that could take
over.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import blake2b

import msgspec

from ...partition.api.cluster import BalancePlan, BalanceSettings, PlannedMove, PlannedTransfer
from ..balance.facts import Disk, Facts, NodeFacts, PartitionFacts, Plan
from ..balance.health import Health, Vitals
from ..balance.plan import make_plan
from ..condition import aligned_s
from ..controller.balance import PlacedMove, Rebalance, SetBalance
from ..controller.commands import Arranged
from ..controller.topology.catalog import CONTROLLER_GROUP, Topic
from ..controller.topology.nodes import NodeEntry
from ..features import BALANCE
from ..measures import BalanceMeasures
from ..model import NO_PRINCIPAL, By
from ..rpc import LedGroup, NodeReport
from .controller_group import ControllerGroup, quietly

ROUND_S = 2.0
"""Least pause between two rounds."""
REST = 20
"""The pause after a round is REST times the time of its plan: plans take a twentieth of a processor at most."""
PARTITIONS_PER_TURN = 2_000
"""Partitions that are looked at before others get their turn of the event loop."""
HOMES_AT_ONCE_MAX = 16
"""Leaders that a round sends home to one node. A partition's writers wait for a moment while its leader changes."""
BACKOFF_MAX = 6
"""A leader that does not stay home is sent again after the time of stability, which doubles BACKOFF_MAX times at most.
"""
DIGEST_BYTES = 8

Ask = Callable[[str], Awaitable[NodeReport | None]]
"""(node id) -> the node's report; None: it does not answer."""
Send = Callable[[str, list[tuple[int, int, str]]], Awaitable[Sequence[int]]]
"""(node id, leadership transfers as (group, term, transferee)) -> the groups whose leadership went to the transferee.
"""

_log = logging.getLogger(__name__)


class Look(msgspec.Struct, frozen=True):
    """One look at the cluster: the facts, the plan made of them, and the term of each group's leader, by group."""

    facts: Facts
    plan: Plan
    terms: dict[int, int]
    seconds: float
    """Time that the plan took."""

    def measures(self) -> BalanceMeasures:
        partitions = self.facts.partitions
        away = sum(part.leader not in (None, part.replicas[0]) for part in partitions)
        planned = sum(move.copied_bytes for move in self.plan.moves)
        leaderless = sum(part.leader is None for part in partitions)
        return BalanceMeasures(away, len(self.plan.moves), planned, moving_bytes(partitions), leaderless)


def moving_bytes(partitions: Iterable[PartitionFacts]) -> int:
    """Bytes that the moves under way copy; a copy counts as a whole until it is done."""
    return sum((part.stored_bytes or 0) * len(part.coming) for part in partitions if part.is_moving)


class Balancer:
    """The task that balances the cluster, on the controller's leader. ``measures`` are those of its last round, and all
    0 on other nodes.
    """

    def __init__(self, control: ControllerGroup, ask: Ask, send: Send) -> None:
        self.measures: BalanceMeasures = BalanceMeasures()
        self._control = control
        self._ask = ask
        self._send = send
        self._health: dict[str, Health] = {}
        self._sent: dict[int, tuple[int, float]] = {}  # group: times that its leader was sent, and when it may go again
        self._looking = asyncio.Lock()

    @property
    def _settings(self) -> BalanceSettings:
        return self._control.machine.assignment.balance

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            rest_s = 0.0
            if self._control.group.is_leader and self._control.features.at_least(BALANCE):
                rest_s = REST * await self._round()
            else:
                self._health.clear()
                self._sent.clear()
                self.measures = BalanceMeasures()
            await asyncio.sleep(max(aligned_s(ROUND_S), rest_s))

    async def _round(self) -> float:
        """Look at the cluster, and begin what may begin now; returns the seconds that the plan took."""
        look = await self.look()
        self.measures = look.measures()
        mode = self._settings.mode
        if mode != "off":
            await self._send_home(look)
        if mode == "on" and not look.plan.held and (moves := self._due(look)):
            await quietly(self._begin(Rebalance(now_ms=0, moves=moves)))
        return look.seconds

    async def look(self) -> Look:
        """Ask all nodes for reports, and make a plan of them."""
        async with self._looking:  # two looks at once would take the time between them for a time without syncs
            rows = dict(self._control.machine.assignment.nodes.rows)
            reports = dict(zip(rows, await asyncio.gather(*map(self._ask, rows)), strict=True))
            nodes = self._judge(rows, reports)
            led = _freshest(reports)
            partitions = await self._partitions(led)
        facts = Facts(nodes, partitions, self._settings.disk_used_percent_max)
        began = asyncio.get_running_loop().time()
        plan = await asyncio.to_thread(make_plan, facts)
        took_s = asyncio.get_running_loop().time() - began
        return Look(facts, plan, {group: each.term for group, (_, each) in led.items()}, took_s)

    def _judge(self, rows: dict[str, NodeEntry], reports: dict[str, NodeReport | None]) -> list[NodeFacts]:
        now_ms, found = int(asyncio.get_running_loop().time() * 1000), []
        self._health = {node_id: self._health.get(node_id) or Health() for node_id in rows}
        for node_id, entry in rows.items():
            health, report = self._health[node_id], reports[node_id]
            health.heard(None if report is None else _vitals(report), now_ms)
            bar = health.bar(now_ms, self._settings.stable_ms)
            if entry.draining:
                bar = "leaving"
            elif entry.incarnation is None:
                bar = "announced"
            disk = None if health.vitals is None else health.vitals.disk
            is_given_up = health.is_given_up(now_ms, self._settings.stable_ms)
            version = None if report is None else report.version
            found.append(NodeFacts(node_id, entry.zone, disk, bar, is_given_up, version))
        return found

    async def _partitions(self, led: dict[int, tuple[str, LedGroup]]) -> list[PartitionFacts]:
        machine, found = self._control.machine, []
        for topic in machine.catalog.topics():
            for partition, group in enumerate(topic.groups()):
                if partition < topic.partitions:
                    found.append(self._partition(topic, partition, group, led.get(group)))
                if len(found) % PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
        return found

    def _partition(self, topic: Topic, partition: int, group: int, led: tuple[str, LedGroup] | None) -> PartitionFacts:
        placed, move = topic.placements[partition], self._control.machine.assignment.moves.get(group)
        leader, size, behind = (None, None, ()) if led is None else (led[0], led[1].stored_bytes, led[1].behind)
        if move is None:
            return PartitionFacts(group, list(placed), leader, size, behind)
        voters = () if led is None else led[1].voters
        coming = [node_id for node_id in move.target if node_id not in voters]
        going = [node_id for node_id in placed if node_id not in move.target]
        return PartitionFacts(group, move.target, leader, size, behind, coming, going, is_moving=True)

    def _due(self, look: Look) -> list[PlacedMove]:
        """The moves of a plan that may begin now: with those under way, ``moves_at_once`` at most. A move that only
        changes the order of replicas copies nothing, and does not count; nor does a move under way that waits for a
        node that is away, or for a leader.
        """
        away = {node_id for node_id, bar in look.plan.barred.items() if bar == "away"}
        moves = self._control.machine.assignment.moves
        led = [move for group, move in moves.items() if group in look.terms and group != CONTROLLER_GROUP]
        under_way = sum(away.isdisjoint(move.target) for move in led)
        left, due = self._settings.moves_at_once - under_way, []
        for move in look.plan.moves:
            if move.why != "home":
                left -= 1
            if move.why == "home" or left >= 0:
                due.append(PlacedMove(move.group, list(move.replicas), list(move.target)))
        return due

    async def _begin(self, order: Rebalance) -> None:
        """Propose the order and log its moves. Raises PlanChanged, InvalidRequest, NotFound, and as a proposal does."""
        await self._control.decide(lambda now: msgspec.structs.replace(order, now_ms=now), Arranged)
        for move in order.moves:
            name = self._control.machine.catalog.name_of(move.group_id)
            event = {"event": "balance_move", "group": name, "replicas": move.replicas, "target": move.target}
            text = "balance: %s goes from %s to %s"
            _log.info(text, name, ",".join(move.replicas), ",".join(move.target), extra={"event": event})

    async def _send_home(self, look: Look) -> None:
        """Ask leaders to transfer to their preferred replicas (homes): at most HOMES_AT_ONCE_MAX to one node, and none
        that was asked lately.
        """
        now, stable_s, coming = asyncio.get_running_loop().time(), self._settings.stable_ms / 1000, Counter[str]()
        rested = {group for group, (_, at) in self._sent.items() if at + stable_s * 2**BACKOFF_MAX < now}
        self._sent = {group: sent for group, sent in self._sent.items() if group not in rested}
        by_leader: dict[str, list[tuple[int, int, str]]] = {}
        for transfer in look.plan.transfers:
            times, at = self._sent.get(transfer.group, (0, now))
            if at <= now and transfer.group in look.terms and coming[transfer.home] < HOMES_AT_ONCE_MAX:
                coming[transfer.home] += 1
                self._sent[transfer.group] = times + 1, now + stable_s * 2 ** min(times, BACKOFF_MAX)
                order = transfer.group, look.terms[transfer.group], transfer.home
                by_leader.setdefault(transfer.leader, []).append(order)
        sent = await asyncio.gather(*(self._send(leader, orders) for leader, orders in by_leader.items()))
        for leader, groups in zip(by_leader, sent, strict=True):
            event = {"event": "leaders_home", "from": leader, "sent": len(by_leader[leader]), "gone": len(groups)}
            text = "balance: %d of %d leaders that were asked to go home went from %s"
            _log.info(text, len(groups), len(by_leader[leader]), leader, extra={"event": event})

    # What operators ask.

    async def plan(self) -> BalancePlan:
        """The plan for the cluster as it is. Raises FeatureLevelTooLow, NotLeaderOrFollower, LeaderNotAvailable."""
        await self._control.barrier()
        self._control.features.require(BALANCE)
        return self._told(await self.look())

    async def carry_out(self, if_plan: str, by: By = NO_PRINCIPAL) -> BalancePlan:
        """Begin all of a plan at once, whatever the mode: all of its moves in one decision, or none. The decision is
        proposed even if no partition moves, or ``if_plan`` is the digest of another plan, so that the ledger has each
        order. Raises PlanChanged, and as a proposal and ``plan`` do.
        """
        await self._control.barrier()
        self._control.features.require(BALANCE)
        look = await self.look()
        told = self._told(look)
        order = Rebalance(now_ms=0, by=by, moves=[], plan=told.plan, if_plan=if_plan)
        if told.plan == if_plan:
            moves = [PlacedMove(each.group, list(each.replicas), list(each.target)) for each in look.plan.moves]
            leaders = [(each.topic, each.partition, each.leader_node, each.home) for each in told.leaders]
            order = msgspec.structs.replace(order, moves=moves, leaders=leaders)
        await self._begin(order)
        await self._send_home(look)
        return told

    async def change(self, changes: dict[str, object], by: By = NO_PRINCIPAL) -> BalanceSettings:
        """Change the settings that are named; returns all of them. Raises FeatureLevelTooLow, InvalidRequest, and as a
        proposal does.
        """
        await self._control.barrier()
        self._control.features.require(BALANCE)
        await self._control.decide(lambda now: SetBalance(now_ms=now, by=by, changes=changes), Arranged)
        return self._settings

    def _told(self, look: Look) -> BalancePlan:
        """A plan with the names of its topics, without the topics that were deleted meanwhile."""
        moves, leaders = [], []
        for move in look.plan.moves:
            if (located := self._control.machine.catalog.locate(move.group)) is not None:
                sizes = move.copied_bytes, move.why
                moves.append(PlannedMove(located[0].name, located[1], list(move.replicas), list(move.target), *sizes))
        for transfer in look.plan.transfers:
            if (located := self._control.machine.catalog.locate(transfer.group)) is not None:
                leaders.append(PlannedTransfer(located[0].name, located[1], transfer.leader, transfer.home))
        what = [(each.topic, each.partition, each.replicas, each.target) for each in moves], leaders
        return BalancePlan(
            blake2b(msgspec.msgpack.encode(what), digest_size=DIGEST_BYTES).hexdigest(),
            self._settings,
            moves,
            leaders,
            sum(move.copied_bytes for move in moves),
            sum(part.is_moving for part in look.facts.partitions),
            moving_bytes(look.facts.partitions),
            dict(look.plan.barred),
            dict(look.plan.held),
            look.plan.is_cut,
        )


def _vitals(report: NodeReport) -> Vitals:
    disk = Disk(report.free_bytes, report.total_bytes, report.soft_free_bytes, not report.is_low)
    return Vitals(report.up_ms, report.syncs, report.syncs_us, disk)


def _freshest(reports: dict[str, NodeReport | None]) -> dict[int, tuple[str, LedGroup]]:
    """By group, the node that leads it in the highest reported term, and that node's report of the group."""
    found: dict[int, tuple[str, LedGroup]] = {}
    for node_id, report in reports.items():
        for each in () if report is None else report.led:
            if each.group_id not in found or found[each.group_id][1].term < each.term:
                found[each.group_id] = node_id, each
    return found
