"""Turns rows of Spark into records: what the columns mean, and which partition each row goes to. Without Spark.

Columns are those of Spark's Kafka connector: ``value``, and optionally ``key``, ``headers``, ``topic``, ``partition``
and ``timestamp``; other columns are ignored.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Set
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...partition.partitioner import partition_for_key

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The schema of records. A copy of that in partition.records, whose import needs more than pyarrow."""


def _any(*kinds: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(is_kind(kind) for is_kind in (pa.types.is_null, *kinds))


_is_text = _any(pa.types.is_string, pa.types.is_large_string)
_is_bytes = _any(_is_text, pa.types.is_binary, pa.types.is_large_binary)
_is_integer = _any(pa.types.is_integer)
_is_time = _any(_is_text, pa.types.is_timestamp, pa.types.is_date32, pa.types.is_int64)


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _is_bytes(kind.key_type) and _is_bytes(kind.item_type)
    item = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    if item is None or not pa.types.is_struct(item):
        return bool(pa.types.is_null(kind))
    return {each.name for each in item} == {"key", "value"} and all(_is_bytes(each.type) for each in item)


_TYPES = {
    "key": (_is_bytes, "bytes or text"),
    "value": (_is_bytes, "bytes or text"),
    "timestamp": (_is_time, "a timestamp"),
    "headers": (_is_headers, "array<struct<key: string, value: binary>>"),
    "topic": (_is_text, "text"),
    "partition": (_is_integer, "whole numbers"),
}
"""For each column that is written: a predicate on its Arrow type, and the accepted types in words."""
COLUMNS = tuple(_TYPES)


class Group(NamedTuple):
    """Rows for one partition, in the order of their batch."""

    topic: str
    partition: int
    rows: pa.RecordBatch


class RowsRefused(ValueError):
    """The rows cannot be written as they are."""


class Router:
    """Chooses a partition for each row. ``partitions_of`` returns how many partitions a topic has. The rows without a
    key in the first batch go to partition ``first``, those in each later batch to the next partition, modulo the count.
    """

    def __init__(self, topic: str | None, partitions_of: Callable[[str], int], first: int) -> None:
        self._topic = topic
        self._partitions_of = partitions_of
        self._next = first

    def groups(self, batch: pa.RecordBatch) -> Iterator[Group]:
        """The rows of a batch, by topic and partition. Raises RowsRefused."""
        if not batch.num_rows:
            return
        rows = columns(batch)
        for topic, chosen in self._topics(batch):
            yield from self._of_topic(topic, _taken(rows, chosen), _taken(_column(batch, "partition"), chosen))
        self._next += 1

    def _topics(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array | None]]:
        """The topics of a batch, each with the indexes of its rows; None means all rows."""
        if self._topic is not None:
            yield self._topic, None
            return
        names = _column(batch, "topic")
        if names is None or names.null_count:
            raise RowsRefused("every row needs a topic: give the option topic, or a column topic without nulls")
        for name in pc.unique(names).to_pylist():
            yield name, _indexes(pc.equal(names, name))

    def _of_topic(self, topic: str, rows: pa.RecordBatch, wanted: pa.Array | None) -> Iterator[Group]:
        count = self._partitions_of(topic)
        targets = self._targets(rows.column("key"), count)
        if wanted is not None:
            targets = pc.coalesce(wanted.cast(pa.int64()), targets.cast(pa.int64()))
        for partition in sorted(pc.unique(targets).to_pylist()):
            if not 0 <= partition < count:
                raise RowsRefused(f"topic {topic} has partitions 0 to {count - 1}, and a row names {partition}")
            yield Group(topic, partition, _taken(rows, _indexes(pc.equal(targets, partition))))

    def _targets(self, keys: pa.Array, count: int) -> pa.Array:
        """The partition of each row by its key, with the same hash as the server and every client."""
        default = pa.scalar(self._next % count, pa.int32())
        if keys.null_count == len(keys) or count == 1:
            return pa.repeat(default, len(keys))
        coded = keys.dictionary_encode()
        found = pa.array([partition_for_key(key, count) for key in coded.dictionary.to_pylist()], pa.int32())
        return pc.fill_null(found.take(coded.indices), default)


def check_names(names: Iterable[str], written: Set[str]) -> None:
    """Raises RowsRefused for a column whose name differs in case alone from one that is ``written`` and not there.
    Queries of Spark take `Key` for `key`, so its rows would lose their keys without a word.
    """
    given = {*names}
    for name in sorted(given):
        if name.lower() in written - given:
            raise RowsRefused(f"column {name}: name it {name.lower()}, or give it a name of its own")


def check_types(schema: pa.Schema) -> None:
    """Raises RowsRefused for the first column whose type cannot be written."""
    for name, (fits, words) in _TYPES.items():
        if name in schema.names and not fits(schema.field(name).type):
            raise RowsRefused(f"column {name} must be {words}, and is {schema.field(name).type}")


def columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are stored, in SCHEMA. Rows without a timestamp get the present time. Raises RowsRefused."""
    now = pa.scalar(time.time_ns() // 1_000_000, pa.int64()).cast(SCHEMA.field("timestamp").type)
    if _column(batch, "value") is None:
        raise RowsRefused("there is no column value")
    arrays = []
    for field in SCHEMA:
        column = _column(batch, field.name)
        try:
            array = pa.nulls(batch.num_rows, field.type) if column is None else column.cast(field.type, safe=False)
        except pa.ArrowException as error:
            raise RowsRefused(f"column {field.name} must be {_TYPES[field.name][1]}: {error}") from error
        arrays.append(pc.fill_null(array, now) if field.name == "timestamp" else array)
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def stream(rows: pa.RecordBatch) -> bytes:
    """An Arrow stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(rows)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    return batch.column(name) if name in batch.schema.names else None


def _indexes(mask: pa.Array) -> pa.Array | None:
    """The indexes at which the mask is true; None if it is true everywhere."""
    return None if pc.all(mask).as_py() else pc.indices_nonzero(mask)


def _taken(rows: pa.RecordBatch | pa.Array | None, places: pa.Array | None) -> pa.RecordBatch | pa.Array | None:
    return rows if rows is None or places is None else rows.take(places)
