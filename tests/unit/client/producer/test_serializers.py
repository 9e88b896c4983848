"""Keys and values of the application become bytes; producers share a client."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.errors import ClientClosed
from stockade.client.producer.producer import Producer
from stockade.partition.errors import InvalidRecord, InvalidRequest

from ..fake_cluster import FakeCluster


class Reading(msgspec.Struct):
    sensor: str
    celsius: float


def checked(reading: object) -> bytes:
    return msgspec.json.encode(msgspec.convert(reading, Reading))


def produce(cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0)
        async with Producer(config, name="writer", **options) as producer:
            await work(producer)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("serializer", "value", "stored"),
    [
        ("bytes", b"v", b"v"),
        ("str", "Grüße", "Grüße".encode()),
        ("json", {"a": [1, None]}, b'{"a":[1,null]}'),
        (checked, {"sensor": "roof", "celsius": 21.5}, b'{"sensor":"roof","celsius":21.5}'),
        ("json", None, None),
        (checked, None, None),
    ],
)
def test_values_become_bytes_alone_and_in_batches(
    cluster: FakeCluster, serializer: Any, value: object, stored: bytes | None
) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        await (await producer.send("t", value))
        await (await producer.send_batch("t", 0, [value, value]))

    produce(cluster, work, value_serializer=serializer)
    assert cluster.values("t") == [stored] * 3


def test_a_key_chooses_its_partition_by_its_bytes(cluster: FakeCluster) -> None:
    cluster.create("t", 8)
    places = {}

    async def work(producer: Producer) -> None:
        places[producer] = (await (await producer.send("t", b"v", key="order-7"))).partition

    produce(cluster, work, key_serializer="str")

    async def plain(producer: Producer) -> None:
        places[producer] = (await (await producer.send("t", b"v", key=b"order-7"))).partition

    produce(cluster, plain)
    assert len(places) == 2
    assert len(set(places.values())) == 1


def test_a_serializer_that_fails_fails_that_record_alone(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        first = await producer.send("t", {"sensor": "roof", "celsius": 1.0})
        with pytest.raises(InvalidRecord, match=r"the value_serializer failed: .*celsius"):
            _ = await producer.send("t", {"sensor": "roof"})
        with pytest.raises(InvalidRecord, match="the value_serializer failed"):
            _ = await producer.send_batch("t", 0, [{"sensor": "roof", "celsius": 1.0}, {}])
        with pytest.raises(InvalidRecord, match="the key_serializer must return bytes, not int"):
            _ = await producer.send("t", None, key="k")
        await first

    produce(cluster, work, value_serializer=checked, key_serializer=len)
    assert cluster.values("t") == [b'{"sensor":"roof","celsius":1.0}']


def test_an_unknown_serializer_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequest, match="'avro' is none of bytes, str, json, and"):
        Producer(value_serializer="avro")


def test_producers_share_a_client_that_none_of_them_closes(cluster: FakeCluster) -> None:
    """002: NewAsyncProducerFromClient, and ErrClosedClient."""
    cluster.create("t")

    async def run() -> None:
        async with Client(ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=0)) as client:
            async with Producer(client, name="one") as one, Producer(client, name="two") as two:
                assert one.client is two.client is client
                await (await one.send("t", b"one"))
                await two.close()
                await (await one.send("t", b"still one"))
            assert (await client.topic("t")).name == "t"
            left = await Producer(client, name="three").start()
        with pytest.raises(ClientClosed):
            await (await left.send("t", b"lost"))
        await left.abort()

    asyncio.run(run())
    assert cluster.values("t") == [b"one", b"still one"]


def test_a_cancelled_future_that_the_application_s_function_reads_cancels_no_task_that_sends(
    cluster: FakeCluster,
) -> None:
    """The task that called `send` ended as cancelled, with nothing in the log."""
    cluster.create("t")

    def reads(*_: Any) -> Any:
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        return cancelled.result()

    async def refused(producer: Producer) -> None:
        with pytest.raises(InvalidRecord, match="the key_serializer failed: CancelledError"):
            _ = await producer.send("t", b"v", key=b"k")

    async def passed_over(producer: Producer) -> None:
        assert (await (await producer.send("t", b"v"))).offset == 0

    produce(cluster, refused, key_serializer=reads)
    produce(cluster, passed_over, interceptors=[reads])
