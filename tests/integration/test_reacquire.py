"""Leases that are lost and acquired again, on three real nodes: never silently, and never over a newer owner."""

import asyncio
import threading

import pytest

from stockade import Client, ClientConfig, Fence, Ownership, Producer, Session, StockadeError, sync
from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.errors import ProducerBusy, ProducerFenced

PATIENCE_S = 60.0


def config(cluster: LocalCluster) -> ClientConfig:
    return ClientConfig(bootstrap=tuple(node.url for node in cluster.nodes), linger_ms=0, session_ttl_ms=15_000)


def test_an_evicted_writer_waits_for_the_newer_one_reads_the_tail_and_goes_on_behind_it(cluster: LocalCluster) -> None:
    seen: list[tuple[int, bytes | None]] = []

    async def program() -> None:
        async with Producer(config(cluster), name="old") as old, Producer(config(cluster), name="new") as new:
            await old.client.create_topic("evicted")

            async def told(fence: Fence) -> None:
                tail = await old.client.tail("evicted", 0, 1)
                seen.append((fence.epoch, tail.records[0].value))

            async with old.exclusive("evicted", reacquire=told) as fence:
                await (await old.send("evicted", b"old"))
                async with new.exclusive("evicted", mode="ExclusiveWithFencing") as newer:
                    with pytest.raises(ProducerFenced):
                        await (await old.send("evicted", b"zombie"))
                    await (await new.send("evicted", b"new"))
                    assert newer.error is None, "the old one stands in the queue; it does not evict"
                    assert seen == []
                async with asyncio.timeout(PATIENCE_S):
                    again = await fence.again()
                assert seen == [(again.epoch, b"new")]
                assert again.epoch > newer.epoch > fence.epoch
                await (await old.send("evicted", b"old again"))
            tail = await old.client.tail("evicted", 0, 5)
            assert [record.value for record in tail.records] == [b"old", b"new", b"old again"]

    asyncio.run(program())


def test_an_eviction_of_the_queue_sends_the_waiting_one_to_its_end(cluster: LocalCluster) -> None:
    async def program() -> None:
        async with Client(config(cluster)) as client, Session(client, "b") as second, Session(client, "c") as third:
            await client.create_topic("queued")
            async with Session(client, "a", reacquire=lambda _: None) as first:
                fence = await first.acquire("queued")
                newer = await second.acquire("queued", mode="ExclusiveWithFencing")
                waiting = asyncio.create_task(fence.again())
                while await queue_length(client) == 0:
                    assert not waiting.done()
                newest = await third.acquire("queued", mode="ExclusiveWithFencing")
                while await queue_length(client) == 0:
                    assert not waiting.done()
                await newest.release()
                async with asyncio.timeout(PATIENCE_S):
                    assert (await waiting).epoch > newest.epoch > newer.epoch > fence.epoch

    async def queue_length(client: Client) -> int:
        async with Session(client, "asks") as session:
            with pytest.raises(ProducerBusy) as busy:
                await session.acquire("queued")
            length: int = busy.value.fields["queue_len"]
            return length

    asyncio.run(program())


def test_a_session_that_the_cluster_has_ended_is_replaced_with_all_that_it_held(cluster: LocalCluster) -> None:
    told: list[Fence | Ownership] = []

    async def program() -> None:
        async with Client(config(cluster)) as client:
            await client.create_topic("replaced", partitions=2)
            async with Session(client, "keeper", reacquire=told.append) as session:
                fence, owned = await session.acquire("replaced"), await session.own("services", "keeper")
                await client.close_session(session.id)
                async with asyncio.timeout(PATIENCE_S):
                    fence_again, owned_again = await fence.again(), await owned.again()
                assert fence_again.epoch > fence.epoch
                assert owned_again.fence_epoch > owned.fence_epoch
                assert set(told) == {fence_again, owned_again}
                assert session.error is None
            assert (await client.topic("replaced")).partitions[0].slot_mode is None

    asyncio.run(program())


def test_code_without_a_loop_acquires_again_the_same_way(cluster: LocalCluster) -> None:
    epochs: list[int] = []
    threads: set[str] = set()

    with sync.Producer(config(cluster), name="blocking") as producer:
        producer.client.create_topic("again")

        def told(fence: sync.Fence) -> None:
            threads.add(threading.current_thread().name)
            epochs.append(producer.client.tail("again", 0, 1).log_end)

        with producer.exclusive("again", reacquire=told) as fence:
            producer.send("again", b"a").result()
            producer.client.close_session(fence.session_id)
            with pytest.raises(StockadeError):
                producer.send("again", b"lost").result(PATIENCE_S)
            again = fence.again()
            assert again.epoch > fence.epoch
            producer.send("again", b"b").result()
        assert epochs == [1]
        assert "stockade.sync" not in threads
