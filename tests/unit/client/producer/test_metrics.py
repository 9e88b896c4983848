"""What a producer counts, and what it logs: retries, leader changes, halts, recovery, each once and at its level."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stockade.client.config import ClientConfig
from stockade.client.errors import ClientClosed
from stockade.client.producer.producer import Producer
from stockade.partition.errors import InvalidRequest, MessageTooLarge, SessionExpired, StockadeError

from ..fake_cluster import FakeCluster, Fault


def produce(cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        quick = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_ms_max": 5, "inflight_batches_max": 1}
        config = ClientConfig(bootstrap=tuple(cluster.nodes), **{**quick, **settings})
        async with Producer(config, name="writer") as producer:
            await work(producer)

    asyncio.run(run())


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    ours = [record for record in caplog.records if record.name.startswith("stockade.client")]
    return [record.getMessage() for record in ours if record.levelno == level]


def test_metrics_count_stored_failed_and_repeated_batches(cluster: FakeCluster) -> None:
    cluster.create("t", 2)
    cluster.faults = [Fault.UNAVAILABLE, Fault.LOSE_REPLY, None, Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        empty = producer.metrics()
        assert (empty.attempts, empty.buffered_bytes, empty.batches_waiting) == (0, 0, 0)
        await (await producer.send_batch("t", 0, [b"stored", b"also"]))
        failing = await producer.send("t", b"refused", partition=0)
        under_way = producer.metrics()
        assert under_way.batches_in_flight + under_way.batches_waiting == 1
        assert under_way.buffered_bytes > 0
        with pytest.raises(MessageTooLarge):
            await failing
        halted = producer.metrics()
        await producer.recover("t", 0)
        await (await producer.send("t", b"third", partition=0))
        found = producer.metrics()
        assert (found.records_stored, found.batches_stored, found.records_failed, found.batches_failed) == (3, 2, 1, 1)
        assert (found.attempts, found.repeated_attempts, found.epochs) == (5, 2, 1)
        assert found.bytes_stored == sum(24 + len(value) for value in (b"stored", b"also", b"third"))
        assert (halted.partitions_halted, found.partitions_halted, found.partitions_failing) == (1, 0, 0)
        assert (found.buffered_bytes, found.batches_in_flight, found.batches_waiting) == (0, 0, 0)

    produce(cluster, work)


def test_the_log_says_once_that_a_partition_fails_works_halts_and_recovers(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create("t")
    cluster.faults = [None, *[Fault.UNAVAILABLE] * 5, None, Fault.TOO_LARGE]
    caplog.set_level(logging.DEBUG)

    async def work(producer: Producer) -> None:
        await (await producer.send("t", b"a"))
        assert said(caplog, logging.INFO) == said(caplog, logging.WARNING) == []
        await (await producer.send("t", b"b"))
        with pytest.raises(MessageTooLarge):
            await (await producer.send("t", b"c"))
        await producer.recover("t", 0)
        await (await producer.send("t", b"d"))

    produce(cluster, work)
    again, works, epoch, recovered = said(caplog, logging.INFO)
    assert again.startswith("writer: t/0: sending again: ")
    assert works == "writer: t/0: batches are stored again"
    assert epoch == "writer: producer epoch 1 is in force"
    assert recovered == "writer: t/0 has recovered and takes records again"
    (halted,) = said(caplog, logging.WARNING)
    assert halted.startswith("writer: t/0 has halted and takes no records until `recover`: ")
    attempts = [line for line in said(caplog, logging.DEBUG) if ": attempt " in line]
    assert [line.split(": ")[2] for line in attempts] == [f"attempt {n}" for n in (1, 2, 3, 4, 5, 1)]


def test_the_log_says_when_another_node_leads(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.create("t")
    caplog.set_level(logging.INFO)

    async def work(producer: Producer) -> None:
        metadata = producer.client.metadata
        await (await producer.send("t", b"a"))
        metadata.heard("t", 0, "http://a:1")
        caplog.clear()
        metadata.doubt("t", 0, "http://a:1")
        metadata.heard("t", 0, "http://a:1")
        assert said(caplog, logging.INFO) == []
        metadata.doubt("t", 0, "http://a:1")
        metadata.heard("t", 0, "http://b:1")
        assert said(caplog, logging.INFO) == ["t/0 is led by http://b:1, no longer by http://a:1"]

    produce(cluster, work)


def test_closing_is_no_halt(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        await (await producer.send("t", b"a"))
        await producer.abort()

    produce(cluster, work)
    assert said(caplog, logging.WARNING) == []


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (InvalidRequest("a renewal of the epoch was refused"), logging.WARNING),
        (SessionExpired("not renewed in time"), logging.INFO),
        (ClientClosed("the exclusive block was left with an exception"), logging.INFO),
    ],
)
def test_a_halt_is_a_warning_unless_the_application_hears_of_it_otherwise(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, error: StockadeError, level: int
) -> None:
    cluster.create("t")
    caplog.set_level(logging.INFO)

    async def work(producer: Producer) -> None:
        await (await producer.send("t", b"a"))
        producer._running.halt(producer._running.routes, error)

    produce(cluster, work)
    (halted,) = said(caplog, level)
    assert halted == f"writer: t/0 has halted and takes no records until `recover`: {error}"
    assert said(caplog, logging.WARNING) == ([halted] if level == logging.WARNING else [])
