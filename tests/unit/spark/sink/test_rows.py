"""Which rows go where, what becomes of their columns, and how they are cut into pieces."""

import re
from typing import Any

import pyarrow as pa
import pytest

from stockade.client.blocking.writer import TopicShape
from stockade.partition.partitioner import partition_for_key
from stockade.partition.records import batch as records
from stockade.partition.records.batch import batch_from_stream
from stockade.spark.sink.rows import (
    COLUMNS,
    SCHEMA,
    Group,
    Router,
    RowsRefused,
    check_names,
    check_types,
    columns,
    stream,
)
from stockade.spark.sink.staging import Gatherer


def groups(batch: pa.RecordBatch, topic: str | None = "t", count: int = 3, first: int = 0) -> list[Group]:
    return list(Router(topic, lambda name: count, first).groups(batch))


def test_the_columns_are_those_of_a_batch() -> None:
    assert SCHEMA.equals(records.SCHEMA)
    made = stream(columns(pa.record_batch({"value": ["a", None]})))
    assert batch_from_stream(made, now_ms=0, batch_bytes_max=1 << 20).count == 2


def test_a_key_goes_where_every_client_sends_it() -> None:
    keys = [b"%d" % number for number in range(50)]
    for group in groups(pa.record_batch({"key": keys, "value": keys})):
        assert {partition_for_key(key, 3) for key in group.rows.column("key").to_pylist()} == {group.partition}


def test_rows_of_a_partition_stay_in_order_and_none_is_lost() -> None:
    values = [b"%d" % number for number in range(50)]
    found = groups(pa.record_batch({"key": [value[-1:] for value in values], "value": values}))
    assert sorted(value for group in found for value in group.rows.column("value").to_pylist()) == sorted(values)
    for group in found:
        numbers = [int(value) for value in group.rows.column("value").to_pylist()]
        assert numbers == sorted(numbers)


def test_rows_without_a_key_go_to_one_partition_and_the_next_batch_to_the_next() -> None:
    router = Router("t", lambda name: 3, 2)
    batch = pa.record_batch({"value": [b"a", b"b"]})
    assert [group.partition for _ in range(3) for group in router.groups(batch)] == [2, 0, 1]


def test_a_column_chooses_topic_and_partition_and_the_option_wins() -> None:
    batch = pa.record_batch(
        {"value": ["a", "b", "c"], "topic": ["x", "y", "x"], "partition": pa.array([1, 0, None], pa.int32())}
    )
    found = [(g.topic, g.partition, g.rows.column("value").to_pylist()) for g in groups(batch, topic=None)]
    assert found == [("x", 0, [b"c"]), ("x", 1, [b"a"]), ("y", 0, [b"b"])]
    assert {group.topic for group in groups(batch)} == {"t"}


@pytest.mark.parametrize(
    ("batch", "topic"),
    [
        ({"key": ["a"]}, "t"),
        ({"value": ["a"]}, None),
        ({"value": ["a"], "topic": pa.array([None], pa.string())}, None),
        ({"value": ["a"], "partition": [3]}, "t"),
        ({"value": ["a"], "partition": [-1]}, "t"),
        ({"value": ["a"], "partition": [1 << 40]}, "t"),
        ({"value": [1]}, "t"),
        ({"value": ["a"], "timestamp": ["noon"]}, "t"),
    ],
)
def test_rows_that_have_no_place_are_refused(batch: dict[str, object], topic: str | None) -> None:
    with pytest.raises(RowsRefused):
        groups(pa.record_batch(batch), topic)


HEADERS = SCHEMA.field("headers").type


