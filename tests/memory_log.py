"""A log in memory: what ``SegmentLog`` is compared with, and what machines have that need no files."""

import sys
from collections.abc import Sequence

import pyarrow as pa

from stockade.partition.commands import Append, Offset
from stockade.partition.errors import OffsetOutOfRange
from stockade.partition.log.interface import Run, Slice, StoredBatch
from stockade.partition.records.batch import decode_batch


class MemoryLog:
    """Implements ``Log`` with lists."""

    def __init__(self) -> None:
        self.log_start: Offset = 0
        self.batches: list[StoredBatch] = []
        self._messages: dict[Offset, bytes] = {}

    @property
    def log_end(self) -> Offset:
        """The next offset to be given."""
        return self.batches[-1].next_offset if self.batches else self.log_start

    def append(self, command: Append, writer_epoch: int) -> Offset:
        """Store the batch at log_end; answers its base offset."""
        offset = self.log_end
        self._messages[offset] = command.message
        self.batches.append(
            StoredBatch(
                base_offset=offset,
                count=command.count,
                stamp=command.stamp,
                writer_epoch=writer_epoch,
                timestamp_ms=command.timestamp_ms,
                max_timestamp_ms=command.max_timestamp_ms,
                crc=command.crc,
                segment="",
                position=0,
                length=len(command.message),
            )
        )
        return offset

    def trim(self, before: Offset) -> None:
        """Raise log_start to ``before`` if it is lower."""
        self.log_start = max(self.log_start, before)
        self.batches = [batch for batch in self.batches if batch.next_offset > self.log_start]

    def begin_at(self, offset: Offset) -> None:
        """Raise log_start and log_end of an empty log."""
        assert self.log_start == self.log_end == 0
        self.log_start = offset

    def read(self, offset: Offset, max_bytes: int) -> Slice:
        """Batches from the one that contains ``offset``."""
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRange(offset, self.log_start, self.log_end)
        found: list[StoredBatch] = []
        room = max_bytes
        for batch in self.batches:
            if batch.next_offset > offset:
                room -= batch.length
                if found and room < 0:
                    break
                found.append(batch)
        next_offset = found[-1].next_offset if found else offset
        length = sum(batch.length for batch in found)
        runs = [Run(found[0].base_offset, next_offset, "", 0, length, lambda: iter(found))] if found else []
        return Slice(runs, self.log_start, self.log_end, next_offset, self._fetch)

    def tail(self, count: int) -> Slice:
        """The batches that hold the last ``count`` records."""
        return self.read(max(self.log_start, self.log_end - count), sys.maxsize)

    def find_timestamp(self, timestamp_ms: int | None) -> tuple[Offset, int | None]:
        """First record at or after ``timestamp_ms`` (None: the greatest there is), and its timestamp."""
        records = [
            (timestamp, batch.base_offset + row)
            for batch in self.batches
            for row, timestamp in enumerate(_timestamps(self._messages[batch.base_offset]))
            if batch.base_offset + row >= self.log_start
        ]
        wanted = max(records, default=(0, 0))[0] if timestamp_ms is None else timestamp_ms
        return next(((offset, found) for found, offset in records if found >= wanted), (-1, None))

    def _fetch(self, batches: Sequence[StoredBatch]) -> list[bytes]:
        return [self._messages[batch.base_offset] for batch in batches]


def _timestamps(message: bytes) -> list[int]:
    return list(decode_batch(message).column("timestamp").view(pa.int64()).to_pylist())
