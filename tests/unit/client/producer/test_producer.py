import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from stockade.client.config import ClientConfig
from stockade.client.consumer.consumer import Consumer
from stockade.client.errors import ClientClosed, ClientFault, ProducerAborted
from stockade.client.producer.producer import Producer
from stockade.client.producer.queue.batch import Batch, Record
from stockade.client.producer.queue.partitioners import Choice
from stockade.client.producer.results import Failure
from stockade.partition.api.producers import is_throwaway
from stockade.partition.errors import (
    InvalidRecord,
    InvalidRequest,
    MessageTooLarge,
    ProducerBusy,
    ProducerFenced,
    UnknownTopicOrPartition,
)
from stockade.partition.partitioner import partition_for_key
from stockade.partition.records.batch import decode_batch

from ..fake_cluster import FakeCluster, Fault


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


STORED_ALL_THE_SAME = [Fault.LOSE_REPLY, Fault.GATEWAY_TIMEOUT, Fault.PORTAL, Fault.TIMED_OUT]
LOSSES = [*STORED_ALL_THE_SAME, Fault.LOSE_REQUEST, Fault.UNAVAILABLE, Fault.MOVED]


@pytest.mark.parametrize("fault", LOSSES)
def test_a_batch_is_stored_once_whatever_became_of_its_first_attempt(cluster: FakeCluster, fault: Fault) -> None:
    cluster.create("t")
    cluster.faults = [fault]
    kept = fault in STORED_ALL_THE_SAME

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
        with pytest.raises(MessageTooLarge, match=r"5,544 bytes; the topic takes 4,096 at once \(max_batch_bytes\)"):
            _ = await producer.send("t", b"x" * 5000)
        with pytest.raises(MessageTooLarge, match="the topic takes 4,096 at once"):
            _ = await producer.send_batch("t", 0, [b"x" * 5000])
        with pytest.raises(InvalidRecord, match=r"a value must be bytes, .* not str; .* value_serializer='str'"):
            _ = await producer.send("t", "text")
        with pytest.raises(InvalidRecord, match=r"a key must be bytes, .* not str; .* key_serializer='str'"):
            _ = await producer.send("t", b"value", key="key")
        with pytest.raises(InvalidRecord, match=r"a key must be bytes, .* not int"):
            _ = await producer.send_batch("t", 0, [b"value"], keys=[7])
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


def test_bytes_of_any_kind_are_stored_as_they_were_when_they_were_sent(cluster: FakeCluster) -> None:
    cluster.create("t")
    seen = []

    def watch(_: str, record: Record) -> Record:
        seen.append((record.key, record.value))
        return record

    async def run() -> None:
        for interceptors in ([], [watch]):
            async with Producer(config(cluster, linger_ms=20), interceptors=interceptors) as producer:
                value = bytearray(b"a")
                _ = await producer.send("t", value, key=memoryview(b"k"))
                _ = await producer.send_batch("t", 0, [memoryview(value)], keys=[bytearray(b"k")])
                value[:] = b"b"

    asyncio.run(run())
    assert cluster.values("t") == [b"a"] * 4
    assert seen == [(b"k", b"a")] * 2


@pytest.mark.parametrize("name", ["", 5])
def test_an_invalid_producer_name_is_refused_and_not_replaced_by_a_random_one(name: Any) -> None:
    with pytest.raises(InvalidRequest, match="name: a text of at least one character is needed, or None"):
        Producer(name=name)


def test_arguments_of_a_wrong_kind_are_refused_with_what_is_needed(cluster: FakeCluster) -> None:
    cluster.create("t")
    wrong: Any = 0

    async def work(producer: Producer) -> None:
        with pytest.raises(InvalidRequest, match="partition: a number is needed, not '0'"):
            _ = await producer.send("t", b"v", partition="0")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="a name must be text, and one is 0"):
            _ = await producer.send(wrong, b"v")
        for name in ("", ".", ".."):
            with pytest.raises(InvalidRequest, match=f"a name has at least one character.* one is '{name}'"):
                _ = await producer.send(name, b"v")
        with pytest.raises(InvalidRequest, match="session: not the id of a session"):
            await producer.client.close_session("")
        with pytest.raises(InvalidRequest, match=r"partitions: a list of numbers is needed, such as \[0\], not 0"):
            async with producer.exclusive("t", wrong):
                raise AssertionError
        with pytest.raises(InvalidRequest, match="'exclusive' is none of Shared, Exclusive, ExclusiveWithFencing"):
            async with producer.exclusive("t", mode="exclusive"):  # type: ignore[arg-type]
                raise AssertionError
        async with Consumer(producer.client.config) as consumer:
            with pytest.raises(InvalidRequest, match="partitions: a list of numbers"):
                _ = [record async for record in consumer.read("t", wrong)]

    produce(cluster, work)
    assert cluster.grants == {}


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


