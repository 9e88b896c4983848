"""Records are only written over blocks that were written and synced before: their syncs have no metadata to write."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stockade.raft.wal.file_set import SpareFiles
from stockade.raft.wal.files import first_unwritten
from stockade.raft.wal.records import PAGE_BYTES, FileHeader, Run
from stockade.raft.wal.wal import Wal
from stockade.raft.wal.writer import AHEAD_BYTES, WalWriter

from .test_wal_release import fail

FILE_BYTES = 3 * AHEAD_BYTES + 5 * PAGE_BYTES
WRITTEN = b"w" * PAGE_BYTES


class Blocks:
    """What is written and synced, by system calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced_end = PAGE_BYTES  # the header's page
        self.bare: list[int] = []
        """Positions of non-zero bytes written into blocks that had not been written and synced before."""
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
    writer = WalWriter(SpareFiles(tmp_path, FILE_BYTES).begin, lambda number, size: None)
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
    writer = WalWriter(SpareFiles(tmp_path, FILE_BYTES).begin, lambda number, size: None)
    begin(writer, 1, [b"r" * 100])
    assert unwritten(tmp_path / "0000000001.wal") == PAGE_BYTES + AHEAD_BYTES
    begin(writer, 2, [b"r" * 100])
    assert unwritten(tmp_path / "0000000001.wal") == FILE_BYTES
    writer.close()


def holes(path: Path) -> None:
    """As a sparse copy comes back from a backup."""
    with path.open("wb") as file:
        file.write(WRITTEN * 2)
        file.truncate(FILE_BYTES)
        file.seek(FILE_BYTES - PAGE_BYTES)
        file.write(WRITTEN)


def reserved(path: Path) -> None:
    """As an earlier version left it."""
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
        file.write(WRITTEN * 2)


@pytest.mark.parametrize("make", [holes, reserved])
def test_a_spare_that_was_not_written_whole_is_filled_even_after_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    spare = tmp_path / "0000000001.spare"
    make(spare)
    assert len(spare.read_bytes()) == FILE_BYTES  # a recovery, a backup: what is in memory now passes for written
    writer = WalWriter(SpareFiles(tmp_path, FILE_BYTES).begin, lambda number, size: None)
    blocks = Blocks(monkeypatch)
    blocks.synced_end = 2 * PAGE_BYTES
    begin(writer, 3, [b"r" * PAGE_BYTES * 2])
    assert blocks.bare == []
    assert blocks.synced_end == 2 * PAGE_BYTES + AHEAD_BYTES
    writer.close()


def test_a_read_of_a_new_file_makes_no_block_of_it_pass_for_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(number: int, size: int) -> None:
        assert len((tmp_path / "0000000001.wal").read_bytes()) == size

    writer = WalWriter(SpareFiles(tmp_path, FILE_BYTES).begin, read)
    blocks = Blocks(monkeypatch)
    begin(writer, 1, [b"r" * 100])
    assert blocks.bare == []
    writer.close()


def test_a_spare_that_was_written_whole_is_not_written_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0000000001.spare").write_bytes(WRITTEN * (FILE_BYTES // PAGE_BYTES))
    writer = WalWriter(SpareFiles(tmp_path, FILE_BYTES).begin, lambda number, size: None)
    sizes: list[int] = []
    pwrite = os.pwrite

    def counted(fd: int, data: bytes, position: int) -> int:
        sizes.append(len(data))
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwrite", counted)
    begin(writer, 3, [b"r" * 100])
    assert sizes == [PAGE_BYTES, PAGE_BYTES]  # the header's page, and that of the record
    writer.close()


@pytest.mark.parametrize("records", [0, 5, 40])
def test_what_was_written_ahead_is_no_record_and_neither_is_what_a_spare_held(tmp_path: Path, records: int) -> None:
    """The process dies with zeros and old records after the last one; ``records`` are in files that came before."""

    async def scenario() -> None:
        wal = Wal.open(tmp_path / "wal", asyncio.get_running_loop(), fail, FILE_BYTES)
        for index in range(1, records + 1):
            wal.append(1, index, 1, b"o" * (AHEAD_BYTES // 4))
            await wal.all_durable()
        wal.covered(1, records)
        await wal.release(lambda group_id, index: None)
        for index in range(records + 1, records + 10):
            wal.append(1, index, 1, b"n" * 1000)
            await wal.all_durable()
            shutil.copytree(tmp_path / "wal", tmp_path / "killed")
            again = Wal.open(tmp_path / "killed", asyncio.get_running_loop(), fail, FILE_BYTES)
            assert again.recovered[1].entries[-1].index == index
            await again.close()
            shutil.rmtree(tmp_path / "killed")
        await wal.close()

    asyncio.run(scenario())


def unwritten(path: Path) -> int:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return first_unwritten(file.fileno())
