"""What a producer remembers of failures: enough for ``flush`` to raise the first and count the others."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from stockade.client.config import ClientConfig
from stockade.client.producer.delivery import Buffer
from stockade.client.producer.producer import Producer
from stockade.client.producer.queue.batch import Batch, Receipt, Record
from stockade.client.producer.results import FAILURES_KEPT_MAX, Failure, ProducerErrors, Results
from stockade.partition.errors import MessageTooLarge, PermissionDenied, ProducerFenced, RequestTimedOut

from ..fake_cluster import FakeCluster, Fault


def failed(results: Results, number: int = 0, size: int = 10, partition: int = 0) -> Batch:
    batch = Batch(0.0)
    batch.add(Record(None, b"x" * size, 0), size)
    batch.settle(RequestTimedOut(f"failure {number}"))
    results.settled("t", partition, batch)
    return batch


def results() -> Results:
    return Results(Buffer(1 << 30, 0))


def test_flush_raises_the_first_failure_and_notes_how_many_others_there_were() -> None:
    kept = results()
    for number in range(3):
        failed(kept, number)
    with pytest.raises(RequestTimedOut, match="failure 0") as refused:
        kept.raise_unseen()
    *_, note = refused.value.__notes__
    assert note == "and 2 other batches failed since the last flush: producer.errors() has each of them"
    kept.raise_unseen()


@pytest.mark.parametrize("beyond", [0, 1, 500])
def test_failures_beyond_the_bound_are_counted_and_said_once(beyond: int, caplog: pytest.LogCaptureFixture) -> None:
    kept = results()
    for number in range(FAILURES_KEPT_MAX + beyond):
        failed(kept, number)
    assert len(kept._failed) == FAILURES_KEPT_MAX
    assert len(caplog.records) == min(beyond, 1)
    with pytest.raises(RequestTimedOut, match=r"failure 0\n") as refused:
        kept.raise_unseen()
    assert refused.value.__notes__[-1].startswith(f"and {FAILURES_KEPT_MAX + beyond - 1} other batches failed")
    kept.raise_unseen()


def test_the_first_failure_of_a_partition_is_kept_however_many_others_have_failed() -> None:
    """An exclusive block of that partition ended well."""
    kept = results()
    for number in range(FAILURES_KEPT_MAX):
        failed(kept, number)
    for number in range(2):
        failed(kept, number, partition=1)
    with pytest.raises(RequestTimedOut, match="failure 0"):
        kept.raise_unseen(places={("t", 1)})


def test_a_failure_that_was_read_is_kept_for_nothing() -> None:
    kept = results()

    async def run() -> None:
        errors = kept.errors.subscribe()
        for number in range(2 * FAILURES_KEPT_MAX):
            failed(kept, number)
            assert (await anext(errors)).error.detail == f"failure {number}"

    asyncio.run(run())
    assert len(kept._failed) <= FAILURES_KEPT_MAX
    kept.raise_unseen()


def test_a_failed_batch_that_was_never_encoded_keeps_no_record() -> None:
    """500 failures that were all read kept 50 MB."""
    kept = results()
    batches = [failed(kept, number, size=100_000) for number in range(500)]
    assert all(not batch.values and batch.message is None for batch in batches)


def test_a_partition_that_is_recovered_has_no_failure_left_for_flush() -> None:
    kept = results()
    failed(kept)
    batch = Batch(0.0)
    batch.settle(MessageTooLarge(limit=1, unit="bytes"))
    kept.settled("t", 1, batch)
    kept.forget("t", 0)
    with pytest.raises(MessageTooLarge):
        kept.raise_unseen()


def test_a_failure_has_the_records_and_metadata_to_send_again(cluster: FakeCluster) -> None:
    """002: ProducerError.Msg and ProducerMessage.Metadata."""
    cluster.create("t", 2)
    cluster.faults = [Fault.TOO_LARGE]

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=20, on_error="continue")
        async with Producer(config, name="writer") as producer:
            errors, successes = producer.errors(), producer.successes()
            sent = [
                Record(b"k", None, 0),
                Record(b"k", b"1", 1, [("h", b"\xff")], {"number": 1}),
                Record(b"k", b"2", 2, None, {"number": 2}),
            ]
            await send(producer, "t", 0, sent)
            failure = await anext(errors)
            assert (failure.count, list(failure.records)) == (3, sent)
            await send(producer, failure.topic, failure.partition, failure.records)
            assert (await anext(successes)).metadata == (None, {"number": 1}, {"number": 2})
            _ = await producer.send_batch("t", 1, [b"plain"])
            assert (await anext(successes)).metadata == ()

    asyncio.run(run())
    assert cluster.values("t") == [None, b"1", b"2"]


async def send(producer: Producer, topic: str, partition: int, records: Iterable[Record]) -> None:
    for key, value, timestamp_ms, headers, metadata in records:
        how: dict[str, Any] = {
            "partition": partition,
            "headers": headers,
            "timestamp_ms": timestamp_ms,
            "metadata": metadata,
        }
        _ = await producer.send(topic, value, key=key, **how)


def test_a_failed_batch_that_was_never_encoded_comes_back_with_its_records_too(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.TOO_LARGE]

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0, inflight_batches_max=1)
        producer = await Producer(config, name="writer").start()
        errors = producer.errors()
        for number in range(3):
            _ = await producer.send_batch("t", 0, [b"%d" % number])
        failures = [await anext(errors) for _ in range(2)]
        values = [record.value for failure in failures for record in failure.records]
        assert values == [b"0", b"1", b"2"]
        await producer.abort()

    asyncio.run(run())


def test_close_raises_each_failure_that_was_not_seen(cluster: FakeCluster) -> None:
    """002: Close answers ProducerErrors."""
    cluster.create("t", 3)
    cluster.faults = [Fault.TOO_LARGE] * 3

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0)
        producer = await Producer(config, name="writer").start()
        deliveries = [await producer.send_batch("t", number, [b"a", b"b"]) for number in range(3)]
        with pytest.raises(MessageTooLarge):
            await deliveries[1]
        with pytest.raises(ProducerErrors, match="batches that failed: 2, with records: 4; the first: ") as closed:
            await producer.close()
        failures = closed.value.failures
        assert sorted((each.topic, each.partition, each.count) for each in failures) == [("t", 0, 2), ("t", 2, 2)]
        assert closed.value.__cause__ is failures[0].error
        assert closed.value.fields == {"batches": 2, "records": 4}

    asyncio.run(run())


def test_close_counts_failures_beyond_the_bound() -> None:
    kept = results()
    for number in range(FAILURES_KEPT_MAX + 2):
        failed(kept, number)
    with pytest.raises(ProducerErrors) as raised:
        kept.raise_all_unseen()
    assert len(raised.value.failures) == FAILURES_KEPT_MAX
    assert raised.value.fields["batches"] == FAILURES_KEPT_MAX + 2
    kept.raise_all_unseen()


def refusing(cluster: FakeCluster, topic: str) -> None:
    """Appends to this topic are refused for good from now on."""
    append = cluster.append

    def refused(name: str, *rest: Any, **others: Any) -> Any:
        if name == topic:
            raise PermissionDenied
        return append(name, *rest, **others)

    cluster.append = refused  # type: ignore[method-assign, assignment]


def test_each_task_that_flushes_hears_of_the_failure_of_its_own_records(cluster: FakeCluster) -> None:
    for topic in "ab":
        cluster.create(topic)

    async def sent(producer: Producer, topic: str) -> None:
        _ = await producer.send(topic, b"x", partition=0)
        await producer.flush()

    async def run() -> None:
        async with Producer(ClientConfig(bootstrap=tuple(cluster.nodes), retry_backoff_ms=1)) as producer:
            await asyncio.gather(*(sent(producer, topic) for topic in "ab"))
            refusing(cluster, "b")
            _, of_b = await asyncio.gather(*(sent(producer, topic) for topic in "ab"), return_exceptions=True)
            assert isinstance(of_b, PermissionDenied)
            await producer.flush()

    asyncio.run(run())


def test_a_failure_elsewhere_neither_ends_nor_halts_an_exclusive_block(cluster: FakeCluster) -> None:
    for topic in ("orders", "logs"):
        cluster.create(topic)
    refusing(cluster, "logs")

    async def run() -> None:
        async with Producer(ClientConfig(bootstrap=tuple(cluster.nodes), retry_backoff_ms=1)) as producer:
            async with producer.exclusive("orders", [0]):
                _ = await producer.send("orders", b"1", partition=0)
                _ = await producer.send("logs", b"a line", partition=0)
            await (await producer.send("orders", b"2", partition=0))
            with pytest.raises(PermissionDenied):
                await producer.flush()

    asyncio.run(run())
    assert cluster.values("orders") == [b"1", b"2"]


def test_records_refused_by_a_halted_partition_are_not_kept_in_memory(cluster: FakeCluster) -> None:
    """2,000 refused sends of 50 kB kept 100 MB: an exception that is raised again keeps all frames it went through."""
    cluster.create("t")

    async def run() -> None:
        async with Producer(ClientConfig(bootstrap=tuple(cluster.nodes))) as producer:
            await (await producer.send("t", b"first", partition=0))
            sender = producer._running
            sender.halt(sender.routes, ProducerFenced(current_epoch=3, reason="superseded"))
            depths = []
            for _ in range(3):
                with pytest.raises(ProducerFenced) as refused:
                    _ = await producer.send("t", b"x", partition=0)
                depths.append(len(refused.traceback))
            assert depths == depths[:1] * 3

    asyncio.run(run())


def test_a_failure_that_many_tasks_await_keeps_the_frames_of_none(cluster: FakeCluster) -> None:
    cluster.create("t")
    refusing(cluster, "t")

    async def run() -> None:
        async with Producer(ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=20)) as producer:
            deliveries = [await producer.send("t", b"x", partition=0) for _ in range(3)]
            for delivery in deliveries:
                with pytest.raises(PermissionDenied):
                    await delivery
                assert delivery.failure is not None
                assert delivery.failure.__traceback__ is None

    asyncio.run(run())


def test_a_watcher_that_looks_at_a_cancelled_future_hides_no_outcome_from_the_next() -> None:
    told, heard = results(), list[Receipt | Failure]()

    def cancelled(_: Receipt | Failure, seconds: float) -> None:
        raise asyncio.CancelledError

    told.watchers += [cancelled, lambda outcome, seconds: heard.append(outcome)]
    batch = Batch.of([b"v"], None, None, None, now_ms=0)
    batch.settle(Receipt("t", 0, 4, 1, False, 0))
    told.settled("t", 0, batch)
    assert heard == [Receipt("t", 0, 4, 1, False, 0)]
