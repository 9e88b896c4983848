from datetime import UTC, datetime

import pyarrow as pa
import pytest

from stockade.partition.records.batch import SCHEMA
from stockade.spark.source.planning.ranges import Range
from stockade.spark.source.rows.columns import rows

SPARK = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
    ]
)
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
BATCH = pa.RecordBatch.from_pylist(
    [
        {"key": b"k", "value": None, "timestamp": MOMENT, "headers": [{"key": "h", "value": b"x"}]},
        {"key": None, "value": b"", "timestamp": MOMENT, "headers": None},
    ],
    schema=SCHEMA,
)
SOURCE = Range("logs", 3, 0, 100)


def test_a_row_has_its_record_and_its_place_in_the_types_of_spark() -> None:
    made = rows(SPARK, SOURCE, 40, BATCH)
    assert made.schema.equals(SPARK)
    place = {"topic": "logs", "partition": 3, "timestamp": MOMENT, "timestampType": 0}
    assert made.to_pylist() == [
        {**place, "key": b"k", "value": None, "offset": 40, "headers": [{"key": "h", "value": b"x"}]},
        {**place, "key": None, "value": b"", "offset": 41, "headers": None},
    ]


def test_a_time_beyond_those_of_spark_is_read_as_the_latest() -> None:
    """A producer sent nanoseconds, which no cast to Spark's microseconds can hold."""
    latest = datetime(9999, 12, 31, tzinfo=UTC)
    sent = [1_767_225_600_000_000_000, (1 << 63) - 1, int(latest.timestamp()) * 1000 + 1, 1]
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.nulls(4, pa.binary()),
            "value": pa.nulls(4, pa.binary()),
            "timestamp": pa.array(sent, pa.int64()).cast(pa.timestamp("ms", tz="UTC")),
            "headers": pa.nulls(4, SCHEMA.field("headers").type),
        }
    )
    times = rows(SPARK, SOURCE, 0, batch).column("timestamp").to_pylist()
    assert times == [latest, latest, latest, datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)]


def test_only_the_columns_asked_for_are_made_in_the_order_asked() -> None:
    made = rows(pa.schema([("offset", pa.int64()), ("value", pa.binary())]), SOURCE, 40, BATCH)
    assert made.to_pylist() == [{"offset": 40, "value": None}, {"offset": 41, "value": b""}]


def test_a_slice_is_numbered_from_its_own_first_row() -> None:
    assert rows(SPARK, SOURCE, 41, BATCH.slice(1)).to_pylist()[0]["offset"] == 41


def test_a_column_that_a_topic_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no column colour"):
        rows(pa.schema([("colour", pa.string())]), SOURCE, 0, BATCH)
