"""What is asked of the cluster about the topics of a read, and how often."""

import json

import pytest

from stockade.client.blocking.reader import BlockingClient, PartitionLeader, TopicLeaders
from stockade.spark.source.topics import pinned

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
