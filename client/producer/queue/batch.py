"""A batch on the client's side: records that are numbered, sent, repeated and settled as one. No clock, no IO."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Self

from ..partition.commands import Token
from ..partition.errors import InvalidRecord, MessageTooLarge, StockadeError
from ..partition.records import RECORDS_MAX, Header, message_from_columns
from .model import ProducerPair

RECORD_OVERHEAD_BYTES = 24
"""Reckoned for a record beside its key, value and headers: offsets of four columns and the timestamp."""
BATCH_OVERHEAD_BYTES = 640
"""Reckoned for a batch beside its records: metadata and padding of the Arrow message."""

_BYTES_OR_NONE = (bytes, type(None))
_BYTES_OR_NOTHING = frozenset(_BYTES_OR_NONE)
_TIMESTAMP_MAX = 2**63 - 1


class Record(NamedTuple):
    """One record to send; ``timestamp_ms`` is Unix time."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[Header] | None = None

    def checked_size(self) -> int:
        """``size``. Raises InvalidRecord here, for this record alone, rather than later for the batch that it would
        spoil.
        """
        key, value, timestamp_ms, headers = self
        if type(value) is bytes and headers is None and timestamp_ms >= 0:
            if key is None:
                return RECORD_OVERHEAD_BYTES + len(value)
            if type(key) is bytes:
                return RECORD_OVERHEAD_BYTES + len(value) + len(key)
        self.check()
        return self.size

    def check(self) -> None:
        """Raise InvalidRecord for what makes no record."""
        if not isinstance(self.value, _BYTES_OR_NONE) or not isinstance(self.key, _BYTES_OR_NONE):
            given = f"{type(self.key).__name__} and {type(self.value).__name__}"
            raise InvalidRecord(f"key and value must be bytes or None, not {given}")
        if self.timestamp_ms < 0:
            raise InvalidRecord("the timestamp is negative")
        for header in self.headers or ():
            is_pair = isinstance(header, tuple | list) and len(header) == 2
            if not (is_pair and isinstance(header[0], str) and isinstance(header[1], bytes)):
                raise InvalidRecord(f"headers must be pairs of str and bytes, and one is {header!r:.100}")

    @property
    def size(self) -> int:
        """Bytes reckoned in a batch."""
        size = RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"")
        return size + _headers_bytes(self.headers) if self.headers else size


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the log said: ``count`` records stored at consecutive offsets.

    Offsets are None when the batch is known to be stored but its place is no longer remembered (never 0: that is a
    valid offset). ``duplicate``: an earlier attempt of the same batch had stored it.
    """

    topic: str
    partition: int
    base_offset: int | None
    count: int
    duplicate: bool
    timestamp_ms: int | None

    @property
    def offset(self) -> int | None:
        """Offset of the (first) record."""
        return self.base_offset

    @property
    def last_offset(self) -> int | None:
        """Offset of the last record."""
        return None if self.base_offset is None else self.base_offset + self.count - 1


class State(Enum):
    """Where a batch of the window stands."""

    UNDER_WAY = auto()
    """An attempt has no answer yet."""
    FAILED = auto()
    """The last attempt was refused or lost; the batch waits to be sent again, unchanged."""
    STORED = auto()
    """Answered; it waits for the batches before it, so that a partition's deliveries settle in order."""


