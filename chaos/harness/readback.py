"""Reads the whole log of every replica of a topic, from its own node, once all replicas have caught up."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from msgspec.structs import replace

from ...client.api.client import Client
from ...partition.errors import (
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    RequestTimedOut,
    StockadeError,
)
from ..history.evidence import ReplicaLog, Stamp
from ..system.nodes import ClusterProcesses
from ..system.raw import RawNode, StoredRecord
from ..system.waiting import NotInTime, until

CATCH_UP_TIMEOUT_S = 120.0
"""A replica must have all committed records after this time."""


async def read_back(
    nodes: Mapping[str, RawNode],
    replicas: Mapping[int, Sequence[str]],
    topic: str,
    on_log: Callable[[ReplicaLog], None] = lambda log: None,
) -> list[ReplicaLog]:
    """The log of every replica; ``replicas`` names the nodes that hold each partition. Raises NotInTime.

    Replicas with equal content share it in memory. ``on_log`` is called with each log that was read.
    """
    logs: list[ReplicaLog] = []
    for partition, holders in sorted(replicas.items()):
        end = await committed_end(nodes, topic, partition)
        reads = (_read_replica(name, nodes[name], topic, partition, end) for name in holders)
        first, *others = await asyncio.gather(*reads)
        same = (replace(first, node=log.node) if log.same_as(first) else log for log in others)
        for log in (first, *same):
            on_log(log)
            logs.append(log)
    return logs


async def read_topic(
    client: Client, processes: ClusterProcesses, topic: str, on_log: Callable[[ReplicaLog], None] = lambda log: None
) -> list[ReplicaLog]:
    """``read_back`` for all partitions of a topic and the replicas that the cluster names for each."""
    described = await client.topic(topic)
    nodes = {name: processes.raw(name) for name in processes.nodes()}
    return await read_back(nodes, {state.partition: state.replicas for state in described.partitions}, topic, on_log)


async def read_what_can_be(
    nodes: Mapping[str, RawNode],
    replicas: Mapping[int, Sequence[str]],
    topic: str,
    lost: set[str],
    on_lost: Callable[[str, str], None],
) -> list[ReplicaLog]:
    """Like ``read_back``, but without the nodes in ``lost``. A node whose replica does not catch up is added to them,
    and ``on_lost`` is called with (node, reason).
    """
    logs: list[ReplicaLog] = []
    for partition, holders in sorted(replicas.items()):
        wanted = [node for node in holders if node not in lost]
        if not wanted:
            continue
        try:
            logs += await read_back(nodes, {partition: wanted}, topic)
        except* (NotInTime, StockadeError):
            for node in wanted:
                try:
                    logs += await read_back(nodes, {partition: [node]}, topic)
                except* (NotInTime, StockadeError) as errors:
                    lost.add(node)
                    on_lost(node, f"{topic}/{partition}: {errors.exceptions[0]}")
    return logs


async def committed_end(nodes: Mapping[str, RawNode], topic: str, partition: int) -> int:
    """The log end, by a linearizable read from the leader. Raises NotInTime if no leader answers."""
    found: list[int] = []

    async def a_leader_answers() -> bool:
        for node in nodes.values():
            try:
                found.append((await node.fetch(topic, partition, 0, local=False, max_bytes=1)).log_end)
            except (NotLeaderOrFollower, LeaderNotAvailable, RequestTimedOut):
                continue
            return True
        return False

    await until(a_leader_answers, CATCH_UP_TIMEOUT_S, f"no leader of partition {partition} answered")
    return found[0]


async def _read_replica(name: str, node: RawNode, topic: str, partition: int, end: int) -> ReplicaLog:
    async def has_caught_up() -> bool:
        try:
            return (await node.fetch(topic, partition, end, local=True)).log_end >= end
        except (OffsetOutOfRange, NotLeaderOrFollower, LeaderNotAvailable, RequestTimedOut):
            return False

    await until(has_caught_up, CATCH_UP_TIMEOUT_S, f"{name} has not caught up with partition {partition} to {end}")
    columns = _Columns()
    async for records in _pages(node, topic, partition, columns):
        columns.add(records)
    return columns.log(name, partition)


async def _pages(
    node: RawNode, topic: str, partition: int, columns: "_Columns"
) -> AsyncIterator[Sequence[StoredRecord]]:
    page = await node.fetch(topic, partition, 0, local=True)
    columns.log_start = page.log_start
    while page.records:
        yield page.records
        page = await node.fetch(topic, partition, page.next_offset, local=True)
    columns.log_end = page.log_end


class _Columns:
    """A log that grows page by page. Equal values share memory, because the demo repeats its lines."""

    def __init__(self) -> None:
        self.log_start = self.log_end = 0
        self._offsets: list[int] = []
        self._names: list[str] = []
        self._values: list[bytes] = []
        self._stamps: list[Stamp | None] = []
        self._epochs: list[int] = []
        self._known: dict[bytes, bytes] = {}

    def add(self, records: Sequence[StoredRecord]) -> None:
        for record in records:
            value = record.value_bytes
            self._offsets.append(record.offset)
            self._names.append(record.name)
            self._values.append(self._known.setdefault(value, value))
            self._stamps.append(record.stamp)
            self._epochs.append(record.writer_epoch)

    def log(self, node: str, partition: int) -> ReplicaLog:
        return ReplicaLog(
            node,
            partition,
            self.log_start,
            self.log_end,
            self._offsets,
            self._names,
            self._values,
            self._stamps,
            self._epochs,
        )
