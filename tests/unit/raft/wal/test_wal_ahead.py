"""Records are only written over blocks that were written and synced before: their syncs have no metadata to write."""

import asyncio
import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stockade.raft.wal.file_set import SpareFiles
from stockade.raft.wal.files import first_unwritten
from stockade.raft.wal.records import FILE_HEADER_BYTES, PAGE_BYTES, FileHeader, Run
from stockade.raft.wal.wal import Wal
from stockade.raft.wal.writer import AHEAD_BYTES, BUFFER_BYTES, WalWriter

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
    writer.write([Run(number, FILE_HEADER_BYTES, FILE_BYTES, FileHeader(7, number, 0), parts)])


def test_no_record_is_written_into_blocks_that_were_only_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = WalWriter(SpareFiles(tmp_path, FILE_BYTES).begin, lambda number, size: None)
    blocks = Blocks(monkeypatch)
    begin(writer, 1, [b"r" * (PAGE_BYTES - FILE_HEADER_BYTES + 100)])
    assert blocks.synced_end == PAGE_BYTES + AHEAD_BYTES
    start = PAGE_BYTES + 100
    for end in [
        PAGE_BYTES + AHEAD_BYTES,  # the very end of what is there
        PAGE_BYTES + AHEAD_BYTES + 1,
        2 * AHEAD_BYTES + 4 * PAGE_BYTES,  # further than that
        FILE_BYTES - 2 * PAGE_BYTES,
        FILE_BYTES,
    ]:
        writer.write([Run(1, start, FILE_BYTES, None, [b"r" * (end - start)])])
        start = end
    assert blocks.bare == []
    assert blocks.synced_end == FILE_BYTES
    writer.close()


def test_a_file_is_written_to_its_end_before_the_next_one_begins(tmp_path: Path) -> None:
    writer = WalWriter(SpareFiles(tmp_path, FILE_BYTES).begin, lambda number, size: None)
    begin(writer, 1, [b"r" * PAGE_BYTES])
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
def test_zeros_written_ahead_and_old_records_of_a_spare_are_no_records(tmp_path: Path, records: int) -> None:
    """The process dies with zeros and old records after the last one; ``records`` are in files that came before."""

    async def scenario() -> None:
        wal = Wal(tmp_path / "wal", asyncio.get_running_loop(), fail, FILE_BYTES)
        for index in range(1, records + 1):
            wal.append(1, index, 1, b"o" * (AHEAD_BYTES // 4))
            await wal.all_durable()
        wal.covered(1, records)
        await wal.release(lambda group_id, index: None)
        for index in range(records + 1, records + 10):
            wal.append(1, index, 1, b"n" * 1000)
            await wal.all_durable()
            shutil.copytree(tmp_path / "wal", tmp_path / "killed")
            again = Wal(tmp_path / "killed", asyncio.get_running_loop(), fail, FILE_BYTES)
            assert again.recovered[1].entries[-1].index == index
            await again.close()
            shutil.rmtree(tmp_path / "killed")
        await wal.close()

    asyncio.run(scenario())


def bypasses_cache(fd: int) -> bool:
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


@pytest.mark.parametrize("is_spare", [True, False])
def test_writes_of_the_log_bypass_the_page_cache(tmp_path: Path, is_spare: bool) -> None:
    if is_spare:
        (tmp_path / "0000000001.spare").write_bytes(WRITTEN * (FILE_BYTES // PAGE_BYTES))
    begun = SpareFiles(tmp_path, FILE_BYTES).begin(FILE_BYTES, FileHeader(7, 3, 0))
    assert bypasses_cache(begun.fd)
    os.close(begun.fd)


def test_a_file_that_ends_within_a_page_is_written_through_the_cache(tmp_path: Path) -> None:
    begun = SpareFiles(tmp_path, 1).begin(PAGE_BYTES + 1, FileHeader(7, 1, 0))
    assert not bypasses_cache(begun.fd)
    os.close(begun.fd)


@pytest.mark.parametrize("refuses", ["the flag", "the write"])
def test_a_file_system_without_direct_writes_gets_the_log_through_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    """Some refuse the flag, and some the write: a disk with larger blocks."""
    set_flags, pwrite = fcntl.fcntl, os.pwrite

    def flagged(fd: int, command: int, flags: int = 0) -> int:
        if refuses == "the flag" and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct writes here")
        return set_flags(fd, command, flags)

    def written(fd: int, data: memoryview, position: int) -> int:
        if refuses == "the write" and bypasses_cache(fd):
            raise OSError(errno.EINVAL, "no direct writes here")
        return pwrite(fd, data, position)

    monkeypatch.setattr(fcntl, "fcntl", flagged)
    monkeypatch.setattr(os, "pwrite", written)
    writer = WalWriter(SpareFiles(tmp_path, FILE_BYTES).begin, lambda number, size: None)
    begin(writer, 1, [b"r" * 100])
    writer.close()
    assert (tmp_path / "0000000001.wal").read_bytes()[FILE_HEADER_BYTES:].rstrip(b"\0") == b"r" * 100


def test_an_error_of_the_disk_is_no_lack_of_direct_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same write again might succeed, and what an error has lost would pass for written."""
    pwrite, errors = os.pwrite, [OSError(errno.EIO, "the disk failed")]

    def written(fd: int, data: memoryview, position: int) -> int:
        if errors:
            raise errors.pop()
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwrite", written)
    with pytest.raises(OSError, match="the disk failed"):
        SpareFiles(tmp_path, FILE_BYTES).begin(FILE_BYTES, FileHeader(7, 1, 0))


def test_a_run_that_is_longer_than_one_write_lies_in_the_file_in_its_order(tmp_path: Path) -> None:
    writer = WalWriter(SpareFiles(tmp_path, FILE_BYTES).begin, lambda number, size: None)
    record = b"".join(number.to_bytes(4, "big") for number in range((2 * BUFFER_BYTES + 100) // 4))
    begin(writer, 1, [record])
    writer.close()
    assert (tmp_path / "0000000001.wal").read_bytes()[FILE_HEADER_BYTES:].startswith(record)


def test_a_page_that_is_written_in_part_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system's blocks may be smaller than a page; what is written ahead begins with one."""
    path = tmp_path / "file"
    path.write_bytes(WRITTEN * 3)
    for hole, expected in [(2 * PAGE_BYTES, 2 * PAGE_BYTES), (PAGE_BYTES + 1024, PAGE_BYTES), (3 * PAGE_BYTES,) * 2]:
        monkeypatch.setattr(os, "lseek", lambda fd, position, whence, hole=hole: hole)
        assert unwritten(path) == expected


def unwritten(path: Path) -> int:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return first_unwritten(file.fileno())
