"""A topic as a stream: every record once, over restarts, growth and limits; what is gone is noticed."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from integration.api import Topic, call, expect
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from stockade.client.blocking.reader import BlockingClient, PartitionLeader, TopicLeaders
from stockade.spark.source.planning.options import parse_read_options
from stockade.spark.source.stream import StockadeStreamReader

from .topics import fill

pytestmark = pytest.mark.processes


class Query:
    """A query with a checkpoint, run until it has read what was there when it started. Collects rows in a table."""

    def __init__(self, spark: Any, topic: Topic, folder: Path, **options: Any) -> None:
        self._spark, self._folder = spark, folder
        self._options = {"url": topic.node, "startingOffsets": "earliest", **options}
        if not {"assign", "subscribePattern"} & options.keys():
            self._options["subscribe"] = topic.name

    def run(self) -> list[int]:
        """Rows of each micro-batch."""
        frame = self._spark.readStream.format("stockade").options(**self._options).load()
        writer = frame.select("topic", "partition", "offset").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(self._folder / "rows"))
        query.awaitTermination()
        return [each.numInputRows for each in query.recentProgress if each.numInputRows]

    def rows(self) -> list[tuple[str, int, int]]:
        """(topic, partition, offset) of all rows of all runs, ascending."""
        return sorted(tuple(row) for row in self._spark.read.parquet(str(self._folder / "rows")).collect())


def test_a_restarted_stream_goes_on_and_reads_what_grew(spark: Any, url: str, tmp_path: Path) -> None:
    topic = Topic(url, "growing")
    topic.create(partitions=2)
    fill(topic, 0, 0, 30)
    fill(topic, 1, 0, 10)
    query = Query(spark, topic, tmp_path, maxOffsetsPerTrigger=16)
    assert query.run() == [16, 16, 8]
    expect(200, call("PATCH", topic.url, {"partitions": 3}))
    fill(topic, 2, 0, 5)
    fill(topic, 0, 30, 32)
    assert sum(query.run()) == 7
    assert query.run() == []
    wanted = [("growing", p, offset) for p, count in ((0, 32), (1, 10), (2, 5)) for offset in range(count)]
    assert query.rows() == wanted


def test_a_topic_made_anew_fails_the_stream_or_is_read_from_its_beginning(spark: Any, url: str, tmp_path: Path) -> None:
    topic = Topic(url, "anew")
    topic.create(partitions=1)
    fill(topic, 0, 0, 9)
    query = Query(spark, topic, tmp_path)
    assert query.run() == [9]
    assert call("DELETE", topic.url).status in (200, 204)
    topic.create(partitions=1)
    fill(topic, 0, 0, 4)
    with pytest.raises(Exception, match="topic anew was deleted and created again"):
        query.run()
    assert Query(spark, topic, tmp_path, failOnDataLoss=False).run() == [4]


def test_a_pattern_finds_topics_that_come_later(spark: Any, url: str, tmp_path: Path) -> None:
    first, second = Topic(url, "found-1"), Topic(url, "found-2")
    first.create(partitions=1)
    fill(first, 0, 0, 3)
    query = Query(spark, first, tmp_path, subscribePattern="found-[0-9]")
    assert query.run() == [3]
    second.create(partitions=1)
    fill(second, 0, 0, 2)
    assert query.run() == [2]
    assert query.rows() == [
        ("found-1", 0, 0),
        ("found-1", 0, 1),
        ("found-1", 0, 2),
        ("found-2", 0, 0),
        ("found-2", 0, 1),
    ]


class Busy(BlockingClient):
    """A topic whose log has grown by three records at each look, and whose latest record is that of any time."""

    ends: Iterator[int]

    def connect(self, patience_ms: int = 0) -> None:
        pass

    def topic(self, name: str) -> TopicLeaders:
        return TopicLeaders(name, 1, [PartitionLeader(0, None)])

    def offsets(self, topic: str, partition: int, topic_id: int | None = None) -> tuple[int, int]:
        return 0, next(self.ends)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int, topic_id: int | None = None) -> int | None:
        return next(self.ends) - 1


@pytest.mark.parametrize(
    ("starting", "begin", "end"), [({"startingOffsets": "latest"}, 103, 106), ({"startingTimestamp": "9"}, 105, 109)]
)
def test_a_query_of_what_is_available_that_starts_beyond_its_first_look_has_lost_nothing(
    monkeypatch: pytest.MonkeyPatch, starting: dict[str, str], begin: int, end: int
) -> None:
    monkeypatch.setattr(Busy, "ends", count(100, 3), raising=False)
    monkeypatch.setattr("stockade.spark.source.tasks.BlockingClient", Busy)
    options = parse_read_options({"url": "http://127.0.0.1:1", "subscribe": "t", **starting}, "stream")
    reader = StockadeStreamReader(options, StructType())
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert start["t"]["next"] == {"0": begin}
    for _ in range(2):
        assert reader.latestOffset(start, ReadAllAvailable())["t"]["next"] == {"0": end}, "the end is fixed"
