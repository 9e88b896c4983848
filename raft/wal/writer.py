"""The writing and syncing of the write-ahead log, in a thread, one flush at a time."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from mmap import mmap
from threading import Thread
from time import perf_counter

from ...partition.log.fsutil import name_file, write_all_at
from ..histogram import Histogram
from .files import OpenFile
from .records import PAGE_BYTES, FileHeader, Run, encode_file_header

AHEAD_BYTES = 1 << 20
"""Bytes of zeros that the writer writes at a time ahead of the records."""
BUFFER_BYTES = 1 << 20
"""Most bytes of one write."""
JOINED_BYTES_MAX = 64 << 10
"""Parts of at most so many bytes together are joined before they are copied to the buffer: to copy many short parts one
by one costs more than a second copy.
"""
SLOW_SYNC_S = 1.0
"""Time from which on a sync is logged as slow: not much longer, and elections follow."""
LOG_EVERY_S = 10.0
"""Shortest time between two log lines about slow syncs."""

_log = logging.getLogger(__name__)


class WalWriter:
    """Writes runs and makes them durable. Used by one thread at a time.

    Writes bypass the kernel's page cache (files.py), so each is of whole pages, from memory that begins at a page. The
    records in a last page that is not full are written again, unchanged, with the next ones: whether a power cut leaves
    the old or the new content of a sector, it holds them, as it does when the kernel writes its pages back.

    Records are only written over blocks that were written before, and synced. Otherwise an fdatasync has metadata to
    write, too, which is slower; and ext4 then reports success, once, for records that are lost if its journal is
    aborted meanwhile, by an error of the disk or a shutdown (seen with Linux 6.18, in one shutdown of 15).
    """

    def __init__(self, begin: Callable[[int, FileHeader], OpenFile], begun: Callable[[int, int], None]) -> None:
        """``begin`` makes a file of so many bytes; ``begun`` is called with the file's number and bytes before it takes
        a record.
        """
        self.syncs: Histogram = Histogram(SLOW_SYNC_S, self._tell)
        """Seconds of each fdatasync."""
        self.step: tuple[int, int] = 0, 0
        """The number of the thread's present or last step with the disk (a write with its sync, or a new file), and the
        step's bytes. The number grows with each step: by it the loop sees whether the disk still answers.
        """
        self._begin = begin
        self._begun = begun
        self._fd: int | None = None
        self._written_end = 0
        self._page = b""
        """The file's content in its last page, if that is not full."""
        self._buffer = mmap(-1, BUFFER_BYTES)
        self._whole = memoryview(self._buffer)
        self._slow = 0
        self._told_at = float("-inf")

    def write(self, runs: Sequence[Run]) -> None:
        """Write the runs; return when all are on disk. After an OSError nothing may be written any more.

        Each run is filled up with zeros to the end of its page, or of the file; the next run is written over them.

        An fdatasync that failed must not be repeated: the kernel may have dropped the pages that it could not write,
        and the second call would report success.
        """
        for run in runs:
            if run.header is not None:
                self._begin_file(run.number, run.file_bytes, run.header)
            assert self._fd is not None, "the first run of a session creates a file"
            start, end = run.start - len(self._page), run.start + sum(map(len, run.parts))
            filling = bytes(min(-end % PAGE_BYTES, run.file_bytes - end))
            self._write_ahead(self._fd, end + len(filling))
            last = self._write_synced(self._fd, [self._page, *run.parts, filling], start)
            filled = len(last) - len(filling)
            self._page = bytes(last[filled - end % PAGE_BYTES : filled])

    def close(self) -> None:
        """Close the current file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _begin_file(self, number: int, file_bytes: int, header: FileHeader) -> None:
        if self._fd is not None:  # the file may be reused as a spare, which should have no unwritten blocks
            self._write_ahead(self._fd, os.fstat(self._fd).st_size)
        self._step(file_bytes)  # where a file system cannot reserve its blocks, they are written
        self.close()
        self._fd, self._written_end = self._begin(file_bytes, header)
        self._page = encode_file_header(header)
        self._begun(number, file_bytes)

    def _write_ahead(self, fd: int, end: int) -> None:
        """Write zeros to the unwritten blocks up to ``end``, durably: AHEAD_BYTES at a time, within the file."""
        while end > self._written_end:
            size = min(max(end, os.fstat(fd).st_size) - self._written_end, AHEAD_BYTES)
            self._write_synced(fd, [bytes(size)], self._written_end)
            self._written_end += size

    def _write_synced(self, fd: int, parts: Sequence[bytes], start: int) -> memoryview:
        """Write the parts one after the other from ``start`` on, and sync. Returns a view of the bytes of the last
        write, which is valid until the next one.
        """
        size = sum(map(len, parts))
        self._step(size)
        some = memoryview(b"")
        for some in self._filled([b"".join(parts)] if size <= JOINED_BYTES_MAX else parts):
            write_all_at(fd, some, start)
            start += len(some)
        began = perf_counter()
        try:
            os.fdatasync(fd)
        except OSError as error:
            name_file(error, fd)
            raise
        self.syncs.add(perf_counter() - began)
        return some

    def _filled(self, parts: Sequence[bytes]) -> Iterator[memoryview]:
        """Copy the parts to the buffer, and yield a view of it each time that it is full, and at the end."""
        self._buffer.seek(0)
        room = BUFFER_BYTES
        for part in parts:
            rest = memoryview(part)
            while len(rest) > room:
                self._buffer.write(rest[:room])
                yield self._whole
                self._buffer.seek(0)
                rest, room = rest[room:], BUFFER_BYTES
            room -= self._buffer.write(rest)
        yield self._whole[: BUFFER_BYTES - room]

    def _step(self, size: int) -> None:
        self.step = self.step[0] + 1, size

    def _tell(self, took_s: float) -> None:
        """Log a slow sync, at most once in LOG_EVERY_S."""
        self._slow += 1
        now = perf_counter()
        if now >= self._told_at + LOG_EVERY_S:
            event = {"event": "slow_disk", "seconds": round(took_s, 3), "slow_syncs": self._slow}
            text = "the disk of the log is slow: a sync took %.1f s (%d took %.0f s or more since the last such line)"
            _log.warning(text, took_s, self._slow, SLOW_SYNC_S, extra={"event": event})
            self._told_at, self._slow = now, 0


Flushed = Callable[[BaseException | None], None]
"""Called on the loop when a flush has ended, with the error if there was one."""


class FlushThread:
    """The thread that writes, one flush at a time. The loop wakes it for a flush through an eventfd: the queues and
    locks of an executor, for which both threads wait, take several system calls more.
    """

    def __init__(self, write: Callable[[Sequence[Run]], None], loop: asyncio.AbstractEventLoop) -> None:
        self.write: Callable[[Sequence[Run]], None] = write
        self._loop = loop
        self._job: tuple[Sequence[Run], Flushed] | None = None
        self._wake = os.eventfd(0)
        self._thread: Thread | None = None

    def begin(self, runs: Sequence[Run], flushed: Flushed) -> None:
        """Begin a flush, after the one before has ended; ``flushed`` is called on the loop at its end."""
        if self._thread is None:  # daemon: a process may end without ``close``, as it may be killed
            self._thread = Thread(target=self._run, name="wal", daemon=True)
            self._thread.start()
        self._job = runs, flushed
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """End the thread. No flush may be under way."""
        if self._thread is not None:
            os.eventfd_write(self._wake, 1)
            self._thread.join()
        os.close(self._wake)

    def _run(self) -> None:
        while self._flush_next():
            pass

    def _flush_next(self) -> bool:
        """Wait for a flush and do it; False when the thread is to end."""
        os.read(self._wake, 8)  # os.eventfd_read raises InterruptedError where a signal comes to this thread
        job, self._job = self._job, None
        if job is None:
            return False
        runs, flushed = job
        error: BaseException | None = None
        try:
            self.write(runs)
        except BaseException as caught:
            error = caught
        with suppress(RuntimeError):  # the loop is closed: no one waits any more
            self._loop.call_soon_threadsafe(flushed, error)
        return True
