"""Producers with ``access="Shared"``: they have a place among the modes, and are told who took it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.errors import ClientClosed
from stockade.client.producer.producer import Producer
from stockade.partition.errors import InvalidRequest, ProducerBusy, ProducerFenced, SessionExpired

from ..fake_cluster import FakeCluster, Fault


def produce(
    cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], *, ttl_ms: int = 60_000, **options: Any
) -> None:
    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0, retry_backoff_ms=1, session_ttl_ms=ttl_ms)
        async with Producer(config, name="writer", **{"access": "Shared"} | options) as producer:
            await work(producer)

    asyncio.run(run())


def modes(cluster: FakeCluster) -> list[tuple[str, list[int]]]:
    return [(grant.mode, grant.partitions) for grant in cluster.grants.values()]


def test_a_shared_producer_takes_one_shared_grant_a_partition_and_releases_them_at_close(cluster: FakeCluster) -> None:
    cluster.create("t", 3, require_fence=True)

    async def work(producer: Producer) -> None:
        for number in range(4):
            _ = await producer.send("t", b"%d" % number, partition=number % 2)
        await producer.flush()
        assert modes(cluster) == [("Shared", [0]), ("Shared", [1])]
        assert len(cluster.sessions) == 1

    produce(cluster, work)
    assert [cluster.values("t", number) for number in range(2)] == [[b"0", b"2"], [b"1", b"3"]]
    assert cluster.grants == {}
    assert cluster.sessions == {}


def test_an_exclusive_request_is_refused_while_a_shared_producer_has_its_seat(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        await (await producer.send("t", b"shared"))
        async with Producer(producer.client.config, name="alone") as alone:
            with pytest.raises(ProducerBusy) as refused:
                async with alone.exclusive("t"):
                    pytest.fail("a shared producer is there")
            assert refused.value.fields["reason"] == "shared_present"

    produce(cluster, work)


def test_records_of_a_shared_producer_fail_at_once_where_another_session_holds_the_slot(cluster: FakeCluster) -> None:
    cluster.create("t", 2)
    cluster.take_over("t")

    async def work(producer: Producer) -> None:
        delivery = await producer.send("t", b"busy", partition=0)
        async with asyncio.timeout(10):
            with pytest.raises(ProducerBusy) as refused:
                await delivery
        assert refused.value.fields["outcome"]["state"] == "absent"
        with pytest.raises(ProducerBusy, match="recover"):
            _ = await producer.send("t", b"halted", partition=0)
        with pytest.raises(ProducerBusy):
            await producer.recover("t", 0)
        await (await producer.send("t", b"free", partition=1))
        [holder] = [grant.grant_id for grant in cluster.grants.values() if grant.mode != "Shared"]
        cluster.release(holder)
        await producer.recover("t", 0)
        await (await producer.send("t", b"again", partition=0))

    produce(cluster, work)
    assert cluster.values("t") == [b"again"]


def test_after_an_eviction_a_shared_producer_halts_until_recover(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        await (await producer.send("t", b"shared"))
        cluster.take_over("t")
        with pytest.raises(ProducerFenced):
            await (await producer.send("t", b"zombie"))
        cluster.release(next(iter(cluster.grants)))
        with pytest.raises(ProducerFenced):
            _ = await producer.send("t", b"not yet")
        await producer.recover("t", 0)
        await (await producer.send("t", b"again"))
        assert modes(cluster) == [("Shared", [0])]

    produce(cluster, work)
    assert cluster.values("t") == [b"shared", b"again"]


def test_recover_replaces_the_lost_session_of_a_shared_producer(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        await (await producer.send("t", b"a"))
        cluster.expired = True
        while True:
            try:
                _ = await producer.send("t", b"b")
            except SessionExpired:
                break
            await asyncio.sleep(0.01)
        cluster.expired = False
        await producer.recover("t", 0)
        await (await producer.send("t", b"c"))

    produce(cluster, work, ttl_ms=1000)
    assert cluster.values("t")[-1] == b"c"


def test_an_exclusive_block_suspends_the_producers_own_shared_grant(cluster: FakeCluster) -> None:
    cluster.create("t", 2)

    async def work(producer: Producer) -> None:
        _ = await producer.send("t", b"shared", partition=0)
        async with producer.exclusive("t"):
            _ = await producer.send("t", b"alone", partition=0)
            assert modes(cluster) == [("Exclusive", [0, 1])]
        await (await producer.send("t", b"shared again", partition=0))
        assert modes(cluster) == [("Shared", [0])]

    produce(cluster, work)
    assert cluster.values("t") == [b"shared", b"alone", b"shared again"]


def test_a_refused_exclusive_block_keeps_the_producers_shared_grant(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        async with Producer(producer.client.config, access="Shared") as other:
            await (await producer.send("t", b"a"))
            await (await other.send("t", b"b"))
            with pytest.raises(ProducerBusy):
                async with producer.exclusive("t"):
                    pytest.fail("the other one shares it")
            await (await producer.send("t", b"c"))
            assert modes(cluster) == [("Shared", [0])] * 2

    produce(cluster, work)
    assert cluster.values("t") == [b"a", b"b", b"c"]


def test_without_access_a_record_waits_for_the_slot_or_fails_at_once_as_configured(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.take_over("t")

    async def work(producer: Producer) -> None:
        fails = ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0, on_busy="fail")
        async with Producer(fails) as impatient:
            delivery = await impatient.send("t", b"no")
            async with asyncio.timeout(10):
                with pytest.raises(ProducerBusy):
                    await delivery
        waiting = await producer.send("t", b"patient")
        await cluster.seen("POST", len(cluster.paths("POST")) + 3)
        cluster.release(next(iter(cluster.grants)))
        await waiting

    produce(cluster, work, access=None)
    assert cluster.values("t") == [b"patient"]


@pytest.mark.parametrize("access", ["Exclusive", "shared", ""])
def test_another_access_is_refused_and_exclusive_is_named(access: Any) -> None:
    async def run() -> None:
        with pytest.raises(InvalidRequest, match="exclusive"):
            Producer(access=access)

    asyncio.run(run())


def test_two_tasks_that_recover_a_partition_at_the_same_time_both_go_on(cluster: FakeCluster) -> None:
    """The records of the first are under way while the second is not done yet."""
    cluster.create("t")
    is_busy = asyncio.Event()

    async def work(producer: Producer) -> None:
        await (await producer.send("t", b"shared"))
        cluster.take_over("t")
        with pytest.raises(ProducerFenced):
            await (await producer.send("t", b"zombie"))
        cluster.release(next(iter(cluster.grants)))
        cluster.fault_for = lambda: Fault.UNAVAILABLE if is_busy.is_set() else None
        cluster.grant_faults = [None, Fault.HOLD]
        is_busy.set()
        recovering = {asyncio.create_task(producer.recover("t", 0)) for _ in range(2)}
        await asyncio.wait(recovering, return_when=asyncio.FIRST_COMPLETED)
        delivery = await producer.send("t", b"again")
        cluster.release_held()
        ends = await asyncio.gather(*recovering, return_exceptions=True)
        is_busy.clear()
        await delivery
        assert [end for end in ends if isinstance(end, BaseException)] == []
        assert sum("/grants" in path for path in cluster.paths("POST")) == 2, (
            "the second one finds the first one's seat"
        )

    produce(cluster, work)
    assert cluster.values("t") == [b"shared", b"again"]


def test_an_abort_that_is_cancelled_at_any_step_leaves_no_seat_behind(cluster: FakeCluster) -> None:
    """With a client that goes on, the seat's session was renewed for good, and kept other writers out."""
    cluster.create("t")

    async def cluster_has(appends: int) -> None:
        while sum("/records" in path for path in cluster.paths("POST")) < appends:  # noqa: ASYNC110 (nothing else tells)
            await asyncio.sleep(0)

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0, retry_backoff_ms=1)
        async with Client(config) as client:
            for steps in range(1, 20):
                producer = await Producer(client, access="Shared").start()
                await (await producer.send("t", b"v"))
                assert producer._seats is not None
                session = producer._seats._session
                assert session is not None
                cluster.faults = [Fault.HOLD]
                _ = await producer.send("t", b"under way")
                await cluster_has(2 * steps)
                aborting = asyncio.create_task(producer.abort())
                for _ in range(steps):
                    await asyncio.sleep(0)
                aborting.cancel()
                await asyncio.wait([aborting])
                assert isinstance(session.error, ClientClosed), steps
            cluster.release_held()

    asyncio.run(run())
