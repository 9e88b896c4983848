"""Records and batches: the schema, and the only door through which bytes become a batch.

A batch is one encapsulated Arrow IPC RecordBatch message of SCHEMA. It is validated here, before it is
proposed, and then kept as it came: apply, the log on disk and the fetch path look only at its length, and
STREAM_START + messages + STREAM_END is again a stream that any Arrow reader opens. Nothing here reads a
clock; the moment of receipt is an argument.

Full validation is a matter of safety: offsets that point outside their buffers crash the process that follows
them.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import repeat

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from .checksum import crc32
from .errors import CorruptMessage, InvalidRecord, MessageTooLarge
from .ipc import METADATA_V5, batch_header, is_little_endian, metadata_version
from .plain import PLAIN_RECORDS_MAX, PlainEncoder

RECORDS_MAX = 100_000
"""Most records in one batch."""
HEADERS_MAX = 1000
"""Most headers of one record."""

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""Columns of every batch, in this order. All may be null; a null timestamp becomes the moment of receipt."""

STREAM_START: bytes = SCHEMA.serialize().to_pybytes()
"""The schema message with which every stream and every segment file begins."""
STREAM_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""The end-of-stream marker."""

_plain = PlainEncoder(SCHEMA)
_OLD_STREAM_END = b"\x00\x00\x00\x00"  # of before Arrow 0.15
_CONTINUATION = b"\xff\xff\xff\xff"
_ALIGNMENT = 8
_TIMESTAMP = SCHEMA.get_field_index("timestamp")
_HEADERS = SCHEMA.get_field_index("headers")

_UNREADABLE = (pa.ArrowException, OSError, ValueError, OverflowError, struct.error)
"""What pyarrow and ipc.py raise for bytes that are not Arrow's. OSError: the stream ends inside a message."""

_REASON_CHARACTERS_MAX = 200
"""Arrow's messages may quote what they complain about; an answer does not repeat a whole body."""

Header = tuple[str, bytes]


class Batch(msgspec.Struct, frozen=True):
    """One validated batch.

    ``message`` is one encapsulated IPC RecordBatch message of ``count`` rows, ``crc`` its CRC-32 (zlib),
    ``received_ms`` is the moment of receipt, which stands for every timestamp that was null, ``max_timestamp_ms`` the
    greatest timestamp in it.
    """

    message: bytes
    count: int
    crc: int
    received_ms: int
    max_timestamp_ms: int


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


def batch_from_columns(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int | None] | None,
    headers: Sequence[Sequence[Header] | None] | None,
    *,
    now_ms: int,
    batch_bytes_max: int,
) -> Batch:
    """Make a batch of Python values: lists of equal length, one item a record, where None is a null.

    ``timestamps_ms`` or ``headers`` may be None as a whole. Raises InvalidRecord, MessageTooLarge.
    """
    given = repeat(None, len(values)) if timestamps_ms is None else timestamps_ms
    filled = [now_ms if time is None else time for time in given]
    message = message_from_columns(keys, values, filled, headers)
    return _batch(message, len(values), (now_ms, max(filled)), batch_bytes_max)


def batch_of_value(value: bytes, *, now_ms: int, batch_bytes_max: int) -> Batch:
    """The batch of one record that is nothing but a value. Raises MessageTooLarge."""
    return _batch(_plain.encode_one(None, value, now_ms), 1, (now_ms, now_ms), batch_bytes_max)


def message_from_columns(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    filled: Sequence[int],
    headers: Sequence[Sequence[Header] | None] | None,
) -> bytes:
    """The message alone, for a client, whose server checks it anew: no checksum, and of any length."""
    count = len(values)
    _check_count(count)
    try:
        if not len(keys) == count == len(filled):
            raise ValueError("their lengths differ")
        if count <= PLAIN_RECORDS_MAX and (headers is None or not any(row is not None for row in headers)):
            message = _plain.encode(keys, values, filled)
        else:
            message = _with_headers(keys, values, filled, headers)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, struct.error) as error:
        raise InvalidRecord(f"the columns do not make a batch: {_reason(error)}") from error
    if min(filled) < 0:
        raise InvalidRecord("the timestamp is negative", next(i for i, time in enumerate(filled) if time < 0))
    return message


