"""One round: new topics, actors and readers, faults, healing, draining, and every replica read back."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from ...client.api.client import Client
from ...partition.errors import StockadeError, TopicAlreadyExists, UnknownTopicOrPartition
from ..checkers.recovery import RECOVERY_S
from ..faults.fault import Arena, Fault
from ..history.evidence import ReplicaLog
from ..history.history import History
from ..system.waiting import NotInTime, until
from ..workloads.protocol import Workload
from ..workloads.reading import Reader
from .actor import Order, client_config
from .actor_pool import ActorPool
from .nemesis import Nemesis
from .readback import committed_end, read_what_can_be
from .schedule import Planned


class RunningArena(Arena, Protocol):
    """The cluster under test as a round sees it: clients and topics change from round to round."""

    topics: Sequence[str]
    clients: Mapping[str, int]

    @property
    def bootstrap(self) -> Sequence[str]:
        """Base URLs under which clients reach the nodes, through proxies if there are any."""
        ...


ROUND_S_MIN = 5.0
"""A shorter round would end before its first fault."""
START_TIMEOUT_S = 120.0
"""Every partition must have taken a write this long after the start of a round; then faults begin."""
UNSEEN_S = 30.0
"""Readers must have read every acknowledged record this long after the writers ended."""
DESCRIBE_MS = 30_000
"""How long the cluster may take to describe a topic."""
Logs = Mapping[tuple[str, int], Sequence[ReplicaLog]]


class RoundOver(msgspec.Struct, frozen=True):
    """The result of a round beside its history. ``recovered_s``: seconds from when every node was back, or lost, until
    every partition had taken a write; None if one took none in time, or no node came back.
    """

    seed: int
    planned: int
    recovered_s: float | None
    failures: Sequence[str]
    lost: Sequence[str] = ()
    """Nodes that did not become ready, or whose replicas cannot be read. They end the run."""
    struck: Sequence[str] = ()
    """Faults that struck."""
    skipped: Mapping[str, str] = {}
    """Faults that had no target at some time, or that the round had no time for, each with the last reason."""


class Round:
    """One round; ``seed`` decides the choices of its actors. An instance runs once."""

    def __init__(
        self,
        seed: int,
        workloads: Sequence[Workload],
        arena: RunningArena,
        history: History,
        faults: Mapping[str, Fault],
    ) -> None:
        self._seed = seed
        self._arena = arena
        self._history = history
        self._failures: list[str] = []
        self._nemesis = Nemesis(arena, faults, history)
        run_id = time.time_ns() // 1_000_000
        self._topics = {f"{workload.name}-{seed}-{run_id}": workload for workload in workloads}
        self._pools = [
            ActorPool(self._orders(topic, workload), history, self._failures.append)
            for topic, workload in self._topics.items()
        ]
        self._readers: list[Reader] = []
        self._client = Client(client_config(list(arena.bootstrap)))

    def broken(self) -> list[str]:
        """Descriptions of what is broken now."""
        return [broken.what for broken in self._nemesis.broken.values()]

    async def run(
        self, plan: Sequence[Planned], seconds: float, doing: Callable[[str], None]
    ) -> tuple[RoundOver, Logs]:
        """Carry out the round; return its result and the logs of all replicas. Raises NotInTime, StockadeError."""
        following: list[asyncio.Task[None]] = []
        async with self._client:
            try:
                doing("starting")
                await self._begin(following)
                doing("under faults")
                await self._nemesis.run(plan, seconds)
                doing("mending")
                recovered_s = await self._mend()
                doing("draining")
                await self._drain()
            finally:
                await asyncio.gather(*(pool.kill() for pool in self._pools))
                for task in following:
                    task.cancel()
                await asyncio.gather(*following, return_exceptions=True)
                self._arena.clients = {}
            doing("reading back")
            logs = await self._read_back()
            await self._clean()
        nemesis = self._nemesis
        failures = [*self._failures, *nemesis.failures]
        lost, struck = sorted(nemesis.lost), sorted(nemesis.struck)
        return RoundOver(self._seed, len(plan), recovered_s, failures, lost, struck, nemesis.skipped), logs

    async def _begin(self, following: list[asyncio.Task[None]]) -> None:
        for topic, workload in self._topics.items():
            await self._create(topic, workload)
        self._arena.topics = list(self._topics)
        for pool in self._pools:
            await pool.start()
        self._arena.clients = {actor: pid for pool in self._pools for actor, pid in pool.stallable.items()}
        for topic, workload in self._topics.items():
            for partition in range(workload.partitions):
                reader = Reader(self._client, self._history, f"{topic}-reader-{partition}", topic, partition)
                self._readers.append(reader)
                following.append(asyncio.create_task(reader.follow(self._failures.append)))
        await self._grown(0, START_TIMEOUT_S, "not every partition has taken a write")

    async def _create(self, topic: str, workload: Workload) -> None:
        """Create a topic; retry, because a controller leader may still be elected after the round before."""

        async def is_there() -> bool:
            try:
                with suppress(TopicAlreadyExists):  # repeated after an unknown outcome
                    await self._client.create_topic(
                        topic, partitions=workload.partitions, config=workload.config(topic)
                    )
            except StockadeError as error:
                if not error.retriable:
                    raise
                return False
            return True

        await until(is_there, START_TIMEOUT_S, f"{topic} was not created")

    async def _mend(self) -> float | None:
        """Start every node; return the seconds from then until every partition had taken a write.
        None if one took none in time, or no node came back.
        """
        if not await self._nemesis.mend():
            return None
        since_s = time.monotonic()
        try:
            await self._grown(time.monotonic_ns(), RECOVERY_S + 30, "not every partition has taken a write again")
        except NotInTime:  # the checker `recovery` reports it
            return None
        return time.monotonic() - since_s

    async def _grown(self, since_ns: int, timeout_s: float, problem: str) -> None:
        """Return once every partition acknowledged an append after ``since_ns``. Raises NotInTime."""
        wanted = {(topic, p) for topic, workload in self._topics.items() for p in range(workload.partitions)}
        seen = len(self._history.events)

        async def everywhere() -> bool:
            nonlocal seen
            events = self._history.events
            for event in events[seen:]:
                if event.f == "append" and event.type == "ok" and event.t_mono_ns >= since_ns:
                    wanted.discard((event.topic or "", event.partition or 0))
            seen = len(events)
            return not wanted

        await until(everywhere, timeout_s, problem)

    async def _drain(self) -> None:
        await asyncio.gather(*(pool.stop() for pool in self._pools))
        nodes = {name: self._arena.raw(name) for name in self._arena.nodes}
        try:
            async with asyncio.timeout(UNSEEN_S):
                for reader in self._readers:
                    end = await committed_end(nodes, reader.topic, reader.partition)
                    await reader.reached(end, UNSEEN_S)
        except (NotInTime, TimeoutError):
            pass  # the checkers report records that were not read by now
        self._history.note("nemesis", "drained")

    async def _read_back(self) -> Logs:
        nodes = {name: self._arena.raw(name) for name in self._arena.nodes}
        logs: dict[tuple[str, int], Sequence[ReplicaLog]] = {}
        leaderless: dict[tuple[str, int], str] = {}
        for topic in self._topics:
            try:
                described = await self._client.topic(topic, patience_ms=DESCRIBE_MS)
            except StockadeError as error:
                self._lost("all", f"{topic}: {type(error).__name__}: {error}")
                continue
            replicas = {state.partition: state.replicas for state in described.partitions}
            for log in await read_what_can_be(nodes, replicas, topic, self._nemesis.lost, leaderless, self._lost):
                logs[topic, log.partition] = [*logs.get((topic, log.partition), []), log]
        for (topic, partition), why in leaderless.items():  # told of this partition alone: the checkers blame no other
            self._history.note("nemesis", "lost", node="all", topic=topic, partition=partition, error=why)
        return logs

    def _lost(self, node: str, why: str) -> None:
        self._history.note("nemesis", "lost", node=node, error=why)

    async def _clean(self) -> None:
        self._arena.topics = ()
        for topic in self._topics:
            try:
                with suppress(UnknownTopicOrPartition):  # repeated after an unknown outcome
                    await self._client.delete_topic(topic)
            except StockadeError as error:
                self._failures.append(f"topic {topic} was not deleted: {error}")

    def _orders(self, topic: str, workload: Workload) -> list[Order]:
        return [
            Order(
                workload=workload.name,
                actor=actor.name,
                bootstrap=list(self._arena.bootstrap),
                topic=topic,
                partitions=workload.partitions,
                seed=f"{self._seed}/{workload.name}/{actor.name}",
            )
            for actor in workload.actors
        ]
