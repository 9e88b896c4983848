"""What a reader yields: pieces of the log as Arrow batches, and their rows as records."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, repeat
from typing import Any

import msgspec
import pyarrow as pa


class ConsumedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record of the log. ``timestamp_ms`` is Unix time; ``value`` None is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive records of a partition as one Arrow batch; row k has the offset ``base_offset + k``."""

    topic: str
    partition: int
    base_offset: int
    batch: pa.RecordBatch

    @property
    def next_offset(self) -> int:
        """The offset after its last row."""
        return self.base_offset + int(self.batch.num_rows)

    def behind(self, position: int | None) -> "Piece":
        """The piece from the offset ``position`` on (None: the whole piece), without a copy."""
        done = 0 if position is None else max(position - self.base_offset, 0)
        return replace(self, base_offset=self.base_offset + done, batch=self.batch.slice(done)) if done else self

    def to_arrow(self) -> pa.RecordBatch:
        """The rows of the piece, without a copy; columns key, value, timestamp, headers."""
        return self.batch

    def to_pandas(self) -> Any:
        """The rows of the piece as a pandas.DataFrame indexed by offset. Raises ImportError where pandas is not
        installed.
        """
        frame = self.batch.to_pandas()
        frame.index = range(self.base_offset, self.next_offset)
        frame.index.name = "offset"
        return frame

    def records(self) -> Iterator[ConsumedRecord]:
        """The rows of the piece as records."""
        key, value, timestamp, headers = self.batch.columns
        return map(
            ConsumedRecord,
            repeat(self.topic),
            repeat(self.partition),
            count(self.base_offset),
            timestamp.view(pa.int64()).to_pylist(),
            key.to_pylist() if key.null_count < len(key) else repeat(None),
            value.to_pylist(),
            map(_headers, headers.to_pylist()) if headers.null_count < len(headers) else repeat(()),
        )


def _headers(headers: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes], ...]:
    return tuple((header["key"], header["value"]) for header in headers or ())
