"""Batches that the producer compresses: stored as they came, refused by the same bounds."""

import asyncio
from typing import Any, get_args

import pyarrow as pa
import pytest

from stockade.client.api.fetched import UNPACKED_TIMES, fetched
from stockade.client.config import ClientConfig, Compression, InvalidConfig
from stockade.client.consumer.consumer import Consumer
from stockade.client.errors import Source
from stockade.client.producer.producer import Producer
from stockade.partition.errors import MessageTooLarge
from stockade.partition.records.batch import SCHEMA, compressed, decode_batch, message_from_columns

from ..fake_cluster import FakeCluster

LINE = b"2026-01-31 12:00:00,123 INFO org.apache.hadoop.hdfs.DataNode: Receiving block"
CODECS = [codec for codec in get_args(Compression) if codec != "none"]


def config(cluster: FakeCluster, **settings: Any) -> ClientConfig:
    return ClientConfig(bootstrap=tuple(cluster.nodes), linger_ms=60_000, **settings)


def stored_bytes(cluster: FakeCluster) -> list[int]:
    return [batch.length for batch in cluster.machine("t", 0).log.read(0, 1 << 20).batches]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_is_stored_and_served_as_the_producer_compressed_it(cluster: FakeCluster, codec: Compression) -> None:
    cluster.create("t")

    async def work() -> list[Any]:
        async with Producer(config(cluster, compression=codec)) as producer:
            for number in range(100):
                _ = await producer.send("t", LINE, key=b"%d" % number, headers=[("n", b"%d" % number)])
            _ = await producer.send_batch("t", 0, [LINE] * 100)
        async with Consumer(config(cluster)) as consumer:
            return [record async for record in consumer.read("t")]

    records = asyncio.run(work())
    assert [record.value for record in records] == [LINE] * 200
    assert [record.key for record in records[:100]] == [b"%d" % number for number in range(100)]
    assert records[7].headers == (("n", b"7"),)
    assert stored_bytes(cluster)[-1] < 4000 < 100 * len(LINE)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_compression_does_not_make_smaller_stays_as_it_is(codec: Any) -> None:
    message = message_from_columns([None], [b"x"], [1], None)
    assert compressed(message, codec) is message
    many = message_from_columns([None] * 100, [LINE] * 100, [1] * 100, [[("name", b"value")]] * 100)
    smaller = compressed(many, codec)
    assert len(smaller) < len(many) / 4
    assert decode_batch(smaller).equals(decode_batch(many))
    assert decode_batch(smaller).schema == SCHEMA


def test_the_bound_of_a_batch_holds_before_it_is_compressed(cluster: FakeCluster) -> None:
    cluster.create("t", batch_bytes_max=2000)

    async def work() -> None:
        async with Producer(config(cluster, compression="zstd")) as producer:
            with pytest.raises(MessageTooLarge):
                _ = await producer.send_batch("t", 0, [LINE] * 100)

    asyncio.run(work())


def test_an_unknown_compression_is_refused_with_all_other_faults() -> None:
    with pytest.raises(InvalidConfig) as refused:
        ClientConfig(compression="snappy", on_busy="cry")  # type: ignore[arg-type]
    assert refused.value.faults == [
        "on_busy: 'cry' is none of wait, fail",
        "compression: 'snappy' is none of none, lz4, zstd",
    ]


def test_an_answer_that_unpacks_to_much_more_than_was_asked_for_is_taken_in_parts(cluster: FakeCluster) -> None:
    """A few KiB of compressed records filled the memory of their reader: only their bytes on the way were bounded."""
    cluster.create("t")
    batches = 40

    async def run() -> None:
        async with Producer(config(cluster, compression="zstd")) as producer:
            for number in range(batches):
                _ = await (await producer.send_batch("t", 0, [b"%03d" % number + bytes(500_000)]))
        assert sum(stored_bytes(cluster)) < 64 * 1024
        async with Consumer(config(cluster, fetch_bytes_max=64 * 1024)) as consumer:
            one = await consumer.fetch_arrow("t", 0, 0)
            held = sum(batch.nbytes for batch in one.batches)
            assert (one.base_offset, one.next_offset, one.log_end) == (0, 2, batches)
            assert held <= UNPACKED_TIMES * 64 * 1024
            whole = await consumer.fetch_arrow("t", 0, 0, max_bytes=4 << 20)
            assert (len(whole.batches), whole.next_offset) == (batches, batches)
            values = [(record.offset, int(record.value[:3])) async for record in consumer.read("t") if record.value]
            assert values == [(number, number) for number in range(batches)]

    asyncio.run(run())


def test_an_answer_that_is_taken_in_part_has_the_origins_of_that_part() -> None:
    batches = [pa.record_batch({"value": [bytes(1000)]}) for _ in range(5)]
    origins = pa.record_batch({"count": [1] * 5, "producer_id": [*range(5)]})
    body = b""
    for some in (batches, [origins]):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, some[0].schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            for batch in some:
                stream.write_batch(batch)
        body += sink.getvalue().to_pybytes()
    headers = {"Stockade-Base-Offset": "7", "Stockade-Next-Offset": "12", "Stockade-Log-Start": "0"}
    headers["Stockade-Log-End"] = "20"
    for max_bytes, taken in ((1, 1), (140, 2), (10_000, 5)):
        found = fetched(Source("GET", "n1", 200, None), headers.get, body, max_bytes=max_bytes, meta=True)
        assert (len(found.batches), found.base_offset, found.next_offset) == (taken, 7, 7 + taken)
        assert found.origins is not None
        assert found.origins.column("producer_id").to_pylist() == [*range(taken)]
