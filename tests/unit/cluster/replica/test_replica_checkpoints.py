"""A partition over a real group, its log and checkpoints: what it holds outlives restarts, and its disk is freed."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import until

from stockade.cluster.features import SOFTWARE, Features
from stockade.cluster.model import Conditions
from stockade.cluster.replica.replica import Replica
from stockade.cluster.replica.replica_manager import Assignment
from stockade.cluster.replica.stopped import StoppedPartition
from stockade.partition.api.topics import TopicConfig
from stockade.partition.commands import AddTierObject, BeginTier, Stamp, TierObject, encode_command
from stockade.partition.config import PartitionConfig
from stockade.partition.durable.stored_machine import StoredMachine
from stockade.partition.log.segments import SegmentLog
from stockade.partition.records.batch import Batch, batch_from_columns
from stockade.partition.state import snapshot
from stockade.partition.state.invariants import check
from stockade.raft.host import RaftHost, RaftSettings
from stockade.raft.stopped import StoppedNode
from stockade.raft.wal.errors import DiskRefused
from stockade.raft.wal.file_set import WalIdentity

GROUP = 77
TOPIC_ID = 812
PID = 1001
SETTINGS = RaftSettings(
    election_timeout_ms_min=60,
    election_timeout_ms_max=120,
    heartbeat_ms=20,
    checkpoint_bytes=20_000,
    wal_bytes_max=1 << 20,
    wal_file_bytes=16_384,
)
PATIENT = replace(SETTINGS, election_timeout_ms_min=2000, election_timeout_ms_max=4000, heartbeat_ms=200)
"""No other node gets to lead because the machine is busy."""
SEGMENT_BYTES_MAX = 4000


class Node:
    """One node with one partition."""

    def __init__(
        self,
        data: Path,
        node_id: str = "n1",
        addresses: Mapping[str, tuple[str, int]] | None = None,
        settings: RaftSettings = SETTINGS,
    ) -> None:
        self.failures: list[BaseException] = []
        known = dict(addresses or {"n1": free_address()})
        address = known.pop(node_id)
        self.host = RaftHost(node_id, "house", address, known, data, settings, self.failures.append)

    def open(self, founders: Mapping[str, int] | None = None) -> Replica:
        log = SegmentLog(SEGMENT_BYTES_MAX)

        async def enrol(pid: int, group: int, timeout_s: float) -> tuple[int, int, str]:
            return 0, 1, ""

        return Replica(
            ("t", TOPIC_ID, 0),
            TopicConfig(),
            StoredMachine(PartitionConfig(TOPIC_ID), log),
            lambda machine: self.host.open_group(GROUP, founders or {"n1": self.host.incarnation}, machine),
            features=Features(),
            urls={},
            enrol=enrol,
            timeout_s=5.0,
        )


def free_address() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return "127.0.0.1", free.getsockname()[1]


@asynccontextmanager
async def running(data: Path) -> AsyncIterator[Replica]:
    """The partition on a node that leads it and has applied everything."""
    node = Node(data)
    await node.host.start()
    replica = node.open()
    try:
        await until(lambda: replica.group.is_leader)
        await replica.group.read_barrier(5.0)
        yield replica
        assert node.failures == []
    finally:
        await node.host.stop()
        replica.close()


@asynccontextmanager
async def started(data: Path, count: int, settings: RaftSettings) -> AsyncIterator[tuple[list[Node], dict[str, int]]]:
    """The nodes n1, n2, …, each with a folder of its name in ``data``, and the incarnation of each."""
    addresses = {f"n{number}": free_address() for number in range(1, count + 1)}
    nodes = [Node(data / node_id, node_id, addresses, settings) for node_id in addresses]
    async with AsyncExitStack() as stack:
        for node in nodes:
            (data / node.host.node_id).mkdir()
            await node.host.start()
            stack.push_async_callback(node.host.stop)
        yield nodes, {node.host.node_id: node.host.incarnation for node in nodes}


def batch_of(value: bytes) -> Batch:
    return batch_from_columns([None], [value], None, None, now_ms=7, batch_bytes_max=1 << 20)


async def append(replica: Replica, sequence: int) -> None:
    batch = batch_of(b"%d" % sequence * 50)
    await replica.append(batch, Conditions(stamp=Stamp(PID, 0, sequence)))


def segments(data: Path) -> list[int]:
    """First offsets of the segments on disk."""
    return sorted(int(path.stem) for path in data.rglob("*.arrow"))


def test_a_restart_begins_at_the_checkpoint_and_holds_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as replica:
            for sequence in range(200):
                await append(replica, sequence)
            await until(lambda: any(tmp_path.rglob("checkpoint")))
            await append(replica, 200)
            before = snapshot.encode(replica.machine)
        for _ in range(2):
            async with running(tmp_path) as replica:
                check(replica.machine)
                assert snapshot.encode(replica.machine) == before
                assert (
                    await replica.read(0, max_bytes=1 << 30, min_bytes=1, max_wait_ms=0, local=False)
                ).next_offset == 201

    asyncio.run(scenario())


def test_trimming_gives_the_disk_back_without_a_write_after_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as replica:
            for sequence in range(100):
                await append(replica, sequence)
            assert len(segments(tmp_path)) > 8
            assert await replica.trim(None, topic_id=None, token=None) == (100, 100)
            await until(lambda: segments(tmp_path) == [])
        async with running(tmp_path) as replica:
            assert (replica.machine.log_start, replica.machine.log_end) == (100, 100)
            await append(replica, 100)
            assert segments(tmp_path) == [100]

    asyncio.run(scenario())


def test_a_replica_that_is_filled_by_a_checkpoint_has_the_stages_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        async with started(tmp_path, 3, PATIENT) as (nodes, founders):
            first, second = (node.open(founders) for node in nodes[:2])
            await until(lambda: first.group.is_leader or second.group.is_leader)
            leader = first if first.group.is_leader else second
            await leader.group.read_barrier(5.0)
            for name in "abc":
                await leader.put_stage(name, name, batch_of(b"%d" % ord(name) * 50), ttl_ms=60_000, topic_id=None)
            await leader.append_stage("a", 7, Conditions())
            await leader.change_stages(["b"], [], producer=(PID, 0), topic_id=None)
            sequence = 0
            while leader.group._node.log.base_index < 20:  # what the third one lacks is gone
                await append(leader, sequence)
                sequence += 1
            third = nodes[2].open(founders)
            await until(lambda: third.group.applied_index >= leader.group.commit_index)
            assert snapshot.encode(third.machine) == snapshot.encode(leader.machine)
            await leader.append_stage("b", 8, Conditions())
            await until(lambda: third.group.applied_index >= leader.group.commit_index)
            assert snapshot.encode(third.machine) == snapshot.encode(leader.machine)
            files = {path.name for path in (tmp_path / "n3").rglob("*.stage")}
            assert files >= {f"{2:020d}.stage"}
            assert f"group {GROUP}: installed a checkpoint" in caplog.text
            assert [node.failures for node in nodes] == [[], [], []]
            for replica in (first, second, third):
                replica.close()

    asyncio.run(scenario())


def test_files_that_are_in_the_store_go_although_nothing_more_is_appended(tmp_path: Path) -> None:
    """A replica drops them by itself, without a command: the checkpoint that frees them is at the same index."""

    async def scenario() -> None:
        node = Node(tmp_path)
        await node.host.start()
        replica = node.open()
        await until(lambda: replica.group.is_leader)
        for sequence in range(200):
            await append(replica, sequence)
        end = replica.log.full_segments[-1].next_offset
        item = TierObject(0, end, replica.group.term, "n", 9, b"s" * 32, 90, 7, 8)
        for command in (BeginTier("folder"), AddTierObject("folder", item)):
            await replica.answer_to(encode_command(command), 5.0)
        storage = node.host._parts.storage
        assert storage is not None
        storage.open_groups[GROUP].make_due()
        await until(lambda: storage.open_groups[GROUP].log.origin.index == replica.group.applied_index)
        replica.log.drop_local(end)
        storage.open_groups[GROUP]._bound = 1
        node.host.dropped_files()
        await until(lambda: segments(tmp_path) == [end])
        assert replica.log.reclaimable == 0
        assert node.failures == []
        before = snapshot.encode(replica.machine)
        await node.host.stop()
        replica.close()
        async with running(tmp_path) as again:
            assert snapshot.encode(again.machine) == before
            assert (again.machine.log_start, again.log.local_start) == (0, end)
            await append(again, 200)

    asyncio.run(scenario())


@contextmanager
def stopped(data: Path, founders: Mapping[str, int], scratch: Path) -> Iterator[StoppedPartition]:
    """The partition on the disk of a stopped node, of which no file is changed."""
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in data.rglob("*") if path.is_file()}
    scratch.mkdir()
    with StoppedNode(data, SOFTWARE) as node:
        note = Assignment("t", TOPIC_ID, 0, dict(founders), TopicConfig())
        yield StoppedPartition(node, note, node.group(GROUP, founders), scratch)
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before}
    assert {*data.rglob("*")} == {*before, *(path for path in data.rglob("*") if path.is_dir())}


def test_a_stopped_disk_is_read_as_a_start_would_read_it_and_stays_as_it_is(tmp_path: Path) -> None:
    data = tmp_path / "n1"
    data.mkdir()

    async def scenario() -> tuple[bytes, int]:
        async with running(data) as replica:
            for name in "ab":
                await replica.put_stage(name, name, batch_of(b"%d" % ord(name) * 50), ttl_ms=60_000, topic_id=None)
            for sequence in range(200):
                await append(replica, sequence)
            await until(lambda: any(data.rglob("checkpoint")))
            await replica.append_stage("a", 7, Conditions())
            await replica.put_stage("c", "c", batch_of(b"c"), ttl_ms=60_000, topic_id=None)
            await replica.append_stage("c", 7, Conditions())
            assert await replica.trim(130, topic_id=None, token=None) == (130, 202)
            return snapshot.encode(replica.machine), replica.group.applied_index

    before, index = asyncio.run(scenario())
    with stopped(data, {"n1": incarnation(data)}, tmp_path / "scratch") as found:
        assert snapshot.encode(found.machine) == before
        check(found.machine)
        assert (found.first, found.known_end, found.log.log_end, found.end[1]) == (130, 202, 202, index)
        values = [value.as_py() for batch in found.records(130, 202) for value in batch.column("value")]
    expected = [b"%d" % sequence * 50 for sequence in range(130, 200)]
    assert values == [*expected, b"%d" % ord("a") * 50, b"c"]


def test_a_disk_knows_of_its_checkpoint_alone_that_it_is_committed(tmp_path: Path) -> None:
    async def scenario() -> dict[str, int]:
        settings = replace(PATIENT, checkpoint_bytes=400_000)  # after 90 appends or so
        async with started(tmp_path, 2, settings) as (nodes, founders):
            replicas = [node.open(founders) for node in nodes]
            await until(lambda: any(replica.group.is_leader for replica in replicas))
            (leader,) = [replica for replica in replicas if replica.group.is_leader]
            for sequence in range(200):
                await append(leader, sequence)
            await until(lambda: all(any((tmp_path / node_id).rglob("checkpoint")) for node_id in founders))
        for replica in replicas:
            replica.close()
        return founders

    founders = asyncio.run(scenario())
    for node_id in founders:
        with stopped(tmp_path / node_id, founders, tmp_path / f"scratch-{node_id}") as found:
            assert 0 < found.known_end < found.log.log_end == 200
            assert sum(batch.num_rows for batch in found.records(0, 200)) == 200
    identity = tmp_path / "n2" / "wal" / "identity"
    identity.write_bytes(identity.read_bytes()[:-1])
    with stopped(tmp_path / "n2", founders, tmp_path / "without the log") as found:
        assert 0 < found.known_end == found.log.log_end < 200, "what the checkpoint has"
    (tmp_path / "n2" / "wal").rename(tmp_path / "removed")
    with stopped(tmp_path / "n2", founders, tmp_path / "without its folder") as found:
        assert 0 < found.known_end == found.log.log_end < 200, "what the checkpoint has"
    segment = min((tmp_path / "n1").rglob("*.arrow"))
    segment.write_bytes(segment.read_bytes()[:-9] + b"x" * 9)
    with (
        pytest.raises(DiskRefused, match="is damaged"),
        stopped(tmp_path / "n1", founders, tmp_path / "again") as found,
    ):
        list(found.records(0, 200))


def incarnation(data: Path) -> int:
    found = WalIdentity.read(data / "wal")
    assert found is not None
    return found.incarnation
