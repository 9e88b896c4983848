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
NEXT_LEADER_TIMEOUT_S = 10.0
"""Where one partition had no leader for CATCH_UP_TIMEOUT_S, a leader of any other must answer after this time."""


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
        logs += await _read_to(nodes, holders, topic, partition, end, on_log)
    return logs


async def _read_to(
    nodes: Mapping[str, RawNode],
    holders: Sequence[str],
    topic: str,
    partition: int,
    end: int,
    on_log: Callable[[ReplicaLog], None] = lambda log: None,
) -> list[ReplicaLog]:
    reads = (_read_replica(name, nodes[name], topic, partition, end) for name in holders)
    first, *others = await asyncio.gather(*reads)
    logs = [first, *(replace(first, node=log.node) if log.same_as(first) else log for log in others)]
    for log in logs:
        on_log(log)
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
    leaderless: dict[tuple[str, int], str],
    on_lost: Callable[[str, str], None],
) -> list[ReplicaLog]:
    """Like ``read_back``, but without the nodes in ``lost``. A node whose replica does not catch up is added to them,
    and ``on_lost`` is called with (node, reason). A partition of which no leader answers is left out, and added to
    ``leaderless`` with the reason: its nodes are not lost by that.
    """
    logs: list[ReplicaLog] = []
    for partition, holders in sorted(replicas.items()):
        wanted = [node for node in holders if node not in lost]
        if not wanted:
            continue
        try:
            timeout_s = NEXT_LEADER_TIMEOUT_S if leaderless else CATCH_UP_TIMEOUT_S
            end = await committed_end(nodes, topic, partition, timeout_s)
        except (NotInTime, StockadeError) as error:
            leaderless[topic, partition] = f"{topic}/{partition}: {error}"
            continue
        try:
            logs += await _read_to(nodes, wanted, topic, partition, end)
        except (NotInTime, StockadeError):
            for node in wanted:
                try:
                    logs += await _read_to(nodes, [node], topic, partition, end)
                except (NotInTime, StockadeError) as error:
                    lost.add(node)
                    on_lost(node, f"{topic}/{partition}: {error}")
    return logs


async def committed_end(
    nodes: Mapping[str, RawNode], topic: str, partition: int, timeout_s: float = CATCH_UP_TIMEOUT_S
) -> int:
    """The log end, by a linearizable read from the leader. Raises NotInTime if no leader answers. A node that refuses
    is passed over, also one that does not know the topic: another one may.
    """
    found: list[int] = []

    async def a_leader_answers() -> bool:
        for node in nodes.values():
            try:
                found.append((await node.fetch(topic, partition, 0, local=False, max_bytes=1)).log_end)
            except StockadeError:
                continue
            return True
        return False

    await until(a_leader_answers, timeout_s, f"no leader of partition {partition} answered")
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
