"""On what terms a producer writes, on three real nodes: conditions, message ids, ownership, while leaders move."""

import asyncio
from contextlib import suppress

import pytest

from stockade import Client, ClientConfig, Conditions, Producer, Session, StockadeError, sync
from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.errors import NotOwner, OffsetMismatch
from stockade.partition.records.batch import message_from_columns


def config(cluster: LocalCluster) -> ClientConfig:
    return ClientConfig(bootstrap=tuple(node.url for node in cluster.nodes), linger_ms=0)


async def values(client: Client, topic: str) -> list[str]:
    end = (await client.offsets(topic, 0)).offset
    return [(record.value or b"").decode() for record in (await client.tail(topic, 0, end)).records]


async def transferred(client: Client, topic: str) -> None:
    """Let another node lead partition 0; a node that just stands still does not take it."""
    while True:
        with suppress(StockadeError):
            await client.transfer_leader(topic, 0)
            return


def test_with_if_log_end_one_of_two_writers_gets_each_offset_over_failovers(cluster: LocalCluster) -> None:
    """Optimistic concurrency: each adds 1 to the last value that it read; no addition is lost or made twice."""

    async def count(name: str, rounds: int) -> None:
        async with Producer(config(cluster), name=name) as producer:
            done = 0
            while done < rounds:
                tail = await producer.client.tail("counter", 0, 1)
                number = int(tail.records[0].value or 0) + 1 if tail.records else 1
                try:
                    delivery = await producer.send_batch("counter", 0, [b"%d" % number], if_log_end=tail.log_end)
                    await delivery
                    done += 1
                except OffsetMismatch as refused:
                    assert refused.fields["outcome"]["state"] == "absent"

    async def program() -> None:
        async with Client(config(cluster)) as client:
            await client.create_topic("counter")
            counting = asyncio.gather(*(count(name, 15) for name in ("one", "two")))
            for written in (5, 10, 15):
                while (await client.offsets("counter", 0)).offset < written:
                    pass
                await transferred(client, "counter")
            await counting
            assert await values(client, "counter") == [str(number) for number in range(1, 31)]

    asyncio.run(program())


def test_a_named_batch_is_stored_once_by_producers_that_know_nothing_of_each_other(cluster: LocalCluster) -> None:
    async def program() -> None:
        async with Client(config(cluster)) as client:
            await client.create_topic("named", config={"dedupe_window_ms": 60_000})
        for producer_name in ("first", "second"):
            async with Producer(config(cluster), name=producer_name) as producer:
                for number in range(3):
                    name = f"größe {number}"
                    receipt = await (await producer.send_batch("named", 0, [b"%d" % number] * 2, message_id=name))
                    assert (receipt.offset, receipt.duplicate) == (2 * number, producer_name == "second")
        async with Client(config(cluster)) as client:
            assert await values(client, "named") == ["0", "0", "1", "1", "2", "2"]

    asyncio.run(program())


def test_only_the_owner_of_a_partition_writes_and_the_former_one_learns_its_last_outcome(cluster: LocalCluster) -> None:
    async def program() -> None:
        async with Producer(config(cluster), name="old") as old, Producer(config(cluster), name="new") as new:
            client = old.client
            await client.create_topic("guarded", partitions=2, config={"writer_group": "writers"})
            async with Session(client, "old") as session, Session(new.client, "new") as successor:
                owned = await session.own("writers", ["guarded/0", "guarded/1"])
                async with old.owning(*owned, cancel_on_loss=False):
                    await (await old.send("guarded", b"old", partition=0))
                    taken = await successor.own("writers", "guarded/0", generation=0, sever="resource")
                    async with new.owning(taken):
                        await (await new.send("guarded", b"new", partition=0))
                    with pytest.raises(NotOwner) as refused:
                        await (await old.send("guarded", b"zombie", partition=0))
                    assert refused.value.fields["outcome"]["state"] == "absent"
                    assert owned[0].error is not None
                    await (await old.send("guarded", b"mine", partition=1))
                message = message_from_columns([None], [b"alone"], [0], None)
                with pytest.raises(NotOwner):
                    await client.append("guarded", 0, message)
                conditions = Conditions(if_log_end=2, fence_epoch=taken.fence_epoch)
                assert (await client.append("guarded", 0, message, conditions=conditions)).base_offset == 2
            assert await values(client, "guarded") == ["old", "new", "alone"]

    asyncio.run(program())


def test_code_without_a_loop_writes_on_the_same_terms(cluster: LocalCluster) -> None:
    with sync.Producer(config(cluster)) as producer, sync.Session(producer.client, "blocking") as session:
        producer.client.create_topic("blocking", config={"writer_group": "writers"})
        owned = session.own("writers", "blocking/0")
        with producer.owning(owned):
            assert producer.send_batch("blocking", 0, [b"a"], if_log_end=0).result().offset == 0
            with pytest.raises(OffsetMismatch):
                producer.send_batch("blocking", 0, [b"a"], if_log_end=0).result()
        with pytest.raises(NotOwner):
            producer.send("blocking", b"b", partition=0).result()
