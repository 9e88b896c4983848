"""What a client remembers of topics, and how it asks for them."""

import asyncio

import pytest
from msgspec import structs

from stockade.client.retry import AT_ONCE_MS, FAILURES_MAX, OPEN_S
from stockade.client.transport.metadata import ANEW_S, REFRESH_S, TOPICS_MAX, Metadata
from stockade.partition.api.topics import PartitionState, Topic, TopicConfig
from stockade.partition.errors import (
    InconsistentTopicId,
    LeaderNotAvailable,
    StockadeError,
    UnknownTopicOrPartition,
)


def described(name: str, leader: str | None) -> Topic:
    state = PartitionState(partition=0, leader=leader, leader_node=None, leader_term=1, replicas=[])
    return Topic(name, 1, 1, False, TopicConfig(), [state])


def test_a_description_is_asked_for_once_until_it_is_forgotten() -> None:
    asked: list[str] = []

    async def describe(name: str, **_: object) -> Topic:
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

    async def describe(name: str, **_: object) -> Topic:
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

        async def describe(name: str, **_: object) -> Topic:
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

    async def describe(name: str, **_: object) -> Topic:
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


class Described:
    """What the cluster says of topics now; ``asked``: the name and the patience of each question."""

    def __init__(self, *topics: Topic) -> None:
        self.topics = {topic.name: topic for topic in topics}
        self.asked: list[tuple[str, int | None]] = []
        self.refusal: StockadeError | None = None

    async def __call__(self, name: str, *, patience_ms: int | None = None) -> Topic:
        self.asked.append((name, patience_ms))
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        return self.topics[name]

    def grow(self, name: str, leader: str | None = None) -> Topic:
        """Two partitions more."""
        more = [structs.replace(described(name, leader).partitions[0], partition=number) for number in (1, 2)]
        topic = self.topics[name]
        self.topics[name] = structs.replace(topic, partitions=[*topic.partitions, *more])
        return self.topics[name]


async def refreshed(metadata: Metadata, name: str) -> Topic | None:
    """The description after the question that is due, if one is."""
    _ = metadata.known(name)
    task = metadata._topics[name].again._task
    if task is not None:
        await asyncio.wait([task])
    return metadata._topics[name].topic


def test_topics_in_use_are_asked_for_again_and_a_topic_that_was_created_again_stays_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr("stockade.client.transport.metadata.time.monotonic", lambda: now[0])

    async def run() -> None:
        cluster = Described(*(described(name, None) for name in ("grows", "again", "unused")))
        metadata = Metadata(cluster)
        before = {name: await metadata.topic(name) for name in cluster.topics}
        grown = cluster.grow("grows")
        cluster.topics["again"] = structs.replace(before["again"], topic_id=2)
        now[0] += REFRESH_S - 1
        assert await refreshed(metadata, "grows") == before["grows"]
        now[0] += 1
        assert metadata.known("grows") == before["grows"], "it does not wait"
        assert await refreshed(metadata, "grows") == grown
        assert await refreshed(metadata, "again") == before["again"]
        assert [name for name, _ in cluster.asked[3:]] == ["grows", "again"]
        await metadata.close()

    asyncio.run(run())


def test_a_node_that_has_not_heard_of_new_partitions_or_leaders_takes_them_from_no_client() -> None:
    async def run() -> None:
        cluster = Described(described("t", "http://old:1"))
        old = cluster.topics["t"]
        grown = cluster.grow("t", "http://other:1")
        metadata = Metadata(cluster)
        _ = await metadata.topic("t")
        metadata.heard("t", 0, "http://new:1")
        metadata.doubt("t", 1, "http://other:1")
        for answer in (old, grown):
            cluster.topics["t"] = answer
            await metadata._topics["t"].again.anew()
            assert metadata.known("t") == grown
            assert [metadata.leader("t", number) for number in (0, 1)] == ["http://new:1", None]

    asyncio.run(run())


def test_a_description_that_allows_too_little_is_asked_for_beside_other_calls_and_with_few_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record that was too long took the topic, and its leaders, from all tasks until the cluster had answered."""
    monkeypatch.setattr("stockade.client.transport.metadata.ANEW_S", 60.0)

    async def run() -> None:
        cluster = Described(described("t", "http://a:1"))
        metadata = Metadata(cluster)
        before = await metadata.topic("t")
        grown = cluster.grow("t")
        calls = [asyncio.create_task(metadata.anew("t")) for _ in range(20)]
        await asyncio.sleep(0)
        assert (metadata.known("t"), metadata.leader("t", 0)) == (before, "http://a:1")
        assert await asyncio.gather(*calls) == [grown] * 20
        assert await metadata.anew("t") == grown, "that was just now"
        assert cluster.asked == [("t", None), ("t", AT_ONCE_MS), ("t", AT_ONCE_MS)], (
            "one may have begun before the call"
        )

    asyncio.run(run())


def test_a_failed_refresh_keeps_the_description_and_unknown_topic_is_raised() -> None:
    async def run() -> None:
        cluster = Described(described("t", "http://a:1"))
        metadata = Metadata(cluster)
        before = await metadata.topic("t")
        cluster.refusal = LeaderNotAvailable()
        assert await metadata.anew("t") == before
        cluster.refusal = UnknownTopicOrPartition(topic="t", partition=None)
        metadata._topics["t"].again._asked_s -= ANEW_S
        with pytest.raises(UnknownTopicOrPartition):
            await metadata.anew("t")
        cluster.refusal = None
        assert await Metadata(cluster).anew("t") == before, "the first time"

    asyncio.run(run())


def test_each_call_that_needs_a_new_description_gets_inconsistent_topic_id_of_a_recreated_topic() -> None:
    """It has the partition by now, under another id: the call must not say that there is none."""

    async def run() -> None:
        cluster = Described(described("t", "http://a:1"))
        metadata = Metadata(cluster)
        before = await metadata.topic("t")
        cluster.topics["t"] = structs.replace(cluster.grow("t"), topic_id=2)
        for _ in range(2):  # the second one, right after the first, was told that the topic had no such partition
            with pytest.raises(InconsistentTopicId):
                await metadata.anew("t")
        assert metadata.known("t") == before

    asyncio.run(run())
