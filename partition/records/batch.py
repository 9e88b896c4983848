"""Records and batches: the schema, and the only door through which bytes become a batch.

A batch is one encapsulated Arrow IPC RecordBatch message of SCHEMA. It is validated here, before it is proposed, and
then stored unchanged: apply, the log on disk and the fetch path look only at its length, and STREAM_START + messages +
STREAM_END is again a stream that any Arrow reader opens. The moment of receipt is an argument, since nothing here reads
a clock.

Full validation is a matter of safety: offsets that point outside their buffers crash the process that reads them.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat
from operator import add
from typing import Literal, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import CorruptMessage, InvalidRecord, MessageTooLarge, StockadeError
from .checksum import crc32
from .ipc import (
    METADATA_V5,
    BatchHeader,
    batch_header,
    batch_places,
    check_schema,
    check_unread,
    is_little_endian,
    metadata_version,
)

RECORDS_MAX = 100_000
"""Most records in one batch."""
HEADERS_MAX = 1000
"""Most headers of one record."""
FRAMED_BYTES_MAX = 64 * 1024
"""Largest size of key and value together for which the frame of a message (all bytes but key and value) is cached."""
FRAMES_MAX = 1024
"""Most pairs of (key size, value size) whose frame is cached, at about 600 bytes each."""

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""Columns of every batch, in this order. All may be null; a null timestamp becomes the moment of receipt."""

Codec = Literal["lz4", "zstd"]
"""How Arrow compresses the buffers of a message: LZ4 frames or ZSTD."""
STREAM_START: bytes = SCHEMA.serialize().to_pybytes()
"""The schema message with which every stream and every segment file begins."""
STREAM_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""The end-of-stream marker."""

_OLD_STREAM_END = b"\x00\x00\x00\x00"  # before Arrow 0.15
_CONTINUATION = b"\xff\xff\xff\xff"
_ALIGNMENT = 8
_PREFIX = struct.Struct("<Ii")  # continuation mark, bytes of metadata
_INT64 = struct.Struct("<q")
_TIMESTAMP = SCHEMA.get_field_index("timestamp")
_HEADERS = SCHEMA.get_field_index("headers")

_UNREADABLE = (pa.ArrowException, OSError, ValueError, OverflowError, struct.error)
"""The exceptions of pyarrow and ipc.py for bytes that are no Arrow stream. OSError: it ends inside a message."""

_REASON_CHARACTERS_MAX = 200
"""Most characters of Arrow's error text in an answer: the text may quote the bad bytes, perhaps a whole body."""

Header = tuple[str, bytes]


class Batch(msgspec.Struct, frozen=True):
    """One validated batch.

    ``message`` is one encapsulated IPC RecordBatch message of ``count`` rows, ``crc`` its CRC-32 (zlib),
    ``received_ms`` the moment of receipt, which has replaced every null timestamp, ``max_timestamp_ms`` the greatest
    timestamp of a row.
    """

    message: bytes
    count: int
    crc: int
    received_ms: int
    max_timestamp_ms: int