def _with_headers(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
    headers: Sequence[Sequence[Header] | None] | None,
) -> bytes:
    items = (keys, values, timestamps_ms, [None] * len(values) if headers is None else headers)
    arrays = [pa.array(column, field.type) for column, field in zip(items, SCHEMA, strict=True)]
    columns = pa.record_batch(arrays, schema=SCHEMA)
    _check_headers(columns.column(_HEADERS))
    return bytes(columns.serialize())


def decode_batch(message: bytes | memoryview) -> pa.RecordBatch:
    """Rows of a stored message. The message must have come from this file: nothing is validated again."""
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
    """The batch message of a stream, and its bytes if they can be stored as they are."""
    source = pa.BufferReader(body)
    try:
        _check_schema(_next_message(source), len(body))
        start = source.tell()
        message = _next_message(source)
        if message is None and source.tell() == start:
            raise ValueError("the stream ends behind its schema")
        if message is None:
            raise InvalidRecord("the stream has no batch")
        if message.type != "record batch":
            raise InvalidRecord(f"the stream has a {message.type} message where its batch should be")
        if metadata_version(memoryview(message.metadata)) != METADATA_V5:
            raise InvalidRecord("the metadata version of the batch is not V5 (Arrow 1.0 or later)")
        stored = memoryview(body).cast("B")[start : source.tell()]
        _check_end(source, memoryview(body).cast("B"))
    except _UNREADABLE as error:
        raise CorruptMessage(_reason(error)) from error
    is_ours = stored[:4] == _CONTINUATION and len(stored) % _ALIGNMENT == 0
    return message, bytes(stored) if is_ours else None


def _next_message(source: pa.BufferReader) -> pa.ipc.Message | None:
    try:
        return pa.ipc.read_message(source)
    except EOFError:
        return None


def _check_end(source: pa.BufferReader, body: memoryview) -> None:
    """A stream that lacks its end mark may have been cut, so it is refused as one that was cut elsewhere."""
    behind_batch = source.tell()
    if _next_message(source) is not None:
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
    schema = pa.ipc.read_schema(message)
    if schema.equals(SCHEMA):
        return
    if schema.names != SCHEMA.names:
        raise InvalidRecord(f"the columns must be {', '.join(SCHEMA.names)}, in this order")
    for field, ours in zip(schema, SCHEMA, strict=True):
        if not field.nullable or not _is_type(field.type, ours.type):
            raise InvalidRecord(f"column {ours.name} must be {ours.type} and nullable")


def _is_type(given: pa.DataType, ours: pa.DataType) -> bool:
    """Equal types, whatever the nullability of inner fields and the name of a list's items."""
    if pa.types.is_list(ours):
        return pa.types.is_list(given) and _is_type(given.value_type, ours.value_type)
    if pa.types.is_struct(ours):
        return pa.types.is_struct(given) and [(f.name, f.type) for f in given] == [(f.name, f.type) for f in ours]
    return bool(given == ours)


def _check_sizes(message: pa.ipc.Message, batch_bytes_max: int) -> None:
    """Refuse what is too large before anything is decompressed."""
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
    """The batch with no timestamp null (the same object if none was), and its greatest timestamp."""
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
    headers = column.flatten()
    if not len(headers):
        return
    too_many = pc.index(pc.greater(pc.list_value_length(column), HEADERS_MAX), True).as_py()
    if too_many >= 0:
        raise InvalidRecord(f"a record has at most {HEADERS_MAX} headers", too_many)
    if any(part.null_count for part in headers.flatten()):  # a null header makes its parts null
        rows = enumerate(column.to_pylist())
        index = next(i for i, row in rows if row and any(h is None or None in h.values() for h in row))
        raise InvalidRecord("a header, its key and its value must not be null", index)
