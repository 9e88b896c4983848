"""A full disk stops nothing as long as there is room held back for it, and a broken one is not taken for a full one."""

import errno
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from disks import MIB, fill, needs_root, small_disk

from stockade.partition.log.fsutil import make_directory, open_file, write_all, write_all_at, write_durably
from stockade.partition.log.space import Reserve, with_space


@contextmanager
def held(disk: Path, size: int = 2 * MIB) -> Iterator[Reserve]:
    reserve = Reserve(disk / "reserve", size)
    assert reserve.hold()
    try:
        yield reserve
    finally:
        reserve.close()


@needs_root
def test_on_a_full_disk_files_and_folders_are_made_and_written_with_the_room_held_back(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16 * MIB) as disk, held(disk) as reserve:
        fill(disk)
        assert reserve.is_held
        fd = open_file(disk / "segment", os.O_WRONLY | os.O_CREAT)
        write_all(fd, [b"a" * 100_000, b"b" * 100_000])
        write_all_at(fd, b"c" * 100_000, 200_000)
        os.fsync(fd)
        os.close(fd)
        assert not reserve.is_held
        make_directory(disk / "some" / "folders")
        write_durably(disk / "some" / "folders" / "identity", b"who")
        written = (disk / "segment").read_bytes()
        assert (written[:100_000], written[100_000:200_000], written[200_000:]) == (
            b"a" * 100_000,
            b"b" * 100_000,
            b"c" * 100_000,
        )


@needs_root
def test_room_that_an_earlier_process_held_back_is_held_again_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        with held(disk):
            pass
        fill(disk)
        with held(disk) as reserve:
            assert reserve.has_blocks
            write_durably(disk / "identity", bytes(100_000))
            assert (reserve.is_held, reserve.has_blocks) == (False, False)


@needs_root
def test_without_room_held_back_a_full_disk_is_an_error(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        fill(disk)
        with pytest.raises(OSError, match="No space left") as refused:
            write_durably(disk / "identity", bytes(100_000))
        assert refused.value.errno == errno.ENOSPC


@needs_root
def test_room_is_held_again_when_there_is_some(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16 * MIB) as disk, held(disk) as reserve:
        ballast = fill(disk)
        write_durably(disk / "identity", bytes(MIB))
        assert not reserve.hold()
        assert (disk / "reserve").stat().st_blocks == 0  # what did not suffice is given back
        ballast.unlink()
        assert reserve.hold()
        assert reserve.hold()  # once is enough
        assert (disk / "reserve").stat().st_blocks * 512 >= 2 * MIB


def test_a_smaller_reserve_gives_the_rest_back_and_none_holds_nothing(tmp_path: Path) -> None:
    with held(tmp_path, 2 * MIB):
        pass
    with held(tmp_path, MIB):
        assert (tmp_path / "reserve").stat().st_size == MIB
    none = Reserve(tmp_path / "none", 0)
    assert not none.hold()
    none.close()


@pytest.mark.parametrize(
    ("number", "is_helped"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False), (errno.EROFS, False)]
)
def test_only_the_error_of_a_full_disk_uses_the_reserve(tmp_path: Path, number: int, is_helped: bool) -> None:
    attempts: list[int] = []

    def write() -> str:
        attempts.append(number)
        if len(attempts) == 1:
            raise OSError(number, "refused")
        return "written"

    with held(tmp_path, 4096) as reserve:
        if is_helped:
            assert with_space(write) == "written"
        else:
            with pytest.raises(OSError, match="refused"):
                with_space(write)
        assert (len(attempts), reserve.is_held) == ((2, False) if is_helped else (1, True))


def test_a_disk_that_stays_full_is_an_error_after_all_that_is_held_back(tmp_path: Path) -> None:
    attempts = []

    def write() -> None:
        attempts.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    with held(tmp_path, 4096), pytest.raises(OSError, match="No space left"):
        with_space(write)
    assert len(attempts) == 2


def test_an_error_that_no_room_helps_against_leaves_the_memory_when_it_was_handled() -> None:
    """In a circle, it would keep what it came through until the garbage collector looks: machines, logs, groups."""

    class Missing(FileNotFoundError):
        pass

    def refuse() -> None:
        raise Missing(errno.ENOENT, "no such file")

    gc.disable()
    try:
        with suppress(Missing):
            with_space(refuse)
        assert [each for each in gc.get_objects() if isinstance(each, Missing)] == []
    finally:
        gc.enable()