class FastEncoder:
    """Encodes records without headers as one message of ``schema``, byte for byte as Arrow does, in a fraction of its
    time. ``schema`` has two binary columns, a timestamp, and a list of structs of two binary fields.

    For a batch of one record Arrow makes a dozen objects for each column, and it copies each value at least three
    times. The metadata of all such messages have one size and layout, so the metadata of a sample are filled in here.
    """

    def __init__(self, schema: pa.Schema) -> None:
        nulls = [pa.nulls(1, field.type) for field in schema]
        message: bytes = pa.record_batch(nulls, schema=schema).serialize().to_pybytes()
        _, size = _PREFIX.unpack_from(message)
        self._head = message[: _PREFIX.size + size]
        places = batch_places(memoryview(self._head)[_PREFIX.size :])
        self._body_length, self._rows, self._nodes, self._buffers = (place + _PREFIX.size for place in places)
        self._frame = lru_cache(FRAMES_MAX)(self._cut)

    def encode(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps_ms: Sequence[int]
    ) -> bytes:
        """The message of these records, given as lists of equal length with one item for each record."""
        key, value = keys[0], values[0]
        if len(values) > 1 or len(key or b"") + len(value or b"") > FRAMED_BYTES_MAX:
            return self._encode_all(keys, values, timestamps_ms)
        # All messages of one record with a key and a value of these sizes differ in three places only.
        key_size, value_size = None if key is None else len(key), None if value is None else len(value)
        before, between, behind, end = self._frame(key_size, value_size)
        return b"".join((before, key or b"", between, value or b"", behind, _INT64.pack(timestamps_ms[0]), end))

    def _cut(self, key_size: int | None, value_size: int | None) -> tuple[bytes, bytes, bytes, bytes]:
        """The frame of a message of one record with these sizes: its bytes before the key, between key and value,
        between value and timestamp, and after the timestamp.
        """
        key, value = (None if size is None else bytes(size) for size in (key_size, value_size))
        message = self._encode_all([key], [value], [0])
        places = struct.unpack_from("<16q", message, self._buffers)
        start = len(self._head)
        key_at, value_at, time_at = (start + places[2 * buffer] for buffer in (2, 5, 7))
        key_end, value_end = key_at + (key_size or 0), value_at + (value_size or 0)
        return message[:key_at], message[key_end:value_at], message[value_end:time_at], message[time_at + 8 :]

    def _encode_all(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps_ms: Sequence[int]
    ) -> bytes:
        count = len(values)
        key, value = _binary(keys), _binary(values)
        buffers: tuple[_Buffer, ...] = (
            *key.buffers,
            *value.buffers,
            _of(b""),
            _of(struct.pack(f"<{count}q", *timestamps_ms)),
            _of(bytes((count + 7) // 8)),  # all headers are null
            _of(bytes(4 * (count + 1))),
            _of(b""),
            *_NOTHING,
            *_NOTHING,
        )
        nodes = (count, key.nulls, count, value.nulls, count, 0, count, count)
        return self._fill(count, nodes, buffers)

    def _fill(self, count: int, nodes: Sequence[int], buffers: Sequence["_Buffer"]) -> bytes:
        sizes = [size for size, _ in buffers]
        paddings = [-size % _ALIGNMENT for size in sizes]
        offsets = list(accumulate(map(add, sizes, paddings), initial=0))
        head = bytearray(self._head)
        _INT64.pack_into(head, self._body_length, offsets[-1])
        _INT64.pack_into(head, self._rows, count)
        struct.pack_into(f"<{len(nodes)}q", head, self._nodes, *nodes)
        places = chain.from_iterable(zip(offsets, sizes, strict=False))
        struct.pack_into(f"<{2 * len(buffers)}q", head, self._buffers, *places)
        pieces: list[bytes | bytearray] = [head]
        for (_, items), padding in zip(buffers, paddings, strict=True):
            pieces += items
            pieces.append(bytes(padding))
        return b"".join(pieces)  # the only copy of the values: they are most of a batch


_Buffer = tuple[int, Sequence[bytes]]
"""A buffer of a message: its size in bytes, and the pieces that make it up."""


class _Column(NamedTuple):
    """A binary column: its number of nulls, and its buffers: the validity bitmap, the offsets, and all items."""

    nulls: int
    buffers: tuple[_Buffer, _Buffer, _Buffer]


def _of(data: bytes) -> _Buffer:
    return len(data), (data,)


_NOTHING = _of(b""), _of(bytes(4)), _of(b"")  # a binary column without rows


def _binary(column: Sequence[bytes | None]) -> _Column:
    """The binary column of these items. Its bitmap is empty without nulls. Most columns have no null, or only nulls."""
    count = len(column)
    if column[0] is None and not any(column) and column.count(None) == count:
        return _Column(count, (_of(bytes((count + 7) // 8)), _of(bytes(4 * (count + 1))), _of(b"")))
    bitmap, nulls = b"", 0
    if not all(column) and None in column:
        bitmap, nulls = _bitmap(column), column.count(None)
        column = [b"" if item is None else item for item in column]
    items = cast("Sequence[bytes]", column)
    ends = list(accumulate(map(len, items), initial=0))
    return _Column(nulls, (_of(bitmap), _of(struct.pack(f"<{count + 1}i", *ends)), (ends[-1], items)))


def _bitmap(column: Sequence[bytes | None]) -> bytes:
    bits = "".join(["0" if item is None else "1" for item in reversed(column)])
    return int(bits, 2).to_bytes((len(column) + 7) // 8, "little")


_plain = FastEncoder(SCHEMA)


def batch_from_stream(body: bytes | memoryview, *, now_ms: int, batch_bytes_max: int) -> Batch:
    """Validate an Arrow IPC stream of exactly one batch.

    ``now_ms`` replaces null timestamps. ``batch_bytes_max`` bounds the message as it will be stored and its
    uncompressed buffers. Raises CorruptMessage (not a readable stream), InvalidRecord (readable, but not a
    batch of ours), MessageTooLarge.
    """
    message, stored = _only_batch(pa.py_buffer(body))
    _check_sizes(message, batch_bytes_max)
    columns = _decode(message)
    _check_headers(columns.column(_HEADERS))
    filled, max_timestamp_ms = _fill_timestamps(columns, now_ms)
    if stored is None or filled is not columns:
        stored = filled.serialize().to_pybytes()
    return _batch(stored, len(columns), (now_ms, max_timestamp_ms), batch_bytes_max)


def unpacked(body: bytes | memoryview) -> BatchHeader:
    """The rows and uncompressed bytes that the batch of a stream claims to have; zeros for a body that
    ``batch_from_stream`` refuses before it decompresses anything.
    """
    try:
        message, _ = _only_batch(pa.py_buffer(body))
        return batch_header(memoryview(message.metadata), memoryview(message.body))
    except (StockadeError, *_UNREADABLE):
        return BatchHeader(0, 0)


def batch_from_columns(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int | None] | None,
    headers: Sequence[Sequence[Header] | None] | None,
    *,
    now_ms: int,
    batch_bytes_max: int,
) -> Batch:
    """Make a batch of Python values, given as lists of equal length with one item for each record; None is a null.

    ``timestamps_ms`` or ``headers`` may be None as a whole. Raises InvalidRecord, MessageTooLarge.
    """
    given = repeat(None, len(values)) if timestamps_ms is None else timestamps_ms
    filled = [now_ms if time is None else time for time in given]
    message = message_from_columns(keys, values, filled, headers)
    return _batch(message, len(values), (now_ms, max(filled)), batch_bytes_max)


def batch_of_value(value: bytes, *, now_ms: int, batch_bytes_max: int) -> Batch:
    """The batch of one record with a value and nothing else. Raises MessageTooLarge."""
    return _batch(_plain.encode([None], [value], [now_ms]), 1, (now_ms, now_ms), batch_bytes_max)


def message_from_columns(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    filled: Sequence[int],
    headers: Sequence[Sequence[Header] | None] | None,
) -> bytes:
    """The message alone, of any length and without a checksum, for a client: the node validates it again. Raises
    InvalidRecord, MessageTooLarge.
    """
    count = len(values)
    _check_count(count)
    try:
        if not len(keys) == count == len(filled):
            raise ValueError("their lengths differ")
        if headers is None or not any(row is not None for row in headers):
            message = _plain.encode(keys, values, filled)
        else:
            message = _with_headers(keys, values, filled, headers)
        oldest = min(filled)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, struct.error) as error:
        raise InvalidRecord(f"the columns do not make a batch: {_reason(error)}") from error
    if oldest < 0:
        raise InvalidRecord("the timestamp is negative", next(i for i, time in enumerate(filled) if time < 0))
    return message


def compressed(message: bytes, codec: Codec) -> bytes:
    """The same batch with compressed buffers, or ``message`` itself where that is no smaller.

    ``message`` must have come from this file.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(decode_batch(message))
    smaller = bytes(memoryview(sink.getvalue())[len(STREAM_START) : -len(STREAM_END)])
    return smaller if len(smaller) < len(message) else message


def _with_headers(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
    headers: Sequence[Sequence[Header] | None],
) -> bytes:
    items = zip((keys, values, timestamps_ms, headers), SCHEMA, strict=True)
    arrays = [pa.array(column, field.type) for column, field in items]
    columns = pa.record_batch(arrays, schema=SCHEMA)
    _check_headers(columns.column(_HEADERS))
    return bytes(columns.serialize())


def decode_batch(message: bytes | memoryview) -> pa.RecordBatch:
    """The rows of a stored message. The message must have come from this file: nothing is validated again."""
    return pa.ipc.read_record_batch(pa.py_buffer(message), SCHEMA)


def stream(messages: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
    """Buffers that, written one after the other, are an Arrow IPC stream of these messages."""
    return [STREAM_START, *messages, STREAM_END]


def _reason(error: Exception) -> str:
    return str(error)[:_REASON_CHARACTERS_MAX]


def _batch(message: bytes, count: int, times_ms: tuple[int, int], batch_bytes_max: int) -> Batch:
    if len(message) > batch_bytes_max:
        raise MessageTooLarge(limit=batch_bytes_max, unit="bytes")
    return Batch(message, count, crc32(message), *times_ms)


def _only_batch(body: pa.Buffer) -> tuple[pa.ipc.Message, bytes | None]:
    """(the batch message of a stream, its bytes if they can be stored as they are, else None)."""
    source, data = pa.BufferReader(body), memoryview(body).cast("B")
    try:
        if data[: len(STREAM_START)] == STREAM_START:  # the schema is ours, byte for byte
            source.seek(len(STREAM_START))
        else:
            _check_schema(_next_message(source, data), len(body))
        start = source.tell()
        message = _next_message(source, data)
        if message is None and source.tell() == start:
            raise ValueError("the stream ends behind its schema")
        if message is None:
            raise InvalidRecord("the stream has no batch")
        if message.type != "record batch":
            raise InvalidRecord(f"the stream has a {message.type} message where its batch should be")
        if metadata_version(memoryview(message.metadata)) != METADATA_V5:
            raise InvalidRecord("the metadata version of the batch is not V5 (Arrow 1.0 or later)")
        stored = data[start : source.tell()]
        _check_end(source, data)
    except _UNREADABLE as error:
        raise CorruptMessage(_reason(error)) from error
    is_ours = stored[:4] == _CONTINUATION and len(stored) % _ALIGNMENT == 0
    return message, bytes(stored) if is_ours else None


def _next_message(source: pa.BufferReader, data: memoryview) -> pa.ipc.Message | None:
    """The next message of ``data``, which ``source`` reads; None: there is none."""
    if (start := source.tell()) + _PREFIX.size <= len(data):
        check_unread(data, start)
    try:
        return pa.ipc.read_message(source)
    except EOFError:
        return None


def _check_end(source: pa.BufferReader, body: memoryview) -> None:
    """Refuse a stream with more than one batch, or without an end mark: it may have been cut there."""
    behind_batch = source.tell()
    if _next_message(source, body) is not None:
        raise InvalidRecord("the stream has more than one batch")
    if source.tell() != len(body):
        raise ValueError("bytes follow the end of the stream")
    if body[behind_batch:] not in (STREAM_END, _OLD_STREAM_END):
        raise ValueError("the stream lacks its end mark")


def _check_schema(message: pa.ipc.Message | None, size: int) -> None:
    if message is None or message.type != "schema":
        raise ValueError("the stream does not begin with a schema" if size else "the body is empty")
    if not is_little_endian(memoryview(message.metadata)):
        raise InvalidRecord("the stream is big-endian")
    check_schema(memoryview(message.metadata))
    schema = pa.ipc.read_schema(message)
    if schema.equals(SCHEMA):
        return
    if schema.names != SCHEMA.names:
        raise InvalidRecord(f"the columns must be {', '.join(SCHEMA.names)}, in this order")
    for field, ours in zip(schema, SCHEMA, strict=True):
        if not field.nullable or not _is_type(field.type, ours.type):
            raise InvalidRecord(f"column {ours.name} must be {ours.type} and nullable")


def _is_type(given: pa.DataType, ours: pa.DataType) -> bool:
    """Whether the types are equal, apart from the nullability of inner fields and the name of a list's items."""
    if pa.types.is_list(ours):
        return pa.types.is_list(given) and _is_type(given.value_type, ours.value_type)
    if pa.types.is_struct(ours):
        return pa.types.is_struct(given) and [(f.name, f.type) for f in given] == [(f.name, f.type) for f in ours]
    return bool(given == ours)


def _check_sizes(message: pa.ipc.Message, batch_bytes_max: int) -> None:
    """Refuse a message that is too large before anything is decompressed."""
    try:
        header = batch_header(memoryview(message.metadata), memoryview(message.body))
    except _UNREADABLE as error:
        raise CorruptMessage(_reason(error)) from error
    _check_count(header.rows)
    if max(header.uncompressed, message.metadata.size + message.body.size) > batch_bytes_max:
        raise MessageTooLarge(limit=batch_bytes_max, unit="bytes")


def _check_count(count: int) -> None:
    if count < 1:
        raise InvalidRecord("the batch is empty")
    if count > RECORDS_MAX:
        raise MessageTooLarge(limit=RECORDS_MAX, unit="records")


def _decode(message: pa.ipc.Message) -> pa.RecordBatch:
    try:
        columns = pa.ipc.read_record_batch(message, SCHEMA)
        columns.validate(full=True)
    except _UNREADABLE as error:
        raise CorruptMessage(_reason(error)) from error
    return columns


def _fill_timestamps(columns: pa.RecordBatch, now_ms: int) -> tuple[pa.RecordBatch, int]:
    """(the batch with ``now_ms`` in place of null timestamps, the same object if there were none; its greatest
    timestamp). Raises InvalidRecord for a negative timestamp.
    """
    timestamps = columns.column(_TIMESTAMP)
    if timestamps.null_count:
        timestamps = pc.fill_null(timestamps, pa.scalar(now_ms, timestamps.type))
        columns = columns.set_column(_TIMESTAMP, SCHEMA.field(_TIMESTAMP), timestamps)
    bounds = pc.min_max(timestamps.view(pa.int64()))
    if bounds["min"].as_py() < 0:
        index = pc.index(pc.less(timestamps.view(pa.int64()), 0), True).as_py()
        raise InvalidRecord("the timestamp is negative", index)
    return columns, bounds["max"].as_py()


def _check_headers(column: pa.ListArray) -> None:
    """Refuse too many headers of a record, null headers, null header keys and null header values."""
    if column.null_count == len(column):  # the count can be trusted: Arrow has compared it with the bitmap
        return
    headers = column.flatten()
    if not len(headers):
        return
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    too_many = pc.index(pc.greater(lengths, HEADERS_MAX), True).as_py()
    if too_many >= 0:
        raise InvalidRecord(f"a record has at most {HEADERS_MAX} headers", too_many)
    key, value = headers.flatten()  # a null header makes its parts null
    if key.null_count or value.null_count:
        # By whole columns: a small body may unpack to millions of headers, and a Python object for each takes seconds.
        header = pc.index(pc.or_(pc.is_null(key), pc.is_null(value)), True).as_py()
        index = pc.index(pc.greater(pc.cumulative_sum(lengths.cast(pa.int64())), header), True).as_py()
        raise InvalidRecord("a header, its key and its value must not be null", index)
