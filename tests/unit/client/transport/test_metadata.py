"""What a client remembers of topics, and how it asks for them."""

import asyncio

import pytest
from msgspec import structs

from stockade.client.retry import FAILURES_MAX, OPEN_S
from stockade.client.transport.metadata import REFRESH_S, TOPICS_MAX, Metadata
from stockade.partition.api.topics import PartitionState, Topic, TopicConfig
from stockade.partition.errors import LeaderNotAvailable, StockadeError, UnknownTopicOrPartition


def described(name: str, leader: str | None) -> Topic:
    state = PartitionState(partition=0, leader=leader, leader_node=None, leader_term=1, replicas=[])
    return Topic(name, 1, 1, False, TopicConfig(), [state])


def test_a_description_is_asked_for_once_until_it_is_forgotten() -> None:
    asked: list[str] = []

    async def describe(name: str) -> Topic:
        asked.append(name)
        return described(name, "http://a:1")

    async def run() -> None:
        metadata = Metadata(describe)
        await asyncio.gather(*(metadata.topic("t") for _ in range(5)))
        assert asked == ["t"]
        assert metadata.leader("t", 0) == "http://a:1"
        metadata.heard("t", 0, None)
        metadata.heard("t", 0, "http://b:1")
        assert metadata.leader("t", 0) == "http://b:1"
        metadata.doubt("t", 0, "http://a:1")  # it was asked before the other one was heard of
        assert metadata.leader("t", 0) == "http://b:1"
        metadata.doubt("t", 0, "http://b:1")
        assert metadata.leader("t", 0) is None
        metadata.forget("t")
        assert metadata.known("t") is None
        await metadata.topic("t")
        assert asked == ["t", "t"]

    asyncio.run(run())


def test_a_cluster_that_fails_to_describe_topics_is_left_alone_for_a_while() -> None:
    asked = []

    async def describe(name: str) -> Topic:
        asked.append(name)
        raise LeaderNotAvailable if name == "down" else UnknownTopicOrPartition(topic=name, partition=None)

    async def run() -> None:
        metadata = Metadata(describe)
        with pytest.raises(UnknownTopicOrPartition):
            await metadata.topic("unknown")
        for _ in range(FAILURES_MAX):
            with pytest.raises(LeaderNotAvailable):
                await metadata.topic("down")
        for _ in range(2):
            with pytest.raises(LeaderNotAvailable, match="the last time: no leader is known") as refused:
                await metadata.topic("down")
            assert 0 < refused.value.fields["retry_after_ms"] <= OPEN_S * 1000

    asyncio.run(run())
    assert asked == ["unknown", *["down"] * FAILURES_MAX]


def test_a_topic_that_cannot_be_described_holds_up_no_other_topic() -> None:
    """The breaker and the wait for an answer are one a topic (002: Sarama's are one a topic and partition)."""

    async def run() -> None:
        is_answering = asyncio.Event()

        async def describe(name: str) -> Topic:
            if name == "down":
                raise LeaderNotAvailable
            if name == "slow":
                await is_answering.wait()
            return described(name, None)

        metadata = Metadata(describe)
        for _ in range(FAILURES_MAX + 1):
            with pytest.raises(LeaderNotAvailable):
                await metadata.topic("down")
        slow = asyncio.create_task(metadata.topic("slow"))
        await asyncio.sleep(0)
        assert (await metadata.topic("up")).name == "up"
        assert not slow.done()
        is_answering.set()
        assert (await slow).name == "slow"

    asyncio.run(run())


def test_topics_that_were_looked_up_in_vain_are_forgotten() -> None:
    refusal: list[StockadeError] = [UnknownTopicOrPartition(topic="t", partition=None)]

    async def describe(name: str) -> Topic:
        raise refusal[0]

    async def run() -> int:
        metadata = Metadata(describe)
        for number in range(TOPICS_MAX + 10):
            if number == 5:
                refusal[0] = LeaderNotAvailable()
            with pytest.raises(StockadeError):
                await metadata.topic(f"t{number}")
        return len(metadata._lookups)

    assert asyncio.run(run()) == TOPICS_MAX


def test_topics_in_use_are_asked_for_again_and_a_topic_that_was_created_again_stays_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr("stockade.client.transport.metadata.time.monotonic", lambda: now[0])
    described_now = {"grows": described("grows", None), "again": described("again", None)}

    async def run() -> None:
        async def describe(name: str) -> Topic:
            if name not in described_now:
                raise UnknownTopicOrPartition(topic=name, partition=None)
            return described_now[name]

        metadata = Metadata(describe)
        before = {name: await metadata.topic(name) for name in ("grows", "again")}
        described_now["grows"] = structs.replace(before["grows"], partitions=before["grows"].partitions * 2)
        described_now["again"] = structs.replace(before["again"], topic_id=2)
        now[0] += REFRESH_S - 1
        assert metadata.known("grows") == before["grows"]
        assert metadata._refreshing is None
        now[0] += 1
        assert metadata.known("grows") == before["grows"]
        assert metadata._refreshing is not None
        await metadata._refreshing
        assert metadata.known("grows") == described_now["grows"]
        assert metadata.known("again") == before["again"]
        await metadata.close()

    asyncio.run(run())
