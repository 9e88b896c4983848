"""A leader that stands still answers no request: when other nodes name a new leader, the requests go there."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from waiting import until

from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.producer.producer import Producer
from stockade.client.transport.leader_watchdog import LeaderWatchdog, Watched, end_now
from stockade.client.transport.metadata import Metadata
from stockade.partition.api.topics import Topic
from stockade.partition.errors import LeaderNotAvailable, RequestTimedOut

from ..fake_cluster import FakeCluster, Fault

POSTED = "/v1/topics/t/partitions/0/records"


def config(cluster: FakeCluster, **settings: Any) -> ClientConfig:
    patient: dict[str, Any] = {"request_timeout_ms": 110_000, "standstill_ms": 100, "linger_ms": 0}
    return ClientConfig(bootstrap=tuple(cluster.nodes), **{**patient, **settings})


def appends(cluster: FakeCluster) -> int:
    return sum(path.startswith(POSTED) for path in cluster.paths("POST"))


def produce(cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with Producer(config(cluster, **settings), name="writer") as producer:
            await work(producer)

    cluster.create("t", 1)
    asyncio.run(run())


def test_a_batch_goes_to_the_new_leader_while_the_old_one_stands_still(cluster: FakeCluster) -> None:
    cluster.faults = [Fault.HOLD, Fault.HOLD]

    async def work(producer: Producer) -> None:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(2)]
        await until(lambda: appends(cluster) > 0)
        cluster.leader = 1
        assert [(await delivery).offset for delivery in deliveries] == [0, 1]
        cluster.release_held()  # what the old leader got is stored by now: not a second time
        assert (await (await producer.send("t", b"2"))).offset == 2

    produce(cluster, work)


def test_a_leader_that_still_leads_is_waited_for_however_slow_it_is(cluster: FakeCluster) -> None:
    cluster.faults = [Fault.HOLD]

    async def work(producer: Producer) -> None:
        delivery = await producer.send("t", b"x")
        await until(lambda: cluster.paths("GET").count("/v1/topics/t") > 3)  # others were asked, again and again
        cluster.release_held()
        assert (await delivery).offset == 0

    produce(cluster, work)
    assert appends(cluster) == 1


def test_a_single_attempt_ends_with_an_unknown_outcome_and_the_next_one_goes_to_the_leader(
    cluster: FakeCluster,
) -> None:
    cluster.read_faults = [Fault.HOLD]
    cluster.create("t", 1)

    async def run() -> None:
        async with Client(config(cluster)) as client:
            await client.metadata.topic("t")
            reading = asyncio.create_task(client.fetch("t", 0, 0, max_bytes=1024))
            await until(lambda: any(path.startswith(POSTED) for path in cluster.paths("GET")))
            cluster.leader = 1
            with pytest.raises(RequestTimedOut, match="stands still"):
                await reading
            assert client.metadata.leader("t", 0) == cluster.nodes[1]
            assert client.calls._transport.nodes == cluster.nodes[::-1], "the one that stands still comes last"

    asyncio.run(run())


def test_no_other_node_is_asked_while_a_request_may_wait(cluster: FakeCluster) -> None:
    cluster.read_faults = [Fault.HOLD]
    cluster.create("t", 1)

    async def run() -> None:
        async with Client(config(cluster)) as client:
            await client.metadata.topic("t")
            asked = cluster.paths("GET").count("/v1/topics/t")
            reading = asyncio.create_task(client.fetch("t", 0, 0, max_bytes=1024, max_wait_ms=60_000))
            await until(lambda: any(path.startswith(POSTED) for path in cluster.paths("GET")))
            rings_at_s = client._watchdog._alarm.rings_at_s
            assert rings_at_s is not None
            assert rings_at_s > asyncio.get_running_loop().time() + 50
            assert cluster.paths("GET").count("/v1/topics/t") == asked
            cluster.release_held()
            await reading

    asyncio.run(run())


async def no_other_leader(*_: str) -> Topic:
    raise LeaderNotAvailable


def watchdog(patience_ms: int) -> LeaderWatchdog:
    async def unused(name: str, **_: object) -> Topic:
        raise AssertionError

    return LeaderWatchdog(patience_ms, no_other_leader, Metadata(unused), lambda _: None)


def waiting(limit: asyncio.Timeout, partition: int = 0, node: str = "n1") -> Watched:
    return Watched("t", partition, node, partial(end_now, limit))


def test_requests_may_begin_while_others_are_due_this_very_moment() -> None:
    """uvloop's call_at answers a handle without a time for a moment less than half a millisecond away."""

    async def run() -> None:
        watching = watchdog(patience_ms=0)
        limit = asyncio.timeout(None)
        with watching.over([waiting(limit, 0)]), watching.over([waiting(limit, 1)]):
            assert len(watching._alarm.entries) == 2
        assert not watching._alarm.entries
        watching.close()

    asyncio.run(run())


def test_a_request_that_cannot_be_watched_leaves_no_entry_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: float) -> None:
        raise BlockingIOError

    async def run() -> None:
        watching = watchdog(patience_ms=10)
        monkeypatch.setattr(watching._alarm, "_wake_at", fails)
        limit = asyncio.timeout(None)
        with pytest.raises(BlockingIOError), watching.over([waiting(limit)]):
            raise AssertionError
        assert not watching._alarm.entries

    asyncio.run(run())


def test_a_request_is_given_up_once_however_often_others_name_the_new_leader(cluster: FakeCluster) -> None:
    """A second time, the attempt may be on its way out already, which asyncio.Timeout refuses to change."""
    cluster.create("t", 1)

    async def run() -> None:
        async with Client(config(cluster)) as client:
            topic = await client.topic("t")
        watching = watchdog(patience_ms=60_000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                with watching.over([waiting(limit, node="http://gone")]):
                    due = list(watching._alarm.entries)
                    watching._compare(topic, "http://gone", due)
                    try:
                        await asyncio.Event().wait()
                    finally:
                        watching._compare(topic, "http://gone", due)
        watching.close()

    asyncio.run(run())
