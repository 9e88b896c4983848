"""Arrow streams for tests: the batch of ROWS, written and accepted."""

import io
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from stockade.partition.records.batch import SCHEMA, Batch, batch_from_stream, decode_batch, stream

NOW = 1_700_000_000_000
LIMIT = 1 << 20
ROWS: list[list[Any]] = [
    [None, b"a", b"kk"],
    [b"x", None, b""],
    [0, 5, 7],
    [None, [], [{"key": "k", "value": b"v"}, {"key": "", "value": b""}]],
]


def columns(rows: Sequence[Sequence[Any]] = ROWS, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(rows, schema, strict=True)], schema=schema
    )


def written(*batches: pa.RecordBatch, schema: pa.Schema = SCHEMA, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def accepted(body: bytes | memoryview, batch_bytes_max: int = LIMIT) -> Batch:
    return batch_from_stream(body, now_ms=NOW, batch_bytes_max=batch_bytes_max)


def read_back(messages: Sequence[bytes]) -> pa.Table:
    return pa.ipc.open_stream(b"".join(stream(messages))).read_all()


def values(batch: Batch, column: str = "value") -> list[Any]:
    decoded = decode_batch(batch.message).column(column)
    rows: list[Any] = (decoded.view(pa.int64()) if column == "timestamp" else decoded).to_pylist()
    return rows


def repeated(message: bytes, count: int) -> bytes:
    """The message with every item of its vector of ``count`` tables exchanged for the first one, which a flatbuffer
    names again for four bytes.
    """
    changed, place = bytearray(message), message.index(struct.pack("<I", count)) + 4
    (first,) = struct.unpack_from("<I", message, place)
    for item in range(count):
        struct.pack_into("<I", changed, place + 4 * item, first - 4 * item)
    return bytes(changed)


def pairs_bomb(count: int, size: int) -> bytes:
    """A stream whose batch has ``count`` times the same key-value pair of ``size`` bytes."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        names = map(str, range(1, count))
        writer.write_batch(columns(), custom_metadata={"0": "v" * size, **dict.fromkeys(names, "")})
    return repeated(sink.getvalue(), count)


def fields_bomb(count: int) -> bytes:
    """A stream whose schema has ``count`` times the same field, which has ``count`` fields."""
    full, empty = pa.struct([pa.field("x", pa.null())] * count), pa.struct([])
    schema = pa.schema([pa.field("x", full), *[pa.field("x", empty)] * (count - 1)])
    return repeated(schema.serialize().to_pybytes(), count)
