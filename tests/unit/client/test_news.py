"""Fetches that wait for news of their partitions, because there is no connection on which they could wait."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from stockade.client.api import news
from stockade.client.api.client import Client
from stockade.client.api.news import News
from stockade.client.config import ClientConfig
from stockade.client.consumer.reader import fetch_again
from stockade.client.errors import ClusterUnreachable, Source, UnreadableAnswer
from stockade.client.transport.http import Answer, Request
from stockade.client.transport.metadata import Metadata
from stockade.partition.errors import NotFound, StockadeError, ThrottlingQuotaExceeded

NODE = "http://n1"
Script = Callable[[dict[int, int]], Awaitable[list[int]]]


class Calls:
    """A node whose answers a test writes. ``asked``: the positions of each request, by partition."""

    def __init__(self, answer: Script) -> None:
        self.has_room_to_wait = False
        self.asked: list[dict[int, int]] = []
        self._answer = answer

    async def once(self, request: Request) -> Answer:
        assert (request.method, request.path, request.node, request.only_node) == (
            "POST",
            "/v1/topics/t/news",
            NODE,
            True,
        )
        body: Any = json.loads(request.body)  # type: ignore[arg-type]
        assert (body["topic_id"], body["max_wait_ms"]) == (7, news.ROUND_MS)
        self.asked.append({each["partition"]: each["offset"] for each in body["positions"]})
        found = json.dumps({"topic": "t", "partitions": await self._answer(self.asked[-1])})
        return Answer(200, {}, found.encode(), "POST", NODE)


def run(answer: Script, test: Callable[[News, Calls], Awaitable[None]]) -> None:
    async def main() -> None:
        metadata, calls = Metadata(None), Calls(answer)  # type: ignore[arg-type]
        for partition in range(3):
            metadata.heard("t", partition, NODE)
        waits = News(calls, metadata, ClientConfig())  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            await test(waits, calls)
        await waits.close()
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


async def all_of(offsets: dict[int, int]) -> list[int]:
    return [*offsets]


async def never(offsets: dict[int, int]) -> list[int]:
    await asyncio.get_running_loop().create_future()
    return []


def test_waiting_fetches_share_one_request_and_the_unnamed_ones_the_next() -> None:
    async def by_turns(offsets: dict[int, int]) -> list[int]:
        return [max(offsets)]

    async def test(waits: News, calls: Calls) -> None:
        found = await asyncio.gather(*(waits.wait("t", partition, 5, 7, 9_000) for partition in range(3)))
        assert found == [True, True, True]
        assert calls.asked == [{0: 5, 1: 5, 2: 5}, {0: 5, 1: 5}, {0: 5}]

    run(by_turns, test)


def test_two_readers_of_one_partition_ask_from_the_lower_offset() -> None:
    async def test(waits: News, calls: Calls) -> None:
        assert await asyncio.gather(*(waits.wait("t", 0, offset, 7, 9_000) for offset in (6, 5, 8))) == [True] * 3
        assert calls.asked == [{0: 5}]

    run(all_of, test)


def test_a_fetch_waits_itself_where_there_is_a_connection_or_no_leader() -> None:
    async def test(waits: News, calls: Calls) -> None:
        assert not await waits.wait("t", 99, 5, 7, 9_000)
        calls.has_room_to_wait = True
        assert not await waits.wait("t", 0, 5, 7, 9_000)
        assert calls.asked == []

    run(all_of, test)


def test_after_its_whole_wait_a_fetch_goes_on() -> None:
    async def test(waits: News, calls: Calls) -> None:
        assert await waits.wait("t", 0, 5, 7, 1)

    run(never, test)


def test_a_partition_named_in_vain_is_fetched_from_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the client would fetch without end from a node that names a partition by mistake."""

    async def test(waits: News, calls: Calls) -> None:
        loop = asyncio.get_running_loop()
        assert await waits.wait("t", 0, 5, 7, 9_000)
        for offset, pauses in ((6, False), (6, True), (7, False)):
            began_s = loop.time()
            assert await waits.wait("t", 0, offset, 7, 9_000)
            assert (loop.time() - began_s >= 2.0) == pauses

    monkeypatch.setattr(news, "ROUND_MS", 2000)
    run(all_of, test)


