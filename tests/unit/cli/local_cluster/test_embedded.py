"""stockade.testing, as a user's tests would use it."""

import asyncio
from collections.abc import Iterator

import pytest

from stockade import ClientConfig, Delivery, Producer, Receipt
from stockade.partition.errors import ProducerFenced
from stockade.sync import Consumer
from stockade.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def test_a_program_can_be_fenced_in_the_middle_of_its_work(cluster: Cluster) -> None:
    cluster.create_topic("jobs", require_fence=True)

    async def program() -> None:
        async with Producer(cluster.url) as producer, producer.exclusive("jobs"):
            await (await producer.send("jobs", b"mine"))
            await asyncio.to_thread(cluster.fence, "jobs")
            await (await producer.send("jobs", b"zombie"))

    with pytest.raises(ProducerFenced):
        asyncio.run(program())
    with Consumer(cluster.url) as consumer:
        assert [record.value for record in consumer.read("jobs")] == [b"mine"]


def test_a_newer_instance_fences_a_producer_by_its_name(cluster: Cluster) -> None:
    cluster.create_topic("events")

    async def program() -> None:
        async with Producer(cluster.url, name="mirror") as producer:
            await (await producer.send("events", b"old instance"))
            await asyncio.to_thread(cluster.fence_producer, "mirror")
            with pytest.raises(ProducerFenced):
                await (await producer.send("events", b"zombie"))

    asyncio.run(program())


def test_records_sent_while_the_cluster_is_unreachable_arrive_once_it_is_back(cluster: Cluster) -> None:
    cluster.create_topic("outage")

    async def program() -> None:
        config = ClientConfig(bootstrap=(cluster.url,), retry_backoff_ms=5, retry_backoff_ms_max=20)
        async with Producer(config) as producer:
            await (await producer.send("outage", b"before"))
            with cluster.unreachable():
                delivery = await producer.send("outage", b"during")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(_outcome(delivery), 0.1)
            assert (await delivery).offset == 1

    asyncio.run(program())


async def _outcome(delivery: Delivery) -> Receipt:
    return await delivery
