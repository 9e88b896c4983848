"""Reads the part of Arrow's IPC metadata that must be known *before* Arrow decodes a record batch.

Arrow decompresses while it reads, so a small message may claim gigabytes. This module reads the sizes from the
message's flatbuffer and from the length prefixes of its buffers. Only metadata that Arrow has verified may come here
(``pyarrow.ipc.read_message`` does that), but for ``check_unread``; nothing here decodes a column.

A flatbuffer may name one table many times, and Arrow copies what it names each time: without the two checks here, a few
KB of metadata become gigabytes of fields, or of key-value pairs.
"""

import struct
from collections.abc import Iterator

import msgspec

from ..errors import InvalidRecord

METADATA_V5 = 4
"""Metadata version of Arrow 1.0 and later. Version V4 noted compression in other places, which this file does not read.
"""

METADATA_BYTES_MAX = 64 * 1024
"""Most bytes of the metadata of one message; ours take some hundred. Arrow visits each table that they name, and these
may be eight times as many as their bytes.
"""
FIELDS_MAX = 100
"""Most fields of a schema, inner ones included."""
PAIRS_BYTES_MAX = 1024 * 1024
"""Most bytes to which the key-value pairs of a message may unpack."""

_INT16 = struct.Struct("<h")
_UINT16 = struct.Struct("<H")
_INT32 = struct.Struct("<i")
_UINT32 = struct.Struct("<I")
_INT64 = struct.Struct("<q")
_PAIR = struct.Struct("<qq")

FEW_BYTES = 2048
"""Metadata of at most this many bytes, as ours, are not checked: n bytes name n / 4 pairs at most, and n * n / 4 <=
PAIRS_BYTES_MAX.
"""
_CONTINUATION = -1  # at the start of a message, before the length of its metadata; absent before Arrow 0.15
_MESSAGE_VERSION, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH, _MESSAGE_PAIRS = 0, 2, 3, 4
_SCHEMA_ENDIANNESS, _SCHEMA_FIELDS, _SCHEMA_PAIRS = 0, 1, 2
_FIELD_CHILDREN, _FIELD_PAIRS = 5, 6
_BATCH_LENGTH, _BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 1, 2, 3


class BatchHeader(msgspec.Struct, frozen=True):
    """The sizes that a record batch message claims: its ``rows``, and the ``uncompressed`` bytes of all its buffers."""

    rows: int
    uncompressed: int


def check_unread(data: memoryview, start: int) -> None:
    """Check the message at ``start`` before Arrow reads it. Raises InvalidRecord for metadata that are too long, or
    have too many key-value pairs; struct.error for some that Arrow would refuse.

    These metadata are not verified: in some that Arrow would refuse, the positions lead to other bytes, or to none.
    """
    size, begin = _read(_INT32, data, start), start + _INT32.size
    if size == _CONTINUATION:
        size, begin = _read(_INT32, data, begin), begin + _INT32.size
    if size <= FEW_BYTES or size > len(data) - begin:
        return  # few, the end of the stream, or a message that is cut: Arrow reads nothing of it
    if size > METADATA_BYTES_MAX:
        raise InvalidRecord(
            f"the metadata of a message have more than {METADATA_BYTES_MAX} bytes: leave the schema's metadata out"
        )
    metadata = data[begin : begin + size]
    _check_pairs(_count(metadata, _root(metadata), _MESSAGE_PAIRS), metadata)


def check_schema(metadata: memoryview) -> None:
    """Check a schema message before Arrow makes its fields. Raises InvalidRecord if these, or its key-value pairs, are
    too many.
    """
    schema = _header(metadata)
    fields, pairs = 0, _count(metadata, schema, _SCHEMA_PAIRS)
    waiting = [(schema, _SCHEMA_FIELDS)]
    while waiting:
        table, number = waiting.pop()
        fields += _count(metadata, table, number)
        if fields > FIELDS_MAX:
            raise InvalidRecord(f"the schema has more than {FIELDS_MAX} fields")
        for field in _tables(metadata, table, number):
            pairs += _count(metadata, field, _FIELD_PAIRS)
            waiting.append((field, _FIELD_CHILDREN))
    _check_pairs(pairs, metadata)


def _check_pairs(count: int, metadata: memoryview) -> None:
    """Refuse too many key-value pairs (custom_metadata): Arrow copies each, and all may be the same long one."""
    if count * len(metadata) > PAIRS_BYTES_MAX:
        raise InvalidRecord(
            f"{count} key-value pairs in {len(metadata)} bytes of metadata may be {count * len(metadata)} bytes, more"
            f" than {PAIRS_BYTES_MAX}: leave the metadata out"
        )