@pytest.mark.parametrize(
    "error", [NotFound("", what="route"), UnreadableAnswer(Source("POST", NODE, 404, None), b"", "")]
)
def test_a_node_that_does_not_know_the_request_is_not_asked_again_for_a_while(
    error: StockadeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(offsets: dict[int, int]) -> list[int]:
        raise error

    async def test(waits: News, calls: Calls) -> None:
        assert not await waits.wait("t", 0, 5, 7, 9_000)
        assert not await waits.wait("t", 1, 5, 7, 9_000)
        assert len(calls.asked) == 1
        waits._old[NODE] = 0.0
        assert not await waits.wait("t", 1, 5, 7, 9_000)
        assert len(calls.asked) == 2

    run(refuse, test)


@pytest.mark.parametrize(
    ("error", "goes_on"), [(ClusterUnreachable(""), True), (ThrottlingQuotaExceeded(retry_after_ms=1), False)]
)
def test_a_fetch_finds_out_about_a_node_that_is_away_and_waits_at_one_that_is_busy(
    error: StockadeError, goes_on: bool
) -> None:
    async def refuse(offsets: dict[int, int]) -> list[int]:
        raise error

    async def test(waits: News, calls: Calls) -> None:
        assert await waits.wait("t", 0, 5, 7, 9_000) is goes_on
        assert (await waits.wait("t", 1, 5, 7, 9_000), len(calls.asked)) == (goes_on, 2)

    run(refuse, test)


def test_the_end_of_the_client_ends_each_wait() -> None:
    async def test(waits: News, calls: Calls) -> None:
        asked = [asyncio.create_task(waits.wait("t", partition, 5, 7, 60_000)) for partition in range(3)]
        await asyncio.sleep(0)
        await waits.close()
        assert await asyncio.gather(*asked) == [True] * 3
        assert waits._waiting == {}

    run(never, test)


def test_a_reader_that_stops_leaves_nothing_behind() -> None:
    async def test(waits: News, calls: Calls) -> None:
        async def some(offsets: dict[int, int]) -> list[int]:
            return []

        calls._answer = some
        asked = asyncio.create_task(waits.wait("t", 0, 5, 7, 60_000))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(*waits._tasks, asked, return_exceptions=True)
        assert (waits._waiting, waits._tasks) == ({}, set())

    run(never, test)


def test_fetches_after_a_wait_in_common_leave_connections_for_a_renewal() -> None:
    """They took all connections where a node answered no fetch, and the client's sessions ended."""
    arrived = list[str]()
    over = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        arrived.append(request.path.rpartition("/")[2])
        if arrived[-1] == "news":
            named = [each["partition"] for each in json.loads(await request.read())["positions"]]
            return web.json_response({"topic": "t", "partitions": named})
        if arrived[-1] == "records":
            await over.wait()
        return web.Response()

    async def renew(client: Client, node: str) -> None:
        for partition in range(100):
            client.metadata.heard("t", partition, node)
        how: dict[str, Any] = {"max_wait_ms": 60_000, "max_bytes": 65_536}
        fetches = [asyncio.create_task(fetch_again(client, "t", partition, 5, **how)) for partition in range(100)]
        try:
            async with asyncio.timeout(10):
                while client.news._waiting or arrived.count("records") < 48:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                assert (await client.calls.once(Request(method="PUT", path="/now"))).status == 200
                assert (arrived.count("records"), "news" in arrived) == (48, True)
        finally:
            over.set()
            for fetch in fetches:
                fetch.cancel()
            await asyncio.gather(*fetches, return_exceptions=True)

    async def main() -> None:
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        node = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with Client(ClientConfig(bootstrap=node, connections_max=64)) as client:
                await renew(client, node)
        finally:
            await runner.cleanup()

    asyncio.run(main())
