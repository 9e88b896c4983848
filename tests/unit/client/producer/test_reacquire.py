"""``exclusive(reacquire=...)``: a block that outlives the loss of its fence, and never hides it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stockade.client.api.tail import Tail
from stockade.client.config import ClientConfig
from stockade.client.errors import ClientClosed
from stockade.client.producer.producer import Producer
from stockade.client.session.session import Fence
from stockade.partition.api.producers import ProducerPair
from stockade.partition.errors import MessageTooLarge, ProducerFenced, StockadeError

from ..fake_cluster import FakeCluster, Fault

PATIENCE_S = 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.client.session.reacquire.ASK_AGAIN_S", 0.01)


def produce(cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], ttl_ms: int = 1000) -> None:
    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0, retry_backoff_ms=1, session_ttl_ms=ttl_ms)
        async with Producer(config, name="writer") as producer, asyncio.timeout(PATIENCE_S):
            await work(producer)

    asyncio.run(run())


def test_records_of_the_old_epoch_fail_the_callback_reads_the_tail_and_then_the_partitions_take_records(
    cluster: FakeCluster,
) -> None:
    cluster.create("t", 2)
    tails: list[tuple[int, int]] = []

    async def work(producer: Producer) -> None:
        async def told(fence: Fence) -> None:
            with pytest.raises(ProducerFenced):
                _ = await producer.send("t", b"too early", partition=0)
            tails.append((fence.epoch, (await producer.client.tail("t", 0, 1)).log_end))

        async with producer.exclusive("t", reacquire=told) as fence:
            await (await producer.send("t", b"mine", partition=0))
            cluster.take_over("t")
            with pytest.raises(ProducerFenced) as refused:
                await (await producer.send("t", b"zombie", partition=0))
            assert refused.value.fields["outcome"]["state"] == "absent"
            assert tails == [], "the newer holder is not evicted"
            [newer] = [grant.grant_id for grant in cluster.grants.values() if grant.epoch == 2]
            cluster.release(newer)
            again = await fence.again()
            assert again.epoch == fence.epoch + 2
            assert tails == [(3, 1)]
            assert producer.identity.producer_epoch == 1, "no late request of the old epoch can be stored"
            for partition in range(2):
                await (await producer.send("t", b"again", partition=partition))
        assert cluster.grants == {}
        await (await producer.send("t", b"outside", partition=0))

    produce(cluster, work)
    assert [cluster.values("t", number) for number in range(2)] == [[b"mine", b"again", b"outside"], [b"again"]]


def test_a_lost_session_is_replaced_and_the_block_goes_on(cluster: FakeCluster) -> None:
    cluster.create("t")
    epochs: list[int] = []

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", reacquire=lambda fence: epochs.append(fence.epoch)) as fence:
            for number in range(3):
                await (await producer.send("t", b"%d" % number))
                cluster.close_session(fence.session_id)
                fence = await fence.again()  # noqa: PLW2901
            await (await producer.send("t", b"3"))

    produce(cluster, work)
    assert epochs == [2, 3, 4]
    assert cluster.values("t") == [b"0", b"1", b"2", b"3"]
    assert cluster.sessions == {}


def test_an_open_outcome_at_the_loss_is_certified_before_the_new_epoch_begins(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", reacquire=lambda _: None) as fence:
            cluster.faults = [Fault.LOSE_REPLY, Fault.HOLD]
            posts = len(cluster.paths("POST"))
            delivery = await producer.send("t", b"stored")
            await cluster.seen("POST", posts + 2)  # the first attempt is stored, and a second one waits
            cluster.close_session(fence.session_id)
            cluster.release_held()
            again = await fence.again()
            with pytest.raises(StockadeError):
                await delivery
            await (await producer.send("t", b"next"))
            assert again.epoch == 2

    produce(cluster, work)
    assert cluster.values("t") == [b"stored", b"next"]


def test_a_partition_that_the_callback_recovered_and_that_halted_anew_stays_halted(cluster: FakeCluster) -> None:
    """Its records fail in order: what follows them must not be stored before the application has seen why."""
    cluster.create("t")

    async def work(producer: Producer) -> None:
        async def told(_: Fence) -> None:
            await producer.recover("t", 0)
            cluster.faults = [Fault.TOO_LARGE]
            with pytest.raises(MessageTooLarge):
                await (await producer.send("t", b"too large"))

        async with producer.exclusive("t", reacquire=told) as fence:
            cluster.close_session(fence.session_id)
            with pytest.raises(ProducerFenced):
                await (await producer.send("t", b"zombie"))
            await fence.again()
            with pytest.raises(MessageTooLarge):
                _ = await producer.send("t", b"after it")
            await producer.recover("t", 0)
            await (await producer.send("t", b"after the recovery"))

    produce(cluster, work)
    assert cluster.values("t") == [b"after the recovery"]


def test_a_stall_of_more_than_the_ttl_while_it_is_acquired_again_only_delays_that(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease that is lost before it is known holds the partition until its session ends, and is followed."""
    cluster.create("t")
    ttl_s = 3.0
    told: list[Fence] = []
    asked: list[Any] = []
    give = cluster._give

    def stalled(*arguments: Any) -> Any:
        asked.append(arguments)
        given = give(*arguments)
        if len(asked) == 2:
            threading.Event().wait(1.5 * ttl_s)  # the whole loop stands still
        return given

    monkeypatch.setattr(cluster, "_give", stalled)

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", reacquire=told.append) as fence:
            cluster.close_session(fence.session_id)
            again = await (await fence.again()).again()
            assert (told, again.epoch) == ([again], 3)

    produce(cluster, work, int(1000 * ttl_s))


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError])
def test_a_callback_that_raises_ends_the_block_with_its_reason(cluster: FakeCluster, kind: type[BaseException]) -> None:
    cluster.create("t")

    def told(_: Fence) -> None:
        raise kind("the tail is not what it was")

    async def work(producer: Producer) -> None:
        with pytest.raises(ClientClosed, match="the tail is not what it was"):
            async with producer.exclusive("t", reacquire=told) as fence:
                cluster.close_session(fence.session_id)
                await asyncio.Event().wait()
        assert cluster.grants == {}

    produce(cluster, work)


