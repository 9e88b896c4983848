"""A read that is moved, measured and taken as one table."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pyarrow as pa
import pytest

from stockade.client.config import ClientConfig
from stockade.client.consumer import reader
from stockade.client.consumer.consumer import Consumer
from stockade.client.consumer.reader import AHEAD_BYTES_MAX, Reading, bytes_of_a_fetch
from stockade.partition.commands import Trim
from stockade.partition.errors import OffsetOutOfRange, UnknownTopicOrPartition
from stockade.partition.records.batch import SCHEMA
from stockade.sync import Consumer as BlockingConsumer

from ..fake_cluster import FakeCluster
from .test_consumer import fill
from .turns import turns_of_the_loop


def read(
    cluster: FakeCluster, work: Callable[[Reading], Awaitable[None]], *, start: int = 0, follow: bool = False
) -> None:
    async def run() -> None:
        one_batch = ClientConfig(bootstrap=tuple(cluster.nodes), fetch_bytes_max=1)
        async with Consumer(one_batch) as consumer, consumer.pieces("t", [0], start, follow=follow) as reading:
            await work(reading)

    asyncio.run(run())


@pytest.fixture
def filled(cluster: FakeCluster) -> FakeCluster:
    cluster.create("t", 2)
    for number in range(5):
        fill(cluster, [b"%d" % (2 * number), b"%d" % (2 * number + 1)])
    return cluster


def test_the_position_is_the_offset_after_the_present_record_and_lag_counts_the_rest(filled: FakeCluster) -> None:
    async def work(reading: Reading) -> None:
        assert reading.positions == reading.lag == {}
        records = reading.records()
        for offset in range(3):
            assert (await anext(records)).offset == offset
        assert reading.positions == {0: 3}
        assert reading.lag == {0: 7}

    read(filled, work)


def test_after_a_seek_nothing_comes_that_was_fetched_before(filled: FakeCluster) -> None:
    async def work(reading: Reading) -> None:
        records = reading.records()
        assert (await anext(records)).value == b"0"
        reading.seek(0, 7)
        assert [record.value async for record in records] == [b"7", b"8", b"9"]
        assert reading.positions == {0: 10}
        reading.seek(0, "earliest")
        assert (await anext(aiter(reading))).base_offset == 0

    read(filled, work)


def test_a_followed_read_continues_after_a_seek(filled: FakeCluster) -> None:
    async def work(reading: Reading) -> None:
        records = reading.records()
        assert (await anext(records)).value == b"9"
        reading.seek(0, 2)
        assert [(await anext(records)).offset for _ in range(8)] == list(range(2, 10))
        await asyncio.to_thread(fill, filled, [b"more"])
        assert (await anext(records)).value == b"more"

    read(filled, work, start=9, follow=True)


def test_seeking_where_nothing_is_read_or_stored_is_refused(filled: FakeCluster) -> None:
    async def work(reading: Reading) -> None:
        with pytest.raises(UnknownTopicOrPartition):
            reading.seek(2, 0)
        reading.seek(0, 11)
        with pytest.raises(OffsetOutOfRange):
            _ = [piece async for piece in reading]

    read(filled, work)


def test_records_that_were_trimmed_are_skipped_only_where_the_application_says_so(
    filled: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention may overtake a reader: a gap is an error, or a line in the log, and never silent."""
    filled.apply(filled.machine("t", 0), Trim(4))

    async def run() -> None:
        async with Consumer(filled.nodes) as consumer:
            with pytest.raises(OffsetOutOfRange):
                _ = [record async for record in consumer.read("t", [0], 1)]
            offsets = [record.offset async for record in consumer.read("t", [0], 1, skip_trimmed=True)]
            assert offsets == [4, 5, 6, 7, 8, 9]
            with pytest.raises(OffsetOutOfRange):  # beyond the end nothing was trimmed
                _ = [record async for record in consumer.read("t", [0], 11, skip_trimmed=True)]

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert caplog.messages == ["t/0: offsets 1 to 3 were trimmed before they were read: skipped"]
    with BlockingConsumer(filled.nodes) as consumer:
        assert [record.offset for record in consumer.read("t", [0], 1, skip_trimmed=True)] == [4, 5, 6, 7, 8, 9]


def test_everything_is_one_table_in_the_memory_of_the_answers(filled: FakeCluster) -> None:
    async def work(reading: Reading) -> None:
        piece = await anext(aiter(reading))
        assert piece.to_arrow() is piece.batch
        table = await reading.to_arrow()
        assert table.schema.equals(SCHEMA)
        assert table.column("value").to_pylist() == [b"%d" % number for number in range(2, 10)]

    read(filled, work)


