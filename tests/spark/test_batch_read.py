"""``spark.read.format("stockade")`` on a real cluster: every record once, with its place, and nothing beside them."""

import json
from datetime import UTC
from typing import Any

import pytest
from integration.api import Topic, call, expect

from .topics import append, fill, load, places, record

pytestmark = pytest.mark.processes

PARTITIONS = 3
BATCH = 250
COUNTS = [2600, 700, 1]
"""Records of each partition. They make batches of BATCH, so ranges can start and end inside of one."""


@pytest.fixture(scope="module")
def topic(url: str) -> Topic:
    """A topic whose partitions hold COUNTS records."""
    made = Topic(url, "numbers")
    made.create(partitions=PARTITIONS)
    for partition, count in enumerate(COUNTS):
        for start in range(0, count, BATCH):
            fill(made, partition, start, min(start + BATCH, count))
    return made


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
    every = r"correct the options: .*option colour.*minPartitions must be.*startingOffsets must be.* in a batch read"
    with pytest.raises(Exception, match=every):
        load(spark, topic, colour="red", startingOffsets="latest", minPartitions="many")


def test_partitions_can_be_assigned_and_topics_matched(spark: Any, topic: Topic) -> None:
    reader = spark.read.format("stockade").option("url", topic.node)
    assigned = reader.option("assign", json.dumps({"numbers": [1, 2]})).load()
    assert {partition for partition, _ in places(assigned)} == {1, 2}
    matched = spark.read.format("stockade").options(url=topic.node, subscribePattern="num.*").load()
    assert matched.count() == sum(COUNTS)


def test_a_read_by_time_begins_at_the_first_record_of_it(spark: Any, topic: Topic) -> None:
    day = 86_400_000
    first = 1767225600000
    frame = load(spark, topic, startingTimestamp=first + day, startingOffsetsByTimestampStrategy="latest")
    assert {partition for partition, _ in places(frame)} == {1, 2}
    ending = json.dumps({"numbers": {"0": first + 5_000, "1": 0, "2": first + 9 * day}})
    wanted = next(o for o in range(COUNTS[0]) if record(0, o)["timestamp"].timestamp() * 1000 >= first + 5_000)
    frame = load(spark, topic, endingOffsetsByTimestamp=ending)
    assert places(frame) == [*((0, offset) for offset in range(wanted)), (2, 0)]
    with pytest.raises(Exception, match="numbers/0 has no record at or after the time of startingTimestamp"):
        load(spark, topic, startingTimestamp=first + day).count()


def test_filters_that_are_taken_over_change_no_row(spark: Any, topic: Topic) -> None:
    condition = "partition = 0 and offset >= 100 and offset < 1200 and timestamp >= '2026-01-01 00:00:30'"
    wanted = places(load(spark, topic).where(condition))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        narrowed = load(spark, topic, filterPushdown=True, minPartitions=4)
        assert places(narrowed.where(condition)) == wanted
        assert places(narrowed.where("partition in (1, 2) and offset = 0")) == [(1, 0), (2, 0)]
        assert narrowed.where("partition = 99").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert 0 < len(wanted) < 1100


def test_the_producer_and_epoch_of_a_record_are_read_on_request(spark: Any, url: str) -> None:
    topic = Topic(url, "written")
    topic.create(partitions=1)
    pair = expect(200, call("POST", f"{url}/v1/producers", {"name": "spark-test"}))
    stamp = {
        "Stockade_Producer_Id": str(pair["producer_id"]),
        "Stockade_Producer_Epoch": str(pair["producer_epoch"]),
    }
    expect(200, topic.append("a\nb", 0, **stamp, Stockade_Producer_Seq="0"))
    expect(200, topic.append("c", 0))
    expect(200, topic.append("d", 0, **stamp, Stockade_Producer_Seq="2"))
    names = ("offset", "producer_id", "producer_epoch", "sequence", "writer_epoch")
    rows = load(spark, topic, includeOrigin=True).select(*names).orderBy("offset").collect()
    who = (pair["producer_id"], pair["producer_epoch"])
    assert [tuple(row) for row in rows] == [(0, *who, 0, 0), (1, *who, 1, 0), (2, None, None, None, 0), (3, *who, 2, 0)]


def test_a_record_of_a_time_that_spark_does_not_have_is_collected_as_of_the_latest(spark: Any, url: str) -> None:
    topic = Topic(url, "nanoseconds")
    topic.create(partitions=1)
    sent = {"key": None, "value": b"v", "headers": None}
    append(topic, 0, [sent | {"timestamp": 1_767_225_600_000_000_000}, sent | {"timestamp": 1_767_225_600_000}])
    times = load(spark, topic).selectExpr("timestamp", "year(timestamp) as year").orderBy("offset").collect()
    assert [(row.timestamp.year, row.year) for row in times] == [(9999, 9999), (2026, 2026)]
