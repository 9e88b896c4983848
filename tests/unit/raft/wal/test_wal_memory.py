"""What the log keeps in memory of what is on disk already."""

import asyncio
from pathlib import Path

from stockade.raft.wal.wal import OVERHEAD_BYTES, RecentPayloads, Wal


def fail(error: BaseException) -> None:
    raise AssertionError("the log failed") from error


def test_recent_payloads_stay_in_memory_up_to_the_bound_and_those_not_durable_beyond_it() -> None:
    size = OVERHEAD_BYTES + 10
    recent = RecentPayloads(bytes_max=2 * size)
    for lsn in range(1, 6):
        recent.add(lsn, lsn, bytes(10))
    recent.settle(0)
    assert [recent.get(lsn) is not None for lsn in range(1, 6)] == [True] * 5
    recent.settle(2)
    assert [recent.get(lsn) is not None for lsn in range(1, 6)] == [False, False, True, True, True]
    recent.settle(5)
    assert [recent.get(lsn) is not None for lsn in range(1, 6)] == [False, False, False, True, True]


def test_recent_payloads_of_a_loaded_node_are_read_without_the_disk(tmp_path: Path) -> None:
    entry = bytes(1 << 20)

    async def scenario() -> None:
        wal = Wal(tmp_path, asyncio.get_running_loop(), fail)
        locations = [wal.append(1, index, 1, entry)[1] for index in range(1, 49)]
        await wal.until_durable(48)
        assert all(wal.read(location) is entry for location in locations)
        await wal.close()

    asyncio.run(scenario())
