"""The log of one partition on disk: segment files and their indexes. The only IO of this folder.

A segment ``00000000000000000000.arrow``, named by its first offset, is an Arrow IPC stream: the schema, then
messages. Beside it the ``.index`` has one fixed-size entry a batch (index.py). Nothing is synced here: the
node's write-ahead log is the durable thing, and the group applies it from the start after a restart, so
opening a log *empties its directory*. An OSError of a write leaves a torn file; it propagates, and the node
stops.
"""

import os
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from .commands import Append, Offset
from .errors import OffsetOutOfRange
from .index import SegmentIndex
from .log import Run, Slice, StoredBatch
from .records import STREAM_START, first_row_since

__all__ = ["SEGMENT_BYTES_MAX", "SegmentLog", "Slice", "StoredBatch"]

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
"""Size in bytes beyond which a segment does not grow, unless its only batch is larger."""

_FILES = "[0-9]" * 20
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class SegmentLog:
    """Implements ``log.Log``. Holds two open files at most, none before the first append.

    ``log_start`` is 0: nothing is trimmed yet.
    """

    log_start: Offset = 0

    def __init__(self, directory: Path, segment_bytes_max: int = SEGMENT_BYTES_MAX) -> None:
        self._directory = directory
        self._segment_bytes_max = segment_bytes_max
        self._segments: list[SegmentIndex] = []
        self._files: tuple[int, int] | None = None  # of the last segment: data, index
        directory.mkdir(parents=True, exist_ok=True)
        self._unlink()

    @property
    def log_end(self) -> Offset:
        """The next offset to be given."""
        return self._segments[-1].next_offset if self._segments else 0

    def append(self, command: Append, writer_epoch: int) -> Offset:
        """Store the batch at log_end; answers its base offset."""
        segment = self._segments[-1] if self._segments else None
        if segment is None or (len(segment) and segment.size + len(command.message) > self._segment_bytes_max):
            segment = self._roll()
        assert self._files is not None
        data, index = self._files
        base_offset = segment.next_offset
        _write(data, command.message)
        _write(index, segment.add(command, writer_epoch))
        return base_offset

    def read(self, offset: Offset, max_bytes: int) -> Slice:
        """Batches from the one with ``offset``: the first always, more while they fit ``max_bytes`` together."""
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRange(offset, self.log_start, self.log_end)
        return self._slice(offset, max_bytes)

    def tail(self, count: int) -> Slice:
        """The batches that hold the last ``count`` records, whatever their size."""
        return self._slice(max(self.log_start, self.log_end - count), sys.maxsize)

    def find_timestamp(self, timestamp_ms: int | None) -> tuple[Offset, int | None]:
        """First record at or after ``timestamp_ms`` (None: the greatest there is), and its timestamp."""
        wanted = timestamp_ms
        if wanted is None:
            wanted = max((s.greatest_timestamp_ms for s in self._segments), default=-1)
        for segment in self._segments:
            if segment.greatest_timestamp_ms >= wanted:
                batch = segment.batch(segment.find_timestamp(wanted))
                row, found = first_row_since(read_messages([batch])[0], wanted)
                return batch.base_offset + row, found
        return -1, None

    def close(self) -> None:
        """Close the files. Reading goes on; appending must not. Repeating it does nothing."""
        files, self._files = self._files, None
        for descriptor in files or ():
            os.close(descriptor)

    def erase(self) -> None:
        """Close, and remove the files and the directory."""
        self.close()
        self._segments.clear()
        self._unlink()
        with suppress(FileNotFoundError):
            self._directory.rmdir()

    def _slice(self, offset: Offset, max_bytes: int) -> Slice:
        runs = list(self._runs(offset, max_bytes))
        next_offset = runs[-1].next_offset if runs else offset
        return Slice(runs, self.log_start, self.log_end, next_offset, read_messages)

    def _runs(self, offset: Offset, room: int) -> Iterator[Run]:
        """The first batch from ``offset`` on, and those after it that fit: a run a segment."""
        first = bisect_right(self._segments, offset, key=attrgetter("next_offset"))
        for number in range(first, len(self._segments)):
            segment = self._segments[number]
            run = segment.run(offset, room, at_least_one=number == first)
            if run is None:
                return
            yield run
            if run.next_offset < segment.next_offset:
                return
            room -= run.length

    def _roll(self) -> SegmentIndex:
        """Begin the next segment."""
        self.close()
        path = self._directory / f"{self.log_end:020d}"
        data = os.open(path.with_suffix(".arrow"), _CREATE, 0o644)
        self._files = data, os.open(path.with_suffix(".index"), _CREATE, 0o644)
        _write(data, STREAM_START)
        self._segments.append(SegmentIndex(f"{path}.arrow", self.log_end, len(STREAM_START)))
        return self._segments[-1]

    def _unlink(self) -> None:
        for suffix in (".arrow", ".index"):
            for path in self._directory.glob(_FILES + suffix):
                path.unlink()


def read_messages(batches: Sequence[StoredBatch]) -> list[bytes]:
    """Messages of stored batches, in order. One file is open at a time. Raises OSError."""
    messages = []
    for segment, group in groupby(batches, attrgetter("segment")):
        descriptor = os.open(segment, os.O_RDONLY | os.O_CLOEXEC)
        try:
            messages += [_read(descriptor, batch) for batch in group]
        finally:
            os.close(descriptor)
    return messages


def _read(descriptor: int, batch: StoredBatch) -> bytes:
    message = os.pread(descriptor, batch.length, batch.position)
    if len(message) != batch.length:
        raise OSError(f"{batch.segment} ends inside the batch at offset {batch.base_offset}")
    return message


def _write(descriptor: int, data: bytes) -> None:
    """Write all of it; a short write is followed by another, which says what is wrong."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
