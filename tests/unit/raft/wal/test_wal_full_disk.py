"""A log whose disk is full goes on with the room that is held back, and loses nothing."""

import asyncio
from pathlib import Path

import pytest
from disks import MIB, fill, needs_root, small_disk

from stockade.raft.wal.files import numbers_in

from ...partition.log.test_space import held
from .test_wal import opened, payloads
from .test_wal_descriptors import until_durable_or_failed

RECORDS = [bytes([number]) * 30_000 for number in range(12)]
"""Two of them fill a file."""


@needs_root
def test_the_log_begins_its_next_files_on_a_full_disk(tmp_path: Path) -> None:
    async def scenario(disk: Path) -> None:
        async with opened(disk / "wal") as log:
            log.wal.append(1, 1, 1, RECORDS[0])
            await log.until_durable(1)
            with held(disk, 4 * MIB) as reserve:
                fill(disk)
                for number, record in enumerate(RECORDS[1:], 2):
                    await until_durable_or_failed(log, log.wal.append(1, number, 1, record)[0])
                assert not reserve.is_held
            assert len(numbers_in(disk / "wal")) >= 6
        async with opened(disk / "wal") as log:
            assert payloads(log.wal) == RECORDS

    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        asyncio.run(scenario(disk))


@needs_root
def test_without_any_room_held_back_the_log_fails_as_a_whole_and_keeps_what_was_durable(tmp_path: Path) -> None:
    async def scenario(disk: Path) -> None:
        async with opened(disk / "wal") as log:
            log.wal.append(1, 1, 1, b"durable")
            await log.until_durable(1)
            fill(disk)
            log.wal.append(1, 2, 1, bytes(60_000))
            log.wal.append(1, 3, 1, bytes(60_000))
            await log.until(lambda: bool(log.failures))
            with pytest.raises(OSError, match="No space left"):
                raise log.failures[0]
            assert log.wal.durable_lsn == 1
        (disk / "ballast").unlink()
        async with opened(disk / "wal") as log:
            assert payloads(log.wal)[0] == b"durable"

    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        asyncio.run(scenario(disk))
