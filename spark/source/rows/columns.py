"""The columns of a DataFrame read from topics: those of Spark's Kafka connector. Without Spark.

A batch must have exactly the Arrow types that Spark expects, so every column is cast to them; most casts do nothing.
"""

from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from ..planning.ranges import Range

COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = "headers array<struct<key: string, value: binary>>"
ORIGIN = "producer_id bigint, producer_epoch int, sequence int, writer_epoch bigint"
ORIGIN_NAMES = ("producer_id", "producer_epoch", "sequence", "writer_epoch")
CREATE_TIME = 0
"""timestampType: the timestamp is the one that the producer set."""
TIMESTAMP_MAX_MS = 253_402_214_400_000
"""9999-12-31 00:00 UTC, in the place of every later time. Spark's timestamps end with that year, and Python's in the
local time zone. A topic takes any number: nanoseconds, sent by mistake, must not make a partition unreadable.
"""


def schema_text(include_headers: bool, include_origin: bool) -> str:
    """The columns, as Spark's DDL."""
    return ", ".join([COLUMNS, *([HEADERS] if include_headers else []), *([ORIGIN] if include_origin else [])])


def rows(target: pa.Schema, source: Range, offset: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that Spark asked for, of exactly the types that it expects. ``offset`` is that of the first row."""
    count = batch.num_rows
    make: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: batch.column("key"),
        "value": lambda: batch.column("value"),
        "topic": lambda: pa.repeat(source.topic, count),
        "partition": lambda: pa.repeat(source.partition, count),
        "offset": lambda: _counted(offset, count),
        "timestamp": lambda: _bounded(batch.column("timestamp")),
        "timestampType": lambda: pa.repeat(CREATE_TIME, count),
        "headers": lambda: batch.column("headers"),
    }
    for name in ORIGIN_NAMES:
        if name in batch.schema.names:
            make[name] = lambda name=name: batch.column(name)  # type: ignore[misc]
    if unknown := set(target.names) - make.keys():
        raise ValueError(f"a topic has no column {', '.join(sorted(unknown))}; it has {', '.join(make)}")
    return pa.RecordBatch.from_arrays([pc.cast(make[each.name](), each.type) for each in target], schema=target)


def _bounded(timestamps: pa.Array) -> pa.Array:
    """Timestamps of at most TIMESTAMP_MAX_MS."""
    numbers = pc.min_element_wise(timestamps.view(pa.int64()), TIMESTAMP_MAX_MS, skip_nulls=False)
    return numbers.view(timestamps.type)


def _counted(first: int, count: int) -> pa.Array:
    """``first``, ``first + 1``, and so on. Built from Python integers, this column would cost more than all others."""
    return pc.add(_ascending(1 << count.bit_length()).slice(0, count), pa.scalar(first, pa.int64()))


@cache
def _ascending(size: int) -> pa.Array:
    return pa.array(range(size), pa.int64())
