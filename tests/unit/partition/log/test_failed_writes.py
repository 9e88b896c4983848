"""A segment of which a write failed: nothing is added to it, read from it or captured any more."""

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from stockade.partition.log import segments
from stockade.partition.log.fsutil import sync, why_refused, write_all, write_all_at
from stockade.partition.log.segment_files import Writers, early_sync
from stockade.partition.log.segments import SegmentLog

from .test_segments import begun, command


@pytest.fixture
def log(tmp_path: Path) -> SegmentLog:
    return begun(tmp_path / "log", 1 << 20)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("ask", ["read", "tail", "find_timestamp", "greatest_timestamp", "flush", "settle", "capture"])
def test_a_write_that_fails_ends_the_log_whatever_asked_for_it(
    log: SegmentLog, monkeypatch: pytest.MonkeyPatch, ask: str, number: int
) -> None:
    """A read met the error, answered 500, and the next batches were written where that one belonged."""
    told: list[OSError] = []
    log.on_torn = told.append
    monkeypatch.setattr(segments, "UNWRITTEN_REST_BYTES_MAX", 0)
    asks: dict[str, Callable[[], object]] = {
        "read": lambda: log.read(0, 1),
        "tail": lambda: log.tail(1),
        "find_timestamp": lambda: log.find_timestamp(1),
        "greatest_timestamp": log.greatest_timestamp,
        "flush": log.flush,
        "settle": log.settle,
        "capture": lambda: log.capture(b""),
    }
    log.append(command([1]), 0)

    def fails(descriptor: int, pieces: list[bytes]) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as faulty:
        faulty.setattr(segments, "write_all", fails)
        with pytest.raises(OSError, match=os.strerror(number)):
            asks[ask]()
    assert [error.errno for error in told] == [number]
    for refused in (lambda: log.append(command([2]), 0), *(asks[each] for each in asks if each != "settle")):
        with pytest.raises(OSError, match="a write to a segment failed before"):
            refused()
    assert len(told) == 1
    log.close()


def test_the_error_of_a_write_and_of_a_sync_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line of a node whose disk had become read-only said no more than that."""
    path = tmp_path / "segment"

    def fails(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for function in ("writev", "pwrite", "fsync", "fdatasync"):
        monkeypatch.setattr(os, function, fails)
    with path.open("wb") as file:
        number = file.fileno()
        early = early_sync(Writers(number, number))
        assert early is not None
        writes = partial(write_all, number, [b"a"]), partial(write_all_at, number, b"a", 0)
        for call in (*writes, partial(sync, number), early):
            with pytest.raises(OSError, match="Read-only") as caught:
                call()
            assert why_refused(caught.value) == (
                f"{path}: Read-only file system. Look at the disk and the kernel's log before you start the node again"
            )


@pytest.mark.parametrize(
    ("files", "free_files", "free_blocks", "lacks_inodes"),
    [(10, 0, 5, True), (10, 3, 5, False), (10, 0, 0, False), (0, 0, 5, False)],
)
def test_a_lack_of_inodes_is_told_where_it_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, free_files: int, free_blocks: int, lacks_inodes: bool
) -> None:
    """A full XFS has no inode either, and Btrfs counts none."""
    found = SimpleNamespace(f_files=files, f_favail=free_files, f_bavail=free_blocks)
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    path = str(tmp_path / "gone" / "identity.new")
    told = why_refused(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path))
    assert told.startswith(f"{path}: No space left on device")
    assert ("no inode left" in told) is lacks_inodes
    assert why_refused(TimeoutError()) == "TimeoutError()"


def test_a_log_that_is_restored_in_another_directory_is_whole_again(
    log: SegmentLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(command([1]), 0)
    with monkeypatch.context() as faulty:
        faulty.setattr(segments, "write_all", lambda *_: os.write(-1, b""))
        with pytest.raises(OSError, match="Bad file descriptor"):
            log.flush()
    (tmp_path / "other").mkdir()
    log.begin(tmp_path / "other")
    log.append(command([1]), 0)
    assert log.read(0, 1).next_offset == 1
