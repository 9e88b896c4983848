"""Functions of the application that see, and may replace, each record once before it is queued."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ...partition.records.batch import Header
from .queue.batch import BytesLike, Record, frozen_bytes

_log = logging.getLogger(__name__)

Interceptor = Callable[[str, Record], Record]
"""Takes topic and record; returns the record to send, the same or another one."""

Columns = tuple[
    Sequence[BytesLike | None],
    Sequence[BytesLike | None] | None,
    Sequence[Sequence[Header] | None] | None,
    Sequence[int] | None,
]
"""Values, keys, headers, timestamps in ms."""


def intercepted(interceptors: Sequence[Interceptor], topic: str, record: Record) -> Record:
    """The record after all interceptors, in order. One that raises is skipped for this record, and logged."""
    for interceptor in interceptors:
        try:
            replaced = interceptor(topic, record)
            if not isinstance(replaced, Record):
                raise TypeError(f"it returned {type(replaced).__name__}, not a Record")
            record = replaced
        except (Exception, asyncio.CancelledError):  # a future that it reads was cancelled, not this task
            _log.exception("an interceptor failed; the record goes on as it was")
    return record


def intercepted_columns(interceptors: Sequence[Interceptor], topic: str, columns: Columns, now_ms: int) -> Columns:
    """The columns of a batch whose records went through `intercepted`. Columns of unequal length come back unchanged:
    `Batch.of` refuses them.
    """
    values, keys, headers, timestamps_ms = columns
    count = len(values)
    if any(column is not None and len(column) != count for column in columns):
        return columns
    nothing = [None] * count
    frozen = (map(frozen_bytes, keys or nothing), map(frozen_bytes, values))
    rows = zip(*frozen, timestamps_ms or [now_ms] * count, headers or nothing, strict=True)
    records = [intercepted(interceptors, topic, Record(*row)) for row in rows]
    return (
        [record.value for record in records],
        [record.key for record in records],
        [record.headers for record in records] if any(map(_has_headers, records)) else None,
        [record.timestamp_ms for record in records],
    )


def _has_headers(record: Record) -> bool:
    return record.headers is not None
