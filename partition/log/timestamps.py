"""Searches by timestamp: they bisect the indexes of segments, and decode one batch. Messages are those of batch.py."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ..commands import Offset
from ..records.batch import SCHEMA, decode_batch
from .index import SegmentIndex
from .interface import StoredBatch

Fetch = Callable[[Sequence[StoredBatch]], list[bytes]]
"""A function that reads the messages of batches."""
_TIMESTAMP = SCHEMA.get_field_index("timestamp")


def find(
    segments: Sequence[SegmentIndex], log_start: Offset, timestamp_ms: int | None, fetch: Fetch
) -> tuple[Offset, int | None]:
    """(offset, timestamp) of the first record from ``log_start`` on at or after ``timestamp_ms`` (None: of the first
    with the greatest timestamp); (-1, None) when there is none.
    """
    wanted = greatest(segments, log_start, fetch) if timestamp_ms is None else timestamp_ms
    for batch in _candidates(segments, log_start, wanted):
        row = first_row_since(fetch([batch])[0], wanted, max(0, log_start - batch.base_offset))
        if row is not None:
            return batch.base_offset + row[0], row[1]
    return -1, None


def _candidates(segments: Sequence[SegmentIndex], log_start: Offset, wanted: int) -> Iterator[StoredBatch]:
    """Yield the batches with a record at or after the time ``wanted``; that record may lie before log_start. The index
    of a segment without such a record is not read.
    """
    for segment in segments:
        if segment.greatest_timestamp_ms < wanted:
            continue
        number = 0 if segment.base_offset >= log_start else segment.find(log_start)
        while (number := segment.find_timestamp(wanted, number)) < len(segment):
            yield segment.batch(number)
            number += 1


def greatest_since(segment: SegmentIndex, log_start: Offset, fetch: Fetch) -> int:
    """The greatest timestamp of a segment's records from ``log_start`` on, of which there must be one."""
    if segment.base_offset >= log_start:
        return segment.greatest_timestamp_ms
    first = segment.find(log_start)
    cut = segment.batch(first)
    of_cut = greatest_timestamp(fetch([cut])[0], max(0, log_start - cut.base_offset))
    return max(of_cut, segment.greatest_from(first + 1))


def greatest(segments: Sequence[SegmentIndex], log_start: Offset, fetch: Fetch) -> int:
    """The greatest timestamp of a record from log_start on; -1 if there is none."""
    return max((greatest_since(segment, log_start, fetch) for segment in segments), default=-1)


def first_row_since(message: bytes | memoryview, timestamp_ms: int, first: int) -> tuple[int, int] | None:
    """(row, timestamp) of the first row of a stored message from row ``first`` on that is at or after ``timestamp_ms``;
    None if there is none.
    """
    rows = _timestamps(message, first)
    row: int = pc.index(pc.greater_equal(rows, timestamp_ms), True).as_py()
    return None if row < 0 else (first + row, rows[row].as_py())


def greatest_timestamp(message: bytes | memoryview, first: int) -> int:
    """The greatest timestamp, in ms, of a stored message's rows from row ``first`` on, which must exist."""
    return int(pc.max(_timestamps(message, first)).as_py())


def _timestamps(message: bytes | memoryview, first: int) -> pa.Int64Array:
    return decode_batch(message).column(_TIMESTAMP).view(pa.int64())[first:]
