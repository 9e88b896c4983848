"""Searches in the timestamps of a stored message's rows; the message must have come from batch.py."""

import pyarrow as pa
import pyarrow.compute as pc

from ..records.batch import SCHEMA, decode_batch

_TIMESTAMP = SCHEMA.get_field_index("timestamp")


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
