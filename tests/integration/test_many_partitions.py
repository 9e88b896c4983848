"""A follower of more partitions than its client has connections."""

import asyncio

import pytest

from stockade import ClientConfig, Consumer, Producer
from stockade.testing import Cluster

PARTITIONS = 24


@pytest.mark.parametrize("is_member", [False, True])
def test_the_records_of_all_partitions_come_soon_though_few_fetches_can_wait(*, is_member: bool) -> None:
    """Fetches that wait had all connections, and the others came in rounds of `fetch_wait_ms`."""

    async def main(url: str) -> None:
        config = ClientConfig(bootstrap=url, connections_max=8, fetch_wait_ms=60_000)
        async with Producer(url) as producer, Consumer(config) as consumer, consumer.group("g", "many") as member:
            for partition in range(PARTITIONS):
                _ = await producer.send("many", b"old", partition=partition)
            async with consumer.pieces("many", follow=True) as pieces:
                reading = member if is_member else pieces.records()
                found = [await anext(reading) for _ in range(PARTITIONS)]
                assert sorted(record.partition for record in found) == [*range(PARTITIONS)]
                for partition in reversed(range(PARTITIONS)):
                    _ = await producer.send("many", b"new", partition=partition)
                    record = await anext(reading)
                    assert (record.partition, record.offset, record.value) == (partition, 1, b"new")

    with Cluster() as cluster:
        cluster.create_topic("many", partitions=PARTITIONS)
        asyncio.run(asyncio.wait_for(main(cluster.url), 50))
