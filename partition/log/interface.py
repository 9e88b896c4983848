"""The interface of a partition's log of batches, as the machine uses it.

A log only stores: the machine decides which batches are appended.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from ..commands import Append, Offset, Stamp


class StoredBatch(msgspec.Struct, frozen=True):
    """One batch of a log: ``count`` records from ``base_offset`` on.

    ``stamp`` is the producer's (None: the append had none), ``writer_epoch`` the topic_epoch under which it was
    written, ``timestamp_ms`` the moment of receipt, ``max_timestamp_ms`` the greatest timestamp of a record,
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
        """The offset after that of the last record."""
        return self.base_offset + self.count


class Run(msgspec.Struct, frozen=True):
    """Consecutive batches that are adjacent in one file: ``length`` bytes at ``position`` of the file ``segment``.

    ``load`` makes the StoredBatch objects one by one; a caller that only sends the bytes need not call it.
    """

    base_offset: Offset
    next_offset: Offset
    segment: str
    position: int
    length: int
    load: Callable[[], Iterator[StoredBatch]]


class Slice(msgspec.Struct, frozen=True):
    """The result of a read: whole, consecutive batches, and where the log began and ended when they were looked up.

    ``next_offset`` is the offset at which to continue: the end of the last batch, or the requested offset without a
    batch. ``stale``: the read was not linearizable. ``fetch`` reads the messages of batches, and raises OSError, also
    when the log was erased meanwhile.
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
        """The offset of the first batch; ``next_offset`` when there is none."""
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
        """The first offset of the log: records below it are trimmed."""
        ...

    @property
    def log_end(self) -> Offset:
        """The next offset to be given."""
        ...

    def append(self, command: Append, writer_epoch: int) -> Offset:
        """Store the batch at log_end; returns its base offset. After an OSError the log must not be used any more."""
        ...

    def trim(self, before: Offset) -> None:
        """Raise log_start to ``before``, if it is lower; ``before <= log_end``."""
        ...

    def begin_at(self, offset: Offset) -> None:
        """Raise log_start and log_end of a log that has never had a batch to ``offset``."""
        ...

    def read(self, offset: Offset, max_bytes: int) -> Slice:
        """The batches from the one that contains ``offset`` on: the first in any case, more within ``max_bytes``
        together. At log_end there are none. Raises OffsetOutOfRange.
        """
        ...

    def tail(self, count: int) -> Slice:
        """The batches that hold the last ``count`` records."""
        ...

    def find_timestamp(self, timestamp_ms: int | None) -> tuple[Offset, int | None]:
        """(offset, timestamp) of the first record from log_start on at or after ``timestamp_ms`` (None: of the first
        with the greatest timestamp); (-1, None) when there is none.
        """
        ...
