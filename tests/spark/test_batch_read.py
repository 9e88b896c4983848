"""``spark.read.format("stockade")`` on a real cluster: every record once, with its place, and nothing beside them."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from integration.api import ARROW, Topic, call, expect

from stockade.partition.records import SCHEMA

pytestmark = pytest.mark.processes

PARTITIONS = 3
BATCH = 250
COUNTS = [2600, 700, 1]
"""Records of each partition. They make batches of BATCH, so ranges can start and end inside of one."""


def record(partition: int, offset: int) -> dict[str, Any]:
    """What stands at an offset: keys and values that tell their place, some of them null, some not text."""
    return {
        "key": None if offset % 7 == 0 else f"{partition}:{offset}".encode(),
        "value": None if offset % 11 == 5 else bytes([offset % 256]) * (offset % 50),
        "timestamp": datetime(2026, 1, 1 + partition, 0, 0, offset % 60, 1000 * (offset % 1000), UTC),
        "headers": [{"key": "at", "value": str(offset).encode()}] if offset % 3 == 0 else None,
    }


def append(topic: Topic, partition: int, records: list[dict[str, Any]]) -> None:
    body = io.BytesIO()
    with pa.ipc.new_stream(body, SCHEMA) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist(records, schema=SCHEMA))
    expect(200, call("POST", topic.records(partition), body.getvalue(), headers={"Content-Type": ARROW}))


@pytest.fixture(scope="module")
def topic(url: str) -> Topic:
    """A topic whose partitions hold COUNTS records."""
    made = Topic(url, "numbers")
    made.create(partitions=PARTITIONS)
    for partition, count in enumerate(COUNTS):
        for start in range(0, count, BATCH):
            offsets = range(start, min(start + BATCH, count))
            append(made, partition, [record(partition, offset) for offset in offsets])
    return made


def load(spark: Any, topic: Topic, **options: Any) -> Any:
    return spark.read.format("stockade").options(url=topic.node, subscribe=topic.name, **options).load()


def places(frame: Any) -> list[tuple[int, int]]:
    """(partition, offset) of every row, ascending."""
    return sorted(tuple(row) for row in frame.select("partition", "offset").collect())


def test_every_record_is_read_once_and_is_what_was_produced(spark: Any, topic: Topic) -> None:
    rows = [row.asDict(recursive=True) for row in load(spark, topic, includeHeaders=True).collect()]
    wanted = [
        {"topic": "numbers", "partition": partition, "offset": offset, "timestampType": 0, **record(partition, offset)}
        for partition, count in enumerate(COUNTS)
        for offset in range(count)
    ]
    for row in rows:
        row["timestamp"] = row["timestamp"].astimezone(UTC)
    assert sorted(rows, key=lambda row: (row["partition"], row["offset"])) == wanted


def test_counts_agree_with_the_cluster(spark: Any, topic: Topic) -> None:
    counted = {row["partition"]: row["count"] for row in load(spark, topic).groupBy("partition").count().collect()}
    ends = [expect(200, call("GET", f"{topic.url}/partitions/{p}/offsets"))["log_end"] for p in range(PARTITIONS)]
    assert ends == COUNTS
    assert counted == dict(enumerate(COUNTS))


def test_the_columns_are_those_of_the_kafka_connector(spark: Any, topic: Topic) -> None:
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert load(spark, topic).columns == columns
    assert load(spark, topic, includeHeaders="true").columns == [*columns, "headers"]


def test_a_range_starts_and_ends_exactly_where_it_was_told(spark: Any, topic: Topic) -> None:
    starting = json.dumps({"numbers": {"0": 333, "1": -2, "2": 1}})
    ending = json.dumps({"numbers": {"0": 2501, "1": 7, "2": -1}})
    frame = load(spark, topic, startingOffsets=starting, endingOffsets=ending)
    assert places(frame) == [*((0, offset) for offset in range(333, 2501)), *((1, offset) for offset in range(7))]


def test_a_log_partition_is_read_by_several_tasks(spark: Any, topic: Topic) -> None:
    frame = load(spark, topic, minPartitions=8)
    assert frame.rdd.getNumPartitions() >= 8
    assert places(frame) == [(p, offset) for p, count in enumerate(COUNTS) for offset in range(count)]


def test_several_topics_are_one_frame(spark: Any, topic: Topic) -> None:
    other = Topic(topic.node, "letters")
    other.create(partitions=1)
    append(other, 0, [record(0, 0)])
    frame = load(spark, Topic(topic.node, "numbers,letters"))
    counted = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counted == {"numbers": sum(COUNTS), "letters": 1}


def test_an_empty_topic_is_an_empty_frame(spark: Any, url: str) -> None:
    empty = Topic(url, "empty")
    empty.create(partitions=2)
    assert load(spark, empty).collect() == []


def test_offsets_that_do_not_exist_fail_the_query_unless_told_otherwise(spark: Any, topic: Topic) -> None:
    ending = json.dumps({"numbers": {"0": 2601, "1": 0, "2": 0}})
    with pytest.raises(Exception, match="numbers/0 has offsets 0 to 2600"):
        load(spark, topic, endingOffsets=ending).count()
    assert load(spark, topic, endingOffsets=ending, failOnDataLoss=False).count() == 2600


def test_every_wrong_option_is_named(spark: Any, topic: Topic) -> None:
    with pytest.raises(Exception, match=r"(?s)unknown option colour.*startingOffsets must be.*minPartitions must be"):
        load(spark, topic, colour="red", startingOffsets="latest", minPartitions="many")
