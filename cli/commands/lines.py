"""The lines of files: a thread reads blocks (BlockReader), which are cut into lines (LineCutter) and gathered into
batches (Gatherer).

The record of a line is its bytes without the LF. A CR is part of the line; a last line without LF counts; if no bytes
follow the last LF, there is no further line.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from io import FileIO, UnsupportedOperation
from typing import BinaryIO

BLOCK_BYTES = 1 << 20
"""Bytes read at a time."""
BLOCKS_AHEAD_MAX = 4
"""Blocks that the thread reads ahead, at most."""


class LineCutter:
    """Cuts the blocks of one file into lines."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that end in this block."""
        first, *others = block.split(b"\n")
        self._rest.append(first)
        if not others:
            return []
        lines = [b"".join(self._rest), *others]
        self._rest = [lines.pop()]
        return lines

    def end(self) -> list[bytes]:
        """The last line if it has no LF, as a list of one; else an empty list."""
        rest, self._rest = b"".join(self._rest), []
        return [rest] if rest else []


class Gatherer:
    """Gathers lines into batches of at most ``records_max`` lines and ``bytes_max`` bytes; a longer line is a batch
    alone.

    Each line counts as its bytes + ``overhead_bytes``.
    """

    def __init__(self, records_max: int, bytes_max: int, overhead_bytes: int) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._overhead_bytes = overhead_bytes
        self._lines: list[bytes] = []
        self._bytes = 0

    def add(self, lines: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Take lines; yield the batches that are full."""
        for line in lines:
            size = len(line) + self._overhead_bytes
            if self._lines and (len(self._lines) >= self._records_max or self._bytes + size > self._bytes_max):
                yield self.take()
            self._lines.append(line)
            self._bytes += size

    def take(self) -> list[bytes]:
        """The lines gathered so far, which may be none."""
        lines, self._lines, self._bytes = self._lines, [], 0
        return lines


class BlockReader:
    """Reads a file on a thread of its own, some blocks ahead, so that a slow pipe does not block the event loop.

    The thread is a daemon, because a read from a terminal cannot be interrupted. It reads a duplicate of the file's
    descriptor, which no other code closes, and not the file object: a daemon thread that holds the object's lock would
    make the interpreter abort at its exit.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._given = file
        self._loop = asyncio.get_running_loop()
        self._blocks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(BLOCKS_AHEAD_MAX)
        threading.Thread(target=self._read_all, args=(_duplicate(file),), daemon=True).start()

    @property
    def is_waiting(self) -> bool:
        """Whether the next block has not been read yet."""
        return self._blocks.empty()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields the blocks until the end of the file. Raises OSError."""
        while block := await self._blocks.get():
            if isinstance(block, OSError):
                raise block
            self._room.release()
            yield block

    def _read_all(self, file: BinaryIO) -> None:
        with suppress(RuntimeError):  # the event loop is closed: the blocks are not wanted any more
            try:
                while block := self._next(file):
                    self._loop.call_soon_threadsafe(self._blocks.put_nowait, block)
            except OSError as error:
                self._loop.call_soon_threadsafe(self._blocks.put_nowait, error)
            else:
                self._loop.call_soon_threadsafe(self._blocks.put_nowait, b"")
            finally:
                if file is not self._given:
                    file.close()

    def _next(self, file: BinaryIO) -> bytes:
        self._room.acquire()
        return file.read(BLOCK_BYTES)


def _duplicate(file: BinaryIO) -> BinaryIO:
    """The file on a duplicate of its descriptor, without a buffer: a read returns the bytes that have arrived. The file
    itself if it has no descriptor.
    """
    try:
        descriptor = os.dup(file.fileno())
    except (AttributeError, UnsupportedOperation):
        return file
    return FileIO(descriptor, "rb")
