"""A log whose process has no descriptor left begins its next files, and does not fail."""

import asyncio
from pathlib import Path

import pytest

from stockade.raft.wal.files import numbers_in

from ...partition.log.test_descriptors import no_descriptor_left
from .test_wal import Log, opened

RECORDS = [bytes([number]) * 30_000 for number in range(12)]
"""Two of them fill a file."""


async def until_durable_or_failed(log: Log, lsn: int) -> None:
    await log.until(lambda: log.wal.durable_lsn >= lsn or bool(log.failures))
    assert log.failures == []


async def append_all(log: Log) -> list[int]:
    locations = []
    for number, record in enumerate(RECORDS, 1):
        lsn, location = log.wal.append(1, number, 1, record)
        locations.append(location)
        await until_durable_or_failed(log, lsn)
    return locations


def test_the_log_begins_and_reads_files_without_a_free_descriptor(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            with no_descriptor_left(16):
                locations = await append_all(log)
                assert [log.wal.read(location) for location in locations] == RECORDS
            assert log.failures == []
            assert len(numbers_in(tmp_path)) >= 6
        async with opened(tmp_path) as log:
            assert len(log.wal.recovered[1].entries) == len(RECORDS)

    asyncio.run(scenario())


def test_without_a_reserve_of_descriptors_the_log_fails_as_a_whole_and_keeps_durable_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            log.wal.append(1, 1, 1, b"durable")
            await log.until_durable(1)
            with no_descriptor_left(0):
                log.wal.append(1, 2, 1, bytes(60_000))
                log.wal.append(1, 3, 1, bytes(60_000))
                await log.until(lambda: bool(log.failures))
            with pytest.raises(OSError, match="Too many open files"):
                raise log.failures[0]
            assert log.wal.durable_lsn == 1
        async with opened(tmp_path) as log:
            assert log.wal.recovered[1].entries[0].index == 1

    asyncio.run(scenario())
