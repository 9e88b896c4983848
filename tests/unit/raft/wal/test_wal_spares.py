"""Spare files are reused, and the records that they held never pass for records of the log."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from stockade.raft.wal.errors import WalCorrupt
from stockade.raft.wal.file_set import SPARES_MAX, SpareFiles, WalIdentity
from stockade.raft.wal.records import (
    ENTRY,
    FILE_HEADER_BYTES,
    FILE_VERSION,
    PAGE_BYTES,
    FileHeader,
    Record,
    Run,
    encode_file_header,
)
from stockade.raft.wal.recovery import recover
from stockade.raft.wal.wal import Wal
from stockade.raft.wal.writer import WalWriter

from .model import FIRST, MARK, SECOND, a_log_of, a_log_of_two_files, contents, encoded, remembered, restore
from .test_wal_release import FILE_BYTES, PER_FILE, append, fail, indexes, numbers, opened, released


def spares(directory: Path) -> list[int]:
    return sorted(path.stat().st_ino for path in directory.glob("*.spare"))


def test_the_blocks_of_released_files_are_reused_and_their_old_records_never_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "wal") as wal:
            append(wal, 1, range(2, 18))
            await wal.until_durable(wal.lsn)
            room = {number: path.stat().st_ino for number, path in files(tmp_path / "wal").items()}
            wal.covered(1, 9)
            await released(wal)
            kept = spares(tmp_path / "wal")
            assert set(kept) <= {room[1], room[2]}
            assert kept
            append(wal, 1, range(18, 22 + PER_FILE))
            await wal.until_durable(wal.lsn)
            now = {path.stat().st_ino for path in files(tmp_path / "wal").values()}
            assert now >= {room[1], room[2]}
            assert spares(tmp_path / "wal") == []
            shutil.copytree(tmp_path / "wal", tmp_path / "killed")
        async with opened(tmp_path / "killed") as wal:
            assert indexes(wal, 1) == list(range(10, 22 + PER_FILE))

    asyncio.run(scenario())


def files(directory: Path) -> dict[int, Path]:
    return {int(path.stem): path for path in directory.glob("*.wal")}


def test_spares_are_bounded_in_number_and_have_the_configured_size(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as wal:
            append(wal, 1, range(2, 2 + PER_FILE * (SPARES_MAX + 5)))
            await wal.until_durable(wal.lsn)
            wal.covered(1, PER_FILE * (SPARES_MAX + 4))
            await released(wal)
            assert len(spares(tmp_path)) == SPARES_MAX
            assert wal.disk_bytes == FILE_BYTES * len(numbers(tmp_path))
        wal = Wal(tmp_path, asyncio.get_running_loop(), fail, FILE_BYTES + 1, cache_bytes_max=0)
        assert spares(tmp_path) == []
        await wal.close()

    asyncio.run(scenario())


def test_a_file_for_a_longer_record_never_becomes_a_spare(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as wal:
            wal.append(1, 2, 1, bytes(2 * FILE_BYTES))
            append(wal, 1, range(3, 3 + PER_FILE))
            await wal.until_durable(wal.lsn)
            wal.covered(1, 2 + PER_FILE)
            await released(wal)
            assert spares(tmp_path) == []

    asyncio.run(scenario())


def test_a_spare_needs_not_be_readable_to_be_written_over(tmp_path: Path) -> None:
    spares, header = SpareFiles(tmp_path, FILE_BYTES), FileHeader(MARK, 7, 0)
    (tmp_path / "0000000002.spare").write_bytes(b"\xff" * FILE_BYTES)
    os.close(spares.begin(FILE_BYTES, header).fd)
    data = (tmp_path / "0000000007.wal").read_bytes()
    assert data == encode_file_header(header).ljust(FILE_BYTES, b"\0"), "a page that is written in part is read first"


def test_a_file_made_of_a_spare_and_its_name_are_durable_before_the_log_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spares = SpareFiles(tmp_path, FILE_BYTES)
    (tmp_path / "0000000002.spare").write_bytes(bytes(FILE_BYTES))
    real, synced = os.fsync, list[tuple[bool, bool]]()

    def fsync(fd: int) -> None:
        real(fd)
        synced.append((os.path.samestat(os.fstat(fd), tmp_path.stat()), (tmp_path / "0000000007.wal").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    os.close(spares.begin(FILE_BYTES, FileHeader(MARK, 7, 0)).fd)
    assert synced == [(False, False), (True, True)], "the header first, then the name, in its folder"


def test_only_files_that_the_log_has_named_are_its_spares(tmp_path: Path) -> None:
    (tmp_path / "notes.spare").write_bytes(bytes(FILE_BYTES))
    os.close(SpareFiles(tmp_path, FILE_BYTES).begin(FILE_BYTES, FileHeader(MARK, 1, 0)).fd)
    SpareFiles(tmp_path, FILE_BYTES + 1)
    assert (tmp_path / "notes.spare").exists()


def test_a_log_that_has_only_spares_left_was_one_and_is_not_new(tmp_path: Path) -> None:
    (tmp_path / "0000000002.spare").write_bytes(bytes(FILE_BYTES))
    with pytest.raises(WalCorrupt, match="it is unknown which log this is"):
        recover(tmp_path)


def test_a_log_that_cannot_be_opened_leaves_no_lock(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "0000000002.spare").mkdir()
        for _ in range(2):
            with pytest.raises(WalCorrupt):
                Wal(tmp_path, asyncio.get_running_loop(), fail, FILE_BYTES)
        (tmp_path / "0000000002.spare").rmdir()
        recover(tmp_path)
        (tmp_path / "0000000002.spare").mkdir()
        for _ in range(2):
            with pytest.raises(IsADirectoryError):
                Wal(tmp_path, asyncio.get_running_loop(), fail, FILE_BYTES)

    asyncio.run(scenario())


@pytest.mark.parametrize("file_bytes", [4 * PAGE_BYTES, 3 * PAGE_BYTES + 50])
@pytest.mark.parametrize(
    "size", [1, PAGE_BYTES - FILE_HEADER_BYTES, PAGE_BYTES, 2 * PAGE_BYTES - 2 * FILE_HEADER_BYTES]
)
def test_every_write_is_of_whole_pages_and_the_last_page_is_written_again_with_further_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_bytes: int, size: int
) -> None:
    """The disk takes whole pages where writes bypass the cache."""
    header = FileHeader(7, 1, 0)
    writes: list[tuple[int, bytes]] = []
    writer = WalWriter(SpareFiles(tmp_path, file_bytes).begin, lambda number, size: None)
    pwrite = os.pwrite

    def written(fd: int, data: memoryview, position: int) -> int:
        writes.append((position, bytes(data)))
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwrite", written)
    held = encode_file_header(header)
    for run_header, part in [(header, b"x" * size), (None, b"y" * 30), (None, b"z" * (PAGE_BYTES - 70))]:
        page = len(held) - len(held) % PAGE_BYTES
        writer.write([Run(1, len(held), file_bytes, run_header, [part])])
        held += part
        stop = min(len(held) + -len(held) % PAGE_BYTES, file_bytes)
        assert writes[-1] == (page, held.ljust(stop, b"\0")[page:])
    writer.close()
    assert (tmp_path / "0000000001.wal").read_bytes() == held.ljust(file_bytes, b"\0")


@pytest.mark.parametrize("records", [0, 1])
def test_a_last_file_that_the_identity_does_not_count_is_dropped_unless_it_has_records_of_its_own(
    tmp_path: Path, records: int
) -> None:
    files = a_log_of_two_files(tmp_path / "wal")
    header = FileHeader(MARK, 3, len(files[SECOND]))
    used = encoded(header, Record(ENTRY, 1, 15, 1, 44, 0)) * records
    stale = files[FIRST][FILE_HEADER_BYTES + len(used) :]
    restore(tmp_path / "wal", files | {"0000000003.wal": encode_file_header(header) + used + stale})
    if records:
        with pytest.raises(WalCorrupt, match="the log should end with file 2: its identity is older"):
            remembered(tmp_path / "wal", 400)
    else:
        assert len(remembered(tmp_path / "wal", 400)[1][2]) == 4
        assert contents(tmp_path / "wal").keys() == {FIRST, SECOND}


def test_a_file_of_a_newer_version_that_an_older_identity_does_not_count_is_kept_unless_it_is_empty(
    tmp_path: Path,
) -> None:
    """Where the records of a later version begin, and how, is not known here."""
    files = a_log_of_two_files(tmp_path / "wal")
    header = encode_file_header(FileHeader(MARK, 3, len(files[SECOND]), version=FILE_VERSION + 1))
    written = files | {"0000000003.wal": header + b"fields of a longer header, and records" + bytes(200)}
    restore(tmp_path / "wal", written)
    with pytest.raises(WalCorrupt, match="the log should end with file 2: its identity is older"):
        remembered(tmp_path / "wal", 400)
    assert contents(tmp_path / "wal") == written
    restore(tmp_path / "wal", files | {"0000000003.wal": header + bytes(200)})
    assert len(remembered(tmp_path / "wal", 400)[1][2]) == 4


def test_a_record_that_an_older_file_left_in_the_room_is_not_read_even_under_the_same_marker(tmp_path: Path) -> None:
    old, new = FileHeader(MARK, 1, 0), FileHeader(MARK, 2, FILE_HEADER_BYTES)
    first, second = Record(ENTRY, 1, 1, 1, 44, 0), Record(ENTRY, 1, 2, 1, 44, 0)
    data = encode_file_header(new) + encoded(new, first) + encoded(old, second)
    a_log_of(tmp_path / "wal")
    WalIdentity.read(tmp_path / "wal").grow(2, 0)  # type: ignore[union-attr]
    restore(tmp_path / "wal", contents(tmp_path / "wal") | {SECOND: data})
    assert remembered(tmp_path / "wal", 400)[1][2] == [(1, 1, b"")]


def test_a_file_of_the_version_before_room_was_used_again_is_read(tmp_path: Path) -> None:
    header = FileHeader(MARK, 1, 0, version=1)
    record = encoded(header, Record(ENTRY, 1, 1, 1, 44, 3), b"old")
    (tmp_path / "wal").mkdir()
    recover(tmp_path / "wal").identity.grow(1, 0)
    restore(tmp_path / "wal", {FIRST: encode_file_header(header) + record})
    assert remembered(tmp_path / "wal", 400)[1][2] == [(1, 1, b"old")]
    assert header.seed == 0
