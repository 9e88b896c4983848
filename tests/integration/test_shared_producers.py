"""Producers with ``access="Shared"`` on three real nodes: SEMANTICS cases 2 and 8 from the client's side."""

import asyncio
import time

import pytest

from stockade import ClientConfig, Producer
from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.errors import ProducerBusy, ProducerFenced


def config(cluster: LocalCluster) -> ClientConfig:
    return ClientConfig(bootstrap=tuple(node.url for node in cluster.nodes), linger_ms=0, session_ttl_ms=15_000)


def test_008_exclusive_is_refused_over_a_shared_producer_and_waits_for_it(cluster: LocalCluster) -> None:
    async def program() -> None:
        alone = Producer(config(cluster), name="alone")
        async with alone, Producer(config(cluster), name="one", access="Shared") as one:
            await one.client.create_topic("seats", partitions=2)
            async with Producer(config(cluster), name="two", access="Shared") as two:
                for producer in (one, two):
                    await (await producer.send("seats", producer.name.encode(), partition=0))
                with pytest.raises(ProducerBusy) as refused:
                    async with alone.exclusive("seats"):
                        pytest.fail("two share partition 0")
                assert refused.value.fields["reason"] == "shared_present"
                assert refused.value.fields["holder"]["producer_name"] in ("one", "two")
                async with alone.exclusive("seats", [1]):
                    await (await alone.send("seats", b"alone", partition=1))

            async def wait_for_it() -> None:
                async with alone.exclusive("seats", [0], mode="WaitForExclusive"):
                    await (await alone.send("seats", b"alone", partition=0))

            waiting = asyncio.create_task(wait_for_it())
            await (await one.send("seats", b"one again", partition=0))
            assert not waiting.done()
            await one.close()
            async with asyncio.timeout(30):
                await waiting
            tail = await alone.client.tail("seats", 0, 4)
            assert [record.value for record in tail.records] == [b"one", b"two", b"one again", b"alone"]

    asyncio.run(program())


def test_002_a_shared_producer_is_refused_at_once_with_the_name_of_the_holder(cluster: LocalCluster) -> None:
    async def program() -> None:
        async with (
            Producer(config(cluster), name="alone") as alone,
            Producer(config(cluster), name="shared", access="Shared") as shared,
        ):
            await shared.client.create_topic("held")
            async with alone.exclusive("held"):
                began_s = time.monotonic()
                delivery = await shared.send("held", b"refused")
                with pytest.raises(ProducerBusy) as refused:
                    await delivery
                assert refused.value.fields["holder"]["producer_name"] == "alone"
                assert refused.value.fields["outcome"]["state"] == "absent"
                assert refused.value.hint, "it says what to do"
                assert time.monotonic() - began_s < 30, "not after delivery_timeout_ms"
            await shared.recover("held", 0)
            await (await shared.send("held", b"beside"))
            async with alone.exclusive("held", mode="ExclusiveWithFencing"):
                with pytest.raises(ProducerFenced) as fenced:
                    await (await shared.send("held", b"zombie"))
                assert fenced.value.fields["holder"]["producer_name"] == "alone"
                assert fenced.value.fields["outcome"]["state"] == "absent"
                await (await alone.send("held", b"alone"))
            await shared.recover("held", 0)
            await (await shared.send("held", b"beside again"))
            tail = await shared.client.tail("held", 0, 4)
            assert [record.value for record in tail.records] == [b"beside", b"alone", b"beside again"]

    asyncio.run(program())
