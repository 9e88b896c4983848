"""A batch on the client's side: records that are numbered, sent, repeated and settled together."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, NamedTuple, Self

from ....partition.api.producers import ProducerPair
from ....partition.commands import Token
from ....partition.errors import InvalidRecord, MessageTooLarge, StockadeError
from ....partition.records.batch import (
    HEADERS_MAX,
    RECORDS_MAX,
    Header,
    compressed,
    decode_batch,
    message_from_columns,
)
from ...api.conditions import UNCONDITIONAL, Conditions
from ...config import Compression
from ...transport.trace import trace_of

RECORD_OVERHEAD_BYTES = 24
"""Estimate for a record beside its key, value and headers: offsets of four columns and the timestamp."""
BATCH_OVERHEAD_BYTES = 640
"""Estimate for a batch beside its records: metadata and padding of the Arrow message."""

BytesLike = bytes | bytearray | memoryview
"""What a key or a value may be; the client copies what can change."""

_BYTES_OR_NOTHING = frozenset((bytes, type(None)))
TIMESTAMP_MAX = 2**63 - 1


class Record(NamedTuple):
    """One record to send. ``timestamp_ms`` is Unix time, ``value`` None a tombstone.

    ``metadata`` is the application's: it is not sent, and comes back with the outcome.
    """

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[Header] | None = None
    metadata: object = None

    def plain_size(self) -> int | None:
        """``size`` of a record of bytes without headers; None for any other, which goes through `checked`."""
        key, value, timestamp_ms, headers, _ = self
        if (
            type(value) is bytes
            and headers is None
            and type(timestamp_ms) is int
            and 0 <= timestamp_ms <= TIMESTAMP_MAX
        ):
            if key is None:
                return RECORD_OVERHEAD_BYTES + len(value)
            if type(key) is bytes:
                return RECORD_OVERHEAD_BYTES + len(value) + len(key)
        return None

    def checked(self) -> "Record":
        """This record, with copies of what could change.

        Raises InvalidRecord for a wrong type, a timestamp out of range, or headers that are malformed or more than
        HEADERS_MAX: now, for this record alone, since later the whole batch would fail with it.
        """
        key, value = frozen_bytes(self.key), frozen_bytes(self.value)
        if key is not None and not isinstance(key, bytes):
            raise _no_bytes("key", key)
        if value is not None and not isinstance(value, bytes):
            raise _no_bytes("value", value)
        if not isinstance(self.timestamp_ms, int) or not 0 <= self.timestamp_ms <= TIMESTAMP_MAX:
            raise InvalidRecord(f"the timestamp must be an integer from 0 to 2**63 - 1, not {self.timestamp_ms!r:.100}")
        headers = None if self.headers is None else _checked_headers(self.headers)
        return self._replace(key=key, value=value, timestamp_ms=int(self.timestamp_ms), headers=headers)

    def message_size(self) -> int:
        """Bytes of the message of this record alone, which a topic bounds by max_batch_bytes. For a checked record."""
        headers = None if self.headers is None else [self.headers]
        return len(message_from_columns([self.key], [self.value], [self.timestamp_ms], headers))

    @property
    def size(self) -> int:
        """Bytes that the record counts for in a batch; an estimate."""
        size = RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"")
        return size + _headers_bytes(self.headers) if self.headers else size


Row = tuple[Any, Any, int, Sequence[Header] | None, object]
"""The fields of a Record."""
record_of: Callable[[Row], Record] = partial(tuple.__new__, Record)
"""The Record of a row: ``Record(*row)`` in a third of the time, which counts for each record."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """``count`` records are stored on a majority of the replicas, at consecutive offsets from ``base_offset`` on.

    ``base_offset`` None: they are stored, and the partition no longer remembers where (0 is an offset).
    ``duplicate``: an earlier attempt of the same batch had stored it. ``timestamp_ms``: when the leader received the
    batch (Unix time); None with ``base_offset``. ``metadata``: one for each record, empty when no record has one; only
    what ``successes`` and watchers give has it.
    """

    topic: str
    partition: int
    base_offset: int | None
    count: int
    duplicate: bool
    timestamp_ms: int | None
    metadata: tuple[object, ...] = field(default=(), compare=False)

    @property
    def offset(self) -> int | None:
        """Offset of the (first) record."""
        return self.base_offset

    @property
    def last_offset(self) -> int | None:
        """Offset of the last record."""
        return None if self.base_offset is None else self.base_offset + self.count - 1


class State(Enum):
    """The state of a batch in the window."""

    IN_FLIGHT = auto()
    """An attempt was sent and is not answered yet."""
    FAILED = auto()
    """The last attempt was refused, or its outcome is unknown; the batch waits to be sent again, unchanged."""
    STORED = auto()
    """Stored; it waits for the batches before it, so that a partition's deliveries settle in order."""


