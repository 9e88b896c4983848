"""A client belongs to one event loop; in another one it says so, in place of a RuntimeError from inside asyncio."""

import asyncio
import gc
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stockade import Client, ClientConfig, Consumer, Delivery, Producer, Session
from stockade.client.errors import ClientClosed, OtherEventLoop, ProducerAborted, UsedAfterFork
from stockade.client.loop_affinity import LoopAffinity, LoopEnd

from .fake_cluster import FakeCluster, Fault


def test_each_object_of_another_event_loop_is_refused_and_goes_on_in_its_own(cluster: FakeCluster) -> None:
    cluster.create("t")
    config = ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0)

    async def main() -> None:
        async with (
            Producer(config) as producer,
            Client(config) as client,
            Session(client, "s") as session,
            Consumer(config) as consumer,
            consumer.pieces("t", follow=True) as reading,
        ):
            await client.topics()
            cluster.faults = [Fault.HOLD]
            delivery = await producer.send("t", b"held")

            async def awaited() -> None:
                await delivery

            uses: list[Callable[[], Awaitable[Any]]] = [
                lambda: producer.send("t", b"v"),
                producer.flush,
                producer.close,
                client.topics,
                client.close,
                lambda: session.acquire("t"),
                session.close,  # it cancelled the renewal first, and raised a RuntimeError of asyncio
                lambda: anext(reading),
                awaited,
            ]
            for use in uses:
                await asyncio.to_thread(elsewhere, use)
            assert session.error is None
            cluster.release_held()
            assert (await delivery).offset == 0
            assert [record.value for piece in [await anext(reading)] for record in piece.records()] == [b"held"]

    asyncio.run(main())


def elsewhere(use: Callable[[], Awaitable[Any]]) -> None:
    async def run() -> None:
        with pytest.raises(OtherEventLoop, match="make one for each event loop, or use"):
            await use()

    asyncio.run(run())


def test_an_event_loop_that_goes_on_in_another_thread_is_the_same_loop() -> None:
    affinity, moved = LoopAffinity(), asyncio.new_event_loop()

    async def enter() -> None:
        affinity.enter()

    moved.run_until_complete(enter())
    with ThreadPoolExecutor(1) as thread:
        thread.submit(moved.run_until_complete, enter()).result()
        with pytest.raises(OtherEventLoop):
            asyncio.run(enter())
        with pytest.raises(OtherEventLoop):
            thread.submit(asyncio.run, enter()).result()
    moved.run_until_complete(enter())
    moved.close()


def test_an_object_that_was_made_without_a_loop_takes_the_first_one_that_uses_it(cluster: FakeCluster) -> None:
    client = Client(cluster.nodes[0])

    async def run() -> None:
        await client.topics()
        await client.close()

    asyncio.run(run())
    elsewhere(client.topics)


def test_a_client_that_has_asked_beside_its_calls_is_refused_in_another_loop_like_any_other(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockade.client.transport.metadata.REFRESH_S", 0.0)
    cluster.create("t")

    async def run() -> None:
        async with Client(cluster.nodes[0]) as client:
            await client.metadata.topic("t")
            assert client.metadata.known("t") is not None
            await asyncio.to_thread(elsewhere, client.close)

    asyncio.run(run())


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_a_producer_that_is_never_closed_tells_at_the_end_of_the_loop_what_it_leaves_undone(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, linger_ms: int
) -> None:
    """It told of "a bug in the client library", with a page of tracebacks, or nothing at all."""
    cluster.create("t")

    async def run() -> list[Delivery]:
        producer = await Producer(ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=linger_ms)).start()
        return [await producer.send("t", b"v") for _ in range(3)]

    deliveries = asyncio.run(run())
    assert [type(each.failure) for each in deliveries] == [ProducerAborted] * 3
    told = [re.search(r"stopped without a flush: (\d) records .* of (\d)", record.message) for record in caplog.records]
    assert [sum(map(int, each.groups())) for each in told if each] == [3]
    assert len(told) == 1


def test_a_producer_that_was_closed_is_not_stopped_again_at_the_end_of_the_loop(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t")
    stops: list[None] = []
    stop = Producer.abort

    async def counted(self: Producer) -> None:
        stops.append(None)
        await stop(self)

    monkeypatch.setattr(Producer, "abort", counted)

    async def run() -> None:
        async with Producer(cluster.nodes[0]) as producer:
            _ = await producer.send("t", b"v")

    asyncio.run(run())
    gc.collect()
    assert len(stops) == 1
    assert caplog.text == ""
    assert cluster.values("t") == [b"v"]


def test_a_child_that_was_forked_inside_the_loop_and_ends_it_closes_nothing_of_its_parents(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ends: list[LoopEnd] = []

    async def close() -> None:
        raise UsedAfterFork  # as each call of an object of the parent's

    async def run() -> None:
        ends.append(LoopEnd(close))
        await ends[0].watch()

    asyncio.run(run())
    assert caplog.text == ""


def test_a_generator_that_closes_its_producer_at_the_end_of_the_loop_has_its_records_stored(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop ends all generators at one time: the producer was aborted while its ``close`` began."""
    cluster.create("t")

    async def rows() -> AsyncGenerator[None, None]:
        producer = await Producer(ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=60_000)).start()
        try:
            while True:
                _ = await producer.send("t", b"v")
                yield
        finally:
            await producer.close()

    async def run() -> AsyncGenerator[None, None]:
        begun = rows()
        await anext(begun)
        return begun

    for number in range(10):  # the loop ends its generators in no order
        _ = asyncio.run(run())
        assert cluster.values("t") == [b"v"] * (number + 1)
    assert caplog.text == ""


def test_a_cancelled_close_of_a_client_has_closed_its_connections(cluster: FakeCluster) -> None:
    async def run() -> None:
        client = Client(cluster.nodes[0])
        await client.topics()
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        with pytest.raises(ClientClosed):
            await client.topics()
        await client.close()

    asyncio.run(run())
