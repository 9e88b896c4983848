"""Index of one segment: where each batch lies, and when it came. Pure: segments.py writes its bytes."""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import partial

from .commands import Append, Offset, Stamp
from .log import Run, StoredBatch

ENTRY = struct.Struct("<QQqqqQIIIihxx")
"""One batch in 68 bytes, little-endian: base offset, position, producer id (-1: none), timestamp, greatest
timestamp, writer epoch, count, length, CRC, first sequence, producer epoch.
"""
_BASE_AND_POSITION = struct.Struct("<QQ")
_BASE_AND_COUNT = struct.Struct("<Q40xI")


class SegmentIndex:
    """Batches of the segment file ``segment``, packed as they are on disk: no Python object for each batch.

    ``next_offset`` and ``size`` are where the next batch begins: its offset, and its position in the file.
    """

    def __init__(self, segment: str, base_offset: Offset, size: int) -> None:
        self.segment = segment
        self.next_offset = base_offset
        self.size = size
        self._entries = bytearray()
        self._greatest = array("q")  # greatest timestamp of the segment up to each batch, so that it can be searched

    def __len__(self) -> int:
        return len(self._greatest)

    def add(self, command: Append, writer_epoch: int) -> bytes:
        """Enter the batch that was just written behind the others; answers the bytes of its entry."""
        stamp = command.stamp
        entry = ENTRY.pack(
            self.next_offset,
            self.size,
            stamp.pid if stamp else -1,
            command.timestamp_ms,
            command.max_timestamp_ms,
            writer_epoch,
            command.count,
            len(command.message),
            command.crc,
            stamp.first_seq if stamp else -1,
            stamp.epoch if stamp else -1,
        )
        self._entries += entry
        self._greatest.append(max(self.greatest_timestamp_ms, command.max_timestamp_ms))
        self.next_offset += command.count
        self.size += len(command.message)
        return entry

    def batch(self, number: int) -> StoredBatch:
        """The batch at a place of the index, from 0."""
        fields = ENTRY.unpack_from(self._entries, number * ENTRY.size)
        base, position, pid, timestamp_ms, max_timestamp_ms, writer_epoch, count, length, crc, seq, epoch = fields
        stamp = None if pid < 0 else Stamp(pid, epoch, seq)
        return StoredBatch(
            base,
            count,
            stamp,
            writer_epoch,
            timestamp_ms,
            max_timestamp_ms,
            crc,
            self.segment,
            position,
            length,
        )

    def run(self, offset: Offset, room: int, *, at_least_one: bool) -> Run | None:
        """The batches from the one that ends behind ``offset``, as many as have ``room`` bytes; None: none.

        Takes O(log n) and makes no batch.
        """
        first = self.find(offset)
        if first == len(self):
            return None
        base_offset, start = _BASE_AND_POSITION.unpack_from(self._entries, first * ENTRY.size)
        behind = bisect_right(range(len(self)), start + room, lo=first, key=self._end_position)
        if at_least_one:
            behind = max(behind, first + 1)
        if behind == first:
            return None
        length = self._end_position(behind - 1) - start
        next_offset = self._end(behind - 1)
        return Run(base_offset, next_offset, self.segment, start, length, partial(self._batches, first, behind))

    def find(self, offset: Offset) -> int:
        """Place of the first batch that ends behind ``offset``; ``len`` if there is none."""
        return bisect_right(range(len(self)), offset, key=self._end)

    def find_timestamp(self, timestamp_ms: int) -> int:
        """Place of the first batch with a record at or after ``timestamp_ms``; ``len`` if there is none."""
        return bisect_left(self._greatest, timestamp_ms)

    @property
    def greatest_timestamp_ms(self) -> int:
        """Greatest timestamp of a record in the segment; -1 while it is empty."""
        return self._greatest[-1] if self._greatest else -1

    def _batches(self, first: int, behind: int) -> Iterator[StoredBatch]:
        return map(self.batch, range(first, behind))

    def _end(self, number: int) -> Offset:
        base_offset, count = _BASE_AND_COUNT.unpack_from(self._entries, number * ENTRY.size)
        end: Offset = base_offset + count
        return end

    def _end_position(self, number: int) -> int:
        if number + 1 == len(self):
            return self.size
        _, position = _BASE_AND_POSITION.unpack_from(self._entries, (number + 1) * ENTRY.size)
        return int(position)
