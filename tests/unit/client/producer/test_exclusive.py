import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from stockade.client.config import ClientConfig
from stockade.client.errors import ClientClosed, ProducerAborted
from stockade.client.producer.producer import Producer
from stockade.client.session.session import Fence, Session
from stockade.partition.errors import InvalidRequest, ProducerBusy, ProducerFenced, SessionExpired

from ..fake_cluster import FakeCluster, Fault


def produce(cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], ttl_ms: int = 60_000) -> None:
    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0, retry_backoff_ms=1, session_ttl_ms=ttl_ms)
        async with Producer(config, name="writer") as producer:
            await work(producer)

    asyncio.run(run())


def test_an_exclusive_block_excludes_other_producers_while_it_lasts(cluster: FakeCluster) -> None:
    cluster.create("t", 2)

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", [0]) as fence:
            _ = await producer.send("t", b"mine", partition=0)
            with pytest.raises(ProducerBusy):
                async with producer.exclusive("t", [0, 1]):
                    pytest.fail("another session holds partition 0")
            assert fence.epoch == cluster.machine("t", 0).topic_epoch == 1
            assert len(cluster.grants) == 1
        assert cluster.grants == {}
        assert cluster.sessions == {}
        await (await producer.send("t", b"unfenced again", partition=0))

    produce(cluster, work)
    assert cluster.values("t") == [b"mine", b"unfenced again"]


def test_a_topic_with_require_fence_takes_records_sent_inside_an_exclusive_block(cluster: FakeCluster) -> None:
    cluster.create("t", 3, require_fence=True)

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t"):
            for partition in range(3):
                _ = await producer.send("t", b"v", partition=partition)

    produce(cluster, work)
    assert [cluster.values("t", partition) for partition in range(3)] == [[b"v"]] * 3


def test_records_sent_before_an_exclusive_block_are_stored_before_it_begins(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.LOSE_REQUEST, Fault.LOSE_REPLY]

    async def work(producer: Producer) -> None:
        _ = await producer.send("t", b"before")
        async with producer.exclusive("t"):
            _ = await producer.send("t", b"inside")
        _ = await producer.send("t", b"after")

    produce(cluster, work)
    assert cluster.values("t") == [b"before", b"inside", b"after"]


def test_a_fence_that_is_lost_before_the_block_begins_halts_its_partitions(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loss may be noticed before the producer binds it to the partitions."""
    cluster.create("t")
    acquire = Session.acquire

    async def and_lose(session: Session, topic: str, partitions: Sequence[int], **wish: Any) -> Fence:
        fence = await acquire(session, topic, partitions, **wish)
        fence.lose(ProducerFenced())
        return fence

    monkeypatch.setattr(Session, "acquire", and_lose)

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", cancel_on_loss=False):
            with pytest.raises(ProducerFenced):
                _ = await producer.send("t", b"never sent")

    produce(cluster, work)


def test_a_writer_after_a_takeover_fails_with_producer_fenced_and_its_fence_is_lost(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", cancel_on_loss=False) as fence:
            await (await producer.send("t", b"mine"))
            cluster.take_over("t")
            delivery = await producer.send("t", b"zombie")
            await asyncio.wait_for(fence.lost.wait(), 60)
            assert isinstance(fence.error, ProducerFenced)
            assert fence.error.fields["outcome"]["state"] == "absent"
            with pytest.raises(ProducerFenced):
                await delivery
            with pytest.raises(ProducerFenced):
                _ = await producer.send("t", b"zombie")

    produce(cluster, work)
    assert cluster.values("t") == [b"mine"]


def test_after_a_loss_pending_batches_fail_in_order_each_with_its_own_outcome(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.LOSE_REPLY]
    struck: list[bool] = []

    def take_over_once() -> None:
        if not struck:
            struck.append(True)
            cluster.take_over("t")

    cluster.fault_for = take_over_once
    outcomes: list[tuple[str, str]] = []

    async def watch(name: str, delivery: Awaitable[object]) -> None:
        with pytest.raises(ProducerFenced) as refused:
            await delivery
        outcomes.append((name, refused.value.fields["outcome"]["state"]))

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", cancel_on_loss=False), asyncio.TaskGroup() as tasks:
            for name in "abcdefg":
                delivery = await producer.send_batch("t", 0, [name.encode()])
                tasks.create_task(watch(name, delivery))

    produce(cluster, work)
    assert outcomes == [("a", "committed"), *((name, "absent") for name in "bcdefg")]
    assert cluster.values("t") == [b"a"]


def test_exclusive_with_fencing_evicts_the_holder(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.take_over("t")

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", mode="ExclusiveWithFencing") as fence:
            assert fence.epoch == 2
            _ = await producer.send("t", b"mine")

    produce(cluster, work)
    assert cluster.values("t") == [b"mine"]


def test_an_expired_session_stops_the_writer_before_the_log_has_to(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", cancel_on_loss=False) as fence:
            cluster.expired = True
            await asyncio.wait_for(fence.lost.wait(), 60)
            assert isinstance(fence.error, SessionExpired)
            with pytest.raises(SessionExpired):
                _ = await producer.send("t", b"v")

    produce(cluster, work, ttl_ms=1000)
    assert cluster.values("t") == []


def test_an_exclusive_block_left_by_an_exception_stores_sent_records_and_halts(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.UNAVAILABLE]

    async def work(producer: Producer) -> None:
        with pytest.raises(KeyError):
            async with producer.exclusive("t"):
                _ = await producer.send_batch("t", 0, [b"under way"])
                raise KeyError
        assert cluster.values("t") == [b"under way"]
        assert cluster.grants == {}
        with pytest.raises(ProducerAborted):
            _ = await producer.send("t", b"v")

    produce(cluster, work)


def test_an_exclusive_block_without_partitions_is_refused(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        with pytest.raises(InvalidRequest):
            async with producer.exclusive("t", []):
                pytest.fail("there is nothing to hold")

    produce(cluster, work)


def test_the_loss_of_the_fence_cancels_the_block_which_raises_the_reason(cluster: FakeCluster) -> None:
    cluster.create("t")
    steps = []

    async def work(producer: Producer) -> None:
        with pytest.raises(SessionExpired):
            async with producer.exclusive("t"):
                cluster.expired = True
                steps.append("owner")
                await asyncio.Event().wait()
                steps.append("never")
        await asyncio.sleep(0)
        steps.append("free")

    produce(cluster, work, ttl_ms=1000)
    assert steps == ["owner", "free"]


def test_a_block_that_ends_after_its_fence_was_lost_raises_the_reason(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        with pytest.raises(ClientClosed):
            async with producer.exclusive("t") as fence:
                fence.lose(ClientClosed("as if"))
        await asyncio.sleep(0)

    produce(cluster, work)


def test_an_outside_cancellation_of_a_guarded_block_stays_one(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        inside = asyncio.Event()

        async def own() -> None:
            async with producer.exclusive("t"):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(own())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    produce(cluster, work)
