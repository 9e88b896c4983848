"""The log of one partition on disk: segment files and their indexes (segment_files.py).

The older part of the log may be in the tiered store only (``drop_local``): it is not read through this class.

An append syncs nothing: it is durable in the node's write-ahead log. A checkpoint captures the segments at one moment,
and syncs them; after a restart the log begins as the last checkpoint has it, and the commands since are applied again.
So a file is removed only when a checkpoint without it is durable. An OSError of a write leaves a torn file, whose index
is ahead of it. The error propagates and stops the node, also when a read caused the write, and from then on every
append and read of the log fails.
"""

import struct
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from errno import EIO, ENOENT
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Protocol, TypeVar, TypeVarTuple

from ..commands import Append, Offset
from ..errors import OffsetOutOfRange
from . import segment_files
from .fsutil import write_all
from .image import Image, ImageDamaged
from .index import SegmentIndex
from .interface import Run, Slice
from .segment_files import Writers, read_messages
from .timestamps import find, greatest

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
"""Bytes beyond which a segment does not grow, unless its only batch is larger."""
UNWRITTEN_BYTES_MAX = 1024 * 1024
"""Bytes of appended batches from which on they are written even during a run of applies."""
UNWRITTEN_REST_BYTES_MAX = 16 * 1024
"""Bytes of appended batches that may stay unwritten after a run of applies. With many partitions a run applies one
small batch, and its write would cost more than all other work for the batch.
"""

_Found = TypeVar("_Found")
_Arguments = TypeVarTuple("_Arguments")


class Part(Protocol):
    """A part of a log that retention keeps or drops as a whole: a segment, or an object in the tiered store."""

    @property
    def next_offset(self) -> Offset:
        """The offset after that of its last record."""
        ...

    @property
    def size(self) -> int:
        """Bytes of its messages."""
        ...

    @property
    def last_timestamp_ms(self) -> int:
        """When its last batch was received."""
        ...


