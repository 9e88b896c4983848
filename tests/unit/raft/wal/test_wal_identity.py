"""The identity of a log names its disk and its files, so that a lost file never passes for one that never existed."""

import asyncio
from pathlib import Path

import pytest

from stockade.raft.wal.errors import DiskRefused, WalCorrupt
from stockade.raft.wal.wal import Wal


def fail(error: BaseException) -> None:
    raise AssertionError("the log failed") from error


def incarnation_of(directory: Path, *, write: bool = False) -> int:
    async def scenario() -> int:
        wal = Wal.open(directory, asyncio.get_running_loop(), fail, file_bytes=4096)
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


def test_what_a_crash_left_of_a_new_identity_is_no_identity(tmp_path: Path) -> None:
    first = incarnation_of(tmp_path)
    (tmp_path / "identity.new").write_bytes(b"half")
    assert incarnation_of(tmp_path) == first
