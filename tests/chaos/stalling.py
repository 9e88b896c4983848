"""A cluster and clients that stop themselves at named points, and what must hold when they go on."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import msgspec

from stockade.chaos.harness.readback import read_back
from stockade.chaos.history.evidence import ReplicaLog
from stockade.chaos.system.raw import RawNode
from stockade.chaos.system.undo import is_stopped
from stockade.chaos.system.waiting import until
from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.session.session import Session
from stockade.client.transport.http import Transport
from stockade.partition.api.topics import Mode
from stockade.partition.commands import Stamp

from . import holder
from .broken_node import program, stopping
from .holder import Learnt, Order, write

PATIENCE_S = 90.0
LONG_TTL_MS = 300_000
_topics = count(1)


class Stage:
    """A running cluster whose nodes stop where ``arm`` says."""

    def __init__(self, local: LocalCluster, stops: Path) -> None:
        self.local = local
        self.stops = stops

    @property
    def urls(self) -> list[str]:
        """Of all nodes."""
        return [node.url for node in self.local.nodes]

    def pid(self, node: str) -> int:
        """Of a node."""
        pid = next(each.pid for each in self.local.nodes if each.name == node)
        assert pid is not None
        return pid

    def arm(self, point: str, pid: int) -> None:
        """The process stops when it comes to this point next."""
        (self.stops / f"{point}.{pid}").touch()

    async def stopped(self, pid: int) -> None:
        """Return when it stands still."""

        async def stands_still() -> bool:
            return is_stopped(pid)

        await until(stands_still, PATIENCE_S, f"process {pid} does not stop")

    @asynccontextmanager
    async def on_stage(self) -> AsyncIterator["Play"]:
        """With a client, and a topic of one partition whose leader does not lead the controller."""
        config = ClientConfig(bootstrap=tuple(self.urls), request_timeout_ms=5_000)
        async with Client(config) as client, Transport(config) as transport:
            play = Play(self, client, transport, f"stalls-{next(_topics)}")
            await client.create_topic(play.topic)
            await play.part()
            try:
                yield play
            finally:
                for node in self.local.nodes:
                    if node.pid is not None:
                        os.kill(node.pid, signal.SIGCONT)


class Play:
    """One scenario on one topic."""

    def __init__(self, stage: Stage, client: Client, transport: Transport, topic: str) -> None:
        self.stage = stage
        self.client = client
        self.transport = transport
        self.topic = topic

    async def part(self) -> None:
        """Let the partition be led by another node than the controller."""

        async def are_apart() -> bool:
            leader, controller = await self.leader(), await self.controller()
            if leader == controller:
                other = next(node.name for node in self.stage.local.nodes if node.name != controller)
                await self.client.transfer_leader(self.topic, 0, other)
            return leader != controller

        await until(are_apart, PATIENCE_S, "one node leads the partition and the controller")

    async def leader(self) -> str:
        """Who leads the partition."""
        node: list[str] = []

        async def is_known() -> bool:
            found = (await self.client.topic(self.topic)).partitions[0].leader_node
            node[:] = [found] if found else []
            return bool(node)

        await until(is_known, PATIENCE_S, "the partition has no leader")
        return node[0]

    async def controller(self) -> str:
        """Who leads the controller."""
        node: list[str] = []

        async def is_known() -> bool:
            found = (await self.client.cluster()).controller.leader_node
            node[:] = [found] if found else []
            return bool(node)

        await until(is_known, PATIENCE_S, "the controller has no leader")
        return node[0]

    def raw(self, node: str, timeout_ms: int = 60_000) -> RawNode:
        """Requests to one node, which wait as long as it stands still."""
        return RawNode(
            self.transport, next(each.url for each in self.stage.local.nodes if each.name == node), timeout_ms
        )

    async def take_over(self, name: str, mode: Mode) -> int:
        """Another client takes the slot and writes ``name/0``; its offset."""
        identity = await self.client.init_producer()
        session = await Session(self.client, name, ttl_ms=LONG_TTL_MS).open()
        fence = await session.acquire(self.topic, [0], mode=mode)
        stamp = Stamp(identity.producer_id, identity.producer_epoch, 0)
        try:
            return await write(self.client, self.topic, f"{name}/0", fence.token(0), stamp)
        finally:
            await session.close()

    async def log(self) -> ReplicaLog:
        """The log, which all replicas must have alike, and whose epochs must not go back."""
        nodes = {node.name: self.raw(node.name) for node in self.stage.local.nodes}
        logs = await read_back(nodes, {0: list(nodes)}, self.topic)
        assert all(log.same_as(logs[0]) for log in logs)
        log = logs[0]
        assert list(log.writer_epochs) == sorted(log.writer_epochs), "an older owner wrote behind a newer one"
        assert len(set(log.names)) == len(log.names), "a record is there twice"
        return log

    @asynccontextmanager
    async def holding(self, name: str, ttl_ms: int) -> AsyncIterator["Holding"]:
        """A client process that holds the slot and writes."""
        order = Order(self.stage.urls, self.topic, name, ttl_ms)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = await asyncio.create_subprocess_exec(
            *program(stopping(self.stage.stops)),
            holder.__file__,
            msgspec.json.encode(order).decode(),
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        holding = Holding(process)
        try:
            yield holding
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await holding.listening


class Holding:
    """A holder at work. ``learnt`` is what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.learnt: list[Learnt] = []
        self.listening = asyncio.create_task(self._listen())

    @property
    def stored(self) -> list[Learnt]:
        """The batches of which it knows that they are stored."""
        return [learnt for learnt in self.learnt if learnt.offset is not None]

    @property
    def refused(self) -> list[Learnt]:
        """The batches of which it knows that they were refused for good."""
        return [learnt for learnt in self.learnt if learnt.code is not None]

    async def grown(self, batches: int = 3) -> None:
        """Return when it has stored so many more."""
        wanted = len(self.stored) + batches

        async def has_grown() -> bool:
            return len(self.stored) >= wanted

        await until(has_grown, PATIENCE_S, "the holder does not write")

    def signal(self, number: signal.Signals) -> None:
        """Stop it, or let it go on."""
        os.kill(self.process.pid, number)

    async def ended(self) -> None:
        """Return when it was refused often enough, and is gone."""
        async with asyncio.timeout(PATIENCE_S):
            await self.listening
            await self.process.wait()

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.learnt.append(msgspec.json.decode(line, type=Learnt))


def assert_true(log: ReplicaLog, learnt: Sequence[Learnt]) -> None:
    """Whatever a client was told, however late, is what the log shows."""
    at = dict(zip(log.names, log.offsets, strict=True))
    for each in learnt:
        if each.offset is not None:
            assert at.get(str(each.name)) == each.offset, f"{each} was acknowledged"
        elif each.code is not None and each.outcome is not None:
            assert_certified(at.get(str(each.name)), each.outcome)


def assert_certified(offset: int | None, outcome: dict[str, object]) -> None:
    """What a refusal certifies of a batch of one record, whose place in the log is ``offset``."""
    if outcome["state"] == "committed":
        assert outcome["base_offset"] == offset
    elif outcome["state"] == "absent":
        assert offset is None
