"""Functions of the application that see, and may change, each record once, before it is queued."""

import logging
from collections.abc import Callable, Sequence

from ..partition.records import Header
from .batches import Record

_log = logging.getLogger(__name__)

Interceptor = Callable[[str, Record], Record]
"""(topic, record) -> the record to send in its place."""

Columns = tuple[
    Sequence[bytes | None],
    Sequence[bytes | None] | None,
    Sequence[Sequence[Header] | None] | None,
    Sequence[int] | None,
]
"""Values, keys, headers, timestamps in ms."""


def intercepted(interceptors: Sequence[Interceptor], topic: str, record: Record) -> Record:
    """The record after all of them, in order. One that raises is skipped for this record, and logged."""
    for interceptor in interceptors:
        try:
            record = interceptor(topic, record)
        except Exception:
            _log.exception("an interceptor failed; the record goes on as it was")
    return record


def intercepted_columns(interceptors: Sequence[Interceptor], topic: str, columns: Columns, now_ms: int) -> Columns:
    """The same for the records of a batch that came in columns; columns of unequal length are left for it to refuse."""
    values, keys, headers, timestamps_ms = columns
    count = len(values)
    if any(column is not None and len(column) != count for column in columns):
        return columns
    nothing = [None] * count
    rows = zip(keys or nothing, values, timestamps_ms or [now_ms] * count, headers or nothing, strict=True)
    records = [intercepted(interceptors, topic, Record(*row)) for row in rows]
    return (
        [record.value for record in records],
        [record.key for record in records],
        [record.headers for record in records],
        [record.timestamp_ms for record in records],
    )