class Batch:
    """Records of one partition, and what became of them.

    Columns grow until ``sealed``; when it ``is_due``, it waits for room in flight and not for more records. Once it is
    numbered, nothing of what is sent changes: producer id, epoch, first sequence number, fence token and bytes are the
    same in every attempt (SEMANTICS 9.2).
    """

    __slots__ = (
        "attempts", "count", "created_s", "first_seq", "headers", "identity", "is_due", "is_final", "is_reported",
        "keys", "last_error", "maybe_stored", "message", "not_before_s", "outcome", "receipt", "sealed",
        "sent_as_oldest", "size", "state", "timestamps_ms", "token", "values", "watchers",
    )  # fmt: skip

    def __init__(self, created_s: float) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps_ms: list[int] = []
        self.headers: list[Sequence[Header] | None] | None = None
        self.created_s: float = created_s
        self.count: int = 0
        self.size: int = 0
        self.is_due: bool = False
        self.sealed: bool = False
        self.message: bytes | None = None
        self.first_seq: int = -1
        self.identity: ProducerPair | None = None
        self.token: Token | None = None
        self.state: State = State.UNDER_WAY
        self.attempts: int = 0
        self.not_before_s: float = 0.0
        self.sent_as_oldest: bool = False
        self.maybe_stored: bool = False
        self.is_final: bool = False
        self.is_reported: bool = False
        self.last_error: StockadeError | None = None
        self.receipt: Receipt | None = None
        self.outcome: Receipt | StockadeError | None = None
        self.watchers: list[Callable[[], None]] = []

    @classmethod
    def of(
        cls,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Sequence[Header] | None] | None,
        timestamps_ms: Sequence[int] | None,
        *,
        now_ms: int,
    ) -> Self:
        """A batch of columns; timestamps not given are ``now_ms``. Raises InvalidRecord for bad lengths, and for what
        has no size.
        """
        count = len(values)
        if not 1 <= count <= RECORDS_MAX:
            raise InvalidRecord(f"a batch has 1 to {RECORDS_MAX} records, not {count}")
        if any(column is not None and len(column) != count for column in (keys, headers, timestamps_ms)):
            raise InvalidRecord("keys, values, headers and timestamps are not equally many")
        batch = cls(0.0)
        batch.count = count
        batch.values = list(values)
        batch.keys = [None] * count if keys is None else list(keys)
        batch.headers = None if headers is None else list(headers)
        batch.timestamps_ms = [now_ms] * count if timestamps_ms is None else list(timestamps_ms)
        try:
            batch.size = RECORD_OVERHEAD_BYTES * count + _bytes_of(batch.values) + _bytes_of(batch.keys)
            batch.size += sum(map(_headers_bytes, batch.headers or ()))
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidRecord(
                f"keys and values must be bytes or None, headers pairs of str and bytes: {error}"
            ) from error
        return batch

    @property
    def is_troubled(self) -> bool:
        """It failed, and is not settled since: the mute holds also while it is under way again (SEMANTICS 9.4)."""
        return self.state is State.FAILED or (self.state is State.UNDER_WAY and self.attempts > 1)

    def add(self, record: Record, size: int) -> int:
        """Put a record behind the others; its position. ``size`` is ``record.size``."""
        assert not self.sealed
        if record.headers is not None or self.headers is not None:
            self.headers = self.headers or [None] * self.count
            self.headers.append(record.headers)
        index = self.count
        self.keys.append(record.key)
        self.values.append(record.value)
        self.timestamps_ms.append(record.timestamp_ms)
        self.size += size
        self.count = index + 1
        return index

    def extend(self, other: "Batch") -> int:
        """Put all records of ``other``, which has no headers, behind the others; the position of the first of them."""
        assert not self.sealed and other.message is None and other.headers is None
        if self.headers is not None:
            self.headers += [None] * other.count
        self.keys += other.keys
        self.values += other.values
        self.timestamps_ms += other.timestamps_ms
        self.size += other.size
        self.count += other.count
        return self.count - other.count

    def check(self, batch_bytes_max: int) -> None:
        """Raise InvalidRecord, MessageTooLarge here, for these records alone, rather than later for all that travel
        with them. What cannot be judged at a glance is encoded now, and so travels alone.
        """
        is_plain = _has_bytes(self.keys) and _has_bytes(self.values) and _has_times(self.timestamps_ms)
        if self.headers is not None or not is_plain or self.size + BATCH_OVERHEAD_BYTES > batch_bytes_max:
            self.encode(batch_bytes_max)

    def encode(self, batch_bytes_max: int) -> None:
        """Seal it, and make the Arrow message of the columns, then dropped. Raises InvalidRecord, MessageTooLarge."""
        assert self.message is None
        message = message_from_columns(self.keys, self.values, self.timestamps_ms, self.headers)
        if len(message) > batch_bytes_max:
            raise too_large(len(message), batch_bytes_max)
        self.message, self.sealed = message, True
        self.keys, self.values, self.timestamps_ms, self.headers = [], [], [], None

    def begin_again(self) -> None:
        """Forget the number and the attempts under it: none of them stored anything, and none can any more."""
        self.first_seq, self.identity, self.token = -1, None, None
        self.attempts, self.not_before_s = 0, 0.0
        self.state, self.last_error, self.is_final = State.UNDER_WAY, None, False

    def settle(self, outcome: Receipt | StockadeError) -> None:
        """Give the final outcome, once, and tell who waits."""
        assert self.outcome is None
        self.outcome, self.message = outcome, None
        watchers, self.watchers = self.watchers, []
        for watcher in watchers:
            watcher()


def too_large(size: int, limit: int) -> MessageTooLarge:
    """Of records that one batch of the topic cannot hold, ``limit`` being its max_batch_bytes."""
    detail = f"{size:,} bytes; the topic takes {limit:,} at once (max_batch_bytes)"
    return MessageTooLarge(detail, limit=limit, unit="bytes")


def _bytes_of(column: list[bytes | None]) -> int:
    return sum(len(item) for item in column if item is not None)


def _has_bytes(column: list[bytes | None]) -> bool:
    return _BYTES_OR_NOTHING.issuperset(map(type, column))


def _has_times(column: list[int]) -> bool:
    return set(map(type, column)) == {int} and min(column) >= 0 and max(column) <= _TIMESTAMP_MAX


def _headers_bytes(headers: Sequence[Header] | None) -> int:
    return sum(len(name.encode()) + len(value) + RECORD_OVERHEAD_BYTES for name, value in headers or ())
