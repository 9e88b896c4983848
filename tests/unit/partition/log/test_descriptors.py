"""A process without a descriptor left opens the files of its log with those that it has held back."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stockade.partition.log.fsutil import _kept, keep_descriptors, open_file, sync_directory, write_durably


def open_descriptors() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]


@contextmanager
def no_descriptor_left(kept: int) -> Iterator[Callable[[], None]]:
    """All descriptors of this process are in use, but for those that are held back. Yields a call that uses up what
    came free since, as connections do.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    keep_descriptors(kept)
    held: list[int] = []

    def use_up() -> None:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))

    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()) + 8, hard))
        use_up()
        yield use_up
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in held:
            os.close(each)
        keep_descriptors(0)


def test_a_process_without_free_descriptors_opens_as_many_files_as_it_holds_descriptors_back(tmp_path: Path) -> None:
    opened: list[int] = []
    with no_descriptor_left(3):
        opened += [open_file(tmp_path / f"{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL) for number in range(3)]
        with pytest.raises(OSError, match="Too many open files") as refused:
            open_file(tmp_path / "3", os.O_WRONLY | os.O_CREAT)
        assert refused.value.errno == errno.EMFILE
        for each in opened:
            os.close(each)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]  # a refused open creates nothing


def test_files_that_are_opened_for_a_moment_need_one_descriptor_however_often(tmp_path: Path) -> None:
    with no_descriptor_left(1):
        for number in range(100):
            write_durably(tmp_path / "identity", b"%d" % number)
            sync_directory(tmp_path)
    assert (tmp_path / "identity").read_bytes() == b"99"


def test_a_used_descriptor_of_the_reserve_is_replaced_once_one_is_free(tmp_path: Path) -> None:
    with no_descriptor_left(2):
        used = [open_file(tmp_path / f"{number}", os.O_WRONLY | os.O_CREAT) for number in range(2)]
        assert len(_kept) == 0
        for each in used:
            os.close(each)
        os.close(open_file(tmp_path / "0", os.O_RDONLY))
        sync_directory(tmp_path)
        assert len(_kept) >= 1


@pytest.mark.parametrize(("number", "is_helped"), [(errno.ENFILE, True), (errno.EIO, False), (errno.ENOSPC, False)])
def test_a_broken_or_full_disk_is_no_lack_of_descriptors(
    tmp_path: Path, number: int, is_helped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_descriptors(2)
    opened, faults = os.open, [OSError(number, "refused")]

    def refusing(path: Path | str, flags: int, mode: int = 0o777) -> int:
        if faults and path != os.devnull:
            raise faults.pop()
        return opened(path, flags, mode)

    def attempt() -> int:
        return open_file(tmp_path / "a", os.O_WRONLY | os.O_CREAT)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing)
        if is_helped:
            os.close(attempt())
        else:
            with pytest.raises(OSError, match="refused"):
                attempt()
    keep_descriptors(0)
