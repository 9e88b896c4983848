"""A leader carries out what the controller wants, and nothing that it wants no more."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from waiting import until

from stockade.cluster.condition import Condition
from stockade.cluster.controller.commands import Command, Reassign, RegisterNode, encode_command
from stockade.cluster.controller.topology.catalog import group_id
from stockade.cluster.controller.topology.moves import Move, Step
from stockade.cluster.replica.mover import Mover
from stockade.partition.api.cluster import BalanceSettings
from stockade.partition.errors import LeaderNotAvailable, StockadeError
from stockade.raft.core.group import Committed, Group, NotLeader
from stockade.raft.host import NO_ROOM
from stockade.raft.log.configuration import AddLearner, Configuration, Promote, RemoveMember, apply_change

from ..driver import Driver

NODES = ["n1", "n2", "n3", "n4"]
GROUP = group_id(5, 0)


class World:
    """One group, seen alike by all nodes, and a controller. ``take_over`` happens before the controller answers."""

    def __init__(self) -> None:
        self.controller = Driver()
        for node_id in NODES:
            self.controller.do(
                RegisterNode(
                    now_ms=0,
                    node_id=node_id,
                    url="http://h:1",
                    raft="h:1",
                    zone=None,
                    incarnation=int(node_id[1:]),
                    controllers=["n1"],
                )
            )
        assert self.controller.topic(partitions=1) == 5
        self.configuration = Configuration({"n1": 1, "n2": 2, "n3": 3})
        self.leader = "n1"
        self.term = 1
        self.steps: list[Any] = []
        self.take_over: Callable[[], None] = lambda: None
        self.is_lost = False
        self.changed = Condition()
        self.balance = BalanceSettings()

    def reassign(self, *replicas: str) -> None:
        self.controller.do(Reassign(now_ms=0, topic="t", partition=0, replicas=list(replicas)))
        self.changed.notify()

    @property
    def moves(self) -> list[Move]:
        """As every node's catalog has them."""
        return [move for move in self.controller.machine.assignment.moves.values() if move.group_id == GROUP]

    @property
    def controllers(self) -> list[str]:
        return ["n1"]

    async def decide(self, controllers: list[str], command: Command, timeout_s: float) -> object:
        await asyncio.sleep(0)
        machine = self.controller.machine
        self.controller.index += 1
        answer = machine.apply(self.controller.index, 1, encode_command(command))
        self.take_over()
        if self.is_lost:
            self.is_lost = False
            raise LeaderNotAvailable
        if isinstance(answer, StockadeError):
            raise answer
        return answer


class Here:
    """The group and the host of one node."""

    changing = False
    group_id = GROUP

    def __init__(self, world: World, node_id: str) -> None:
        self.world = world
        self.node_id = node_id
        self.groups = {GROUP: self}
        self.connected = set(NODES) - {node_id}
        self.disks: dict[str, int] = {}
        self.bugs = 0
        self.lacking: tuple[str, ...] = ()
        self.incarnations = {other: int(other[1:]) for other in self.connected}

    @property
    def is_leader(self) -> bool:
        return self.world.leader == self.node_id

    @property
    def term(self) -> int:
        return self.world.term

    @property
    def configuration(self) -> Configuration:
        return self.world.configuration

    def needs_room_without(self, node_id: str) -> tuple[str, ...]:
        return () if node_id in self.lacking else self.lacking

    async def change(self, change: AddLearner | RemoveMember, timeout_s: float) -> Committed:
        self.world.steps.append(change)
        after = apply_change(self.world.configuration, change)
        self.world.configuration = (
            apply_change(after, Promote(change.node_id)) if isinstance(change, AddLearner) else after
        )
        return Committed(1, 1, None)

    async def transfer(self, node_id: str, timeout_s: float) -> None:
        self.world.steps.append(node_id)
        self.world.leader, self.world.term = node_id, self.world.term + 1

    async def read_barrier(self, timeout_s: float) -> None:
        if not self.is_leader:
            raise NotLeader(self.world.leader, self.world.term)


