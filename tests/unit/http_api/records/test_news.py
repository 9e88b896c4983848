"""One request that waits at the ends of many logs."""

import asyncio
from typing import Any

import pytest

from stockade.http_api.records import news
from stockade.partition.api.records import NEWS_PARTITIONS_MAX

from ..conversation import TEXT, Conversation, nodes, run

NEWS = "/v1/topics/many/news"


async def wait(node: Conversation, *offsets: int, wait_ms: int = 60_000, **body: Any) -> Any:
    """The partitions with news, of partitions 0, 1 and so on at these offsets."""
    positions = [{"partition": partition, "offset": offset} for partition, offset in enumerate(offsets)]
    return (await node.call("POST", NEWS, {"positions": positions, "max_wait_ms": wait_ms} | body)).json["partitions"]


async def append(node: Conversation, partition: int) -> None:
    path = f"/v1/topics/many/partitions/{partition}/records"
    assert (await node.call("POST", path, b"a\n", TEXT)).status == 200


async def waiting(node: Conversation, watchers: int) -> None:
    """Return when so many partitions are watched."""
    while len(node.service.shared.changed._watchers) != watchers:  # noqa: ASYNC110
        await asyncio.sleep(0)


def test_news_answers_at_once_with_partitions_that_have_records_and_else_waits() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("many", 3)
        await append(node, 1)
        assert await wait(node, 0, 0, 0) == [1]
        asked = asyncio.create_task(wait(node, 0, 1, 0))
        await waiting(node, 3)
        node.service.shared.wake()  # a change that is no news
        await append(node, 2)
        assert await asked == [2]
        await waiting(node, 0)
        assert await wait(node, 0, 1, 1, wait_ms=0) == []
        assert await wait(node, 0, 1, 1, wait_ms=1) == []
        await waiting(node, 0)

    run(test)


def test_a_partition_of_which_the_node_cannot_tell_is_named_and_nothing_is_forwarded() -> None:
    async def main() -> None:
        async with nodes(2) as (n1, n2):
            topic = await n1.topic("many", 2)
            assert await wait(n2, 0, 0) == [0, 1]
            assert await wait(n1, 0, 0, topic_id=topic["topic_id"] + 1) == [0, 1]
            assert await wait(n1, 0, 0, 0) == [2]
            asked = asyncio.create_task(wait(n1, 0, 0))
            await waiting(n1, 2)
            n1.service.shared.lead("many", "n2", 1)
            assert await asked == [1]

    asyncio.run(main())


def test_a_list_is_refused_that_is_too_long_or_has_a_partition_twice() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("many", 1)
        for partitions in (range(NEWS_PARTITIONS_MAX + 1), [0, 0], []):
            positions = [{"partition": partition, "offset": 0} for partition in partitions]
            answer = await node.call("POST", NEWS, {"positions": positions})
            assert (answer.status, answer.json["code"]) == (400, "INVALID_REQUEST")

    run(test)


@pytest.mark.parametrize(("partitions", "requests"), [(1, 1), (50, 1), (51, 2), (NEWS_PARTITIONS_MAX, 20)])
def test_fifty_partitions_count_as_one_request(partitions: int, requests: int) -> None:
    async def test(node: Conversation) -> None:
        await node.topic("many", partitions)
        asked = asyncio.create_task(wait(node, *[0] * partitions))
        await waiting(node, partitions)
        in_flight = node.server.front.in_flight.requests
        assert in_flight.used == requests
        in_flight.limit = requests
        assert (await node.call("GET", "/v1/topics/many")).json["code"] == "THROTTLING_QUOTA_EXCEEDED"
        in_flight.limit = 10_000
        await append(node, 0)
        assert await asked == [0]
        assert in_flight.used == 0

    assert news.PARTITIONS_PER_REQUEST == 50
    run(test)


def test_a_client_that_disconnects_leaves_no_watcher() -> None:
    async def test(node: Conversation) -> None:
        await node.topic("many", 2)
        asked = asyncio.create_task(wait(node, 0, 0))
        await waiting(node, 2)
        asked.cancel()
        await waiting(node, 0)

    run(test)
