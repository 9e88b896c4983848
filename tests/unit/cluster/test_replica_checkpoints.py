"""A partition over a real group, its log and checkpoints: what it holds outlives restarts, and its disk is freed."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from stockade.cluster.model import TopicConfig
from stockade.cluster.replica import Replica
from stockade.partition import state
from stockade.partition.commands import Stamp
from stockade.partition.config import PartitionConfig
from stockade.partition.invariants import check
from stockade.partition.machine import PartitionMachine
from stockade.partition.records import batch_from_columns
from stockade.partition.segments import SegmentLog
from stockade.partition.stored import StoredMachine
from stockade.raft.host import RaftHost, RaftSettings

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
SEGMENT_BYTES_MAX = 4000


class Node:
    """One node with one partition."""

    def __init__(self, data: Path) -> None:
        self.failures: list[BaseException] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = ("127.0.0.1", free.getsockname()[1])
        self.host = RaftHost("n1", "house", address, {}, data, SETTINGS, self.failures.append)

    def open(self) -> Replica:
        log = SegmentLog(SEGMENT_BYTES_MAX)

        async def enrol(pid: int, group: int, timeout_s: float) -> tuple[int, int]:
            return 0, 1

        return Replica(
            ("t", TOPIC_ID, 0),
            TopicConfig(),
            StoredMachine(PartitionMachine(PartitionConfig(TOPIC_ID), log), log),
            lambda machine: self.host.open_group(GROUP, {"n1": self.host.incarnation}, machine),
            url_of=lambda _: None,
            enrol=enrol,
            timeout_s=5.0,
        )


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


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (any state may be waited for)
            await asyncio.sleep(0.01)


async def append(replica: Replica, sequence: int) -> None:
    batch = batch_from_columns([None], [b"%d" % sequence * 50], None, None, now_ms=7, batch_bytes_max=1 << 20)
    await replica.append(batch, topic_id=None, token=None, stamp=Stamp(PID, 0, sequence), if_log_end=None)


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
            before = state.encode(replica.machine)
        for _ in range(2):
            async with running(tmp_path) as replica:
                check(replica.machine)
                assert state.encode(replica.machine) == before
                assert (
                    await replica.read(0, max_bytes=1 << 30, min_bytes=1, max_wait_ms=0, local=False)
                ).next_offset == 201

    asyncio.run(scenario())


def test_trimming_gives_the_disk_back_though_nobody_writes_after_it(tmp_path: Path) -> None:
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
