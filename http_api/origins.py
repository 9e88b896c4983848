"""Who wrote the batches of an Arrow answer: a second Arrow stream behind the first, a row for each batch. Pure."""

from collections.abc import Iterable

import pyarrow as pa

from ..partition.log import StoredBatch

SCHEMA = pa.schema(
    [
        ("count", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("first_sequence", pa.int32()),
        ("writer_epoch", pa.int64()),
    ]
)


def stream(batches: Iterable[StoredBatch]) -> bytes:
    """An Arrow stream of one record batch of SCHEMA."""
    rows = [
        (each.count, *((s.pid, s.epoch, s.first_seq) if (s := each.stamp) else (None, None, None)), each.writer_epoch)
        for each in batches
    ]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in SCHEMA]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as written:
        written.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
