"""Fetches a range of offsets and makes Arrow batches of a size that suits Spark. Without Spark.

Rows start exactly at the first offset and stop exactly before the end, wherever the log's batches begin and end. On
request rows have columns with their origin (producer and writer epoch), which the cluster sends for each batch.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ....client.api.fetched import Fetched
from ....partition.errors import InconsistentTopicId, OffsetOutOfRange, UnknownTopicOrPartition
from ..planning.ranges import DataLost, Range

SEQUENCES = 1 << 31
"""Sequence numbers of a producer wrap around at this number."""


def with_origins(answer: Fetched) -> Iterator[pa.RecordBatch]:
    """The batches of an answer, with columns of their origin if the answer has origins."""
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


FETCH_BYTES_MAX = 8 * 1024 * 1024
"""Most bytes of an answer, unless its first batch is larger."""
ROWS_MIN = 10_000
"""A batch for Spark ends when it has this many rows: with fewer, the cost for each batch dominates."""
BATCH_BYTES = 32 * 1024 * 1024
"""A batch for Spark ends when it has this many bytes, with however few rows."""


class Fetcher(Protocol):
    """The method of a client that a fetch needs."""

    def fetch(
        self, topic: str, partition: int, offset: int, max_bytes: int, *, topic_id: int | None, meta: bool
    ) -> Fetched:
        """Batches, beginning with the one that holds ``offset``; with ``meta`` also their origins."""
        ...


class ShortRead(Exception):
    """The cluster's answers do not cover a planned range: one is empty, or begins behind the offset asked for."""


Piece = tuple[int, pa.RecordBatch]
"""Offset of the first row, and consecutive rows."""


def read_range(client: Fetcher, wanted: Range, *, meta: bool = False, fail: bool = True) -> Iterator[Piece]:
    """All rows of a range, in order, in batches for Spark. Raises ShortRead, DataLost, and errors of the client.

    ``meta``: with columns of the rows' origin. Without ``fail``, the read goes on without records that were deleted
    since the range was planned.
    """
    return coalesce(read_pieces(client, wanted, meta=meta, fail=fail))


def read_pieces(client: Fetcher, wanted: Range, *, meta: bool = False, fail: bool = True) -> Iterator[Piece]:
    """All rows of a range, in order, in the batches in which they come, cut to the range. Raises as ``read_range``."""
    offset = wanted.start
    while offset < wanted.end:
        try:
            answer = client.fetch(
                wanted.topic, wanted.partition, offset, FETCH_BYTES_MAX, topic_id=wanted.topic_id, meta=meta
            )
        except (OffsetOutOfRange, InconsistentTopicId, UnknownTopicOrPartition) as error:
            offset = _behind_the_loss(wanted, offset, error, fail)
            continue
        yield from _wanted(answer, wanted, offset)
        if answer.next_offset <= offset:
            raise ShortRead(f"{wanted}: nothing comes at offset {offset}")
        offset = answer.next_offset


def coalesce(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Join pieces with consecutive offsets until they have ROWS_MIN rows or BATCH_BYTES bytes."""
    first, batches, rows, size = 0, list[pa.RecordBatch](), 0, 0
    for offset, batch in pieces:
        if batches and offset != first + rows:  # records in between were lost
            yield first, pa.concat_batches(batches)
            batches, rows, size = [], 0, 0
        if not batches:
            first = offset
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROWS_MIN or size >= BATCH_BYTES:
            yield first, pa.concat_batches(batches)
            batches, rows, size = [], 0, 0
    if batches:
        yield first, pa.concat_batches(batches)


def _wanted(answer: Fetched, wanted: Range, offset: int) -> Iterator[Piece]:
    """The rows of an answer from ``offset`` to the end of the range."""
    base = answer.base_offset
    if base > offset:
        raise ShortRead(f"{wanted}: offset {offset} was asked for, and the answer starts at {base}")
    for batch in with_origins(answer):
        head, tail = max(offset - base, 0), min(batch.num_rows, wanted.end - base)
        if head < tail:
            yield base + head, batch.slice(head, tail - head)
        base += batch.num_rows


def _behind_the_loss(wanted: Range, offset: int, error: Exception, fail: bool) -> int:
    """The offset at which reading goes on after records were found missing: the log start after a trim, otherwise the
    range's end. Raises DataLost if ``fail``.
    """
    if fail:
        raise DataLost(f"{wanted.place} lost records from {offset} on, which were to be read: {error}") from error
    log_start = error.fields.get("log_start") if isinstance(error, OffsetOutOfRange) else None
    return min(max(offset, log_start), wanted.end) if log_start is not None and log_start > offset else wanted.end
