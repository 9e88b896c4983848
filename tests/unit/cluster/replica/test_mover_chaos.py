"""Moves while leaders change, catalogs lag and orders cross: no node that counts as a voter has erased the group.

The movers are real, and so is the controller's machine; Raft is told in its outcomes alone: what a leader asks for
comes true only as long as no other node was elected after it, and it may not know that one was.
"""

import asyncio
import random
from typing import Any

import pytest

from stockade.cluster.condition import Condition
from stockade.cluster.controller.commands import Command, Reassign, RegisterNode, encode_command
from stockade.cluster.controller.topology.catalog import group_id
from stockade.cluster.controller.topology.moves import Move
from stockade.cluster.replica.mover import Mover
from stockade.partition.api.cluster import BalanceSettings
from stockade.partition.errors import StockadeError
from stockade.raft.core.group import Committed, NotLeader, Outcome, Unknown
from stockade.raft.log.configuration import AddLearner, Configuration, Promote, RemoveMember, apply_change

from ..driver import Driver

NODES = [f"n{number}" for number in range(1, 7)]
GROUP = group_id(7, 0)
STEPS = 400


class World:
    """One group and the controller, as they are."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.is_slow = seed % 2 == 1
        self.controller = Driver()
        for node_id in NODES:
            self.controller.do(
                RegisterNode(
                    now_ms=0, node_id=node_id, url="u", raft="h:1", zone=None, incarnation=1, controllers=["n1"]
                )
            )
        assert self.controller.topic(partitions=1) == 7
        placed = self.catalog()[1]
        self.configuration = Configuration(dict.fromkeys(placed, 1))
        self.term = 1
        self.nodes = {node_id: Here(self, node_id) for node_id in NODES}
        self.nodes[placed[0]].term_led = 1

    def catalog(self) -> tuple[list[Move], list[str]]:
        """The group's moves and placement, as the controller has them now."""
        machine = self.controller.machine
        placed = machine.assignment.replicas(GROUP)
        assert placed is not None
        return [move for move in machine.assignment.moves.values() if move.group_id == GROUP], list(placed)

    def elect(self, node_id: str) -> None:
        """A voter wins an election; who led before need not notice."""
        self.term += 1
        self.nodes[node_id].term_led = self.term

    def happen(self) -> None:
        """Something does."""
        node = self.nodes[self.rng.choice(NODES)]
        match self.rng.randrange(8):
            case 0 if not self.is_slow or self.rng.random() < 0.3:
                self.elect(self.rng.choice(list(self.configuration.voters)))
            case 1 if node.term_led != self.term:
                node.term_led = None
            case 2 | 3 | 4:
                node.follow()
            case 5 | 6:
                self.promote()
            case 7 if self.rng.random() < 0.3:
                target = self.rng.sample(NODES, self.rng.choice([1, 3]))
                self.controller.do(Reassign(now_ms=0, topic="t", partition=0, replicas=target))
        self.check()

    def promote(self) -> None:
        """A learner that runs the group has caught up."""
        for learner in self.configuration.learners:
            if self.nodes[learner].is_open:
                self.nodes[learner].has_data = True
                self.configuration = apply_change(self.configuration, Promote(learner))
                return

    def check(self) -> None:
        """The promise."""
        empty = [node_id for node_id in self.configuration.voters if not self.nodes[node_id].has_data]
        assert not empty, f"{empty} vote and have erased what they had"


class Here:
    """A node: its catalog, its replica, and what it believes of its leadership. Group, host, book and router in one."""

    group_id = GROUP
    changing = False
    controllers = ("n1",)

    def __init__(self, world: World, node_id: str) -> None:
        self.world = world
        self.node_id = node_id
        self.moves: list[Move] = []
        self._seen = world.configuration
        self.is_open = self.has_data = node_id in world.configuration.voters
        self.term_led: int | None = None
        self.changed = Condition()
        self.balance = BalanceSettings()
        self.connected = set(NODES) - {node_id}
        self.disks: dict[str, int] = {}
        self.incarnations = dict.fromkeys(self.connected, 1)

    @property
    def groups(self) -> dict[int, "Here"]:
        return {GROUP: self} if self.is_open else {}

    @property
    def is_leader(self) -> bool:
        return self.is_open and self.term_led is not None

    @property
    def term(self) -> int:
        return self.term_led or 0

    @property
    def configuration(self) -> Configuration:
        if self.term_led == self.world.term:  # who was deposed sees nothing new
            self._seen = self.world.configuration
        return self._seen

    def follow(self) -> None:
        """Take over the catalog: begin or erase the replica as it says."""
        self.moves, placed = self.world.catalog()
        self.changed.notify()
        if (self.node_id in placed) != self.is_open:
            self.is_open, self.has_data = self.node_id in placed, False

    def needs_room_without(self, node_id: str) -> tuple[str, ...]:
        return ()

    async def change(self, change: AddLearner | RemoveMember, timeout_s: float) -> Outcome:
        term = self.term
        await self.pause()
        if self.world.term != term:
            return Unknown(None)
        self.world.configuration = apply_change(self.world.configuration, change)
        return Committed(1, term, None)

    async def transfer(self, node_id: str, timeout_s: float) -> None:
        await self.pause()
        if self.world.term != self.term_led:
            raise TimeoutError
        self.term_led = None
        self.world.elect(node_id)

    async def read_barrier(self, timeout_s: float) -> None:
        await self.pause()
        if self.world.term != self.term_led:
            raise NotLeader(None, 0)

    async def decide(self, controllers: Any, command: Command, timeout_s: float) -> object:
        await self.pause()
        self.world.controller.index += 1
        machine = self.world.controller.machine
        answer = machine.apply(self.world.controller.index, 1, encode_command(command))
        await self.pause()
        if isinstance(answer, StockadeError):
            raise answer
        return answer

    async def pause(self) -> None:
        rng = self.world.rng
        for _ in range(rng.randrange(200 if self.world.is_slow and rng.random() < 0.1 else 5)):
            await asyncio.sleep(0)


async def life(world: World) -> None:
    movers = [Mover(n, here, here, here) for n, here in world.nodes.items()]  # type: ignore[arg-type]
    tasks = [asyncio.create_task(mover.run()) for mover in movers]
    for _ in range(STEPS):
        world.happen()
        for _ in range(world.rng.randrange(4)):
            await asyncio.sleep(0)
    while (moves := world.catalog()[0]) or world.configuration.learners:
        for node in world.nodes.values():
            node.term_led = node.term_led if node.term_led == world.term else None
            node.follow()
        if not any(node.is_leader for node in world.nodes.values()):
            world.elect(next(iter(world.configuration.voters)))
        world.promote()
        world.check()
        await asyncio.sleep(0)
    assert not moves
    assert sorted(world.configuration.voters) == sorted(world.catalog()[1])
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize("seed", range(40))
def test_no_voter_has_erased_the_group_whatever_crosses(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.cluster.replica.mover.LOOK_S", 0)
    asyncio.run(asyncio.wait_for(life(World(seed)), 60))