class Batch:
    """Records of one partition, their attempts, and their outcome.

    Columns grow until the batch is ``sealed``. ``is_due``: it no longer waits for more records, only for room in
    flight. Once it has a sequence number, every attempt sends the same: producer id, epoch, first sequence number,
    fencing token and bytes (SEMANTICS 9.2). ``trace``: the trace of one of its records, which its requests carry too.
    """

    __slots__ = (
        "attempts", "conditions", "count", "created_s", "first_seq", "headers", "identity", "is_due",
        "is_final", "is_reported", "keys", "last_error", "maybe_stored", "message", "metadata", "not_before_s",
        "outcome", "receipt", "sealed", "sent_as_oldest", "size", "state", "timestamps_ms", "token", "trace", "values",
        "watchers",
    )  # fmt: skip

    def __init__(self, created_s: float) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps_ms: list[int] = []
        self.headers: list[Sequence[Header] | None] | None = None
        self.metadata: list[object] | None = None
        self.created_s: float = created_s
        self.count: int = 0
        self.size: int = 0
        self.is_due: bool = False
        self.sealed: bool = False
        self.message: bytes | None = None
        self.trace: str | None = None
        self.first_seq: int = -1
        self.identity: ProducerPair | None = None
        self.token: Token | None = None
        self.conditions: Conditions = UNCONDITIONAL
        self.state: State = State.IN_FLIGHT
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
        values: Sequence[BytesLike | None],
        keys: Sequence[BytesLike | None] | None,
        headers: Sequence[Sequence[Header] | None] | None,
        timestamps_ms: Sequence[int] | None,
        *,
        now_ms: int,
    ) -> Self:
        """A batch of columns of equal length; ``timestamps_ms`` None: ``now_ms`` for each.

        Raises InvalidRecord for columns of unequal length and for values of a wrong type.
        """
        count = len(values)
        if not 1 <= count <= RECORDS_MAX:
            raise InvalidRecord(f"a batch has 1 to {RECORDS_MAX} records, not {count}")
        if any(column is not None and len(column) != count for column in (keys, headers, timestamps_ms)):
            raise InvalidRecord("keys, values, headers and timestamps differ in number")
        batch = cls(0.0)
        batch.count = count
        batch.values = _bytes_column("value", values)
        batch.keys = [None] * count if keys is None else _bytes_column("key", keys)
        batch.headers = None if headers is None else list(headers)
        batch.timestamps_ms = [now_ms] * count if timestamps_ms is None else list(timestamps_ms)
        try:
            batch.size = RECORD_OVERHEAD_BYTES * count + _bytes_of(batch.values) + _bytes_of(batch.keys)
            batch.size += sum(map(_headers_bytes, batch.headers or ()))
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidRecord(f"headers must be pairs of str and bytes: {error}") from error
        return batch

    @property
    def is_retrying(self) -> bool:
        """Whether an attempt has failed and the batch is not settled: the queue stays muted also while the batch is in
        flight again (SEMANTICS 9.4).
        """
        return self.state is State.FAILED or (self.state is State.IN_FLIGHT and self.attempts > 1)

    def add(self, record: Record, size: int) -> int:
        """Append a record; returns its index. ``size`` is ``record.size``."""
        assert not self.sealed
        key, value, timestamp_ms, headers, metadata = record
        if headers is not None or self.headers is not None:
            self.headers = self.headers or [None] * self.count
            self.headers.append(headers)
        if metadata is not None or self.metadata is not None:
            self.metadata = self.metadata or [None] * self.count
            self.metadata.append(metadata)
        index = self.count
        self.keys.append(key)
        self.values.append(value)
        self.timestamps_ms.append(timestamp_ms)
        self.size += size
        self.count = index + 1
        return index

    def extend(self, other: "Batch") -> int:
        """Append the records of ``other``, which has no headers; returns the index of the first of them."""
        assert not self.sealed and other.message is None and other.headers is None
        if self.headers is not None:
            self.headers += [None] * other.count
        if self.metadata is not None:
            self.metadata += [None] * other.count
        self.keys += other.keys
        self.values += other.values
        self.timestamps_ms += other.timestamps_ms
        self.size += other.size
        self.count += other.count
        return self.count - other.count

    def check(self, batch_bytes_max: int, compression: Compression = "none") -> None:
        """Raise InvalidRecord or MessageTooLarge now, for these records alone: later the whole batch would fail.
        Records that the quick check cannot accept (headers, unusual types, nearly too large) are encoded now, and their
        batch is not joined with others.
        """
        is_plain = _has_bytes(self.keys) and _has_bytes(self.values) and _has_times(self.timestamps_ms)
        if self.headers is not None or not is_plain or self.size + BATCH_OVERHEAD_BYTES > batch_bytes_max:
            self.encode(batch_bytes_max, compression)

    def encode(self, batch_bytes_max: int, compression: Compression = "none") -> None:
        """Seal the batch: make its Arrow message, and drop the columns. Raises InvalidRecord, MessageTooLarge.

        ``batch_bytes_max`` bounds the message before it is compressed, as the topic does.
        """
        assert self.message is None
        message = message_from_columns(self.keys, self.values, self.timestamps_ms, self.headers)
        if len(message) > batch_bytes_max:
            raise too_large(len(message), batch_bytes_max)
        self.message = message if compression == "none" else compressed(message, compression)
        self.trace = None if self.headers is None else trace_of(self.headers)
        self.sealed = True
        self.keys, self.values, self.timestamps_ms, self.headers = [], [], [], None

    def begin_again(self) -> None:
        """Forget the sequence number and the attempts: no attempt has stored the batch, or still can."""
        self.first_seq, self.identity, self.token = -1, None, None
        self.conditions = self.conditions._replace(fence_epoch=None)
        self.attempts, self.not_before_s = 0, 0.0
        self.state, self.last_error, self.is_final = State.IN_FLIGHT, None, False

    def settle(self, outcome: Receipt | StockadeError) -> None:
        """Set the final outcome, once, and call the watchers."""
        assert self.outcome is None
        self.outcome = outcome
        self.last_error = None  # its traceback has frames with the records
        watchers, self.watchers = self.watchers, []
        for watcher in watchers:
            watcher()

    def records(self) -> list[Record]:
        """The records of the batch, until the batch drops them."""
        keys, values, times, headers = self.keys, self.values, self.timestamps_ms, self.headers
        if self.message is not None:
            columns = decode_batch(self.message).columns
            keys, values, times = columns[0].to_pylist(), columns[1].to_pylist(), columns[2].view("int64").to_pylist()
            headers = [_pairs(row) for row in columns[3].to_pylist()]
        nothing = [None] * self.count
        rows = zip(keys, values, times, headers or nothing, self.metadata or nothing, strict=True)
        return [Record(*row) for row in rows]

    def drop_records(self) -> None:
        """Free the records after their outcome was reported; a failed batch itself may be kept for ``flush``."""
        self.message, self.metadata = None, None
        self.keys, self.values, self.timestamps_ms, self.headers = [], [], [], None


