import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from stockade.client.config import ClientConfig
from stockade.client.errors import ClientClosed, ClusterUnreachable
from stockade.client.producer import Producer
from stockade.partition.errors import (
    InvalidRecord,
    MessageTooLarge,
    ProducerBusy,
    ProducerFenced,
    UnknownTopicOrPartition,
)
from stockade.partition.partitioner import partition_for_key
from stockade.partition.records import decode_batch

from .fake_cluster import FakeCluster, Fault


def config(cluster: FakeCluster, **settings: Any) -> ClientConfig:
    quick = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_ms_max": 5}
    return ClientConfig(bootstrap=tuple(cluster.nodes), **{**quick, **settings})


def produce(cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with Producer(config(cluster, **settings), name="writer") as producer:
            await work(producer)

    asyncio.run(run())


def test_records_are_stored_in_order_and_receipts_name_their_offsets(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        deliveries = [await producer.send("t", str(number).encode()) for number in range(1000)]
        receipts = [await delivery for delivery in deliveries]
        assert [receipt.offset for receipt in receipts] == list(range(1000))
        assert {(receipt.topic, receipt.partition, receipt.count) for receipt in receipts} == {("t", 0, 1)}

    produce(cluster, work, batch_records_max=7)
    assert cluster.values("t") == [str(number).encode() for number in range(1000)]


LOSSES = [Fault.LOSE_REQUEST, Fault.LOSE_REPLY, Fault.GATEWAY_TIMEOUT, Fault.TIMED_OUT, Fault.UNAVAILABLE, Fault.MOVED]


@pytest.mark.parametrize("fault", LOSSES)
def test_a_batch_is_stored_once_whatever_became_of_its_first_attempt(cluster: FakeCluster, fault: Fault) -> None:
    cluster.create("t")
    cluster.faults = [fault]
    kept = fault in (Fault.LOSE_REPLY, Fault.GATEWAY_TIMEOUT, Fault.TIMED_OUT)

    async def work(producer: Producer) -> None:
        receipt = await (await producer.send_batch("t", 0, [b"a", b"b"]))
        assert (receipt.base_offset, receipt.last_offset, receipt.duplicate) == (0, 1, kept)

    produce(cluster, work)
    assert cluster.values("t") == [b"a", b"b"]


def test_two_lost_attempts_and_a_pipeline_behind_them_end_in_order(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.LOSE_REQUEST, None, Fault.LOSE_REPLY, Fault.UNAVAILABLE, Fault.LOSE_REPLY]

    async def work(producer: Producer) -> None:
        for number in range(20):
            _ = await producer.send_batch("t", 0, [str(number).encode()])

    produce(cluster, work)
    assert cluster.values("t") == [str(number).encode() for number in range(20)]


def test_equal_keys_go_to_one_partition_and_records_without_a_key_stay_together(cluster: FakeCluster) -> None:
    cluster.create("t", 4)

    async def work(producer: Producer) -> None:
        keyed = [await producer.send("t", b"v", key=key) for key in (b"a", b"b", b"a", b"c")]
        partitions = [(await delivery).partition for delivery in keyed]
        assert partitions == [partition_for_key(key, 4) for key in (b"a", b"b", b"a", b"c")]
        keyless = [await producer.send("t", b"v") for _ in range(30)]
        together = [(await delivery).partition for delivery in keyless]
        assert [together[i : i + 10] for i in (0, 10, 20)] == [[together[i]] * 10 for i in (0, 10, 20)]
        assert len({together[0], together[10], together[20]}) == 3

    produce(cluster, work, batch_records_max=10, linger_ms=50)


def test_headers_keys_nulls_and_timestamps_arrive(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        _ = await producer.send("t", None, key=b"k", headers=[("h", b"1")], timestamp_ms=5)
        _ = await producer.send_batch("t", 0, [b"v"], keys=[None], headers=[None], timestamps_ms=[6])

    produce(cluster, work)
    messages = cluster.machine("t", 0).log.read(0, 1 << 20).messages()
    rows = [row for message in messages for row in decode_batch(message).to_pylist()]
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == [
        (b"k", None, [{"key": "h", "value": b"1"}]),
        (None, b"v", None),
    ]
    assert [row["timestamp"].timestamp() * 1000 for row in rows] == [5, 6]


def test_a_bad_record_is_refused_alone(cluster: FakeCluster) -> None:
    cluster.create("t", batch_bytes_max=4096)

    async def work(producer: Producer) -> None:
        good = await producer.send("t", b"good")
        with pytest.raises(MessageTooLarge, match=r"5,024 bytes; the topic takes 4,096 at once \(max_batch_bytes\)"):
            _ = await producer.send("t", b"x" * 5000)
        with pytest.raises(MessageTooLarge, match="the topic takes 4,096 at once"):
            _ = await producer.send_batch("t", 0, [b"x" * 5000])
        with pytest.raises(InvalidRecord, match="not NoneType and str"):
            _ = await producer.send("t", "text")  # type: ignore[arg-type]
        with pytest.raises(InvalidRecord, match="one is \\('h', None\\)"):
            _ = await producer.send("t", b"v", headers=[("h", None)])  # type: ignore[list-item]
        with pytest.raises(InvalidRecord, match="pairs of str and bytes, and one is 'name'"):
            _ = await producer.send("t", b"v", headers={"name": b"v"})  # type: ignore[arg-type]
        with pytest.raises(InvalidRecord):
            _ = await producer.send_batch("t", 0, [])
        with pytest.raises(InvalidRecord):
            _ = await producer.send_batch("t", 0, [b"a"], keys=[b"a", b"b"])
        with pytest.raises(UnknownTopicOrPartition):
            _ = await producer.send("t", b"v", partition=1)
        with pytest.raises(UnknownTopicOrPartition):
            _ = await producer.send("nowhere", b"v")
        assert (await good).offset == 0

    produce(cluster, work)
    assert cluster.values("t") == [b"good"]


def test_send_waits_while_the_buffer_is_full(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.HOLD]

    async def work(producer: Producer) -> None:
        _ = await producer.send("t", b"x" * 1500)
        waiting = asyncio.create_task(producer.send("t", b"y" * 1000))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        cluster.release_held()
        assert (await (await waiting)).offset == 1

    produce(cluster, work, buffer_bytes_max=2048, batch_bytes_max=1024)


def test_flush_raises_a_failure_that_nobody_saw(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        cluster.init_producer("writer")
        _ = await producer.send("t", b"v")
        with pytest.raises(ProducerFenced) as refused:
            await producer.flush()
        assert refused.value.fields["outcome"]["state"] == "absent"
        await producer.flush()

    produce(cluster, work)


def test_flush_is_silent_about_a_failure_that_its_delivery_raised(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        cluster.init_producer("writer")
        delivery = await producer.send("t", b"v")
        for _ in range(2):
            with pytest.raises(ProducerFenced):
                await delivery
        await producer.flush()

    produce(cluster, work)


def test_a_later_producer_of_the_same_name_fences_the_earlier_one_off(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(first: Producer) -> None:
        await (await first.send("t", b"first"))
        async with Producer(config(cluster), name="writer") as second:
            assert second.identity.producer_epoch == first.identity.producer_epoch + 1
            await (await second.send("t", b"second"))
        with pytest.raises(ProducerFenced):
            await (await first.send("t", b"zombie"))
        with pytest.raises(ProducerFenced):
            _ = await first.send("t", b"nothing more is taken")

    produce(cluster, work)
    assert cluster.values("t") == [b"first", b"second"]


def test_leaving_by_an_exception_sends_nothing_more_and_says_what_is_unknown(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.HOLD]
    deliveries = []

    async def work(producer: Producer) -> None:
        for value in (b"held", b"queued"):
            deliveries.append(await producer.send_batch("t", 0, [value]))
        await cluster.seen("POST", 2)
        raise KeyError

    with pytest.raises(KeyError):
        produce(cluster, work, inflight_batches_max=1)
    outcomes = [delivery.failure for delivery in deliveries]
    assert [type(outcome) for outcome in outcomes] == [ClientClosed, ClientClosed]
    assert [outcome.fields["outcome"]["state"] for outcome in outcomes if outcome] == ["unknown", "absent"]
    assert cluster.values("t") == []


def test_a_producer_that_is_not_running_takes_nothing(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def run() -> None:
        producer = Producer(config(cluster))
        with pytest.raises(ClientClosed):
            _ = await producer.send("t", b"v")
        await producer.start()
        await producer.close()
        with pytest.raises(ClientClosed):
            _ = await producer.send("t", b"v")

    asyncio.run(run())


def test_starting_without_a_cluster_fails_at_once() -> None:
    async def run() -> None:
        with pytest.raises(ClusterUnreachable):
            await Producer("http://127.0.0.1:9").start()

    asyncio.run(run())


def test_a_batch_refused_until_its_time_ended_fails_with_the_last_refusal(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.take_over("t")
    slow = {"retry_backoff_ms": 1000, "retry_backoff_ms_max": 1000}

    async def work(producer: Producer) -> None:
        with pytest.raises(ProducerBusy) as refused:
            await (await producer.send("t", b"v"))
        assert refused.value.fields["outcome"]["state"] == "absent"

    produce(cluster, work, request_timeout_ms=3_000, delivery_timeout_ms=3_300, **slow)


@pytest.mark.parametrize("seed", range(12))
def test_a_lossy_server_stores_everything_once_and_in_order(cluster: FakeCluster, seed: int) -> None:
    chance = Random(seed)
    partitions, loss = chance.choice([1, 3]), chance.choice([0.1, 0.4, 0.7])
    cluster.create("t", partitions)
    cluster.fault_for = lambda: chance.choice(LOSSES) if chance.random() < loss else None
    window, records = chance.randint(1, 5), chance.randint(1, 9)

    async def work(producer: Producer) -> None:
        for number in range(150):
            _ = await producer.send("t", str(number).encode(), partition=number % partitions)
            if chance.random() < 0.1:
                await asyncio.sleep(0)

    produce(cluster, work, inflight_batches_max=window, batch_records_max=records)
    for partition in range(partitions):
        expected = [str(number).encode() for number in range(partition, 150, partitions)]
        assert cluster.values("t", partition) == expected, f"seed {seed}"


def test_a_producer_that_was_not_started_asks_nobody_and_leaves_nothing_open(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work() -> None:
        producer = Producer(ClientConfig(bootstrap=tuple(cluster.nodes)))
        with pytest.raises(ClientClosed):
            _ = await producer.send("t", b"v")

    asyncio.run(work())
    assert cluster.requests == []