@pytest.mark.parametrize(
    ("name", "fitting", "odd"),
    [
        ("key", [pa.string(), pa.binary(), pa.null()], [pa.int32(), pa.float64(), pa.bool_()]),
        ("value", [pa.string(), pa.large_binary()], [pa.int64(), pa.float64(), pa.bool_(), HEADERS]),
        ("timestamp", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32(), pa.int64()], [pa.float64()]),
        ("topic", [pa.string()], [pa.int32(), pa.binary()]),
        ("partition", [pa.int32(), pa.int64(), pa.null()], [pa.float64(), pa.bool_(), pa.string()]),
        (
            "headers",
            [HEADERS, pa.map_(pa.string(), pa.binary()), pa.null()],
            [pa.list_(pa.string()), pa.list_(pa.struct([("k", pa.string()), ("v", pa.binary())])), pa.string()],
        ),
    ],
)
def test_a_column_of_a_type_that_cannot_be_written_is_refused_before_any_row(
    name: str, fitting: list[pa.DataType], odd: list[pa.DataType]
) -> None:
    for kind in fitting:
        check_types(pa.schema([(name, kind), ("other", pa.month_day_nano_interval())]))
    for kind in odd:
        with pytest.raises(RowsRefused, match=f"^column {name} must be .*, and is {re.escape(str(kind))}$"):
            check_types(pa.schema([(name, kind)]))


def test_a_column_whose_name_differs_in_case_alone_is_refused_unless_the_right_one_is_there() -> None:
    """Spark takes Key for key; the sink left it out, and the rows had no keys."""
    check_names(["value", "key", "Key", "keys", "other", "Topic"], {*COLUMNS} - {"topic"})
    for names in (["value", "Key"], ["VALUE"], ["value", "key", "Timestamp"], ["value", "Topic"]):
        with pytest.raises(RowsRefused, match=f"^column {names[-1]}: name it {names[-1].lower()},"):
            check_names(names, {*COLUMNS})


class Shapes:
    """Topics with one limit of their batches."""

    def __init__(self, batch_bytes_max: int) -> None:
        self._batch_bytes_max = batch_bytes_max

    def shape(self, topic: str) -> TopicShape:
        return TopicShape(3, self._batch_bytes_max, 7)


@pytest.mark.parametrize(
    "batch_bytes_max", [1024, 4096, 1 << 20]
)  # the smallest that a topic may have, and its default
@pytest.mark.parametrize("size", [1, 3, 100, 300])
def test_pieces_fit_and_keep_the_order(batch_bytes_max: int, size: int) -> None:
    handed: list[pa.RecordBatch] = []
    shapes: Any = Shapes(batch_bytes_max)
    gatherer = Gatherer(shapes, lambda topic, partition, rows: handed.append(rows))
    count = 3 * batch_bytes_max // (size + 28)
    values = [b"%d" % (number % 10) * size for number in range(count)]
    keys = [None if number < count // 2 else b"k" for number in range(count)]
    rows = columns(pa.record_batch({"value": values, "key": pa.array(keys, pa.binary())}))
    part = count // 7 + 1
    for start in range(0, count, part):
        gatherer.add(Group("t", 0, rows.slice(start, part)))
    gatherer.finish()
    assert [value for piece in handed for value in piece.column("value").to_pylist()] == values
    assert len(handed) > 3
    for piece in handed:
        assert batch_from_stream(stream(piece), now_ms=0, batch_bytes_max=batch_bytes_max).count == len(piece)


def test_a_row_that_is_too_large_is_handed_over_for_the_server_to_refuse() -> None:
    handed: list[int] = []
    shapes: Any = Shapes(1000)
    gatherer = Gatherer(shapes, lambda topic, partition, rows: handed.append(len(rows)))
    gatherer.add(Group("t", 0, columns(pa.record_batch({"value": [b"a", b"x" * 5000, b"b"]}))))
    gatherer.finish()
    assert sum(handed) == 3


class Part:
    """A row, which counts how often its size is asked for."""

    asked = 0

    def __len__(self) -> int:
        return 1

    @property
    def nbytes(self) -> int:
        type(self).asked += 1
        return 10


def test_a_piece_of_many_parts_takes_no_longer_for_each_part_the_more_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of hundreds of partitions gets few rows of each batch: the time grew with the square of the parts."""
    handed: list[int] = []
    monkeypatch.setattr("stockade.spark.sink.staging.pa.concat_batches", len)
    shapes, part = Shapes(1 << 20), Part()
    gatherer = Gatherer(shapes, lambda topic, partition, rows: handed.append(rows))  # type: ignore[arg-type]
    for _ in range(1000):
        gatherer.add(Group("t", 0, part))
    gatherer.finish()
    assert handed == [1000]
    assert Part.asked < 10_000