def test_a_deleted_topic_or_a_later_producer_of_the_name_ends_the_block(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        with pytest.raises(StockadeError):
            async with producer.exclusive("t", reacquire=lambda _: None):
                del cluster.topics["t"]
                await asyncio.Event().wait()
        cluster.create("t")
        with pytest.raises(ProducerFenced):
            async with producer.exclusive("t", reacquire=lambda _: None) as fence:
                cluster.init_producer("writer")
                cluster.close_session(fence.session_id)
                await asyncio.Event().wait()

    produce(cluster, work)


def test_the_end_of_the_block_acquires_nothing_any_more(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", reacquire=lambda _: None) as fence:
            cluster.take_over("t")
            await fence.lost.wait()
        assert cluster.line == {}
        with pytest.raises(StockadeError):
            await fence.again()

    produce(cluster, work)


def test_recover_goes_on_when_the_block_has_opened_the_partition_meanwhile(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        began, may_end = asyncio.Event(), asyncio.Event()
        recovering: list[asyncio.Task[Tail]] = []
        init_producer = producer.client.init_producer

        async def slow(*name: Any, **pair: Any) -> ProducerPair:
            if recovering:
                began.set()
                await may_end.wait()
            return await init_producer(*name, **pair)

        async def told(_: Fence) -> None:
            recovering.append(asyncio.create_task(producer.recover("t", 0)))
            await began.wait()

        monkeypatch.setattr(producer.client, "init_producer", slow)
        async with producer.exclusive("t", reacquire=told) as fence:
            cluster.close_session(fence.session_id)
            again = await fence.again()
            delivery = await producer.send("t", b"again")
            may_end.set()
            assert (await recovering[0]).topic == "t"
            await delivery
            assert again.error is None

    produce(cluster, work)
    assert cluster.values("t") == [b"again"]


def test_again_raises_why_the_partitions_take_no_records_when_the_callback_has_failed(cluster: FakeCluster) -> None:
    """It answered the new fence, with which each `send` was refused."""
    cluster.create("t")

    def told(_: Fence) -> None:
        raise ValueError("the tail is not what it was")

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", reacquire=told, cancel_on_loss=False) as fence:
            cluster.close_session(fence.session_id)
            with pytest.raises(ClientClosed, match="the tail is not what it was"):
                await fence.again()

    produce(cluster, work)


def test_a_callback_that_has_failed_is_not_called_with_a_later_fence(cluster: FakeCluster) -> None:
    """Its block has ended for good, be it without a cancellation."""
    cluster.create("t")
    told_of: list[Fence] = []

    async def told(fence: Fence) -> None:
        told_of.append(fence)
        cluster.close_session(fence.session_id)
        await fence.lost.wait()
        await cluster.seen("POST", 3, "/grants")
        raise ValueError("the tail is not what it was")

    async def work(producer: Producer) -> None:
        async with producer.exclusive("t", reacquire=told, cancel_on_loss=False) as fence:
            cluster.close_session(fence.session_id)
            with pytest.raises(ClientClosed):
                await fence.again()
            with pytest.raises(ClientClosed):
                await told_of[0].again()
        assert len(told_of) == 1

    produce(cluster, work)
