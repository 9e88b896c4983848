"""Writes histories and final logs as Parquet, for tools that judge at scale; the Spark audit reads them.

Defines the columns, which docs/chaos.md explains. Both are written in pieces, so that no run must fit into memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from .evidence import ReplicaLog
from .history import Event

ROWS_PER_GROUP = 100_000
"""Rows of a history in one row group, which is held in memory."""

_RUN = pa.struct([("value", pa.string()), ("count", pa.int32())])
_OUTCOME = pa.struct([("state", pa.string()), ("base_offset", pa.int64()), ("last_offset", pa.int64())])

HISTORY_SCHEMA = pa.schema(
    [
        pa.field("i", pa.int64(), nullable=False),
        pa.field("t_mono_ns", pa.int64(), nullable=False),
        pa.field("process", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("f", pa.string(), nullable=False),
        ("of", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("epoch", pa.int64()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("seq", pa.int32()),
        ("value", pa.string()),
        ("count", pa.int32()),
        ("offset", pa.int64()),
        ("log_end", pa.int64()),
        ("records", pa.list_(_RUN)),
        ("resource", pa.string()),
        ("generation", pa.int64()),
        ("node", pa.string()),
        ("error", pa.string()),
        ("outcome", _OUTCOME),
    ]
)
"""A row for each event; the columns have the names of Event's fields."""

LOGS_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("replica", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("writer_epoch", pa.int64(), nullable=False),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("sequence", pa.int32()),
    ]
)
"""A row for each record of each replica, ascending by offset within a replica. ``key`` is the record's name."""


class TableWriter:
    """A Parquet file, written row group by row group. A context manager: leaving it completes the file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._file = pq.ParquetWriter(path, schema, compression="zstd")

    def add(self, table: pa.Table) -> None:
        """Append one row group, unless it is empty."""
        if table.num_rows:
            self._file.write_table(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def write_history(path: Path, events: Iterable[Event]) -> None:
    """Write a history of any length."""
    with TableWriter(path, HISTORY_SCHEMA) as file:
        for rows in _pieces(events):
            file.add(pa.Table.from_pylist([_row(event) for event in rows], HISTORY_SCHEMA))


def log_table(topic: str, log: ReplicaLog) -> pa.Table:
    """The log of one replica as rows of LOGS_SCHEMA."""
    rows = len(log.offsets)
    stamps = [stamp or (None, None, None) for stamp in log.stamps]
    columns: list[Sequence[Any]] = [
        [topic] * rows,
        [log.partition] * rows,
        [log.node] * rows,
        log.offsets,
        log.names,
        log.values,
        log.writer_epochs,
        *([stamp[k] for stamp in stamps] for k in range(3)),
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, LOGS_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=LOGS_SCHEMA)


def _row(event: Event) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(event)
    if event.records is not None:
        row["records"] = [{"value": value, "count": count} for value, count in event.records]
    return row


def _pieces(events: Iterable[Event]) -> Iterator[list[Event]]:
    several = iter(events)
    while rows := list(islice(several, ROWS_PER_GROUP)):
        yield rows
