"""A fetched part of a partition: Arrow batches and their offsets. Pure; both clients use it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from ..errors import Source, UnreadableAnswer

ARROW_STREAM = "application/vnd.apache.arrow.stream"
"""Content type of batches in requests and answers."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches as they are stored. ``base_offset``: the first row's offset, which is at most the offset asked for.

    ``next_offset``: the offset to fetch next. ``log_start``, ``log_end``: first retained offset, and next offset to be
    written, at the time of the answer. ``stale``: a replica answered without asking the leader. ``leader``: base URL of
    the partition's leader, None if unknown. ``origins``: None unless ``meta`` was asked for; else a row for each batch:
    count, producer_id, producer_epoch, first_sequence (null without a producer), writer_epoch.
    """

    base_offset: int
    batches: list[pa.RecordBatch] = field(repr=False)
    next_offset: int
    log_start: int
    log_end: int
    stale: bool
    leader: str | None = None
    origins: pa.RecordBatch | None = field(default=None, repr=False)

    def after(self, offset: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(base offset, batch) for each batch, without the rows before ``offset``."""
        base = self.base_offset
        for batch in self.batches:
            skipped = min(max(offset - base, 0), batch.num_rows)
            if skipped < batch.num_rows:
                yield base + skipped, batch.slice(skipped)
            base += batch.num_rows


UNPACKED_TIMES = 16
"""How many times ``max_bytes`` the batches of an answer may have in memory. Compressed ones may have thousands of times
as much: those beyond are left to the next fetch.
"""


def fetched(
    source: Source, header: Callable[[str], str | None], body: bytes | bytearray, *, max_bytes: int, meta: bool = False
) -> Fetched:
    """Decode an Arrow answer. ``header`` looks up a header by its name; ``max_bytes``: the most bytes asked for;
    ``meta``: origins were asked for.

    Raises UnreadableAnswer for any other answer.
    """
    try:
        stream = pa.BufferReader(body)
        batches, is_whole = _unpacked(pa.ipc.open_stream(stream), UNPACKED_TIMES * max_bytes, to_end=meta)
        origins = pa.ipc.open_stream(stream).read_next_batch().slice(0, len(batches)) if meta else None
        next_offset = _number(header("Stockade-Next-Offset"))
        base_offset = _number(header("Stockade-Base-Offset")) if batches else next_offset
        if not is_whole:
            next_offset = base_offset + sum(batch.num_rows for batch in batches)
        return Fetched(
            base_offset=base_offset,
            batches=batches,
            next_offset=next_offset,
            log_start=_number(header("Stockade-Log-Start")),
            log_end=_number(header("Stockade-Log-End")),
            stale=header("Stockade-Stale") == "true",
            leader=header("Stockade-Leader") or None,
            origins=origins,
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadableAnswer(source, body, str(error)) from error


def _unpacked(stream: pa.RecordBatchReader, bytes_max: int, *, to_end: bool) -> tuple[list[pa.RecordBatch], bool]:
    """The first batches of a stream, up to ``bytes_max`` in memory, though one at least; and whether these are all.
    ``to_end``: read the stream to its end, because something follows it.
    """
    batches: list[pa.RecordBatch] = []
    size, is_whole = 0, True
    for batch in stream:
        size += batch.nbytes
        if batches and size > bytes_max:
            is_whole = False
            if not to_end:
                break
        else:
            batches.append(batch)
    return batches, is_whole


def _number(header: str | None) -> int:
    if header is None:
        raise ValueError("a header of the answer is missing")
    return int(header)
