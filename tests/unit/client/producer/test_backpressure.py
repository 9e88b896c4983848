"""A producer that is closed, has no room, or loses nodes while it repeats: every record has exactly one outcome."""

import asyncio
from typing import Any

import pytest

from stockade.client.config import ClientConfig
from stockade.client.errors import BufferFull, ClientClosed
from stockade.client.producer.delivery import TURN_BYTES, Buffer
from stockade.client.producer.producer import Producer

from ..fake_cluster import FakeCluster, Fault


def config(cluster: FakeCluster, **settings: Any) -> ClientConfig:
    quick = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_ms_max": 5, "inflight_batches_max": 1}
    return ClientConfig(bootstrap=tuple(cluster.nodes), **{**quick, **settings})


def test_107_closing_during_a_retry_settles_every_record_once_and_refuses_late_ones(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.UNAVAILABLE, Fault.HOLD]
    values = [b"%d" % number for number in range(10)]

    async def run() -> None:
        producer = await Producer(config(cluster, batch_records_max=2), name="writer").start()
        successes, errors = producer.successes(), producer.errors()
        deliveries = [await producer.send("t", value) for value in values]
        await cluster.seen("POST", 3)  # the producer's start, the first attempt, its repetition
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            _ = await producer.send("t", b"late")
        with pytest.raises(ClientClosed):
            _ = await producer.send("t", b"late", partition=0)
        cluster.release_held()
        await closing
        assert sum([receipt.count async for receipt in successes]) == len(values)
        assert [failure async for failure in errors] == []
        assert [(await delivery).offset for delivery in deliveries] == list(range(10))

    asyncio.run(run())
    assert cluster.values("t") == values


def test_108_records_beyond_the_buffer_are_refused_during_a_retry_and_every_record_is_counted(
    cluster: FakeCluster,
) -> None:
    cluster.create("t")
    cluster.faults = [Fault.UNAVAILABLE, Fault.HOLD]
    refused: list[BufferFull] = []

    async def run() -> None:
        small = config(cluster, batch_bytes_max=1024, buffer_bytes_max=2048, send_timeout_ms=0)
        async with Producer(small, name="writer") as producer:
            successes, errors = producer.successes(), producer.errors()
            for _ in range(20):
                try:
                    _ = await producer.send("t", bytes(200))
                except BufferFull as error:
                    refused.append(error)
            cluster.release_held()
            await producer.flush()
        assert sum([receipt.count async for receipt in successes]) == 20 - len(refused)
        assert [failure async for failure in errors] == []

    asyncio.run(run())
    assert len(cluster.values("t")) == 20 - len(refused) == 2048 // 224
    assert refused[0].fields == {"bytes_max": 2048, "waited_ms": 0}


def test_111_nodes_that_restart_under_stale_metadata_delay_records_but_lose_and_repeat_none(
    cluster: FakeCluster,
) -> None:
    cluster.create("t")
    values = [b"%d" % number for number in range(60)]

    async def run() -> None:
        async with Producer(config(cluster, inflight_batches_max=5, batch_records_max=3), name="writer") as producer:
            for value in values[:20]:
                _ = await producer.send("t", value)
            cluster.faults = [Fault.LOSE_REPLY, Fault.MOVED, Fault.LEADERLESS, Fault.LOSE_REQUEST]
            for value in values[20:40]:
                _ = await producer.send("t", value)
            await producer.flush()
            await asyncio.to_thread(cluster.kill, cluster.nodes[0])  # whom the metadata name as the leader
            for value in values[40:]:
                _ = await producer.send("t", value)

    asyncio.run(run())
    assert cluster.values("t") == values


def test_a_loop_that_only_sends_lets_others_run_though_there_is_room(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def run() -> None:
        async with Producer(config(cluster), name="writer") as producer:
            await (await producer.send("t", b"first"))
            has_run = asyncio.Event()
            asyncio.get_running_loop().call_soon(has_run.set)
            for _ in range(TURN_BYTES // 1024 + 1):
                _ = await producer.send("t", bytes(1024))
            assert has_run.is_set()
            has_run.clear()
            asyncio.get_running_loop().call_soon(has_run.set)
            for _ in range(2):
                _ = await producer.send_batch("t", 0, [bytes(TURN_BYTES)])
            assert has_run.is_set()

    asyncio.run(run())


def test_records_of_tasks_side_by_side_are_stored_in_the_order_of_sending(cluster: FakeCluster) -> None:
    """One that let the event loop run was overtaken by all behind it, every 256 KiB."""
    cluster.create("t")

    async def run() -> None:
        async with Producer(ClientConfig(bootstrap=tuple(cluster.nodes))) as producer:
            await (await producer.send("t", b"first"))
            values = [b"%d" % number + bytes(1024) for number in range(3 * TURN_BYTES // 1024)]
            await asyncio.gather(*(producer.send("t", value) for value in values))
            await producer.flush()
            assert cluster.values("t") == [b"first", *values]

    asyncio.run(run())


def test_giving_way_is_no_waiting_for_room() -> None:
    async def run() -> None:
        buffer = Buffer(1 << 30, 0)
        assert buffer.take_now(TURN_BYTES)
        assert not buffer.take_now(1)
        await asyncio.gather(*(buffer.take(TURN_BYTES) for _ in range(3)))
        await buffer.take(1)
        assert buffer.take_now(1)

    asyncio.run(run())


def test_a_sender_that_waits_for_room_is_served_when_one_before_it_gave_up() -> None:
    async def run() -> None:
        buffer = Buffer(10, 60_000)
        assert buffer.take_now(6)
        large = asyncio.create_task(buffer.take(8))
        small = asyncio.create_task(buffer.take(4))
        await asyncio.sleep(0)
        large.cancel()
        await small
        assert not buffer.take_now(1)

    asyncio.run(run())


def test_room_that_comes_with_the_end_of_the_time_is_taken() -> None:
    async def run() -> None:
        buffer = Buffer(10, 0)
        assert buffer.take_now(10)
        asyncio.get_running_loop().call_soon(buffer.give_back, 10)
        await buffer.take(4)
        assert buffer.take_now(6)
        with pytest.raises(BufferFull):
            await buffer.take(1)

    asyncio.run(run())
