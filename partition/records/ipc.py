"""Reads the part of Arrow's IPC metadata that must be known *before* Arrow decodes a record batch.

Arrow decompresses while it reads, so a small message may claim gigabytes. This module reads the sizes from the
message's flatbuffer and from the length prefixes of its buffers. Only metadata that Arrow has verified may come here
(``pyarrow.ipc.read_message`` does that); nothing here decodes a column.
"""

import struct
from collections.abc import Iterator

import msgspec

METADATA_V5 = 4
"""Metadata version of Arrow 1.0 and later. Version V4 noted compression in other places, which this file does not read.
"""

_INT16 = struct.Struct("<h")
_UINT16 = struct.Struct("<H")
_INT32 = struct.Struct("<i")
_UINT32 = struct.Struct("<I")
_INT64 = struct.Struct("<q")
_PAIR = struct.Struct("<qq")

_MESSAGE_VERSION, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 0, 2, 3
_SCHEMA_ENDIANNESS = 0
_BATCH_LENGTH, _BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 1, 2, 3


class BatchHeader(msgspec.Struct, frozen=True):
    """The sizes that a record batch message claims: its ``rows``, and the ``uncompressed`` bytes of all its buffers."""

    rows: int
    uncompressed: int


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
