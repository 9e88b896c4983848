"""Records are only written over blocks that were written and synced before: their syncs have no metadata to write."""

import asyncio
import os
from pathlib import Path

import pytest

from stockade.raft.wal_files import AHEAD_BYTES, PAGE_BYTES, WalWriter, first_unwritten
from stockade.raft.wal_records import FileHeader
from stockade.raft.wal_spares import Spares
from stockade.raft.wal_tail import Run

from .test_wal_release import append, indexes, opened

FILE_BYTES = 3 * AHEAD_BYTES + 5 * PAGE_BYTES
WRITTEN = b"w" * PAGE_BYTES


class Blocks:
    """What is written and synced, by system calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced_end = PAGE_BYTES  # the header's page
        self.bare: list[int] = []
        """Where something else than zeros was written into blocks that nobody had written and synced."""
        self._written_end = 0
        self._pwrite, self._fdatasync = os.pwrite, os.fdatasync
        monkeypatch.setattr(os, "pwrite", self.pwrite)
        monkeypatch.setattr(os, "fdatasync", self.fdatasync)

    def pwrite(self, fd: int, data: memoryview, position: int) -> int:
        if any(data) and position + len(data) > self.synced_end:
            self.bare.append(position)
        self._written_end = max(self._written_end, position + len(data))
        return self._pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:
        self._fdatasync(fd)
        self.synced_end = self._written_end


def begin(writer: WalWriter, number: int, parts: list[bytes]) -> None:
    writer.write([Run(number, PAGE_BYTES, FILE_BYTES, FileHeader(7, number, 0), parts)])


def test_no_record_is_written_into_blocks_that_were_only_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = WalWriter(Spares(tmp_path, FILE_BYTES).begin, lambda number, size: None)
    blocks = Blocks(monkeypatch)
    begin(writer, 1, [b"r" * 100])
    assert blocks.synced_end == PAGE_BYTES + AHEAD_BYTES
    for start, size in [
        (PAGE_BYTES + 100, AHEAD_BYTES - 100),  # to the very end of what is there
        (PAGE_BYTES + AHEAD_BYTES, 1),
        (PAGE_BYTES + AHEAD_BYTES + 1, AHEAD_BYTES + 3 * PAGE_BYTES),  # further than that
        (FILE_BYTES - 2 * PAGE_BYTES, 2 * PAGE_BYTES),
    ]:
        writer.write([Run(1, start, FILE_BYTES, None, [b"r" * size])])
    assert blocks.bare == []
    assert blocks.synced_end == FILE_BYTES
    writer.close()


def test_a_file_is_written_to_its_end_before_the_next_one_begins(tmp_path: Path) -> None:
    writer = WalWriter(Spares(tmp_path, FILE_BYTES).begin, lambda number, size: None)
    begin(writer, 1, [b"r" * 100])
    assert unwritten(tmp_path / "0000000001.wal") == PAGE_BYTES + AHEAD_BYTES
    begin(writer, 2, [b"r" * 100])
    assert unwritten(tmp_path / "0000000001.wal") == FILE_BYTES
    writer.close()


def test_a_spare_that_came_back_from_a_backup_with_holes_is_filled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "0000000001.spare").open("wb") as file:
        file.write(WRITTEN * 2)
        file.truncate(FILE_BYTES)
        file.seek(FILE_BYTES - PAGE_BYTES)
        file.write(WRITTEN)
    writer = WalWriter(Spares(tmp_path, FILE_BYTES).begin, lambda number, size: None)
    blocks = Blocks(monkeypatch)
    blocks.synced_end = 2 * PAGE_BYTES
    begin(writer, 3, [b"r" * PAGE_BYTES * 2])
    assert blocks.bare == []
    assert blocks.synced_end == 2 * PAGE_BYTES + AHEAD_BYTES
    writer.close()


def test_a_spare_that_was_written_whole_is_not_written_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0000000001.spare").write_bytes(WRITTEN * (FILE_BYTES // PAGE_BYTES))
    writer = WalWriter(Spares(tmp_path, FILE_BYTES).begin, lambda number, size: None)
    sizes: list[int] = []
    pwrite = os.pwrite

    def counted(fd: int, data: bytes, position: int) -> int:
        sizes.append(len(data))
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwrite", counted)
    begin(writer, 3, [b"r" * 100])
    assert sizes == [PAGE_BYTES, PAGE_BYTES]  # the header's page, and that of the record
    writer.close()


def test_what_was_written_ahead_is_no_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "wal") as wal:
            append(wal, 1, range(1, 10))
            await wal.all_durable()
        async with opened(tmp_path / "wal") as wal:
            assert indexes(wal, 1) == list(range(1, 10))

    asyncio.run(scenario())


def unwritten(path: Path) -> int:
    """As the file system says once nothing of the file is in memory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return first_unwritten(fd)
    finally:
        os.close(fd)