class SegmentLog:
    """Implements ``interface.Log`` with segment files. ``begin`` or ``restore`` must give it a directory before the
    first append.

    Holds two open files at most, none before the first append, and one more for each early sync under way.
    """

    def __init__(self, segment_bytes_max: int = SEGMENT_BYTES_MAX) -> None:
        self._segment_bytes_max = segment_bytes_max
        self._directory: Path | None = None
        self._segments: list[SegmentIndex] = []
        self._writers: Writers | None = None  # of the last segment
        self._unwritten: list[bytes] = []  # messages still to be appended to the last segment's file
        self._unwritten_bytes = 0
        self._log_start: Offset = 0
        self._dropped: list[Path] = []  # files that only older images need
        self.reclaimable: int = 0
        """Bytes of the dropped files, which the next checkpoint removes."""
        self.unsynced_bytes: int = 0
        """Bytes of batches that were written to files since the last sync began."""
        self._counted: tuple[Offset, Offset, Offset] | None = None
        self._counted_bytes = 0  # the part of kept_bytes before the last segment
        self._torn_by: OSError | None = None  # the error of a failed write, a part of which may be in the file
        self.on_torn: Callable[[OSError], object] = lambda _: None
        """Called with the error of a write to a file, even if a read caused the write: the node has to stop."""
        self.on_damaged: Callable[[OSError], object] = lambda _: None
        """Called with the error of a read that met a damaged index, or a disk that fails: another node has to lead."""

    def restore(
        self,
        directory: Path,
        segments: Sequence[SegmentIndex],
        log_start: Offset,
        log_end: Offset,
        stored_end: Offset = 0,
    ) -> None:
        """Restore the log that was captured with these segments. Records below ``stored_end`` need not be in a file:
        they are in the tiered store. Raises ImageDamaged.
        """
        needed = max(log_start, stored_end)
        if segments and not (segments[0].base_offset <= needed and log_start < segments[0].next_offset):
            raise ImageDamaged(f"offset {needed} is not in the first segment of {directory}")
        if log_end != (segments[-1].next_offset if segments else log_start):
            raise ImageDamaged(f"the segments of {directory} do not end at offset {log_end}")
        self.begin(directory, segments, log_start)

    def capture(self, state: bytes) -> Image:
        """The image of the machine's ``state`` and of the segments as they are now."""
        self._complete()
        self.unsynced_bytes = 0
        stored = partial(self._forget, list(self._dropped), self.reclaimable)
        extents = segment_files.extents(self._segments)
        return Image(state, extents, segment_files.Unsynced(self._segments), stored)

    def begin_sync(self) -> Callable[[], None] | None:
        """The early sync of the messages written to the last segment; None if there is nothing to sync."""
        self.unsynced_bytes = 0
        return None if self._writers is None else segment_files.early_sync(self._writers)

    @property
    def log_start(self) -> Offset:
        """The first offset of the log: records below it are trimmed."""
        return self._log_start

    @property
    def log_end(self) -> Offset:
        """The next offset to be given."""
        return self._segments[-1].next_offset if self._segments else self._log_start

    @property
    def local_start(self) -> Offset:
        """The first offset that is in a file here. It is at most log_start, unless older records are in the store."""
        return self._segments[0].base_offset if self._segments else self.log_end

    @property
    def stored_bytes(self) -> int:
        """Bytes of the log's files, including dropped ones, which the next checkpoint removes."""
        return sum(segment.size + segment.index_size for segment in self._segments) + self.reclaimable

    @property
    def kept_bytes(self) -> int:
        """Bytes of those batches in files here that have records from log_start on. A first segment whose index cannot
        be read counts as a whole.
        """
        if not self._segments:
            return 0
        first, last = self._segments[0], self._segments[-1]
        known = first.base_offset, last.base_offset, self._log_start
        if known != self._counted:
            cut = 0
            with suppress(OSError, struct.error):
                cut = first.position(self._log_start)
            full_bytes = sum(segment.size for segment in self.full_segments)
            self._counted, self._counted_bytes = known, full_bytes - cut
        return self._counted_bytes + last.size

    @property
    def full_segments(self) -> Sequence[SegmentIndex]:
        """All segments but the last: they do not change any more until they are dropped."""
        return self._segments[:-1]

    def append(self, command: Append, writer_epoch: int) -> Offset:
        """Store the batch at log_end; returns its base offset."""
        segment = self._segments[-1] if self._segments else None
        if segment is None or segment.size + len(command.message) > self._segment_bytes_max:
            segment = self._roll()
        elif self._writers is None:
            self._check_whole()
            if Path(segment.segment).parent == self._directory:
                self._writers = segment_files.extend(segment)
            else:
                segment = self._roll()
        assert self._writers is not None
        base_offset = segment.next_offset
        segment.add(command, writer_epoch)
        self._unwritten.append(command.message)
        self._unwritten_bytes += len(command.message)
        if self._unwritten_bytes >= UNWRITTEN_BYTES_MAX:
            self.flush()
        return base_offset

    @property
    def has_unwritten(self) -> bool:
        """Whether appended batches are not in their file yet."""
        return bool(self._unwritten)

    def settle(self) -> None:
        """Flush after a run of applies, unless at most UNWRITTEN_REST_BYTES_MAX are unwritten. An OSError stops the
        node.
        """
        if self._unwritten_bytes > UNWRITTEN_REST_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write the appended batches to their file. Every read and every checkpoint flushes first; until then the
        batches are in memory and in the write-ahead log.
        """
        messages, size, self._unwritten, self._unwritten_bytes = self._unwritten, self._unwritten_bytes, [], 0
        if messages:
            assert self._writers is not None
            self._write(self._writers.messages, messages)
            self.unsynced_bytes += size
        else:
            self._check_whole()

    def _write(self, descriptor: int, pieces: list[bytes]) -> None:
        try:
            write_all(descriptor, pieces)
        except OSError as error:
            self._torn_by = error
            self._end_writing()  # so that the next append meets ``_check_whole``, at no cost to earlier ones
            self.on_torn(error)
            raise

    def _check_whole(self) -> None:
        if self._torn_by is not None:
            raise OSError(self._torn_by.errno, f"a write to a segment failed before: {self._torn_by.strerror}")

    def trim(self, before: Offset) -> None:
        """Raise log_start to ``before <= log_end``, and drop whole segments below; the next checkpoint removes them."""
        assert before <= self.log_end
        self._log_start = max(self._log_start, before)
        while self._segments and self._segments[0].next_offset <= self._log_start:
            self._drop_first()

    def drop_local(self, before: Offset) -> None:
        """Drop the files of whole segments below ``before``, except the last segment's, as the tiered store has their
        records; log_start stays. The next checkpoint removes the files.
        """
        while len(self._segments) > 1 and self._segments[0].next_offset <= before:
            self._drop_first()

    def _drop_first(self) -> None:
        segment = self._segments.pop(0)
        if not self._segments:
            self.close()
        self._dropped += segment_files.files_of(segment)
        self.reclaimable += segment.size + segment.index_size

    def begin_at(self, offset: Offset) -> None:
        """Raise log_start and log_end of a log that has never had a batch, and so has no file."""
        assert not self._segments
        assert not self._log_start
        self._log_start = offset

    def retained_from(
        self, wall_ms: int, retention_ms: int, retention_bytes: int, older: Iterable[Part] = (), older_bytes: int = 0
    ) -> Offset:
        """The first offset that retention keeps: records received at most ``retention_ms`` before ``wall_ms``, of at
        most ``retention_bytes`` together (-1: no bound). Whole segments are dropped, the last one by age alone.
        ``older`` are the parts before the segments, in the tiered store, of ``older_bytes`` together.
        """
        keep, last = self._log_start, self._segments[-1] if self._segments else None
        size = older_bytes + sum(segment.size for segment in self._segments)
        for part in chain(older, self._segments):
            is_old = 0 <= retention_ms < wall_ms - part.last_timestamp_ms
            is_too_much = 0 <= retention_bytes < size and part is not last
            if not is_old and not is_too_much:
                break
            keep = part.next_offset
            size -= part.size
        return keep

    def read(self, offset: Offset, max_bytes: int) -> Slice:
        """The batches from the one with ``offset`` on: the first in any case, more within ``max_bytes`` together."""
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRange(offset, self.log_start, self.log_end)
        return self._slice(offset, max_bytes)

    def tail(self, count: int) -> Slice:
        """The batches that hold the last ``count`` records, of any size."""
        return self._slice(max(self.log_start, self.log_end - count), sys.maxsize)

    def find_timestamp(self, timestamp_ms: int | None) -> tuple[Offset, int | None]:
        """(offset, timestamp) of the first record in a file here, from log_start on, at or after ``timestamp_ms``
        (None: of the first with the greatest timestamp); (-1, None) when there is none.
        """
        return self._searched(find, self._segments, self._log_start, timestamp_ms, read_messages)

    def greatest_timestamp(self) -> int:
        """The greatest timestamp of a record in a file here, from log_start on; -1 if there is none."""
        return self._searched(greatest, self._segments, self._log_start, read_messages)

    def close(self) -> None:
        """Close the files. Reads are still possible, appends are not. Idempotent."""
        if self._torn_by is None:
            self.flush()
        self._end_writing()

    def _end_writing(self) -> None:
        writers, self._writers = self._writers, None
        if writers is not None:
            writers.close()

    def _complete(self) -> None:
        """Write the appended batches to both files of the last segment."""
        self.flush()
        if self._writers is not None:
            self._write(self._writers.entries, [self._segments[-1].take_unwritten()])

    def _slice(self, offset: Offset, max_bytes: int) -> Slice:
        assert offset >= self.local_start, "these records are not on this disk"
        runs: list[Run] = self._searched(list, self._runs(offset, max_bytes))
        next_offset = runs[-1].next_offset if runs else offset
        return Slice(runs, self.log_start, self.log_end, next_offset, read_messages)

    def _searched(self, search: Callable[[*_Arguments], _Found], *arguments: *_Arguments) -> _Found:
        """What a search in the segments finds after a flush. All of them are kept, so an index that cannot be read was
        not removed: it is damaged.
        """
        self.flush()
        try:
            return search(*arguments)
        except OSError as error:
            if error.errno in (EIO, ENOENT):
                self.on_damaged(error)
            raise

    def _runs(self, offset: Offset, room: int) -> Iterator[Run]:
        """Yield one run for each segment: the batch with ``offset``, and those after it within ``room`` bytes."""
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
        assert self._directory is not None, "start or restore comes first"
        self._complete()
        self.close()
        log_end = self.log_end
        if self._segments:
            segment_files.seal(self._segments[-1])
        segment, self._writers = segment_files.create(self._directory, log_end)
        self._segments.append(segment)
        return segment

    def begin(self, directory: Path, segments: Sequence[SegmentIndex] = (), log_start: Offset = 0) -> None:
        """Use a directory that has the files of these segments, and no others of a log. Or an empty one: then the
        files of these segments, in another, are only read.
        """
        self.close()
        self._directory, self._segments, self._log_start = directory, list(segments), log_start
        self._dropped, self.reclaimable, self.unsynced_bytes = [], 0, 0
        self._counted = self._torn_by = None

    def _forget(self, dropped: list[Path], size: int) -> None:
        """Remove the dropped files of a captured state, ``size`` bytes together, unless the log was restored in another
        directory since.
        """
        if self._dropped[: len(dropped)] == dropped:
            segment_files.remove(dropped)
            del self._dropped[: len(dropped)]
            self.reclaimable -= size
