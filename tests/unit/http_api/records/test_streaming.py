"""Followed streams in each form: what comes, what ends them, and who resumes where."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pyarrow as pa
import pytest

from stockade.http_api.codec.parameters import INT64_MAX
from stockade.http_api.records import streaming

from ..conversation import ARROW, NDJSON, RECORDS, TEXT, Conversation, check_problem, nodes, run

EVENTS = {"Accept": "text/event-stream"}
LINES = {"Accept": NDJSON["Content-Type"]}
WHOLE = {"Accept": ARROW["Content-Type"]}


@asynccontextmanager
async def stream(
    node: Conversation, query: str = "?follow=true", headers: dict[str, str] | None = None
) -> AsyncIterator[aiohttp.ClientResponse]:
    async with asyncio.timeout(60), node.session.get(node.url + RECORDS + query, headers=headers) as response:
        assert response.status == 200, await response.read()
        yield response


async def append(node: Conversation, body: bytes) -> None:
    assert (await node.call("POST", RECORDS, body, TEXT)).status == 200


@pytest.mark.parametrize("accept", ["*/*", "application/x-ndjson", "application/json, application/x-ndjson"])
def test_lines_come_as_records_are_committed(accept: str) -> None:
    async def test(node: Conversation) -> None:
        await append(node, b"a\nb\n")
        async with stream(node, "?follow=true&offset=1", {"Accept": accept}) as response:
            assert response.headers["Content-Type"] == "application/x-ndjson"
            assert response.headers["Stockade-Base-Offset"] == "1"
            assert "Stockade-Next-Offset" not in response.headers
            first = json.loads(await response.content.readline())
            assert (first["offset"], first["value"]) == (1, "b")
            await append(node, b"c\n")
            assert json.loads(await response.content.readline())["value"] == "c"

    run(test)


def test_events_carry_their_offset_and_go_on_behind_the_last_one_seen() -> None:
    async def test(node: Conversation) -> None:
        await append(node, b"a\nb\nc\n")
        async with stream(node, "?offset=0", EVENTS | {"Last-Event-ID": "1"}) as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            assert await response.content.readline() == b"id: 2\n"
            data = await response.content.readline()
            assert json.loads(data.removeprefix(b"data: "))["value"] == "c"
            assert await response.content.readline() == b"\n"

    run(test)


@pytest.mark.parametrize(("last", "status"), [(INT64_MAX - 1, 416), (INT64_MAX, 400)])
def test_last_event_id_beyond_the_highest_offset_is_refused(last: int, status: int) -> None:
    async def test(node: Conversation) -> None:
        refused = await node.call("GET", RECORDS, headers=EVENTS | {"Last-Event-ID": str(last)})
        assert refused.status == status

    run(test)


def test_a_silent_event_stream_gets_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "SILENCE_MS", 30)

    async def test(node: Conversation) -> None:
        async with stream(node, "", EVENTS) as response:
            for _ in range(3):
                assert await response.content.readline() == b":\n"
                assert await response.content.readline() == b"\n"
            await append(node, b"a\n")
            while (line := await response.content.readline()) in (b":\n", b"\n"):
                pass
            assert line == b"id: 0\n"

    run(test)


def test_a_followed_arrow_stream_has_whole_batches_and_no_end() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            await append(node, b"a\nb\n")
            async with stream(node, "?follow=true&offset=1", WHOLE) as response:
                assert response.headers["Stockade-Base-Offset"] == "0"
                received = await response.content.readany()
                await append(node, b"c\n")
                while pa.ipc.open_stream(received).read_all().num_rows < 3:
                    received += await response.content.readany()
                node.service.shared.topics["orders"].leaders[0] = None
                node.service.shared.wake()
                received += await response.content.read()
            assert not received.endswith(b"\xff\xff\xff\xff\0\0\0\0")
            assert pa.ipc.open_stream(received).read_all().column("value").to_pylist() == [b"a", b"b", b"c"]

    asyncio.run(main())


@pytest.mark.parametrize("accept", [LINES, EVENTS])
def test_a_stream_that_meets_an_error_ends_with_its_problem(accept: dict[str, str]) -> None:
    async def test(node: Conversation) -> None:
        await append(node, b"a\n")
        async with stream(node, "?follow=true", accept) as response:
            await response.content.readline()
            node.service.shared.topics["orders"].leaders[0] = None
            node.service.shared.wake()
            rest = (await response.content.read()).strip()
        if accept is LINES:
            problem = json.loads(rest)["problem"]
        else:
            event, data = rest.split(b"\n")[-2:]
            assert event == b"event: problem"
            problem = json.loads(data.removeprefix(b"data: "))
        assert (problem["code"], problem["leader"]) == ("NOT_LEADER_OR_FOLLOWER", None)

    run(test)


def test_a_followed_read_refused_at_its_start_gets_a_problem_document() -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("GET", RECORDS + "?follow=true&offset=9")
        assert answer.status == 416
        check_problem(answer)

    run(test)


def test_a_client_that_goes_away_ends_its_stream() -> None:
    async def test(node: Conversation) -> None:
        readers = node.service.shared
        async with stream(node):
            await readers.reader_came.wait()
        async with asyncio.timeout(streaming.SILENCE_MS / 1000 - 1):  # then it would end by itself
            await readers.reader_left.wait()

    run(test)


def test_followers_are_bounded() -> None:
    async def test(node: Conversation) -> None:
        node.server.front.in_flight.followers.limit = 1
        async with stream(node):
            refused = await node.call("GET", RECORDS + "?follow=true")
            assert (refused.status, refused.json["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")

    run(test)


def test_closing_the_server_ends_streams_and_long_waits() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic()
            waiting = asyncio.create_task(node.call("GET", RECORDS + "?max_wait_ms=60000"))
            async with stream(node, "?follow=true", LINES) as response, asyncio.timeout(60):
                await node.call("GET", RECORDS)
                await node.server.close()
                assert json.loads(await response.content.read())["problem"]["code"] == "LEADER_NOT_AVAILABLE"
                assert (await waiting).status == 503

    asyncio.run(main())


def test_a_slow_reader_does_not_fill_the_memory() -> None:
    async def main() -> None:
        async with nodes(1) as (node,):
            await node.topic("wide", max_batch_bytes=16_777_216)
            path = "/v1/topics/wide/partitions/0/records"
            for _ in range(8):
                assert (await node.call("POST", path, b"x" * 8_000_000, TEXT)).status == 200
            url = f"{node.url}{path}?follow=true&max_bytes=1"
            async with node.session.get(url, headers=LINES) as response:
                await response.content.readexactly(1000)
                transport = _server_transport(node)
                for _ in range(50):
                    await asyncio.sleep(0.01)
                    assert transport.get_write_buffer_size() < 20_000_000

    asyncio.run(main())


def _server_transport(node: Conversation) -> asyncio.Transport:
    runner = node.server._runner
    assert runner.server is not None
    sizes = [c.transport for c in runner.server.connections if c.transport is not None]
    return max(sizes, key=lambda transport: transport.get_write_buffer_size())