def run(world: World, scenario: Callable[[], Awaitable[None]]) -> None:
    """With a mover on every node."""

    async def scene() -> None:
        movers = [Mover(n, Here(world, n), world, world) for n in NODES]  # type: ignore[arg-type]
        tasks = [asyncio.create_task(mover.run()) for mover in movers]
        await scenario()
        for task in tasks:
            task.cancel()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_a_move_is_continued_by_the_next_leader() -> None:
    world = World()

    async def scenario() -> None:
        world.reassign("n4", "n2", "n3")
        await until(lambda: not world.moves)
        assert world.steps == [AddLearner("n4", 4), "n4", RemoveMember("n1")]
        assert sorted(world.configuration.voters) == ["n2", "n3", "n4"]
        topic = world.controller.machine.catalog.topic("t")
        assert topic is not None
        assert topic.placements == [["n4", "n2", "n3"]]

    run(world, scenario)


def test_no_step_is_taken_when_the_leader_changed_while_it_asked() -> None:
    world = World()

    def depose() -> None:
        world.term += 1

    async def scenario() -> None:
        world.take_over = depose
        before = world.term
        world.reassign("n1", "n2", "n4")
        await until(lambda: world.term > before + 3)
        assert world.steps == []
        world.take_over = lambda: None
        await until(lambda: not world.moves)
        assert sorted(world.configuration.voters) == ["n1", "n2", "n4"]

    run(world, scenario)


def test_a_move_that_was_called_off_is_undone_also_by_a_leader_with_an_old_catalog() -> None:
    world = World()

    async def scenario() -> None:
        world.reassign("n1", "n2", "n4")
        stale = list(world.moves)
        world.reassign("n1", "n2", "n3")
        mover = Mover("n1", Here(world, "n1"), Old(stale), world)  # type: ignore[arg-type]
        task = asyncio.create_task(mover.run())
        await until(lambda: not world.moves)
        assert world.steps == [], "a move that was called off is not begun"
        task.cancel()

    run(world, scenario)


class Old:
    """A catalog of the past."""

    controllers = ("n1",)

    def __init__(self, moves: list[Move]) -> None:
        self.moves = moves
        self.changed = Condition()
        self.balance = BalanceSettings()


def test_a_step_whose_question_was_lost_is_tried_again() -> None:
    world = World()

    async def scenario() -> None:
        world.is_lost = True
        world.reassign("n1", "n2", "n4")
        await until(lambda: not world.moves)
        assert len(world.steps) == 2

    run(world, scenario)


def test_a_bug_in_a_step_is_counted_and_the_step_is_tried_again() -> None:
    async def scenario() -> None:
        world, bugs = World(), iter([ZeroDivisionError(), KeyError()])
        here = Here(world, "n1")

        def meet_a_bug() -> None:
            if bug := next(bugs, None):
                raise bug

        world.take_over = meet_a_bug
        world.reassign("n1", "n2", "n4")
        task = asyncio.create_task(Mover("n1", here, world, world).run())  # type: ignore[arg-type]
        await until(lambda: not world.moves)
        assert here.bugs == 2
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))


class Counted(Mover):
    """Notes at each look at a group how many are under way."""

    looks: list[int]

    @property
    def moving(self) -> list[int]:
        return list(self._busy)

    def _next(self, group: Group, move: Move) -> Step:
        self.looks.append(len(self._busy))
        return super()._next(group, move)


