"""The log of batches as the machine uses it, and a log in memory for tests.

A log only stores: the machine decides which batches are appended.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from ..commands import Append, Offset, Stamp
from ..errors import OffsetOutOfRange
from .timestamps import timestamps


class StoredBatch(msgspec.Struct, frozen=True):
    """One batch of a log: ``count`` records at ``base_offset`` and after.

    ``stamp`` is the producer's (None: the append had none), ``writer_epoch`` the topic_epoch it was written
    under, ``timestamp_ms`` the moment of receipt, ``max_timestamp_ms`` the greatest timestamp of a record,
    ``crc`` the CRC-32 of the message. The message is ``length`` bytes at ``position`` of the file ``segment``
    (a path; "" for a log in memory).
    """

    base_offset: Offset
    count: int
    stamp: Stamp | None
    writer_epoch: int
    timestamp_ms: int
    max_timestamp_ms: int
    crc: int
    segment: str
    position: int
    length: int

    @property
    def next_offset(self) -> Offset:
        """The offset behind the last record."""
        return self.base_offset + self.count


class Run(msgspec.Struct, frozen=True):
    """Consecutive batches, adjacent in one file: ``length`` bytes at ``position`` of the file ``segment``.

    ``load`` makes the batches one by one; a caller that only sends the bytes on need not call it.
    """

    base_offset: Offset
    next_offset: Offset
    segment: str
    position: int
    length: int
    load: Callable[[], Iterator[StoredBatch]]


class Slice(msgspec.Struct, frozen=True):
    """Whole, consecutive batches of a log, and where the log began and ended when they were looked up.

    ``next_offset`` is where to continue reading: the end of the last batch, or the requested offset when there is none.
    ``stale``: the read was not linearizable. ``fetch`` reads the messages of batches, and raises OSError, also when the
    log was erased meanwhile.
    """

    runs: list[Run]
    log_start: Offset
    log_end: Offset
    next_offset: Offset
    fetch: Callable[[Sequence[StoredBatch]], list[bytes]]
    stale: bool = False

    @property
    def batches(self) -> list[StoredBatch]:
        """The batches, made anew at each call."""
        return [batch for run in self.runs for batch in run.load()]

    @property
    def base_offset(self) -> Offset:
        """Offset of the first record; ``next_offset`` when there is none."""
        return self.runs[0].base_offset if self.runs else self.next_offset

    def messages(self) -> list[bytes]:
        """The encapsulated messages of ``batches``, in order. Raises OSError, also when the log was erased
        meanwhile.
        """
        return self.fetch(self.batches)

    @property
    def size(self) -> int:
        """Bytes of all messages together."""
        return sum(run.length for run in self.runs)


class Log(Protocol):
    """Batches at dense offsets: records have the offsets ``log_start <= offset < log_end``."""

    @property
    def log_start(self) -> Offset:
        """The first offset kept."""
        ...

    @property
    def log_end(self) -> Offset:
        """The next offset to be given."""
        ...

    def append(self, command: Append, writer_epoch: int) -> Offset:
        """Store the batch at log_end; returns its base offset. After an OSError the log must not be used."""
        ...

    def trim(self, before: Offset) -> None:
        """Raise log_start to ``before``, which is at most log_end, if it is lower."""
        ...

    def begin_at(self, offset: Offset) -> None:
        """Raise log_start and log_end of a log that has never had a batch to ``offset``."""
        ...

    def read(self, offset: Offset, max_bytes: int) -> Slice:
        """Batches from the one that contains ``offset``: the first always, more while all together fit
        ``max_bytes``.

        Empty at log_end. Raises OffsetOutOfRange.
        """
        ...

    def tail(self, count: int) -> Slice:
        """The batches that hold the last ``count`` records."""
        ...

    def find_timestamp(self, timestamp_ms: int | None) -> tuple[Offset, int | None]:
        """First record from log_start on at or after ``timestamp_ms`` (None: with the greatest timestamp), and its
        timestamp; (-1, None) when there is none.
        """
        ...


class MemoryLog:
    """Implements ``Log`` with lists: the model that SegmentLog is compared with."""

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
            for row, timestamp in enumerate(timestamps(self._messages[batch.base_offset]))
            if batch.base_offset + row >= self.log_start
        ]
        wanted = max(records, default=(0, 0))[0] if timestamp_ms is None else timestamp_ms
        return next(((offset, found) for found, offset in records if found >= wanted), (-1, None))

    def _fetch(self, batches: Sequence[StoredBatch]) -> list[bytes]:
        return [self._messages[batch.base_offset] for batch in batches]
