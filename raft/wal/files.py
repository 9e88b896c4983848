"""The write-ahead log's files: lock, creation, reading. This module knows the records' bytes, not their meaning.

Writes bypass the kernel's page cache (O_DIRECT): the log is read only after a start, and for a follower that lags. With
the cache, the kernel would allocate each page, copy to it and write it back: a third of the processor time of three
nodes under full load. On a file system without direct writes, the same writes go through its cache.
"""

import errno
import fcntl
import os
from collections import OrderedDict
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import NamedTuple

from ...partition.log.fsutil import name_file, names_in, open_file, sync, sync_directory, write_all_at
from ...partition.log.space import with_space
from .errors import WalCorrupt, WalLocked
from .records import (
    FILE_HEADER_BYTES,
    PAGE_BYTES,
    RECORD_HEADER_BYTES,
    FileHeader,
    Location,
    decode_file_header,
    decode_record,
    encode_file_header,
    parts_of,
)

READ_FILES_MAX = 16
"""Most files that are kept open for reading."""


def path_of(directory: Path, number: int) -> Path:
    """The path of the log's file of this number."""
    return directory / f"{number:010d}.wal"


def numbers_in(directory: Path) -> list[int]:
    """The numbers of the log's files on disk, ascending."""
    stems = [name.removesuffix(".wal") for name in names_in(directory) if name.endswith(".wal")]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def lock_directory(directory: Path) -> int:
    """Take the exclusive lock of ``directory``; returns the descriptor that holds it until it is closed.

    Raises WalLocked if another process holds it. The kernel releases it when the process dies.
    """
    fd = lock_to_read(directory, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 0)
    write_all_at(fd, str(os.getpid()).encode(), 0)
    return fd


def lock_to_read(directory: Path, flags: int = os.O_RDONLY) -> int:
    """Like ``lock_directory``, without a change of the directory or of a file in it. Raises FileNotFoundError if no
    process has ever locked the directory.
    """
    fd = open_file(directory / "lock", flags)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode() or "unknown"
        os.close(fd)
        raise WalLocked(
            f"The data folder {directory} is in use by another process (id {holder}), and two nodes must never"
            " write to one log. Stop that process, or give this node a data folder of its own."
        ) from None
    return fd


class OpenFile(NamedTuple):
    """A file that is about to take records."""

    fd: int
    written_end: int
    """The file's blocks before this position have been written and synced, not only reserved."""


def create_file(path: Path, file_bytes: int, header: FileHeader) -> OpenFile:
    """Create a file of ``file_bytes`` bytes, zeros after its header; it is durable when this returns."""
    fd = open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        written_end = prepare(fd, file_bytes, header)
        sync_directory(path.parent)
    except BaseException:
        os.close(fd)
        raise
    return OpenFile(fd, written_end)


def prepare(fd: int, file_bytes: int, header: FileHeader) -> int:
    """Reserve all blocks of a file, so that a full disk shows here, and write its header durably. Returns the position
    where the header's page ends.

    The header is written with the rest of its page, so that the old content of that page need not be readable. If
    ``file_bytes`` are whole pages, writes to ``fd`` bypass the cache from now on where the file system can do that:
    they must be of whole pages, from memory that begins at a page.
    """
    try:
        with_space(partial(os.posix_fallocate, fd, 0, file_bytes))
    except OSError as error:
        name_file(error, fd)
        raise
    end = min(PAGE_BYTES, file_bytes)
    page = mmap(-1, PAGE_BYTES)
    page.write(encode_file_header(header))
    try:
        if file_bytes % PAGE_BYTES == 0:
            _bypass_cache(fd, True)
        write_all_at(fd, memoryview(page)[:end], 0)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _bypass_cache(fd, False)
        write_all_at(fd, memoryview(page)[:end], 0)
    sync(fd)
    return end


def _bypass_cache(fd: int, wanted: bool) -> None:
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if wanted else flags & ~os.O_DIRECT)


def first_unwritten(fd: int) -> int:
    """The position of the first page that has a block which was only reserved, or is a hole; the end of the file if no
    page has one.

    The kernel reports every block in its page cache as written. So the caller must have synced the file, and its cached
    pages are dropped here first.
    """
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    found = os.lseek(fd, 0, os.SEEK_HOLE)
    return found if found == os.fstat(fd).st_size else found - found % PAGE_BYTES


class WalReader:
    """Reads payloads back from the log's files; the READ_FILES_MAX files used last stay open."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: OrderedDict[int, tuple[int, FileHeader]] = OrderedDict()

    def read(self, location: Location) -> bytes:
        """The payload at ``location``. Raises WalCorrupt if it is damaged, and OSError, which names the file."""
        number, position, length = parts_of(location)
        try:
            fd, header = self._file(number)
            data = os.pread(fd, RECORD_HEADER_BYTES + length, position)
        except OSError as error:
            error.filename = error.filename or str(path_of(self._directory, number))
            raise
        record = decode_record(memoryview(data), 0, header)
        if record is None or record.length != length:
            raise WalCorrupt(path_of(self._directory, number), position, "a record read back is damaged")
        return data[RECORD_HEADER_BYTES:]

    def forget_before(self, number: int) -> None:
        """Close the files before ``number``: they are about to be removed."""
        for each in [each for each in self._open if each < number]:
            os.close(self._open.pop(each)[0])

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._close_oldest()

    def _file(self, number: int) -> tuple[int, FileHeader]:
        """Descriptor and header of the file of this number. Raises WalCorrupt if its header is damaged."""
        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number]
        path = path_of(self._directory, number)
        fd = open_file(path, os.O_RDONLY)
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
