"""A producer after a failure: it goes on, or halts and is recovered; and the ways to watch and steer what it sends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stockade.client.batches import Receipt, Record
from stockade.client.breaker import FAILURES_MAX, OPEN_S, Breaker
from stockade.client.config import ClientConfig
from stockade.client.metadata import Metadata
from stockade.client.model import Topic
from stockade.client.outcomes import Failure
from stockade.client.partitioners import Choice
from stockade.client.producer import Producer
from stockade.partition.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    MessageTooLarge,
    ProducerFenced,
    UnknownTopicOrPartition,
)

from .fake_cluster import FakeCluster, Fault

ONE_AFTER_THE_OTHER = {"inflight_batches_max": 1}
"""Faults strike in the order of arrival, and two connections may swap that; test_renewal.py has the pipelines."""


def config(cluster: FakeCluster, **settings: Any) -> ClientConfig:
    quick = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_ms_max": 5}
    return ClientConfig(bootstrap=tuple(cluster.nodes), **{**quick, **settings})


def produce(
    cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], *, options: Any = None, **settings: Any
) -> None:
    async def run() -> None:
        async with Producer(config(cluster, **settings), name="writer", **(options or {})) as producer:
            await work(producer)

    asyncio.run(run())


async def send_and_settle(producer: Producer, *values: bytes, partition: int = 0) -> list[Receipt | Exception]:
    deliveries = [await producer.send_batch("t", partition, [value]) for value in values]
    return list(await asyncio.gather(*map(_outcome, deliveries)))


async def _outcome(delivery: Awaitable[Receipt]) -> Receipt | Exception:
    try:
        return await delivery
    except Exception as error:
        return error


def test_95_a_refused_batch_fails_alone_and_what_follows_lands_once_under_the_next_epoch(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [None, Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        outcomes = await send_and_settle(producer, b"a", b"b", b"c", b"d")
        assert [type(outcome) for outcome in outcomes] == [Receipt, MessageTooLarge, Receipt, Receipt]
        assert producer.identity.producer_epoch == 1

    produce(cluster, work, on_error="continue", **ONE_AFTER_THE_OTHER)
    assert cluster.values("t") == [b"a", b"c", b"d"]


def test_114_a_halted_partition_is_recovered_after_its_tail_and_others_never_stopped(cluster: FakeCluster) -> None:
    cluster.create("t", 2)
    cluster.faults = [None, Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        outcomes = await send_and_settle(producer, b"a", b"b", b"c")
        assert [type(outcome) for outcome in outcomes] == [Receipt, MessageTooLarge, MessageTooLarge]
        with pytest.raises(MessageTooLarge):
            _ = await producer.send_batch("t", 0, [b"d"])
        await (await producer.send_batch("t", 1, [b"other"]))
        tail = await producer.recover("t", 0)
        assert [record.value for record in tail.records] == ["a"]
        assert [type(outcome) for outcome in await send_and_settle(producer, b"b", b"c")] == [Receipt, Receipt]
        assert [type(outcome) for outcome in await send_and_settle(producer, b"on", partition=1)] == [Receipt]

    produce(cluster, work, **ONE_AFTER_THE_OTHER)
    assert cluster.values("t") == [b"a", b"b", b"c"]
    assert cluster.values("t", 1) == [b"other", b"on"]


def test_113_a_halted_partition_says_why_each_time_it_is_asked_until_it_is_recovered(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        _ = await producer.send_batch("t", 0, [b"refused"])
        with pytest.raises(MessageTooLarge):
            await producer.flush()
        for _ in range(2):
            with pytest.raises(MessageTooLarge, match=r"the partition has halted, `recover` takes records again; why"):
                _ = await producer.send("t", b"refused", partition=0)
        await producer.recover("t", 0)
        await producer.flush()
        assert [type(outcome) for outcome in await send_and_settle(producer, b"taken")] == [Receipt]

    produce(cluster, work)
    assert cluster.values("t") == [b"taken"]


@pytest.mark.parametrize("partitioner", ["round_robin", "sticky", "murmur2"])
def test_records_without_a_place_go_round_a_halted_partition_until_it_is_recovered(
    cluster: FakeCluster, partitioner: str
) -> None:
    cluster.create("t", 3)
    cluster.faults = [Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        assert isinstance((await send_and_settle(producer, b"refused", partition=1))[0], MessageTooLarge)
        places = {(await (await producer.send("t", b"placed"))).partition for _ in range(6)}
        assert places == {0, 2}
        with pytest.raises(MessageTooLarge):
            _ = await producer.send("t", b"named", partition=1)
        await producer.recover("t", 1)
        assert {(await (await producer.send("t", b"placed"))).partition for _ in range(6)} == {0, 1, 2}

    produce(cluster, work, options={"partitioner": partitioner})


def test_when_every_partition_is_halted_a_record_is_refused_with_what_halted_one(cluster: FakeCluster) -> None:
    cluster.create("t", 2)
    cluster.faults = [Fault.TOO_LARGE, Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        for partition in (0, 1):
            await send_and_settle(producer, b"refused", partition=partition)
        for _ in range(3):
            with pytest.raises(MessageTooLarge):
                _ = await producer.send("t", b"nowhere to go")
        for partition in (0, 1):
            await producer.recover("t", partition)

    produce(cluster, work)


def test_recovering_a_partition_that_works_only_reads_its_tail(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        await send_and_settle(producer, b"a")
        assert (await producer.recover("t", 0)).log_end == 1
        assert producer.identity.producer_epoch == 0

    produce(cluster, work)


def test_a_producer_whose_name_was_taken_cannot_recover(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        cluster.init_producer("writer")
        outcomes = await send_and_settle(producer, b"zombie")
        assert isinstance(outcomes[0], ProducerFenced)
        with pytest.raises(ProducerFenced):
            await producer.recover("t", 0)

    produce(cluster, work)
    assert cluster.values("t") == []


@pytest.mark.parametrize(
    ("partitioner", "expected"),
    [("round_robin", [0, 1, 2, 0]), ("sticky", [0, 0, 0, 0]), (lambda choice: len(choice.record.value), [1, 1, 1, 1])],
)
def test_a_partitioner_decides_where_records_go(cluster: FakeCluster, partitioner: Any, expected: list[int]) -> None:
    cluster.create("t", 3)

    async def work(producer: Producer) -> None:
        receipts = [await delivery for delivery in [await producer.send("t", b"v", key=b"k") for _ in range(4)]]
        first = receipts[0].partition if isinstance(partitioner, str) else 0
        assert [(receipt.partition - first) % 3 for receipt in receipts] == expected

    produce(cluster, work, options={"partitioner": partitioner}, linger_ms=20)


def _fails(_: Choice) -> int:
    raise RuntimeError("no idea")


@pytest.mark.parametrize("partitioner", ["manual", _fails, lambda _: 3, lambda _: -1, lambda _: None])
def test_110_a_partitioner_without_an_answer_fails_one_record_only(cluster: FakeCluster, partitioner: Any) -> None:
    cluster.create("t", 3)

    async def work(producer: Producer) -> None:
        with pytest.raises(InvalidRequest):
            _ = await producer.send("t", b"lost")
        await (await producer.send("t", b"kept", partition=1))

    produce(cluster, work, options={"partitioner": partitioner})
    assert cluster.values("t", 1) == [b"kept"]


def test_an_unknown_partitioner_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequest, match="murmur2, sticky, round_robin, manual"):
        Producer(partitioner="random")


def test_109_interceptors_run_in_order_once_a_record_and_one_that_raises_is_skipped(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.LOSE_REPLY]
    seen = []

    def count(topic: str, record: Record) -> Record:
        seen.append((topic, record.value))
        return record._replace(value=(record.value or b"") + b"1")

    def fail(topic: str, record: Record) -> Record:
        raise RuntimeError("broken")

    def mark(topic: str, record: Record) -> Record:
        return record._replace(value=(record.value or b"") + b"2")

    async def work(producer: Producer) -> None:
        await (await producer.send("t", b"a"))
        await (await producer.send_batch("t", 0, [b"b", b"c"], keys=[b"k", None]))

    produce(cluster, work, options={"interceptors": [count, fail, mark]})
    assert cluster.values("t") == [b"a12", b"b12", b"c12"]
    assert seen == [("t", b"a"), ("t", b"b"), ("t", b"c")]


def test_successes_and_errors_can_be_read_as_streams_that_end_with_the_producer(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [None, Fault.TOO_LARGE]

    async def run() -> None:
        producer = await Producer(config(cluster, on_error="continue", **ONE_AFTER_THE_OTHER), name="writer").start()
        successes, errors = producer.successes(), producer.errors()
        await send_and_settle(producer, b"a", b"b", b"c")
        await producer.abort()
        assert [receipt.base_offset async for receipt in successes] == [0, 1]
        failures = [failure async for failure in errors]
        assert [(f.topic, f.partition, f.count, f.error.code) for f in failures] == [("t", 0, 1, "MESSAGE_TOO_LARGE")]
        assert isinstance(failures[0], Failure)

    asyncio.run(run())


def test_successes_that_nobody_reads_hold_up_the_sender(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        successes = producer.successes()
        await (await producer.send_batch("t", 0, [b"x" * 3000]))
        waiting = asyncio.ensure_future(producer.send_batch("t", 0, [b"y" * 3000]))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert (await anext(successes)).base_offset == 0
        await (await waiting)

    produce(cluster, work, batch_bytes_max=4000, buffer_bytes_max=4000)


def test_a_breaker_opens_after_failures_in_a_row_and_one_success_closes_it() -> None:
    breaker = Breaker()
    for _ in range(FAILURES_MAX - 1):
        breaker.failed(100.0)
    breaker.succeeded()
    for _ in range(FAILURES_MAX):
        assert breaker.closed_in_s(100.0) == 0
        breaker.failed(100.0)
    assert breaker.closed_in_s(101.0) == OPEN_S - 1
    assert breaker.closed_in_s(100.0 + OPEN_S) == 0
    breaker.failed(200.0)
    assert breaker.closed_in_s(200.0) == OPEN_S


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
            with pytest.raises(LeaderNotAvailable, match="the last time: No leader at the moment") as refused:
                await metadata.topic("down")
            assert 0 < refused.value.fields["retry_after_ms"] <= OPEN_S * 1000

    asyncio.run(run())
    assert asked == ["unknown", *["down"] * FAILURES_MAX]