def test_flush_raises_a_failure_that_was_not_seen(cluster: FakeCluster) -> None:
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


def test_a_producer_block_left_by_an_exception_stores_the_records_sent_before(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.UNAVAILABLE]
    deliveries = []

    async def work(producer: Producer) -> None:
        for value in (b"a", b"b"):
            deliveries.append(await producer.send("t", value))
        raise KeyError

    with pytest.raises(KeyError) as left:
        produce(cluster, work, linger_ms=1000)
    assert [delivery.receipt.offset for delivery in deliveries if delivery.receipt] == [0, 1]
    assert not hasattr(left.value, "__notes__")
    assert cluster.values("t") == [b"a", b"b"]


def test_a_failure_behind_an_exception_becomes_its_note(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        _ = await producer.send("t", b"refused")
        raise KeyError

    with pytest.raises(KeyError) as left:
        produce(cluster, work)
    (note,) = left.value.__notes__
    assert note.startswith("and records of the producer failed: PRODUCER_ERRORS: ")


def test_a_cancelled_block_drops_nothing_in_silence(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.create("t")
    cluster.faults = [Fault.HOLD]
    failures: list[Failure] = []

    async def run() -> None:
        producer = Producer(config(cluster, inflight_batches_max=1), name="writer")
        errors = producer.errors()

        async def block() -> None:
            async with producer:
                for values in ([b"held"], [b"queued", b"queued too"]):
                    _ = await producer.send_batch("t", 0, values)
                await asyncio.Event().wait()

        running = asyncio.create_task(block())
        await cluster.seen("POST", 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        failures.extend([failure async for failure in errors])

    asyncio.run(run())
    assert {type(failure.error) for failure in failures} == {ProducerAborted}
    outcomes = [(failure.count, failure.error.fields["outcome"]["state"]) for failure in failures]
    assert sorted(outcomes) == [(1, "unknown"), (2, "absent")]
    (line,) = [record.getMessage() for record in caplog.records]
    assert "writer was stopped without a flush: 2 records were not sent, and of 1 the outcome is unknown" in line
    assert cluster.values("t") == []


def test_a_producer_that_is_stopped_at_once_leaves_no_delivery_without_an_outcome(cluster: FakeCluster) -> None:
    """An attempt that is cancelled before its first step handles no exception."""
    cluster.create("t")

    async def run() -> None:
        producer = await Producer(config(cluster), name="writer").start()
        delivery = await producer.send_batch("t", 0, [b"v"])
        await producer.abort()
        assert delivery.failure is not None
        assert delivery.failure.fields["outcome"]["state"] == "absent"

    asyncio.run(run())
    assert cluster.values("t") == []


def test_a_producer_whose_stop_is_cancelled_leaves_no_delivery_without_an_outcome(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def run() -> None:
        producer = await Producer(config(cluster), name="writer").start()
        await (await producer.send("t", b"0", partition=0))
        delivery = await producer.send("t", b"1", partition=0)
        stopping = asyncio.create_task(producer.abort())
        await asyncio.sleep(0)  # the attempt has not begun
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert delivery.failure is not None
        assert delivery.failure.fields["outcome"]["state"] == "absent"

    asyncio.run(run())


def test_a_producer_that_was_stopped_leaves_no_timer_behind(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def run() -> None:
        producer = await Producer(config(cluster)).start()
        await (await producer.send("t", b"0", partition=0))
        cluster.faults = [Fault.HOLD]
        _ = await producer.send("t", b"1", partition=0)
        (route,) = producer._running.routes
        producer._running.pump(route)
        assert route.timer is not None
        await producer.abort()
        assert route.timer is None

    asyncio.run(run())


def test_a_producer_whose_stop_is_cancelled_has_closed_its_connections(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def run() -> None:
        producer = await Producer(config(cluster)).start()
        cluster.faults = [Fault.HOLD]
        _ = await producer.send("t", b"v")
        stopping = asyncio.create_task(producer.abort())
        await asyncio.sleep(0)  # it waits for its attempts now
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        with pytest.raises(ClientClosed):
            _ = await producer.client.topics()

    asyncio.run(run())


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


def test_a_bug_of_the_client_is_called_one_and_not_a_fault_of_the_server(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        def fails(*_: Any, **__: Any) -> None:
            raise AttributeError("'Handle' object has no attribute 'when'")

        monkeypatch.setattr(producer.client, "append", fails)
        with pytest.raises(ClientFault, match="a bug in the client library: AttributeError") as refused:
            await (await producer.send("t", b"v"))
        assert refused.value.title == "A fault in the client library"
        assert refused.value.fields["outcome"]["state"] == "unknown"

    produce(cluster, work)


def test_a_producer_that_was_not_started_asks_no_node_and_leaves_nothing_open(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work() -> None:
        producer = Producer(ClientConfig(bootstrap=tuple(cluster.nodes)))
        with pytest.raises(ClientClosed):
            _ = await producer.send("t", b"v")

    asyncio.run(work())
    assert cluster.requests == []


def test_a_name_that_a_producer_draws_for_itself_is_left_out_of_lists(cluster: FakeCluster) -> None:
    assert is_throwaway(Producer(cluster.nodes[0]).name)
    assert not is_throwaway("producer-of-mine")


def test_a_partition_that_the_topic_has_got_since_takes_records(cluster: FakeCluster) -> None:
    topic = cluster.create("t")

    async def work(producer: Producer) -> None:
        await (await producer.send("t", b"0", partition=0))
        topic.machines += cluster.create("another").machines
        await (await producer.send("t", b"1", partition=1))
        with pytest.raises(UnknownTopicOrPartition):
            _ = await producer.send("t", b"2", partition=2)

    produce(cluster, work)
    assert cluster.values("t", 1) == [b"1"]


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_longer_record_is_taken_once_the_topic_takes_longer_batches(
    cluster: FakeCluster, is_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockade.client.transport.metadata.ANEW_S", 0.0)
    topic = cluster.create("t", batch_bytes_max=2000)

    async def send(producer: Producer) -> None:
        value = b"x" * 5000
        if is_batch:
            await (await producer.send_batch("t", 0, [value]))
        else:
            await (await producer.send("t", value, partition=0))

    async def work(producer: Producer) -> None:
        with pytest.raises(MessageTooLarge):
            await send(producer)
        await (await producer.send("t", b"0", partition=0))
        topic.batch_bytes_max = 100_000
        await send(producer)

    produce(cluster, work)
    assert len(cluster.values("t")) == 2


def test_a_record_whose_message_is_just_too_long_is_refused_when_it_is_sent(cluster: FakeCluster) -> None:
    """It was taken by the size of its value, and halted the partition when its batch was encoded."""
    cluster.create("t", batch_bytes_max=4096)

    async def work(producer: Producer) -> None:
        fits = Record(None, bytes(3000), 0).message_size() - 3000
        await (await producer.send("t", bytes(4096 - fits), partition=0))
        with pytest.raises(MessageTooLarge, match="4,104 bytes; the topic takes 4,096 at once"):
            _ = await producer.send("t", bytes(4097 - fits), partition=0)
        await (await producer.send("t", b"next", partition=0))

    produce(cluster, work)
    assert len(cluster.values("t")) == 2


def test_a_record_that_a_partitioner_takes_down_leaves_its_room_in_the_buffer(cluster: FakeCluster) -> None:
    cluster.create("t")

    def cancelled(choice: Choice) -> int:
        raise asyncio.CancelledError

    async def work(producer: Producer) -> None:
        with pytest.raises(asyncio.CancelledError):
            _ = await producer.send("t", b"v")
        with pytest.raises(asyncio.CancelledError):
            _ = await producer.send_batch("t", None, [b"v"])
        assert producer.metrics().buffered_bytes == 0

    async def run() -> None:
        async with Producer(config(cluster), partitioner=cancelled) as producer:
            await work(producer)

    asyncio.run(run())


def test_records_whose_estimate_is_too_long_are_sent_together_if_their_message_is_not(cluster: FakeCluster) -> None:
    cluster.create("t", batch_bytes_max=100_000)

    async def work(producer: Producer) -> None:
        values = [b"x" * 100] * 810
        assert Batch.of(values, None, None, None, now_ms=0).size > 100_000
        await (await producer.send_batch("t", 0, values))

    produce(cluster, work)
    assert len(cluster.values("t")) == 810
    assert cluster.paths("GET").count("/v1/topics/t") == 1


def test_a_record_that_is_too_long_is_refused_during_an_outage_and_holds_up_no_other(cluster: FakeCluster) -> None:
    cluster.create("t", batch_bytes_max=2000)

    async def work(producer: Producer) -> None:
        await (await producer.send("t", b"0"))
        for node in cluster.nodes:
            await asyncio.to_thread(cluster.kill, node)
        long = asyncio.create_task(producer.send("t", b"x" * 5000))
        await asyncio.sleep(0)
        waits = await asyncio.wait_for(producer.send("t", b"1"), 20)
        with pytest.raises(MessageTooLarge):
            _ = await long
        await producer.abort()
        with pytest.raises(ProducerAborted):
            await waits

    produce(cluster, work)
