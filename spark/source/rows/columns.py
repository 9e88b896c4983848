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
"""The timestampType of every row, as Kafka numbers it: the producer set the timestamp."""
TIMESTAMP_MAX_MS = 253_402_214_400_000
"""9999-12-31 00:00 UTC, which replaces every later time. Spark's timestamps end with that year, and Python's do so in
the local time zone. A topic takes any number: nanoseconds, sent by mistake, must not make a partition unreadable.
"""


def schema_text(include_headers: bool, include_origin: bool) -> str:
    """The schema of a DataFrame of topics, in Spark's DDL."""
    return ", ".join([COLUMNS, *([HEADERS] if include_headers else []), *([ORIGIN] if include_origin else [])])


def rows(target: pa.Schema, source: Range, offset: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of ``target``, which Spark asked for, in exactly its types. ``offset`` is that of the first row.
    Raises ValueError for a column that topics do not have.
    """
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
    """The timestamps, with those after TIMESTAMP_MAX_MS replaced by it."""
    numbers = pc.min_element_wise(timestamps.view(pa.int64()), TIMESTAMP_MAX_MS, skip_nulls=False)
    return numbers.view(timestamps.type)


def _counted(first: int, count: int) -> pa.Array:
    """The ``count`` integers from ``first`` on. Made of Python integers, they would cost more than all else."""
    return pc.add(_ascending(1 << count.bit_length()).slice(0, count), pa.scalar(first, pa.int64()))


@cache
def _ascending(size: int) -> pa.Array:
    return pa.array(range(size), pa.int64())
