"""Turns answers of the cluster into batches of rows, of the size that Spark likes. Free of Spark.

Rows start exactly at the wanted offset and stop exactly before the end, whatever batches the log is made of.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import pyarrow as pa

from ..client.fetched import Fetched
from ..partition.errors import InconsistentTopicId, OffsetOutOfRange, UnknownTopicOrPartition
from .origins import with_origins
from .ranges import DataLost, Range

FETCH_BYTES_MAX = 8 * 1024 * 1024
"""Asked for at once. An answer is larger only if its first batch is."""
ROWS_MIN = 10_000
"""Rows of a batch handed to Spark, but for the last: below it, the price of a batch dominates."""
BATCH_BYTES = 32 * 1024 * 1024
"""A batch handed to Spark ends when it has this many bytes, however few rows they are."""


class Fetcher(Protocol):
    """What is needed of a client."""

    def fetch(
        self, topic: str, partition: int, offset: int, max_bytes: int, *, topic_id: int | None, meta: bool
    ) -> Fetched:
        """Batches from the one that holds ``offset`` on; with ``meta``, who wrote them."""
        ...


class ShortRead(Exception):
    """The log ends, or has a hole, where records were promised."""


Piece = tuple[int, pa.RecordBatch]
"""Offset of the first row, and rows that follow each other."""


def read_range(client: Fetcher, wanted: Range, *, meta: bool = False, fail: bool = True) -> Iterator[Piece]:
    """All rows of a range, in order, coalesced. Raises ShortRead, DataLost, and whatever the client raises.

    ``meta``: with columns that say who wrote. Without ``fail``, records that vanished since the range was planned are
    left out.
    """
    return coalesce(read_pieces(client, wanted, meta=meta, fail=fail))


def read_pieces(client: Fetcher, wanted: Range, *, meta: bool = False, fail: bool = True) -> Iterator[Piece]:
    """All rows of a range, in order, cut out of the batches as they come."""
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
    """Join neighbours until they are ROWS_MIN rows or BATCH_BYTES."""
    first, batches, rows, size = 0, list[pa.RecordBatch](), 0, 0
    for offset, batch in pieces:
        if batches and offset != first + rows:  # something was lost in between
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
    """Where reading goes on after records were found missing: behind what was trimmed, or nowhere."""
    if fail:
        raise DataLost(f"{wanted.place} lost records from {offset} on, which were to be read: {error}") from error
    log_start = error.fields.get("log_start") if isinstance(error, OffsetOutOfRange) else None
    return min(max(offset, log_start), wanted.end) if log_start is not None and log_start > offset else wanted.end