def test_an_empty_read_is_an_empty_table(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(reading: Reading) -> None:
        assert (await reading.to_arrow()).num_rows == 0

    read(cluster, work)


def test_rows_are_a_pandas_frame_by_offset(filled: FakeCluster) -> None:
    pytest.importorskip("pandas")

    async def work(reading: Reading) -> None:
        reading.seek(0, 4)
        frame = (await anext(aiter(reading))).to_pandas()
        assert list(frame.index) == [4, 5]
        assert list(frame["value"]) == [b"4", b"5"]
        assert len(await reading.to_pandas()) == 4

    read(filled, work)


def test_the_blocking_reader_moves_and_measures_too(filled: FakeCluster) -> None:
    with BlockingConsumer(filled.nodes) as consumer, consumer.pieces("t", [0]) as reading:
        assert reading.to_arrow().num_rows == 10
        reading.seek(0, 8)
        assert [record.value for record in reading.records()] == [b"8", b"9"]
        assert (reading.positions, reading.lag) == ({0: 10}, {0: 0})
        reading.seek(0, 9)
        assert [piece.base_offset for piece in reading] == [9]
        reading.seek(0, 0)
        assert isinstance(reading.to_arrow(), pa.Table)


def test_an_iteration_that_was_left_goes_on_behind_its_last_record(filled: FakeCluster) -> None:
    """The rest of its batch was lost, though the positions said otherwise."""

    async def work(reading: Reading) -> None:
        async for _ in reading.records():
            break
        async for record in reading.records():
            assert record.offset == 1
            break
        async for record in reading.records():
            assert record.offset == 2
            break
        assert (await anext(reading)).base_offset == 3
        assert (await anext(reading.records())).offset == 4
        assert (await reading.to_arrow()).num_rows == 5
        assert reading.positions == {0: 10}

    read(filled, work)


def test_several_iterations_share_the_records_and_all_of_them_end(filled: FakeCluster) -> None:
    async def work(reading: Reading) -> None:
        async def offsets() -> list[int]:
            found = []
            async for record in reading.records():
                found.append(record.offset)
                await asyncio.sleep(0)
            return found

        async with asyncio.timeout(10):
            some, others = await asyncio.gather(offsets(), offsets())
        assert sorted(some + others) == list(range(10))

    read(filled, work)


def test_a_read_that_has_failed_fetches_the_same_offset_again(filled: FakeCluster) -> None:
    async def work(reading: Reading) -> None:
        async with asyncio.timeout(10):
            for _ in range(2):
                with pytest.raises(OffsetOutOfRange):
                    await anext(reading)
        reading.seek(0, 9)
        assert (await anext(reading.records())).offset == 9

    read(filled, work, start=11)


def test_an_iteration_ends_with_its_read(filled: FakeCluster) -> None:
    async def work(reading: Reading) -> None:
        records = reading.records()
        waiting = asyncio.ensure_future(anext(records, None))
        await asyncio.sleep(0)
        await reading.stop()
        async with asyncio.timeout(10):
            assert await waiting is None
            assert [piece async for piece in reading] == []

    read(filled, work, start=10, follow=True)


def test_a_task_that_works_on_each_record_without_waiting_lets_others_run(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece has many thousands of records, and the sessions of this event loop were not renewed meanwhile."""
    cluster.create("t")
    fill(cluster, [b"v"] * 1000)

    async def work(reading: Reading) -> None:
        monkeypatch.setattr(reader, "TURN_S", 0.0)
        records = reading.records()
        await anext(records)
        async with turns_of_the_loop() as turns:
            for _ in range(900):
                await anext(records)
            assert turns[0] >= 800

    read(cluster, work)


def test_the_bytes_that_a_read_of_many_partitions_fetches_ahead_are_bounded(cluster: FakeCluster) -> None:
    """Each partition held an answer of 4 MiB: a reader of 1,000 partitions had 4 GiB in memory."""
    cluster.create("many", 64)

    async def run() -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes))
        async with Consumer(config) as consumer, consumer.pieces("many"):
            await cluster.seen("GET", 64, "max_bytes=")

    asyncio.run(run())
    asked = [int(path.partition("max_bytes=")[2].partition("&")[0]) for path in cluster.paths("GET") if "max_b" in path]
    assert sum(asked[:64]) <= AHEAD_BYTES_MAX


def test_no_fetch_asks_for_nothing_and_none_for_more_than_the_configuration_says() -> None:
    assert [bytes_of_a_fetch(4 << 20, count) for count in (0, 1, 16, 100_000)] == [4 << 20] * 3 + [64 << 10]
    assert bytes_of_a_fetch(1, 100_000) == 1