def _pairs(headers: "list[dict[str, Any]] | None") -> list[Header] | None:
    return None if headers is None else [(header["key"], header["value"]) for header in headers]


def too_large(size: int, limit: int) -> MessageTooLarge:
    """The error of records of ``size`` bytes; ``limit`` is the topic's max_batch_bytes."""
    detail = f"{size:,} bytes; the topic takes {limit:,} at once (max_batch_bytes)"
    return MessageTooLarge(detail, limit=limit, unit="bytes")


def frozen_bytes(given: BytesLike | None) -> bytes | None:
    """A copy of ``given`` if it is mutable (bytearray, memoryview); any other value unchanged, to be checked by
    `Record.checked` or `Batch.of`.
    """
    return bytes(given) if isinstance(given, bytearray | memoryview) else given


def _no_bytes(what: str, given: object) -> InvalidRecord:
    kind = type(given).__name__
    way = f"a Producer with {what}_serializer='str' or 'json' makes bytes of others"
    return InvalidRecord(f"a {what} must be bytes, bytearray, memoryview or None, not {kind}; {way}")


def _checked_headers(given: object) -> tuple[Header, ...]:
    if not isinstance(given, Iterable):
        raise InvalidRecord(f"headers must be pairs of str and bytes, not {given!r:.100}")
    headers = []
    for header in given:
        is_pair = isinstance(header, tuple | list) and len(header) == 2
        if not (is_pair and isinstance(header[0], str) and isinstance(header[1], bytes)) or not _is_text(header[0]):
            raise InvalidRecord(f"headers must be pairs of str and bytes, and one is {header!r:.100}")
        headers.append((str(header[0]), bytes(header[1])))
    if len(headers) > HEADERS_MAX:
        raise InvalidRecord(f"a record has at most {HEADERS_MAX} headers, not {len(headers)}")
    return tuple(headers)


def _is_text(name: str) -> bool:
    """Whether the name can be encoded in UTF-8: half of a surrogate pair cannot."""
    try:
        return name.encode() is not None
    except UnicodeEncodeError:
        return False


def _bytes_column(what: str, given: Sequence[BytesLike | None]) -> list[bytes | None]:
    column = [frozen_bytes(each) for each in given]
    if not _has_bytes(column):
        for each in column:
            if each is not None and not isinstance(each, bytes):
                raise _no_bytes(what, each)
    return column


def _bytes_of(column: list[bytes | None]) -> int:
    return sum(len(item) for item in column if item is not None)


def _has_bytes(column: list[bytes | None]) -> bool:
    return _BYTES_OR_NOTHING.issuperset(map(type, column))


def _has_times(column: list[int]) -> bool:
    return set(map(type, column)) == {int} and min(column) >= 0 and max(column) <= TIMESTAMP_MAX


def _headers_bytes(headers: Sequence[Header] | None) -> int:
    return sum(len(name.encode()) + len(value) + RECORD_OVERHEAD_BYTES for name, value in headers or ())
