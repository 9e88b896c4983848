import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stockade.client.config import ClientConfig
from stockade.client.consumer.consumer import Consumer
from stockade.client.consumer.records import ConsumedRecord
from stockade.client.producer.producer import Producer
from stockade.partition.errors import LeaderNotAvailable, OffsetOutOfRange, UnknownTopicOrPartition

from ..fake_cluster import FakeCluster, Fault


def config(cluster: FakeCluster, **settings: Any) -> ClientConfig:
    return ClientConfig(bootstrap=tuple(cluster.nodes), retry_backoff_ms=1, retry_backoff_ms_max=5, **settings)


def fill(cluster: FakeCluster, *batches: list[bytes], partition: int = 0) -> None:
    async def run() -> None:
        async with Producer(config(cluster)) as producer:
            for batch in batches:
                await (await producer.send_batch("t", partition, batch))

    asyncio.run(run())


def read(cluster: FakeCluster, *args: Any, fetch_bytes_max: int = 4 << 20, **how: Any) -> list[ConsumedRecord]:
    async def run() -> list[ConsumedRecord]:
        async with Consumer(config(cluster, fetch_bytes_max=fetch_bytes_max)) as consumer:
            return [record async for record in consumer.read("t", *args, **how)]

    return asyncio.run(run())


def consume(cluster: FakeCluster, work: Callable[[Consumer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with Consumer(config(cluster, **settings)) as consumer:
            await work(consumer)

    asyncio.run(run())


def test_every_record_comes_once_in_order_and_knows_its_offset(cluster: FakeCluster) -> None:
    cluster.create("t")
    fill(cluster, [b"a", b"b", b"c"], [b"d"], [b"e", b"f"])
    records = read(cluster, fetch_bytes_max=1)
    assert [(record.offset, record.value) for record in records] == [*enumerate([b"a", b"b", b"c", b"d", b"e", b"f"])]
    assert {(record.topic, record.partition, record.key, record.headers) for record in records} == {("t", 0, None, ())}


@pytest.mark.parametrize(
    ("start", "values"),
    [
        ("earliest", [b"a", b"b", b"c", b"d"]),
        (1, [b"b", b"c", b"d"]),
        (3, [b"d"]),
        (4, []),
        ("latest", []),
        ({0: 2}, [b"c", b"d"]),
    ],
)
def test_a_read_begins_at_the_given_start(cluster: FakeCluster, start: Any, values: list[bytes]) -> None:
    cluster.create("t")
    fill(cluster, [b"a", b"b", b"c"], [b"d"])
    assert [record.value for record in read(cluster, None, start)] == values


def test_keys_headers_tombstones_and_timestamps_come_back(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def run() -> None:
        async with Producer(config(cluster)) as producer:
            _ = await producer.send("t", None, key=b"k", headers=[("h", b"1"), ("h", b"2")], timestamp_ms=1234)

    asyncio.run(run())
    assert read(cluster) == [ConsumedRecord("t", 0, 0, 1234, b"k", None, (("h", b"1"), ("h", b"2")))]


def test_all_partitions_are_read_or_those_asked_for(cluster: FakeCluster) -> None:
    cluster.create("t", 3)
    for partition in range(3):
        fill(cluster, [b"%d" % partition] * 2, partition=partition)
    assert sorted(record.partition for record in read(cluster)) == [0, 0, 1, 1, 2, 2]
    assert [record.partition for record in read(cluster, [2])] == [2, 2]


def test_faults_leave_neither_gap_nor_repetition(cluster: FakeCluster) -> None:
    cluster.create("t")
    fill(cluster, *([b"%d" % number] for number in range(50)))
    cluster.read_faults = [
        Fault.LOSE_REPLY,
        Fault.UNAVAILABLE,
        Fault.MOVED,
        Fault.GATEWAY_TIMEOUT,
        Fault.PORTAL,
        Fault.LOSE_REQUEST,
    ] * 9
    assert [record.value for record in read(cluster, fetch_bytes_max=1)] == [b"%d" % number for number in range(50)]


def test_a_followed_read_continues_with_new_records_and_over_a_dead_node(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(consumer: Consumer) -> None:
        seen: list[bytes | None] = []
        async with Producer(config(cluster)) as producer, consumer.pieces("t", follow=True) as pieces:
            for number in range(6):
                _ = await producer.send("t", b"%d" % number)
                await producer.flush()
                piece = await anext(pieces)
                seen += [record.value for record in piece.records()]
                if number == 2:
                    await asyncio.to_thread(cluster.kill, cluster.nodes[0])
        assert seen == [b"%d" % number for number in range(6)]

    consume(cluster, work)


def test_latest_is_made_a_number_before_anything_waits(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(consumer: Consumer) -> None:
        async with consumer.pieces("t", start="latest", follow=True) as pieces, Producer(config(cluster)) as producer:
            coming = asyncio.ensure_future(anext(pieces))
            await cluster.seen("GET", 3)
            _ = await producer.send("t", b"first after the start")
            assert [record.value for record in (await coming).records()] == [b"first after the start"]

    consume(cluster, work)
    fetches = [path for path in cluster.paths("GET") if "offset=" in path]
    assert "offset=latest" in fetches[0] and "max_wait_ms=0" in fetches[0]
    assert all("offset=latest" not in path for path in fetches[1:])


def test_a_read_of_an_unknown_topic_partition_or_offset_is_refused(cluster: FakeCluster) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        read(cluster)
    cluster.create("t")
    with pytest.raises(UnknownTopicOrPartition):
        read(cluster, [1])
    with pytest.raises(OffsetOutOfRange):
        read(cluster, None, 1)


def test_a_topic_without_a_leader_is_given_up_after_the_delivery_timeout(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.read_faults = [Fault.UNAVAILABLE] * 1000

    async def work(consumer: Consumer) -> None:
        with pytest.raises(LeaderNotAvailable):
            await consumer.fetch_arrow("t", 0, 0)

    consume(cluster, work, request_timeout_ms=3_000, delivery_timeout_ms=3_010)


def test_a_piece_of_the_log_comes_as_whole_batches_with_its_bounds(cluster: FakeCluster) -> None:
    cluster.create("t")
    fill(cluster, [b"a", b"b", b"c"], [b"d"])

    async def work(consumer: Consumer) -> None:
        piece = await consumer.fetch_arrow("t", 0, 1, local_node=cluster.nodes[1])
        assert (piece.base_offset, piece.next_offset, piece.log_start, piece.log_end, piece.stale) == (0, 4, 0, 4, True)
        rows = [(base, batch.column("value").to_pylist()) for base, batch in piece.after(1)]
        assert rows == [(1, [b"b", b"c"]), (3, [b"d"])]

    consume(cluster, work)
