"""Encodes a few records without headers as one Arrow message, byte for byte as Arrow does, in a fraction of its time.

For a batch of one record Arrow makes a dozen objects a column. The metadata of such messages have one size and layout,
so those of a sample are filled in here. Nothing is checked: that is for records.py, which alone makes batches.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain

import pyarrow as pa

from .ipc import batch_places

PLAIN_RECORDS_MAX = 64
"""Most records of a batch that is encoded here: with many, Arrow is faster."""
FRAMED_BYTES_MAX = 64 * 1024
"""Largest key and value, together, of a record that is put into a remembered message."""
FRAMES_MAX = 1024
"""Pairs of sizes of key and value for which the message around one record is remembered: about 600 bytes each."""

_ALIGNMENT = 8
_PREFIX = struct.Struct("<Ii")  # continuation mark, bytes of metadata
_INT64 = struct.Struct("<q")
_NOTHING = (b"", bytes(4), b"")  # a column of binary without rows


class PlainEncoder:
    """Encoder for batches of ``schema``: two binary columns, a timestamp, and a list of two binary parts."""

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
        """The message of these records: lists of equal length, one item a record."""
        if len(values) == 1:
            return self.encode_one(keys[0], values[0], timestamps_ms[0])
        return self._encode_all(keys, values, timestamps_ms)

    def encode_one(self, key: bytes | None, value: bytes | None, timestamp_ms: int) -> bytes:
        """The message of one record. All those of keys and values of these sizes differ in three places only."""
        if len(key or b"") + len(value or b"") > FRAMED_BYTES_MAX:
            return self._encode_all([key], [value], [timestamp_ms])
        before, between, behind, end = self._frame(_size(key), _size(value))
        return b"".join((before, key or b"", between, value or b"", behind, _INT64.pack(timestamp_ms), end))

    def _cut(self, key_size: int | None, value_size: int | None) -> tuple[bytes, bytes, bytes, bytes]:
        """A message of one record without what it holds: around the key, the value and the timestamp."""
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
        key_nulls, value_nulls = keys.count(None), values.count(None)
        buffers = (
            *_binary(keys, key_nulls),
            *_binary(values, value_nulls),
            b"",
            struct.pack(f"<{count}q", *timestamps_ms),
            bytes((count + 7) // 8),  # all headers are null
            bytes(4 * (count + 1)),
            b"",
            *_NOTHING,
            *_NOTHING,
        )
        nodes = (count, key_nulls, count, value_nulls, count, 0, count, count)
        return self._fill(count, nodes, buffers)

    def _fill(self, count: int, nodes: Sequence[int], buffers: Sequence[bytes]) -> bytes:
        padded = [data + bytes(-len(data) % _ALIGNMENT) for data in buffers]
        offsets = list(accumulate(map(len, padded), initial=0))
        places = chain.from_iterable(zip(offsets, map(len, buffers), strict=False))
        head = bytearray(self._head)
        _INT64.pack_into(head, self._body_length, offsets[-1])
        _INT64.pack_into(head, self._rows, count)
        struct.pack_into(f"<{len(nodes)}q", head, self._nodes, *nodes)
        struct.pack_into(f"<{2 * len(buffers)}q", head, self._buffers, *places)
        return b"".join((head, *padded))


def _binary(column: Sequence[bytes | None], nulls: int) -> tuple[bytes, bytes, bytes]:
    """Buffers of a column: which items are there (nothing if all are), where each begins, and the bytes of all."""
    present = _bitmap(column) if nulls else b""
    sizes = (0 if item is None else len(item) for item in column)
    offsets = struct.pack(f"<{len(column) + 1}i", *accumulate(sizes, initial=0))
    return present, offsets, b"".join(item for item in column if item)


def _size(item: bytes | None) -> int | None:
    return None if item is None else len(item)


def _bitmap(column: Sequence[bytes | None]) -> bytes:
    bits = sum(1 << place for place, item in enumerate(column) if item is not None)
    return bits.to_bytes((len(column) + 7) // 8, "little")