def test_moves_at_once_bounds_the_moves_of_a_leader_and_a_change_counts_at_once() -> None:
    groups = [group_id(5, number) for number in range(6)]

    async def scenario() -> None:
        world = World()
        world.configuration = Configuration({"n1": 1, "n2": 2, "n3": 3}, {"n4": 4})  # which never catches up
        catalog, here = Old([Move(group, 1, ["n1", "n2", "n4"]) for group in groups]), Here(world, "n1")
        here.groups = dict.fromkeys(groups, here)
        catalog.balance = BalanceSettings(moves_at_once=2)
        mover = Counted("n1", here, catalog, world)  # type: ignore[arg-type]
        mover.looks = []
        task = asyncio.create_task(mover.run())
        await until(lambda: len(mover.looks) >= 8)
        assert max(mover.looks) == 2
        catalog.balance = BalanceSettings(moves_at_once=5)
        await until(lambda: max(mover.looks) == 5)
        mover.looks.clear()
        await until(lambda: len(mover.looks) >= 15)
        assert max(mover.looks) == 5
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_moves_that_wait_for_a_node_that_is_away_hold_up_no_other() -> None:
    async def scenario() -> None:
        world = World()
        waiting = [Move(group_id(6, number), 1, ["n1", "n2", "n9"]) for number in range(2)]
        world.reassign("n1", "n2", "n4")
        catalog, here = Old([*waiting, *world.moves]), Here(world, "n1")
        here.groups |= {move.group_id: here for move in waiting}
        catalog.balance = BalanceSettings(moves_at_once=1)
        task = asyncio.create_task(Mover("n1", here, catalog, world).run())  # type: ignore[arg-type]
        await until(lambda: not world.moves)
        assert [type(step) for step in world.steps] == [AddLearner, RemoveMember]
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("is_full", [False, True])
def test_a_move_gives_up_its_place_when_its_target_becomes_unreachable_or_full(is_full: bool) -> None:
    async def scenario() -> None:
        world, other = World(), World()
        other.configuration = Configuration({"n1": 1, "n2": 2, "n3": 3}, {"n4": 4})
        first, second = Move(group_id(6, 0), 1, ["n1", "n2", "n4"]), Move(group_id(6, 1), 1, ["n1", "n2", "n3"])
        here, copying = Here(world, "n1"), Here(other, "n1")
        here.groups = {first.group_id: copying, second.group_id: here}
        catalog = Old([first, second])
        catalog.balance = BalanceSettings(moves_at_once=1)
        mover = Counted("n1", here, catalog, world)  # type: ignore[arg-type]
        mover.looks = []
        task = asyncio.create_task(mover.run())
        await until(lambda: len(mover.looks) >= 4)
        assert mover.moving == [first.group_id]
        if is_full:
            here.disks["n4"] = NO_ROOM
        else:
            here.connected.remove("n4")
        await until(lambda: mover.moving == [second.group_id])
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_no_voter_leaves_while_the_commits_after_that_need_a_full_disk_that_lacks_much(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """None would come before there is room."""
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        world = World()
        world.reassign("n1", "n2", "n4")
        here = Here(world, "n1")
        here.lacking, here.disks["n2"] = ("n2",), NO_ROOM
        mover = Counted("n1", here, world, world)  # type: ignore[arg-type]
        mover.looks = []
        task = asyncio.create_task(mover.run())
        await until(lambda: world.steps and not mover.moving)
        looks = len(mover.looks)
        await until(lambda: len(mover.looks) >= looks + 3)
        assert [type(step) for step in world.steps] == [AddLearner]
        assert caplog.text.count("n3 stays a voter until n2 has room on its disk") == 1
        here.lacking = ()
        await until(lambda: not world.moves)
        assert world.steps[1:] == [RemoveMember("n3")]
        await until(lambda: not mover._held_up)  # of moves that are over nothing is remembered
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_of_two_voters_that_leave_the_one_with_the_full_disk_goes_first() -> None:
    """The other one waits for room on that disk, which may never come."""

    async def scenario() -> None:
        world = World()
        world.reassign("n1")
        here = Here(world, "n1")
        here.lacking = ("n3",)
        task = asyncio.create_task(Mover("n1", here, world, world).run())  # type: ignore[arg-type]
        await until(lambda: world.steps)
        here.lacking = ()
        await until(lambda: not world.moves)
        assert world.steps == [RemoveMember("n3"), RemoveMember("n2")]
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_voter_with_a_full_disk_does_not_leave_while_the_others_are_no_majority() -> None:
    """Its removal could never be committed if the other one is gone for good: the group would be lost."""

    async def scenario() -> None:
        world = World()
        world.reassign("n1")
        here = Here(world, "n1")
        here.lacking, here.disks["n3"] = ("n3",), NO_ROOM
        here.connected.remove("n2")
        mover = Counted("n1", here, world, world)  # type: ignore[arg-type]
        mover.looks = []
        task = asyncio.create_task(mover.run())
        await until(lambda: len(mover.looks) >= 3)
        assert world.steps == []
        here.lacking = ()
        await until(lambda: not world.moves)
        assert world.steps == [RemoveMember("n2"), RemoveMember("n3")]
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_learner_leaves_whatever_disks_are_full() -> None:
    """No commit waits for it; and no voter leaves in its place, before those that replace the voter have joined."""

    async def scenario() -> None:
        world = World()
        world.configuration = Configuration(world.configuration.voters, {"n4": 4})
        world.reassign("n1")
        here = Here(world, "n1")
        here.lacking = ("n3",)
        task = asyncio.create_task(Mover("n1", here, world, world).run())  # type: ignore[arg-type]
        await until(lambda: world.steps)
        assert world.steps == [RemoveMember("n4")]
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))
