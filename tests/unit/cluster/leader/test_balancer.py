"""The controller's leader asks nodes, and begins what a plan says: over the real machine, with nodes that are faked."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from stockade.cluster.balance.health import GIVEN_UP_AFTER
from stockade.cluster.controller.balance import SetBalance
from stockade.cluster.controller.commands import CreateTopic, MoveDone, RegisterNode, RemoveNode
from stockade.cluster.controller.ledger import BeginLedger
from stockade.cluster.controller.topology.catalog import group_id
from stockade.cluster.features import BALANCE, Features
from stockade.cluster.leader.balancer import HOMES_AT_ONCE_MAX, Balancer
from stockade.cluster.leader.member_service import MemberService
from stockade.cluster.model import By
from stockade.cluster.rpc import LedGroup, NodeReport
from stockade.partition.api.ledger import LedgerEntry
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import FeatureLevelTooLow, PlanChanged, StockadeError

from ..driver import Driver

GB = 1 << 30
STABLE_MS = 1_000


class World(Driver):
    """A controller's machine, and what nodes answer. ``led`` says who leads each group; a node of ``silent`` does not
    answer. ``sent`` has what nodes were asked to hand over; they do.
    """

    def __init__(self, *nodes: str, partitions: int = 8) -> None:
        super().__init__()
        self.silent: set[str] = set()
        self.sent: list[tuple[str, list[tuple[int, int, str]]]] = []
        self.led: dict[int, str] = {}
        self.up_ms: dict[str, int] = {}
        self.versions: dict[str, str] = {}
        for node_id in nodes:
            self.register(node_id)
        created: Any = self.do(
            CreateTopic(
                now_ms=0,
                name="t",
                partitions=partitions,
                replication_factor=3,
                config=TopicConfig(),
                nodes=[(node_id, None) for node_id in nodes],
            )
        )
        self.groups = [group_id(created.topic_id, number) for number in range(partitions)]
        self.led |= {group: self.replicas(group)[0] for group in self.groups}
        self.do(SetBalance(now_ms=0, changes={"stable_ms": STABLE_MS}))
        self.control = SimpleNamespace(
            machine=self.machine,
            group=SimpleNamespace(is_leader=True),
            decide=self.decide,
            barrier=self.barrier,
            features=Features(),
        )
        self.balancer = Balancer(cast(Any, self.control), self.ask, self.send)

    def register(self, node_id: str) -> None:
        url, raft = f"http://{node_id}:1", f"{node_id}:2"
        command = RegisterNode(
            now_ms=0, node_id=node_id, url=url, raft=raft, zone=None, incarnation=1, controllers=["n1", "n2", "n3"]
        )
        assert not isinstance(self.do(command), StockadeError)

    def replicas(self, group: int) -> list[str]:
        return self.machine.assignment.replicas(group) or []

    async def barrier(self) -> None: ...

    async def decide(self, make: Callable[[int], Any], _: object) -> object:
        answer = self.do(make(0))
        if isinstance(answer, StockadeError):
            raise answer
        return answer

    async def ask(self, node_id: str) -> NodeReport | None:
        if node_id in self.silent:
            return None
        led = [
            LedGroup(group, 7, GB, [], self.replicas(group)) for group, leader in self.led.items() if leader == node_id
        ]
        version = self.versions.get(node_id, "1")
        return NodeReport(self.up_ms.get(node_id, 10**9), 500 * GB, 1_000 * GB, GB, False, 0, 0, led, version)

    async def send(self, node_id: str, orders: list[tuple[int, int, str]]) -> list[int]:
        self.sent.append((node_id, orders))
        for group, term, heir in orders:
            assert (self.led[group], term) == (node_id, 7)
            self.led[group] = heir
        return [group for group, _, _ in orders]

    def arrive(self) -> None:
        for move in list(self.machine.assignment.moves.values()):
            self.do(MoveDone(now_ms=0, group_id=move.group_id, version=move.version))
            if self.led[move.group_id] not in move.target:
                self.led[move.group_id] = move.target[0]


class Clock:
    """The loop's time, which a test moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now_s, raising=False)

    def on(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_new_node_is_filled_a_few_partitions_at_a_time_once_it_was_well_for_long_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        clock, world = Clock(monkeypatch), World("n1", "n2", "n3", partitions=12)
        world.register("n4")
        await world.balancer._round()
        assert not world.machine.assignment.moves, "it has only just been seen"
        clock.on(STABLE_MS / 1000)
        for _ in range(20):
            await world.balancer._round()
            moves = dict(world.machine.assignment.moves)
            assert len(moves) <= world.machine.assignment.balance.moves_at_once
            await world.balancer._round()
            assert world.machine.assignment.moves == moves, "no more than that, while these move"
            world.arrive()
        loads = world.machine.catalog.holdings.loads()
        assert sorted(load.replicas for load in loads.values()) == [9, 9, 9, 9]
        assert world.balancer.measures.planned_moves == world.balancer.measures.leaders_away == 0

    asyncio.run(scenario())


def test_partitions_whose_replicas_are_all_on_nodes_that_are_away_count_as_without_a_leader() -> None:
    async def scenario() -> None:
        world = World("n1", "n2", "n3", partitions=3)
        await world.balancer._round()
        assert world.balancer.measures.leaderless == 0
        world.silent.add(world.led[world.groups[0]])
        await world.balancer._round()
        assert world.balancer.measures.leaderless == 1, "no node reports that it leads this one"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("mode", "moves", "goes"), [("off", False, False), ("leaders", False, True), ("on", True, True)]
)
def test_the_balance_mode_decides_about_moves_and_leaders(
    mode: str, moves: bool, goes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        clock, world = Clock(monkeypatch), World("n1", "n2", "n3")
        world.register("n4")
        world.do(SetBalance(now_ms=0, changes={"mode": mode}))
        world.led[world.groups[0]] = world.replicas(world.groups[0])[1]
        await world.balancer._round()
        clock.on(2)
        await world.balancer._round()
        assert bool(world.machine.assignment.moves) == moves
        assert bool(world.sent) == goes
        assert world.balancer.measures.leaders_away == 1, "as it was looked at"
        assert world.balancer.measures.planned_moves > 0

    asyncio.run(scenario())


def test_a_leader_that_keeps_leaving_its_preferred_replica_is_sent_there_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        clock, world = Clock(monkeypatch), World("n1", "n2", "n3")
        group = world.groups[0]
        home, other = world.replicas(group)[:2]
        await world.balancer._round()
        for _ in range(60):
            clock.on(1)
            world.led[group] = other
            await world.balancer._round()
        assert 4 <= len(world.sent) <= 7, "1, 2, 4, 8, 16 times the time of stability"
        assert {orders[0] for _, orders in world.sent} == {(group, 7, home)}

    asyncio.run(scenario())


def test_few_leaders_go_to_one_node_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock, world = Clock(monkeypatch), World("n1", "n2", "n3", partitions=3 * HOMES_AT_ONCE_MAX * 2)
        for group in world.groups:
            world.led[group] = world.replicas(group)[1]
        await world.balancer._round()
        clock.on(2)
        for _ in range(2):
            world.sent.clear()
            await world.balancer._round()
            assert sum(len(orders) for _, orders in world.sent) == 3 * HOMES_AT_ONCE_MAX
        clock.on(2)
        world.sent.clear()
        await world.balancer._round()
        assert not world.sent

    asyncio.run(scenario())


async def moving(monkeypatch: pytest.MonkeyPatch) -> tuple[Clock, World, set[int]]:
    """A world that has begun as many moves to a new node as it makes at a time; and the groups that move."""
    clock, world = Clock(monkeypatch), World("n1", "n2", "n3", partitions=24)
    world.register("n4")
    await world.balancer._round()
    clock.on(2)
    await world.balancer._round()
    under_way = set(world.machine.assignment.moves)
    assert len(under_way) == 4
    return clock, world, under_way


def test_a_move_whose_node_is_away_for_long_holds_back_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock, world, stuck = await moving(monkeypatch)
        world.silent = {"n4"}
        world.register("n5")
        await world.balancer._round()
        clock.on(2)
        await world.balancer._round()
        assert set(world.machine.assignment.moves) == stuck, "it may be back soon"
        clock.on(GIVEN_UP_AFTER * STABLE_MS / 1000)
        await world.balancer._round()
        assert len(set(world.machine.assignment.moves) - stuck) == 4

    asyncio.run(scenario())


def test_moves_of_partitions_without_a_leader_hold_back_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        _, world, stuck = await moving(monkeypatch)
        await world.balancer._round()
        assert set(world.machine.assignment.moves) == stuck
        for group in stuck:
            del world.led[group]
        await world.balancer._round()
        assert len(set(world.machine.assignment.moves) - stuck) == 4

    asyncio.run(scenario())


def test_a_rolling_upgrade_moves_nothing_until_all_nodes_are_well_and_run_the_same_software(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        clock, world = Clock(monkeypatch), World("n1", "n2", "n3", partitions=12)
        world.register("n4")  # so that there is something to move all the time
        for node_id in ("n1", "n2", "n3", "n4"):
            world.silent = {node_id}
            await world.balancer._round()
            clock.on(5)
            await world.balancer._round()
            world.silent.clear()
            world.versions[node_id], world.up_ms[node_id] = "2", 500
            await world.balancer._round()
            clock.on(2)
            world.up_ms[node_id] = 2_500
            if node_id != "n4":
                await world.balancer._round()
                assert world.balancer.measures.planned_moves, "it would move"
                assert set((await world.balancer.plan()).held.values()) == {"version"}
            assert not world.machine.assignment.moves
        await world.balancer._round()
        assert world.machine.assignment.moves

    asyncio.run(scenario())


def test_a_new_controller_leader_continues_moves_and_begins_none_before_it_has_seen_healthy_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        clock, world = Clock(monkeypatch), World("n1", "n2", "n3", partitions=24)
        world.register("n4")
        await world.balancer._round()
        clock.on(2)
        await world.balancer._round()
        begun = set(world.machine.assignment.moves)
        assert len(begun) == 4
        heir = Balancer(world.balancer._control, world.ask, world.send)
        await heir._round()
        assert set(world.machine.assignment.moves) == begun, "they are in the log of the controllers"
        world.arrive()
        await heir._round()
        assert not world.machine.assignment.moves
        clock.on(2)
        await heir._round()
        assert len(world.machine.assignment.moves) == 4

    asyncio.run(scenario())


def test_a_plan_is_carried_out_only_if_its_digest_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock, world = Clock(monkeypatch), World("n1", "n2", "n3")
        world.do(SetBalance(now_ms=0, changes={"mode": "off"}))
        world.register("n4")
        world.led[world.groups[0]] = world.replicas(world.groups[0])[1]
        assert (await world.balancer.plan()).barred == dict.fromkeys(("n1", "n2", "n3", "n4"), "unstable")
        clock.on(2)
        plan = await world.balancer.plan()
        assert plan == await world.balancer.plan()
        assert {move.topic for move in plan.moves} == {"t"}
        assert plan.copied_bytes == sum(move.copied_bytes for move in plan.moves) > 0
        with pytest.raises(PlanChanged) as refusal:
            await world.balancer.carry_out("another")
        assert refusal.value.fields["plan"] == plan.plan
        assert not world.machine.assignment.moves
        await world.balancer.carry_out(plan.plan)
        assert len(world.machine.assignment.moves) == sum(move.why != "home" for move in plan.moves)
        assert bool(world.sent) == bool(plan.leaders)
        after = await world.balancer.plan()
        assert after.moving == len(world.machine.assignment.moves)
        with pytest.raises(PlanChanged):
            await world.balancer.carry_out(plan.plan)
        world.arrive()
        assert not (await world.balancer.plan()).moves

    asyncio.run(scenario())


def test_an_order_of_balance_without_moves_is_in_the_ledger_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock, world = Clock(monkeypatch), World("n1", "n2", "n3")
        world.do(SetBalance(now_ms=0, changes={"mode": "off"}))
        world.do(BeginLedger(now_ms=0))
        home = world.replicas(world.groups[0])
        world.led[world.groups[0]] = home[1]
        await world.balancer.plan()
        clock.on(2)

        async def orders(if_plan: str) -> list[LedgerEntry]:
            before = world.machine.ledger.waiting
            with suppress(PlanChanged):
                await world.balancer.carry_out(if_plan, By("root", request="r-1"))
            _, waiting = world.machine.ledger.oldest(1 << 30, 1 << 40)
            return [msgspec.json.decode(entry, type=LedgerEntry) for entry in waiting[before:]]

        plan = await world.balancer.plan()
        assert (len(plan.moves), len(plan.leaders)) == (0, 1)
        [refused] = await orders("another")
        assert (refused.outcome, refused.code, world.sent) == ("refused", "PLAN_CHANGED", [])
        [begun] = await orders(plan.plan)
        assert (begun.act, begun.principal, begun.outcome) == ("replicas.balance", "root", "done")
        assert begun.after == {"leaders": {"t/0": {"from": home[1], "to": home[0]}}}
        assert world.led[world.groups[0]] == home[0]
        [idle] = await orders((await world.balancer.plan()).plan)
        assert idle.outcome == "unchanged"
        world.register("n4")
        await world.balancer.plan()
        clock.on(2)
        plan = await world.balancer.plan()
        assert plan.moves
        [moved] = await orders(plan.plan)
        assert moved.after is not None
        assert set(moved.after) == {f"{move.topic}/{move.partition}" for move in plan.moves}

    asyncio.run(scenario())


def test_a_plan_gives_nothing_to_a_node_that_drains_has_just_started_or_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        clock, world = Clock(monkeypatch), World("n1", "n2", "n3", "n4")
        for node_id in ("n5", "n6", "n7"):
            world.register(node_id)
        world.silent, world.up_ms = {"n5"}, {"n6": 500}
        await world.balancer.plan()
        clock.on(2)
        world.do(RemoveNode(now_ms=0, node_id="n4"))
        plan = await world.balancer.plan()
        assert plan.barred == {"n4": "leaving", "n5": "away", "n6": "unstable"}
        assert {node_id for move in plan.moves for node_id in move.target} <= {"n1", "n2", "n3", "n7"}

    asyncio.run(scenario())


def test_below_its_feature_level_nothing_is_asked_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World("n1", "n2", "n3")
        world.control.features = Features(level=1)
        members = MemberService(cast(Any, world.control), cast(Any, None), world.balancer, lambda _: None)
        for call in (
            world.balancer.plan,
            lambda: world.balancer.carry_out("x"),
            lambda: world.balancer.change({}),
            lambda: members.controllers_plan(None),
            lambda: members.choose_controllers(None),
        ):
            with pytest.raises(FeatureLevelTooLow) as refusal:
                await call()
            assert refusal.value == FeatureLevelTooLow(feature_level=1, needed=BALANCE)

    asyncio.run(scenario())
