"""What a producer remembers of failures: enough for ``flush`` to raise the first and count the others."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from stockade.client.config import ClientConfig
from stockade.client.producer.delivery import Buffer
from stockade.client.producer.producer import Producer
from stockade.client.producer.queue.batch import Batch, Record
from stockade.client.producer.results import FAILURES_KEPT_MAX, ProducerErrors, Results
from stockade.partition.errors import MessageTooLarge, RequestTimedOut

from ..fake_cluster import FakeCluster, Fault


def failed(results: Results, number: int = 0, size: int = 10) -> Batch:
    batch = Batch(0.0)
    batch.add(Record(None, b"x" * size, 0), size)
    batch.settle(RequestTimedOut(f"failure {number}"))
    results.settled("t", 0, batch)
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


def test_what_failed_comes_back_with_its_records_and_metadata_and_can_be_sent_again(cluster: FakeCluster) -> None:
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


def test_close_counts_what_is_beyond_the_bound() -> None:
    kept = results()
    for number in range(FAILURES_KEPT_MAX + 2):
        failed(kept, number)
    with pytest.raises(ProducerErrors) as raised:
        kept.raise_all_unseen()
    assert len(raised.value.failures) == FAILURES_KEPT_MAX
    assert raised.value.fields["batches"] == FAILURES_KEPT_MAX + 2
    kept.raise_all_unseen()
