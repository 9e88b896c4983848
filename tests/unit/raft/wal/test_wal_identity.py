"""The identity of a log names its disk and its files, so that a lost file never passes for one that never existed."""

import asyncio
import struct
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from stockade.partition.log.fsutil import write_durably
from stockade.partition.records.checksum import crc32
from stockade.raft.host import check_level
from stockade.raft.messages import Software
from stockade.raft.wal import file_set
from stockade.raft.wal.errors import DiskRefused, NewerDisk, WalCorrupt
from stockade.raft.wal.file_set import WalIdentity
from stockade.raft.wal.records import FILE_HEADER_BYTES
from stockade.raft.wal.wal import Wal


def fail(error: BaseException) -> None:
    raise AssertionError("the log failed") from error


def incarnation_of(directory: Path, *, write: bool = False) -> int:
    async def scenario() -> int:
        wal = Wal(directory, asyncio.get_running_loop(), fail, file_bytes=4096)
        if write:
            wal.save_vote(1, 1, "n1")
        await wal.close()
        return wal.incarnation

    return asyncio.run(scenario())


def test_a_disk_keeps_its_incarnation_and_another_one_has_another(tmp_path: Path) -> None:
    first = incarnation_of(tmp_path / "one")
    assert incarnation_of(tmp_path / "one", write=True) == incarnation_of(tmp_path / "one") == first
    assert incarnation_of(tmp_path / "two") != first
    assert 0 < first < 1 << 63


def test_log_files_without_an_identity_are_refused(tmp_path: Path) -> None:
    incarnation_of(tmp_path, write=True)
    (tmp_path / "identity").unlink()
    with pytest.raises(WalCorrupt, match=r"identity: position 0: the file is missing.*`stockade rebuild --data DIR`"):
        incarnation_of(tmp_path)


def test_an_identity_without_the_files_it_names_is_refused(tmp_path: Path) -> None:
    incarnation_of(tmp_path, write=True)
    (tmp_path / "0000000001.wal").unlink()
    with pytest.raises(WalCorrupt, match=r"0000000001\.wal: position 0: the file is missing"):
        incarnation_of(tmp_path)


def test_an_identity_is_enough_for_a_log_that_never_held_anything(tmp_path: Path) -> None:
    assert incarnation_of(tmp_path) == incarnation_of(tmp_path)


