"""The write-ahead log's files: lock, creation, appending, reading. Which records there are is not its concern."""

import fcntl
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..partition.switches import has_defect
from .wal_records import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    FileHeader,
    Location,
    WalCorrupt,
    WalLocked,
    decode_file_header,
    decode_record,
    encode_file_header,
    parts_of,
)
from .wal_tail import Run

_NEVER_SYNCS = has_defect("fsync")

READ_FILES_MAX = 16
"""Files kept open for reading."""
PAGE_BYTES = 4096
AHEAD_BYTES = 1 << 20
"""Zeros are written so far ahead of the records."""


def path_of(directory: Path, number: int) -> Path:
    """The file of this number."""
    return directory / f"{number:010d}.wal"


def numbers_in(directory: Path) -> list[int]:
    """The numbers of the files there are, ascending."""
    return sorted(int(path.stem) for path in directory.glob("*.wal") if path.stem.isdecimal())


def remove_before(directory: Path, number: int) -> None:
    """Remove the files before this one. Any of them may stay when the process dies meanwhile."""
    for each in numbers_in(directory):
        if each < number:
            path_of(directory, each).unlink()
    sync_directory(directory)


def sync_directory(directory: Path) -> None:
    """Make the creation and removal of files in ``directory`` durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lock_directory(directory: Path) -> int:
    """Take the exclusive lock of ``directory`` and answer the descriptor that holds it until it is closed.

    Raises WalLocked if somebody else holds it. The kernel lets go of it when the process dies.
    """
    fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode() or "unknown"
        os.close(fd)
        raise WalLocked(
            f"The data folder {directory} is in use by another process (id {holder}), and two nodes must never"
            " write to one log. Stop that process, or give this node a data folder of its own."
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


class Begun(NamedTuple):
    """A file that is about to take records."""

    fd: int
    written_end: int
    """Up to where its blocks have been written, not only reserved, and synced."""


def create_file(path: Path, file_bytes: int, header: FileHeader) -> Begun:
    """Create a file of ``file_bytes``, zeros after its header; durable before anything else is written to it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        written_end = prepare(fd, file_bytes, header)
        sync_directory(path.parent)
    except BaseException:
        os.close(fd)
        raise
    return Begun(fd, written_end)


def prepare(fd: int, file_bytes: int, header: FileHeader) -> int:
    """Reserve all blocks of a file, so that a full disk shows here, and have its header on disk.

    The header is written with the rest of its page, so that what that held need not be readable. Answers where the page
    ends.
    """
    os.posix_fallocate(fd, 0, file_bytes)
    end = min(PAGE_BYTES, file_bytes)
    write_all(fd, [encode_file_header(header).ljust(end, b"\0")], 0)
    os.fsync(fd)
    return end


def padded(run: Run) -> list[bytes]:
    """The bytes of a run up to the end of a page, or of the file, with zeros, which the next run writes over.

    A page that is written in part would first be read from the disk when it holds something and is not in memory.
    """
    end = run.start + sum(map(len, run.parts))
    return [*run.parts, bytes(min(-end % PAGE_BYTES, run.file_bytes - end))]


def write_all(fd: int, parts: Sequence[bytes], position: int) -> None:
    """Write all the bytes at ``position``, however many calls it takes."""
    rest = memoryview(b"".join(parts))
    while rest:
        written = os.pwrite(fd, rest, position)
        rest = rest[written:]
        position += written


def first_unwritten(fd: int) -> int:
    """Where the first block lies that was reserved and never written, or is a hole; else the end of the file.

    Of what is in memory the kernel says that it was written: so the file must be synced, and goes from there.
    """
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return os.lseek(fd, 0, os.SEEK_HOLE)


class WalWriter:
    """Writes runs and makes them durable. Used by one thread at a time.

    Records are only written over blocks that were written before, and synced. Otherwise an fdatasync has metadata to
    write, too, which is slower; and ext4 then answers success, once, for records that are lost if its journal is
    aborted meanwhile, by an error of the disk or a shutdown (seen with Linux 6.18, in one shutdown of 15).
    """

    def __init__(self, begin: Callable[[int, FileHeader], Begun], begun: Callable[[int, int], None]) -> None:
        """``begin`` makes a file of a size. ``begun`` is called with its number and size before anything is written."""
        self._begin = begin
        self._begun = begun
        self._fd: int | None = None
        self._written_end = 0

    def write(self, runs: Sequence[Run]) -> None:
        """Returns when every run is on disk. After an OSError nothing may be written any more.

        An fdatasync that failed must not be repeated: the kernel may have dropped the pages it could not write, and
        the second call would report success.
        """
        for run in runs:
            if run.header is not None:
                self._begin_file(run.number, run.file_bytes, run.header)
            assert self._fd is not None, "the first run of a session creates a file"
            data = b"".join(padded(run))
            self._write_ahead(self._fd, run.start + len(data))
            write_all(self._fd, [data], run.start)
            _sync(self._fd)

    def close(self) -> None:
        """Let go of the current file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _begin_file(self, number: int, file_bytes: int, header: FileHeader) -> None:
        if self._fd is not None:  # a spare, one day, in which nobody looks for what was not written
            self._write_ahead(self._fd, os.fstat(self._fd).st_size)
        self.close()
        self._fd, self._written_end = self._begin(file_bytes, header)
        self._begun(number, file_bytes)

    def _write_ahead(self, fd: int, end: int) -> None:
        """Have every block up to ``end`` written, and durable; and AHEAD_BYTES at once, as far as the file goes."""
        if end > self._written_end:
            stop = min(os.fstat(fd).st_size, max(end, self._written_end + AHEAD_BYTES))
            write_all(fd, [bytes(stop - self._written_end)], self._written_end)
            _sync(fd)
            self._written_end = stop


def _sync(fd: int) -> None:
    if not _NEVER_SYNCS:
        os.fdatasync(fd)


class WalReader:
    """Reads payloads back from the files; keeps the READ_FILES_MAX last used ones open."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: OrderedDict[int, tuple[int, FileHeader]] = OrderedDict()

    def read(self, location: Location) -> bytes:
        """The payload at ``location``. Raises WalCorrupt if it is not there intact."""
        number, position, length = parts_of(location)
        fd, header = self._file(number)
        data = os.pread(fd, RECORD_HEADER_BYTES + length, position)
        record = decode_record(memoryview(data), 0, header)
        if record is None or record.length != length:
            raise WalCorrupt(path_of(self._directory, number), position, "a record read back is damaged")
        return data[RECORD_HEADER_BYTES:]

    def forget_before(self, number: int) -> None:
        """Let go of the files before this one: they are removed."""
        for each in [each for each in self._open if each < number]:
            os.close(self._open.pop(each)[0])

    def close(self) -> None:
        """Let go of all files."""
        while self._open:
            self._close_oldest()

    def _file(self, number: int) -> tuple[int, FileHeader]:
        """Descriptor and header of a file."""
        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number]
        path = path_of(self._directory, number)
        fd = os.open(path, os.O_RDONLY)
        header = decode_file_header(os.pread(fd, FILE_HEADER_BYTES, 0))
        if header is None:
            os.close(fd)
            raise WalCorrupt(path, 0, "the header of a file read back is damaged")
        self._open[number] = fd, header
        if len(self._open) > READ_FILES_MAX:
            self._close_oldest()
        return fd, header

    def _close_oldest(self) -> None:
        _, (fd, _) = self._open.popitem(last=False)
        os.close(fd)
