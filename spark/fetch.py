"""Turns answers of the cluster into batches of rows, of the size that Spark likes. Free of Spark.

Rows start exactly at the wanted offset and stop exactly before the end, whatever batches the log is made of.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import pyarrow as pa

from .ranges import Range

FETCH_BYTES_MAX = 8 * 1024 * 1024
"""Asked for at once. An answer is larger only if its first batch is."""
ROWS_MIN = 10_000
"""Rows of a batch handed to Spark, but for the last: below it, the price of a batch dominates."""
BATCH_BYTES = 32 * 1024 * 1024
"""A batch handed to Spark ends when it has this many bytes, however few rows they are."""


class Fetcher(Protocol):
    """What is needed of a client."""

    def fetch_arrow(self, topic: str, partition: int, offset: int, max_bytes: int) -> tuple[int, list[pa.RecordBatch]]:
        """Batches from the one that holds ``offset`` on, and the offset of the first row of the first."""
        ...


class ShortRead(Exception):
    """The log ends, or has a hole, where records were promised."""


Piece = tuple[int, pa.RecordBatch]
"""Offset of the first row, and rows that follow each other."""


def read_range(client: Fetcher, wanted: Range) -> Iterator[Piece]:
    """All rows of a range, in order, coalesced. Raises ShortRead, and whatever the client raises."""
    return coalesce(read_pieces(client, wanted))


def read_pieces(client: Fetcher, wanted: Range) -> Iterator[Piece]:
    """All rows of a range, in order, cut out of the batches as they come."""
    offset = wanted.start
    while offset < wanted.end:
        base, batches = client.fetch_arrow(wanted.topic, wanted.partition, offset, FETCH_BYTES_MAX)
        if base > offset:
            raise ShortRead(f"{wanted}: offset {offset} was asked for, and the answer starts at {base}")
        before = offset
        for batch in batches:
            head, tail = offset - base, min(batch.num_rows, wanted.end - base)
            if head < tail:
                yield offset, batch.slice(head, tail - head)
                offset = base + tail
            base += batch.num_rows
        if offset == before:
            raise ShortRead(f"{wanted}: nothing comes at offset {offset}")


def coalesce(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Join neighbours until they are ROWS_MIN rows or BATCH_BYTES."""
    first, batches, rows, size = 0, list[pa.RecordBatch](), 0, 0
    for offset, batch in pieces:
        if not batches:
            first = offset
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROWS_MIN or size >= BATCH_BYTES:
            yield first, pa.concat_batches(batches)
            batches, rows, size = [], 0, 0
    if batches:
        yield first, pa.concat_batches(batches)
