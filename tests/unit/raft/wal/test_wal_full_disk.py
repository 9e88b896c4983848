"""A log whose disk is full goes on with the room that is held back, and loses nothing."""

import asyncio
import os
from pathlib import Path

import pytest
from disks import MIB, fill, needs_root, small_disk

from stockade.raft.checkpoint.digests import Digests, digest
from stockade.raft.checkpoint.receiver import _link_if_same
from stockade.raft.wal.file_set import SpareFiles
from stockade.raft.wal.files import numbers_in, path_of
from stockade.raft.wal.records import FileHeader

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
def test_without_a_reserve_of_room_the_log_fails_as_a_whole_and_keeps_durable_records(tmp_path: Path) -> None:
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


def fill_folder(folder: Path) -> None:
    """Make names of 16 characters in a folder until its blocks have room for none more."""
    probe, blocks = folder.with_suffix(".probe"), folder.stat().st_size
    probe.mkdir()
    made = 0
    while probe.stat().st_size == blocks:
        (probe / f"filler-{made:09d}").touch()
        made += 1
    for number in range(made - 1 - len(list(folder.iterdir()))):
        (folder / f"filler-{number:09d}").touch()
    assert folder.stat().st_size == blocks


@needs_root
def test_on_a_full_disk_a_spare_becomes_the_next_file_although_the_folder_needs_a_block(tmp_path: Path) -> None:
    """A rename takes a block where the new name does not fit in the folder's blocks: it stopped the node."""
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        wal = disk / "wal"
        wal.mkdir()
        (wal / "0000000001.spare").write_bytes(bytes(60_000))
        fill_folder(wal)
        with held(disk) as reserve:
            fill(disk)
            made = SpareFiles(wal, 60_000).begin(60_000, FileHeader(7, 1_000_000_000_001, 0))
            os.close(made.fd)
            assert reserve.is_spent
        assert path_of(wal, 1_000_000_000_001).stat().st_size == 60_000


@needs_root
def test_on_a_full_disk_a_copy_links_the_files_that_are_here_already(tmp_path: Path) -> None:
    """The folder of the copy of a large partition takes blocks for its names: that stopped the node."""
    with small_disk(tmp_path / "disk", 16 * MIB) as disk, held(disk) as reserve:
        here, there = disk / "here", disk / "there"
        here.write_bytes(b"a full segment")
        there.mkdir()
        fill(disk)
        digests, theirs = Digests(), digest(here, 14)
        for number in range(100):
            assert _link_if_same(digests, here, 14, theirs, there / f"{number:020d}.arrow")
        assert reserve.is_spent
