"""Consumer groups on a real node: shared out, taken over, fenced."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from click.testing import CliRunner

from stockade import ClientConfig, Consumer, Producer
from stockade.chaos.system.waiting import until
from stockade.cli.main import main
from stockade.client.consumer.group import GroupReading
from stockade.partition.errors import NotOwner, SessionExpired, StockadeError
from stockade.sync import Producer as SyncProducer
from stockade.testing import Cluster

PARTITIONS = 4
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def config(node: Cluster) -> ClientConfig:
    """A session is renewed, and looks for its share, each third of its life; it must not end when this machine is busy
    for some seconds.
    """
    return ClientConfig(bootstrap=(node.url,), session_ttl_ms=9000, fetch_wait_ms=200, linger_ms=0)


async def fill(node: Cluster, topic: str, first: int, count: int) -> None:
    async with Producer(config(node)) as producer:
        for number in range(first, first + count):
            _ = await producer.send(topic, str(number).encode(), partition=number % PARTITIONS)


async def read(reading: GroupReading, count: int) -> list[int]:
    """So many records, each committed."""
    found: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        async for record in reading:
            found.append(int(record.value or b""))
            await reading.commit()
            if len(found) == count:
                break
    return found


async def until_shared(*members: GroupReading) -> None:
    share = PARTITIONS // len(members)

    async def is_shared() -> bool:
        return all(len(member.partitions) == share for member in members)

    await until(is_shared, PATIENCE_S, "the partitions are not shared out")


def test_a_group_continues_at_its_committed_position(node: Cluster) -> None:
    node.create_topic("alone", partitions=PARTITIONS)

    async def work() -> None:
        await fill(node, "alone", 0, 20)
        async with Consumer(config(node)) as consumer:
            async with consumer.group("g", "alone") as reading:
                first = await read(reading, 8)
            async with consumer.group("g", "alone") as reading:
                second = await read(reading, 12)
        assert sorted(first + second) == list(range(20))

    asyncio.run(work())


def test_partitions_are_shared_out_and_a_leaving_members_share_is_taken_over(node: Cluster) -> None:
    node.create_topic("shared", partitions=PARTITIONS)

    async def work() -> None:
        async with Consumer(config(node)) as consumer, consumer.group("g2", "shared") as stays:
            async with consumer.group("g2", "shared") as leaves:
                await until_shared(stays, leaves)
                assert sorted(stays.partitions + leaves.partitions) == list(range(PARTITIONS))
                await fill(node, "shared", 0, 16)
                both = await asyncio.gather(read(stays, 8), read(leaves, 8))
                assert sorted(both[0] + both[1]) == list(range(16))
            await until_shared(stays)
            await fill(node, "shared", 16, 8)
            assert sorted(await read(stays, 8)) == list(range(16, 24))

    asyncio.run(work())


@pytest.mark.parametrize(("group", "topic"), [("g8", "members"), ("g9", "also")])
def test_members_read_each_partition_also_of_a_topic_named_members_and_beside_other_topics(
    node: Cluster, group: str, topic: str
) -> None:
    """The numbers of a group's members, of all topics, had the names of partitions of a topic "members": partitions
    had no reader, and their records were passed over in silence.
    """
    for each in {topic, "beside"}:
        node.create_topic(each, partitions=PARTITIONS)

    async def work() -> None:
        await fill(node, topic, 0, 8)
        async with (
            Consumer(config(node)) as consumer,
            consumer.group(group, "beside") as beside,
            consumer.group(group, topic) as reading,
        ):
            assert (reading.partitions, beside.partitions) == ([*range(PARTITIONS)], [*range(PARTITIONS)])
            assert sorted(await read(reading, 8)) == [*range(8)]

    asyncio.run(work())


def test_the_record_in_work_when_a_member_gives_up_its_partition_is_not_committed(node: Cluster) -> None:
    """It may yet fail, and then another member has to do it."""
    node.create_topic("at-work", partitions=2)

    async def work() -> None:
        async with Producer(config(node)) as producer:
            _ = await producer.send_batch("at-work", 1, [b"0", b"1"])
        async with Consumer(config(node)) as consumer, consumer.group("g6", "at-work") as works:
            assert (await anext(works)).offset == 0
            async with consumer.group("g6", "at-work") as comes, asyncio.timeout(PATIENCE_S):
                assert (await anext(comes)).offset == 0
                assert (works.partitions, comes.partitions) == ([0], [1])
                await works.commit()  # too late: it counts no more
                assert (await consumer.client.position("g6", "at-work", 1)).offset is None

    asyncio.run(work())


def test_a_member_that_commits_while_it_gives_a_partition_up_hands_it_over_without_repetition(node: Cluster) -> None:
    node.create_topic("in-time", partitions=2)
    patient = replace(config(node), session_ttl_ms=60_000)

    async def work() -> None:
        async with Producer(config(node)) as producer:
            _ = await producer.send_batch("in-time", 1, [b"0", b"1"])
        async with Consumer(patient) as first, first.group("g7", "in-time") as works:
            assert (await anext(works)).offset == 0
            async with Consumer(config(node)) as second, second.group("g7", "in-time") as comes:
                await works._share()  # which would be due in 20 s
                assert works.partitions == [0]
                await works.commit()
                async with asyncio.timeout(PATIENCE_S):
                    assert (await anext(comes)).offset == 1

    asyncio.run(work())


def test_a_replaced_member_can_neither_commit_nor_read_on(node: Cluster) -> None:
    node.create_topic("stalled", partitions=PARTITIONS)

    async def work() -> None:
        await fill(node, "stalled", 0, 8)
        async with Consumer(config(node)) as consumer, consumer.group("g3", "stalled") as reading:
            found = aiter(reading)
            record = await anext(found)
            client = consumer.client
            async with _Thief(node) as thief:
                resource = f"stalled/{record.partition}"
                [verdict] = await client.own("g3", thief, [resource], generation=0, sever="resource")
                assert verdict.granted
                old_epoch = verdict.fence_epoch - 1
                with pytest.raises(NotOwner):
                    await client.commit_position("g3", "stalled", record.partition, 1, fence_epoch=old_epoch)
                with pytest.raises(NotOwner):
                    await client.fetch("stalled", record.partition, 0, max_bytes=1000, guard=("g3", old_epoch))
                await reading.commit()
                assert record.partition not in reading.partitions
                position = await client.position("g3", "stalled", record.partition)
                assert position.offset is None

    asyncio.run(work())


def test_a_read_that_stops_within_a_batch_continues_after_its_last_record(node: Cluster) -> None:
    node.create_topic("batches")

    async def work() -> None:
        async with Producer(config(node)) as producer:
            _ = await producer.send_batch("batches", 0, [str(number).encode() for number in range(10)])
        async with Consumer(config(node)) as consumer, consumer.group("g5", "batches") as reading:
            assert await read(reading, 3) == [0, 1, 2]
            assert await read(reading, 2) == [3, 4]
            piece = await anext(reading.pieces())
            assert (piece.base_offset, piece.batch.num_rows) == (5, 5)
            reading.back_to(0, 7)
            await reading.commit()
            assert (await consumer.client.position("g5", "batches", 0)).offset == 7

    asyncio.run(work())


def test_consume_with_a_group_commits_the_records_that_it_wrote_out(node: Cluster) -> None:
    node.create_topic("lines")
    with SyncProducer(node.url) as producer:
        producer.send_batch("lines", 0, [b"a", b"b", b"c", b"d"])

    def consume(count: int) -> str:
        command = ["consume", "lines", "--group", "shell", "--max", str(count), "--url", node.url]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert consume(3) == "a\nb\nc\n"
    assert consume(1) == "d\n"


class _Thief:
    """A session of another client."""

    def __init__(self, node: Cluster) -> None:
        self._consumer = Consumer(config(node))

    async def __aenter__(self) -> str:
        return (await self._consumer.client.open_session("thief", 60_000)).session

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.close()


def test_a_member_whose_session_ends_says_so(node: Cluster) -> None:
    node.create_topic("lost", partitions=PARTITIONS)

    async def work() -> None:
        async with Consumer(config(node)) as consumer:
            with pytest.raises((SessionExpired, StockadeError)):
                async with consumer.group("g4", "lost") as reading:
                    await consumer.client.close_session(reading._session.id)
                    async with asyncio.timeout(PATIENCE_S):
                        await _drain(reading.pieces())

    asyncio.run(work())


async def _drain(pieces: AsyncIterator[object]) -> None:
    async for _ in pieces:
        pass
