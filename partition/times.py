"""Which record comes first at or after a time: over the indexes of segments, and into the batch. Pure."""

from collections.abc import Callable, Iterator, Sequence

from .commands import Offset
from .index import SegmentIndex
from .log import StoredBatch
from .rows import first_row_since, greatest_timestamp

Fetch = Callable[[Sequence[StoredBatch]], list[bytes]]


def find(
    segments: Sequence[SegmentIndex], log_start: Offset, timestamp_ms: int | None, fetch: Fetch
) -> tuple[Offset, int | None]:
    """First record from ``log_start`` on at or after ``timestamp_ms`` (None: with the greatest timestamp), and its
    timestamp; (-1, None) when there is none.
    """
    wanted = _greatest(segments, log_start, fetch) if timestamp_ms is None else timestamp_ms
    for batch in _candidates(segments, log_start, wanted):
        row = first_row_since(fetch([batch])[0], wanted, max(0, log_start - batch.base_offset))
        if row is not None:
            return batch.base_offset + row[0], row[1]
    return -1, None


def _candidates(segments: Sequence[SegmentIndex], log_start: Offset, wanted: int) -> Iterator[StoredBatch]:
    """Batches with a record that is late enough, though it may lie before log_start."""
    for segment in segments:
        number = segment.find(log_start)
        while (number := segment.find_timestamp(wanted, number)) < len(segment):
            yield segment.batch(number)
            number += 1


def _greatest(segments: Sequence[SegmentIndex], log_start: Offset, fetch: Fetch) -> int:
    """Greatest timestamp of a record that is kept; -1: there is none."""
    greatest = -1
    for segment in segments:
        if segment.base_offset >= log_start:
            greatest = max(greatest, segment.greatest_timestamp_ms)
            continue
        first = segment.find(log_start)
        cut = segment.batch(first)
        greatest = max(greatest, greatest_timestamp(fetch([cut])[0], log_start - cut.base_offset))
        greatest = max([greatest, *map(segment.max_timestamp_ms, range(first + 1, len(segment)))])
    return greatest
