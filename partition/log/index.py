"""The index of one segment: the position of each batch, and its timestamps. Pure: segments.py writes its bytes.

Each entry ends with a checksum of the file up to there, so a file cut after any entry can be verified in one step.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

from ..commands import Append, Offset, Stamp
from ..records.checksum import crc32
from .interface import Run, StoredBatch

ENTRY = struct.Struct("<QQqqqqQIIIihxxI")
"""One batch in 80 bytes, little-endian: base offset, position, producer id (-1: none), timestamp, greatest timestamp,
greatest timestamp of the segment so far, writer epoch, count, length, CRC, first sequence, producer epoch, and the
CRC-32 of all bytes of the file before this field.
"""
_FIELDS = struct.Struct("<QQqqqqQIIIihxx")
_CHECK = struct.Struct("<I")
BEHIND_A_CHECK = 0x2144DF1C  # the CRC-32 of any bytes that are followed by their own CRC-32
_BASE_AND_POSITION = struct.Struct("<QQ")
_BASE_AND_COUNT = struct.Struct("<Q48xI")
_MAX_TIMESTAMP = struct.Struct("<32xq40x")
_GREATEST = struct.Struct("<40xq")
_POSITION_AND_LENGTH = struct.Struct("<8xQ44xI")


class IndexDamaged(Exception):
    """The bytes of an index are not those that were written."""


class SegmentIndex:
    """The batches of the segment file ``segment``, packed as they are on disk: no Python object for each batch.

    The next batch begins at the offset ``next_offset`` and the position ``size`` of the file; ``synced <= size`` bytes
    of the file are durable. ``index_size`` is the size of the index file in bytes. ``greatest_timestamp_ms`` is the
    greatest timestamp of a record, ``last_timestamp_ms`` the time at which the last batch was received; both are -1
    while there is no batch. The entries of a full segment need not stay in memory (``seal``).
    """

    def __init__(self, segment: str, base_offset: Offset, size: int) -> None:
        self.segment = segment
        self.base_offset = base_offset
        self.next_offset: Offset = base_offset
        self.size: int = size
        self.synced = 0
        self.greatest_timestamp_ms: int = -1
        self.last_timestamp_ms: int = -1
        self._entries: bytearray | None = bytearray()
        self._load: Callable[[SegmentIndex], bytes] | None = None
        self._count = 0
        self._written = 0  # of the bytes of the index file

    @classmethod
    def of(cls, segment: str, base_offset: Offset, start: int, entries: bytes) -> "SegmentIndex":
        """The index of a segment whose batches begin at position ``start``, from the bytes of its file. Raises
        IndexDamaged.
        """
        index = cls(segment, base_offset, start)
        count, rest = divmod(len(entries), ENTRY.size)
        if rest:
            raise IndexDamaged("it ends inside an entry")
        if not count:
            return index
        behind = len(entries) - _CHECK.size
        if crc32(memoryview(entries)[:behind]) != _CHECK.unpack_from(entries, behind)[0]:
            raise IndexDamaged("its bytes do not have the CRC that they should have")
        if _BASE_AND_POSITION.unpack_from(entries) != (base_offset, start):
            raise IndexDamaged("it belongs to another segment")
        index._entries, index._count, index._written = bytearray(entries), count, len(entries)
        index.next_offset = index._end(count - 1)
        index.size = sum(_POSITION_AND_LENGTH.unpack_from(entries, (count - 1) * ENTRY.size))
        index.greatest_timestamp_ms = index._greatest(count - 1)
        index.last_timestamp_ms = index.batch(count - 1).timestamp_ms
        return index

    @property
    def index_size(self) -> int:
        """Bytes of the index file."""
        return self._count * ENTRY.size

    @property
    def entries(self) -> bytes | bytearray:
        """The bytes of the index file. Raises OSError if they have to be read, and cannot."""
        if self._entries is not None:
            return self._entries
        assert self._load is not None
        return self._load(self)

    def seal(self, load: "Callable[[SegmentIndex], bytes]") -> None:
        """Drop the entries of a full segment from memory; ``load`` reads them when they are needed."""
        self._entries, self._load = None, load

    def __len__(self) -> int:
        return self._count

    def take_unwritten(self) -> bytes:
        """The last bytes of the index file, those that no earlier call returned, for the caller to append."""
        assert self._entries is not None, "the index of a full segment is written"
        start, self._written = self._written, len(self._entries)
        return bytes(memoryview(self._entries)[start:])

    def add(self, command: Append, writer_epoch: int) -> None:
        """Add the next batch, which was written under ``writer_epoch``."""
        assert self._entries is not None, "a full segment does not grow"
        stamp, length = command.stamp, len(command.message)
        self.greatest_timestamp_ms = max(self.greatest_timestamp_ms, command.max_timestamp_ms)
        self.last_timestamp_ms = command.timestamp_ms
        fields = _FIELDS.pack(
            self.next_offset,
            self.size,
            -1 if stamp is None else stamp.pid,
            command.timestamp_ms,
            command.max_timestamp_ms,
            self.greatest_timestamp_ms,
            writer_epoch,
            command.count,
            length,
            command.crc,
            -1 if stamp is None else stamp.first_seq,
            -1 if stamp is None else stamp.epoch,
        )
        self._entries += fields + _CHECK.pack(crc32(fields, BEHIND_A_CHECK if self._count else 0))
        self._count += 1
        self.next_offset += command.count
        self.size += length

    def batch(self, number: int) -> StoredBatch:
        """The batch of this number, from 0."""
        fields = ENTRY.unpack_from(self.entries, number * ENTRY.size)
        base, position, pid, timestamp_ms, max_timestamp_ms, _, writer_epoch, count, length, crc, seq, epoch, _ = fields
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
        """The batches from the first with ``next_offset > offset`` on, up to ``room`` bytes together; None if there is
        none. ``at_least_one``: the first batch in any case.

        Takes O(log n), and makes no object for a batch.
        """
        first = self.find(offset)
        if first == len(self):
            return None
        base_offset, start = _BASE_AND_POSITION.unpack_from(self.entries, first * ENTRY.size)
        behind = bisect_right(range(len(self)), start + room, lo=first, key=self._end_position)
        if at_least_one:
            behind = max(behind, first + 1)
        if behind == first:
            return None
        length = self._end_position(behind - 1) - start
        next_offset = self._end(behind - 1)
        return Run(base_offset, next_offset, self.segment, start, length, partial(self._batches, first, behind))

    def find(self, offset: Offset) -> int:
        """The number of the first batch with ``next_offset > offset``; ``len`` if there is none."""
        return bisect_right(range(len(self)), offset, key=self._end)

    def position(self, offset: Offset) -> int:
        """The position in the file of the first batch with ``next_offset > offset``; 0 if that is the segment's first
        batch, ``size`` if there is none.
        """
        if offset <= self.base_offset:
            return 0
        number = self.find(offset)
        if number == len(self):
            return self.size
        return _BASE_AND_POSITION.unpack_from(self.entries, number * ENTRY.size)[1] if number else 0

    def find_timestamp(self, timestamp_ms: int, first: int) -> int:
        """The number of the first batch from number ``first`` on with a record at or after ``timestamp_ms``; ``len`` if
        there is none.
        """
        if first and self._greatest(first - 1) >= timestamp_ms:  # an earlier batch has such a record: no bisection
            numbered = enumerate(self._max_timestamps(first), first)
            return next((number for number, greatest in numbered if greatest >= timestamp_ms), len(self))
        return bisect_left(range(len(self)), timestamp_ms, lo=first, key=self._greatest)

    def greatest_from(self, first: int) -> int:
        """The greatest timestamp (ms) of a record in the batches from number ``first`` on; -1 without such a batch."""
        if first < len(self) and (not first or self._greatest(first - 1) < self.greatest_timestamp_ms):
            return self.greatest_timestamp_ms
        return max(self._max_timestamps(first), default=-1)

    def _max_timestamps(self, first: int) -> Iterator[int]:
        """The greatest timestamp of each batch from ``first`` on, at 60 ns each: a segment may have 100,000."""
        # A copy, since an append could not grow the entries while a view of them is in use.
        return chain.from_iterable(_MAX_TIMESTAMP.iter_unpack(self.entries[first * ENTRY.size :]))

    def _batches(self, first: int, behind: int) -> Iterator[StoredBatch]:
        return map(self.batch, range(first, behind))

    def _greatest(self, number: int) -> int:
        (timestamp_ms,) = _GREATEST.unpack_from(self.entries, number * ENTRY.size)
        return int(timestamp_ms)

    def _end(self, number: int) -> Offset:
        base_offset, count = _BASE_AND_COUNT.unpack_from(self.entries, number * ENTRY.size)
        end: Offset = base_offset + count
        return end

    def _end_position(self, number: int) -> int:
        if number + 1 == len(self):
            return self.size
        _, position = _BASE_AND_POSITION.unpack_from(self.entries, (number + 1) * ENTRY.size)
        return int(position)