def metadata_version(metadata: memoryview) -> int:
    """The metadata version of a message, as the format numbers it (V5 is 4)."""
    field = _field(metadata, _root(metadata), _MESSAGE_VERSION)
    return _read(_INT16, metadata, field) if field else 0


def is_little_endian(metadata: memoryview) -> bool:
    """Whether a schema message announces little-endian buffers."""
    field = _field(metadata, _header(metadata), _SCHEMA_ENDIANNESS)
    return not field or _read(_INT16, metadata, field) == 0


def batch_header(metadata: memoryview, body: memoryview) -> BatchHeader:
    """The sizes that a record batch message claims. Raises ValueError for a compressed buffer that lies outside the
    body, or has a bad length prefix.
    """
    batch = _header(metadata)
    length = _field(metadata, batch, _BATCH_LENGTH)
    rows = _read(_INT64, metadata, length) if length else 0
    compressed = _field(metadata, batch, _BATCH_COMPRESSION) != 0
    sizes = _buffers(metadata, batch)
    total = sum(_uncompressed(body, start, size) if compressed else size for start, size in sizes)
    return BatchHeader(rows, total)


def batch_places(metadata: memoryview) -> tuple[int, int, int, int]:
    """The positions in a record batch message's metadata of the body's length, the number of rows, the first node and
    the first buffer.
    """
    batch = _header(metadata)
    return (
        _field(metadata, _root(metadata), _MESSAGE_BODY_LENGTH),
        _field(metadata, batch, _BATCH_LENGTH),
        _vector(metadata, _field(metadata, batch, _BATCH_NODES)),
        _vector(metadata, _field(metadata, batch, _BATCH_BUFFERS)),
    )


def _uncompressed(body: memoryview, start: int, size: int) -> int:
    """The uncompressed size of one compressed buffer: its first 8 bytes, where -1 means that it is not compressed."""
    if size == 0:
        return 0
    if start < 0 or size < _INT64.size or start + size > len(body):
        raise ValueError("a compressed buffer lies outside the body")
    claimed = _read(_INT64, body, start)
    if claimed < -1:
        raise ValueError("a compressed buffer has a negative length")
    return size - _INT64.size if claimed == -1 else claimed


def _buffers(metadata: memoryview, batch: int) -> Iterator[tuple[int, int]]:
    field = _field(metadata, batch, _BATCH_BUFFERS)
    if not field:
        return iter(())
    first = _vector(metadata, field)
    return _PAIR.iter_unpack(metadata[first : first + _PAIR.size * _read(_UINT32, metadata, first - _UINT32.size)])


def _vector(metadata: memoryview, field: int) -> int:
    """The position of a vector's first item; the vector's length is in the four bytes before."""
    return field + _read(_UINT32, metadata, field) + _UINT32.size


def _count(metadata: memoryview, table: int, number: int) -> int:
    """The number of items of a vector, 0 if the table has none."""
    field = _field(metadata, table, number)
    return _read(_UINT32, metadata, _vector(metadata, field) - _UINT32.size) if field else 0


def _tables(metadata: memoryview, table: int, number: int) -> Iterator[int]:
    """The positions of the tables in a vector of tables."""
    for item in range(_count(metadata, table, number)):
        place = _vector(metadata, _field(metadata, table, number)) + item * _UINT32.size
        yield place + _read(_UINT32, metadata, place)


def _root(metadata: memoryview) -> int:
    return _read(_UINT32, metadata, 0)


def _header(metadata: memoryview) -> int:
    """The position of the table that the message carries (schema or record batch)."""
    field = _field(metadata, _root(metadata), _MESSAGE_HEADER)
    if not field:
        raise ValueError("the message has no header")
    return field + _read(_UINT32, metadata, field)


def _field(metadata: memoryview, table: int, number: int) -> int:
    """The position of a field of a flatbuffer table; 0 when it is absent and so has its default."""
    layout = table - _read(_INT32, metadata, table)
    entry = 4 + 2 * number
    if entry >= _read(_UINT16, metadata, layout):
        return 0
    offset = _read(_UINT16, metadata, layout + entry)
    return table + offset if offset else 0


def _read(kind: struct.Struct, data: memoryview, position: int) -> int:
    value: int = kind.unpack_from(data, position)[0]
    return value
