"""Who wrote each row, from what the cluster says about each batch. Free of Spark."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ..client.fetched import Fetched

SEQUENCES = 1 << 31
"""Sequence numbers of a producer start again at 0 behind the last of so many."""


def with_origins(answer: Fetched) -> Iterator[pa.RecordBatch]:
    """The batches of an answer; with columns of their origin when the answer has it."""
    if answer.origins is None:
        yield from answer.batches
        return
    for batch, origin in zip(answer.batches, answer.origins.to_pylist(), strict=True):
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        yield pa.RecordBatch.from_pydict(columns | _columns(batch.num_rows, origin))


def _columns(count: int, origin: dict[str, int | None]) -> dict[str, pa.Array]:
    return {
        "producer_id": _same(origin["producer_id"], count, pa.int64()),
        "producer_epoch": _same(origin["producer_epoch"], count, pa.int32()),
        "sequence": _sequences(origin["first_sequence"], count),
        "writer_epoch": _same(origin["writer_epoch"], count, pa.int64()),
    }


def _same(value: int | None, count: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _sequences(first: int | None, count: int) -> pa.Array:
    if first is None:
        return pa.nulls(count, pa.int32())
    if first + count <= SEQUENCES:
        return pa.array(range(first, first + count), pa.int32())
    return pc.cast(pa.array([(first + row) % SEQUENCES for row in range(count)], pa.int64()), pa.int32())
