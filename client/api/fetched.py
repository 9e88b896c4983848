"""A fetched piece of a partition: Arrow batches and the offsets they stand at. Pure; shared by both clients."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from ..partition.errors import CorruptMessage

ARROW_STREAM = "application/vnd.apache.arrow.stream"
"""Content type of batches, both ways."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches as they were stored; the first row has ``base_offset``, which may be below the offset asked for.

    ``next_offset``: where to go on. ``log_start``, ``log_end``: the partition's bounds at the time of the answer.
    ``stale``: a replica answered without asking the leader. ``leader``: base URL of the partition's leader, if told.
    ``origins``: a row for each batch, when they were asked for: count, producer_id, producer_epoch, first_sequence
    (null without a producer), writer_epoch.
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


def fetched(header: Callable[[str], str | None], body: bytes, *, meta: bool = False) -> Fetched:
    """Read an Arrow answer; ``header`` looks one up by its name, ``meta`` says that origins were asked for.

    Raises CorruptMessage when it makes no sense.
    """
    try:
        source = pa.BufferReader(body)
        batches = list(pa.ipc.open_stream(source))
        origins = pa.ipc.open_stream(source).read_next_batch() if meta else None
        next_offset = _number(header("Stockade-Next-Offset"))
        rows = sum(batch.num_rows for batch in batches)
        return Fetched(
            base_offset=_number(header("Stockade-Base-Offset")) if rows else next_offset,
            batches=batches,
            next_offset=next_offset,
            log_start=_number(header("Stockade-Log-Start")),
            log_end=_number(header("Stockade-Log-End")),
            stale=header("Stockade-Stale") == "true",
            leader=header("Stockade-Leader") or None,
            origins=origins,
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptMessage(f"the answer cannot be read: {error!r}") from error


def _number(header: str | None) -> int:
    if header is None:
        raise ValueError("a header of the answer is missing")
    return int(header)