@pytest.mark.parametrize("bit", [3, 70, 100, 170, 230, 300])
def test_a_flipped_bit_in_the_identity_is_refused(tmp_path: Path, bit: int) -> None:
    incarnation_of(tmp_path, write=True)
    content = bytearray((tmp_path / "identity").read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    (tmp_path / "identity").write_bytes(content)
    with pytest.raises(DiskRefused, match="checksum does not match"):
        incarnation_of(tmp_path)


def test_a_cut_identity_is_refused(tmp_path: Path) -> None:
    incarnation_of(tmp_path)
    (tmp_path / "identity").write_bytes((tmp_path / "identity").read_bytes()[:-1])
    with pytest.raises(DiskRefused, match="it holds 55 bytes in place of 56"):
        incarnation_of(tmp_path)


def test_the_scratch_file_of_an_identity_is_ignored(tmp_path: Path) -> None:
    first = incarnation_of(tmp_path)
    (tmp_path / "identity.new").write_bytes(b"half")
    assert incarnation_of(tmp_path) == first


def level_of(directory: Path, level: int = 0) -> int:
    async def scenario() -> int:
        wal = Wal(directory, asyncio.get_running_loop(), fail, file_bytes=4096)
        await wal.raise_level(level)
        wal.save_vote(1, 1, "n1")
        await wal.close()
        return wal.level

    return asyncio.run(scenario())


IDENTITY_OF_1 = struct.Struct("<8sIQQQQQI")
"""As software that knows level 1 alone reads it: nothing else has its version, and its length."""


def test_the_feature_level_on_disk_only_grows(tmp_path: Path) -> None:
    assert level_of(tmp_path) == 1
    assert [level_of(tmp_path, level) for level in (2, 0, 1, 3, 2)] == [2, 2, 2, 3, 3]


def refuse(path: Path, content: bytes) -> None:
    raise OSError("the disk is full")


def test_a_level_counts_only_when_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = WalIdentity(tmp_path / "identity", 7, 1, 0)
    levels: list[int] = []

    def write(path: Path, content: bytes) -> None:
        levels.append(identity.level)
        write_durably(path, content)

    monkeypatch.setattr(file_set, "write_durably", write)
    identity.raise_level(2)
    assert (levels, identity.level) == ([1], 2)
    monkeypatch.setattr(file_set, "write_durably", refuse)
    with pytest.raises(OSError, match="full"):
        identity.raise_level(3)
    assert identity.level == 2


def test_a_cancelled_raise_of_the_level_waits_until_the_identity_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread wrote on after the log was closed: the identity of the node's next process, which had begun further
    files, could have been replaced by this one, without these files.
    """
    is_writing, may_write = threading.Event(), threading.Event()

    def write(path: Path, content: bytes) -> None:
        is_writing.set()
        assert may_write.wait(10)
        write_durably(path, content)

    async def scenario() -> None:
        wal = Wal(tmp_path, asyncio.get_running_loop(), fail, file_bytes=4096)
        monkeypatch.setattr(file_set, "write_durably", write)
        raising = asyncio.create_task(wal.raise_level(2))
        assert await asyncio.to_thread(is_writing.wait, 10)
        raising.cancel()
        await asyncio.wait([raising], timeout=0.05)
        assert not raising.done()
        may_write.set()
        with pytest.raises(asyncio.CancelledError):
            await raising
        await wal.close()
        identity = WalIdentity.read(tmp_path)
        assert identity is not None
        assert identity.level == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("change", ["shrink", "grow", "raise_level"])
def test_changes_of_two_threads_are_both_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """The flush thread begins a file while another thread removes older ones. Written at the same time, through one
    scratch file, the older content could come last: then the next start would miss a file that is gone, or refuse one
    that it did not know.
    """
    identity = WalIdentity(tmp_path / "identity", 7, 1, 3)
    is_writing, may_write = threading.Event(), threading.Event()

    def write(path: Path, content: bytes) -> None:
        is_first = not is_writing.is_set()
        is_writing.set()
        if is_first:
            may_write.wait(10)
        write_durably(path, content)
        may_write.set()

    monkeypatch.setattr(file_set, "write_durably", write)
    changes = {
        "shrink": lambda: identity.shrink(2),
        "grow": lambda: identity.grow(4, 4096),
        "raise_level": lambda: identity.raise_level(2),
    }
    with ThreadPoolExecutor() as threads:
        done = [threads.submit(changes.pop(change))]
        assert is_writing.wait(10)
        done += [threads.submit(each) for each in changes.values()]
        assert not wait(done, 0.2).done, "they wait for the write that is under way"
        may_write.set()
        for each in done:
            each.result(10)
    found = WalIdentity.read(tmp_path)
    assert found is not None
    assert (found.first, found.last, found.last_bytes, found.level) == (2, 4, 4096, 2)


def test_older_software_reads_a_disk_of_level_1_and_refuses_any_other_by_its_version(tmp_path: Path) -> None:
    level_of(tmp_path)
    content = (tmp_path / "identity").read_bytes()
    magic, version, incarnation, first, last, *_, crc = IDENTITY_OF_1.unpack(content)
    assert (magic, version, first, last, crc) == (b"STOCKDID", 1, 1, 1, crc32(content[:-4]))
    assert incarnation == incarnation_of(tmp_path)
    level_of(tmp_path, 2)
    assert IDENTITY_OF_1.unpack((tmp_path / "identity").read_bytes())[1] == 2


def test_a_disk_whose_level_the_software_does_not_support_is_refused_before_anything_else_is_read(
    tmp_path: Path,
) -> None:
    check_level(tmp_path, Software("", 1, 1))  # nothing is there
    level_of(tmp_path / "wal", 2)
    check_level(tmp_path, Software("", 1, 2))
    with pytest.raises(NewerDisk, match=r"newer software wrote it \(feature level 2; this software knows 1\)"):
        check_level(tmp_path, Software("", 1, 1))
    with pytest.raises(DiskRefused, match=r"needs 3 at least. Upgrade through the releases between"):
        check_level(tmp_path, Software("", 3, 4))


def test_a_file_of_the_log_of_newer_software_is_refused_as_such(tmp_path: Path) -> None:
    incarnation_of(tmp_path, write=True)
    with (tmp_path / "0000000001.wal").open("r+b") as file:
        fields = bytearray(file.read(FILE_HEADER_BYTES)[:-4])
        struct.pack_into("<I", fields, 8, 9)
        file.seek(0)
        file.write(fields + struct.pack("<I", crc32(bytes(fields))))
    with pytest.raises(NewerDisk, match=r"0000000001\.wal: newer software wrote it \(version 9; this software knows 2"):
        incarnation_of(tmp_path)
