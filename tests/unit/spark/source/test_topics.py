"""What is asked of the cluster about the topics of a read, and how often."""

import json

import pytest

from stockade.client.blocking.reader import BlockingClient, PartitionLeader, TopicLeaders
from stockade.partition.errors import InconsistentTopicId
from stockade.spark.source.filters import AcceptedFilters
from stockade.spark.source.planning.options import parse_read_options
from stockade.spark.source.planning.ranges import DataLost
from stockade.spark.source.topics import look, pinned, planned

NEEDED = {"url": "http://127.0.0.1:1", "subscribe": "t"}


class Growing(BlockingClient):
    """A topic of two partitions from which records were dropped, and to which one is appended at each look."""

    looks = 0

    def connect(self, patience_ms: int = 0) -> None:
        pass

    def topic(self, name: str) -> TopicLeaders:
        Growing.looks += 1
        return TopicLeaders(name, 7, [PartitionLeader(0, None), PartitionLeader(1, None)])

    def offsets(self, topic: str, partition: int, topic_id: int | None = None) -> tuple[int, int]:
        return 2, 10 * (partition + 1) + Growing.looks

    def offset_at(self, topic: str, partition: int, timestamp_ms: int, topic_id: int | None = None) -> int | None:
        return 5 if timestamp_ms < 100 else None


@pytest.mark.parametrize(
    ("given", "starting", "ending"),
    [
        ({}, {"0": 2, "1": 2}, {"0": 11, "1": 21}),
        ({"StartingTimestamp": "9", "endingTimestamp": "100"}, {"0": 5, "1": 5}, {"0": 11, "1": 21}),
        ({"endingOffsetsByTimestamp": '{"t": {"0": 9, "1": 100}}'}, {"0": 2, "1": 2}, {"0": 5, "1": 21}),
    ],
)
def test_every_query_of_pinned_options_reads_the_same_records(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], starting: dict[str, int], ending: dict[str, int]
) -> None:
    monkeypatch.setattr("stockade.spark.source.topics.BlockingClient", Growing)
    monkeypatch.setattr(Growing, "looks", 0)
    once = pinned(NEEDED | given)
    assert json.loads(once["startingOffsets"]) == {"t": starting}
    assert json.loads(once["endingOffsets"]) == {"t": ending}
    assert once.keys() == {*NEEDED, "startingOffsets", "endingOffsets"}
    assert pinned(once) == once


class Renewed(Growing):
    """A topic that is deleted and created again between two requests of a look."""

    def offsets(self, topic: str, partition: int, topic_id: int | None = None) -> tuple[int, int]:
        raise InconsistentTopicId(topic_id=8)


def test_a_stream_that_outlives_lost_records_outlives_a_topic_that_is_made_anew_while_it_looks() -> None:
    """The query ended, although it had failOnDataLoss=false."""
    selection = parse_read_options(NEEDED).selection
    assert look(Renewed(), selection, must_exist=False).seen == {}
    with pytest.raises(InconsistentTopicId):
        look(Renewed(), selection)


class Busy(Growing):
    """Records 12 and on are of time 50 and come after the look, which saw the log up to 10."""

    def offsets(self, topic: str, partition: int, topic_id: int | None = None) -> tuple[int, int]:
        return 2, 10

    def offset_at(self, topic: str, partition: int, timestamp_ms: int, topic_id: int | None = None) -> int | None:
        return 5 if timestamp_ms < 10 else 12 if timestamp_ms <= 50 else None


def read(**given: str) -> list[tuple[int, int, int]]:
    """(partition, start, end) of the ranges of a batch read."""
    options = parse_read_options(NEEDED | given)
    client = Busy()
    found = planned(client, options, look(client, options.selection).seen, AcceptedFilters())
    return [(each.partition, each.start, each.end) for each in found]


def test_a_read_by_time_loses_nothing_to_records_that_come_while_it_is_planned() -> None:
    assert read(startingTimestamp="50") == []
    assert read(endingTimestamp="50") == [(0, 2, 10), (1, 2, 10)]


def test_a_start_after_the_last_record_is_no_lost_data() -> None:
    with pytest.raises(ValueError, match=r"Strategy=latest starts such partitions at their end$"):
        read(startingTimestamp="100", failOnDataLoss="false")


def test_a_read_that_would_end_before_it_begins_is_no_lost_data() -> None:
    ends = {"endingOffsets": '{"t": {"0": 4, "1": 9}}'}
    told = r"t/0 would be read from 5 \(startingTimestamp\) to 4 \(endingOffsets\): let the read begin before it ends$"
    for fail in ("true", "false"):
        with pytest.raises(ValueError, match=told):
            read(startingTimestamp="9", failOnDataLoss=fail, **ends)


def test_a_read_of_offsets_that_are_trimmed_is_lost_data_although_it_would_end_before_it_begins() -> None:
    ends = {"endingOffsets": '{"t": {"0": 1, "1": 9}}'}
    with pytest.raises(DataLost, match="t/0 has offsets 2 to 10, and 2 to 1 were asked for"):
        read(**ends)
    assert read(failOnDataLoss="false", **ends) == [(1, 2, 9)]
