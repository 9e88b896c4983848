"""The leader of a partition is cut from the majority while writers go on: it must neither read nor write on its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stockade.chaos.checkers.verdicts import judge
from stockade.chaos.harness.readback import read_back
from stockade.chaos.history.evidence import Evidence, ReplicaLog
from stockade.chaos.history.history import Event, History, operations, record_name
from stockade.chaos.system.nodes import ClusterProcesses
from stockade.chaos.system.raw import RawNode
from stockade.chaos.system.waiting import until
from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.transport.http import Transport
from stockade.partition.errors import StockadeError

from .proxied import CutKind, ProxiedCluster
from .traffic import LINES, Traffic, payload, read_once

pytestmark = pytest.mark.processes

TOPIC, PARTITION = "cut", 0
WRITERS = 4
RECORDS_BETWEEN = 300
"""Acknowledged before the cut, during it by the majority, and after it is healed."""
PROBES_MIN = 15
"""Reads, and appends, that the cut leader must be asked."""
RECOVERY_S_MAX = 10.0
"""From the cut to the first acknowledgement of an append that was begun after it."""


class CutLeader:
    """Asks one node by itself, over and over, for what only a leader may give."""

    def __init__(self, node: RawNode, history: History) -> None:
        self.reads = 0
        self.appends = 0
        self._node = node
        self._history = history

    async def ask_to_read(self) -> None:
        while True:
            await read_once(self._node, self._history, "cut-reader", TOPIC, PARTITION, 0)
            self.reads += 1

    async def ask_to_append(self) -> None:
        while True:
            writer = f"cut-writer.{self.appends}"
            invoked = self._history.invoke(
                "cut-writer", "append", topic=TOPIC, partition=PARTITION, value=record_name(writer, 0), count=1
            )
            try:
                answer = await self._node.append(TOPIC, PARTITION, [(record_name(writer, 0), LINES[0])])
            except StockadeError as error:
                self._history.settle_error(invoked, error)
            else:
                self._history.settle(invoked, "ok", offset=answer.base_offset)
            self.appends += 1

    async def was_asked_often(self) -> bool:
        return min(self.reads, self.appends) >= PROBES_MIN


@asynccontextmanager
async def running(*work: asyncio.Task[None]) -> AsyncIterator[None]:
    """Background work that is ended, and whose failure is raised, on leaving."""
    try:
        yield
    finally:
        for task in work:
            task.cancel()
        outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


class Cut:
    """One run: traffic, the cut, what the cut leader answers, the healing, and every replica's log."""

    def __init__(self, cluster: ProxiedCluster, history: History, kind: CutKind) -> None:
        self.history = history
        self.kind = kind
        self.cut_ns = self.healed_ns = 0
        self.logs: list[ReplicaLog] = []
        self._cluster = cluster
        self._config = ClientConfig(
            bootstrap=cluster.urls, request_timeout_ms=3_000, delivery_timeout_ms=30_000, fetch_wait_ms=1_000
        )

    async def run(self) -> None:
        async with Client(self._config) as client, Transport(self._config) as transport:
            nodes = ClusterProcesses(self._cluster.listing, transport)
            await client.create_topic(TOPIC)
            traffic = Traffic(self._config, self.history, TOPIC, PARTITION)
            async with asyncio.TaskGroup() as group:
                for number in range(WRITERS):
                    group.create_task(traffic.write(f"w{number}"))
                group.create_task(traffic.read([nodes.raw(name) for name in nodes.nodes()]))
                await self._cut_and_heal(client, nodes, traffic)
                traffic.stop()
            replicas = {PARTITION: list(nodes.nodes())}
            self.logs = await read_back({name: nodes.raw(name) for name in nodes.nodes()}, replicas, TOPIC)

    async def _cut_and_heal(self, client: Client, nodes: ClusterProcesses, traffic: Traffic) -> None:
        await traffic.grown(RECORDS_BETWEEN)
        leader = (await client.topic(TOPIC)).partitions[PARTITION].leader_node
        assert leader is not None
        self._cluster.mesh.isolate([leader], self.kind)
        self.cut_ns = self.history.note("nemesis", "cut", node=leader).t_mono_ns
        cut = CutLeader(nodes.raw(leader), self.history)
        async with running(asyncio.create_task(cut.ask_to_read()), asyncio.create_task(cut.ask_to_append())):
            await traffic.grown(RECORDS_BETWEEN)
            await until(cut.was_asked_often, 60, "the cut leader does not answer often enough")
        self.healed_ns = self.history.note("nemesis", "heal").t_mono_ns
        self._cluster.mesh.heal()
        await traffic.grown(RECORDS_BETWEEN)

    def ended(self, process: str) -> list[Event]:
        """The ends of a process's operations that began and ended during the cut."""
        return [
            op.end
            for op in operations(self.history.events)
            if op.invoke.process == process
            and op.end is not None
            and self.cut_ns < op.invoke.t_mono_ns
            and op.end.t_mono_ns < self.healed_ns
        ]


@pytest.fixture(params=["refused", "silent"])
def cut(request: pytest.FixtureRequest, proxied: ProxiedCluster, tmp_path: Path) -> Cut:
    with History.create(tmp_path / "history.jsonl") as history:
        done = Cut(proxied, history, request.param)
        asyncio.run(done.run())
        return done


def test_a_leader_without_its_majority_answers_nothing_and_nothing_acknowledged_is_lost(cut: Cut) -> None:
    reads, appends = cut.ended("cut-reader"), cut.ended("cut-writer")
    assert len(reads) >= PROBES_MIN and len(appends) >= PROBES_MIN
    assert {end.type for end in reads} <= {"fail", "info"}, "a linearizable read was answered without a majority"
    assert {end.type for end in appends} <= {"fail", "info"}, "an append was acknowledged without a majority"
    assert_goes_on(cut)
    assert {log.node for log in cut.logs} == {"n1", "n2", "n3"}
    verdicts = judge(Evidence.of(cut.history.events, cut.logs, payload))
    assert {verdict.checker: verdict.examples for verdict in verdicts if verdict.violations} == {}


def assert_goes_on(cut: Cut) -> None:
    """The majority elects a leader and acknowledges what was begun after the cut, soon enough."""
    ends = [
        op.end.t_mono_ns
        for op in operations(cut.history.events)
        if op.invoke.f == "append" and op.outcome == "ok" and op.end is not None and op.invoke.t_mono_ns > cut.cut_ns
    ]
    assert (min(ends) - cut.cut_ns) / 1e9 < RECOVERY_S_MAX
