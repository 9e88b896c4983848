"""Heads and trailers without end, and heads in great number: a connection holds little of them, whatever it does."""

import asyncio
from contextlib import suppress
from typing import cast

import pytest
from unit.http_api.conversation import RECORDS, Conversation, check_problem, run
from unit.http_api.test_server import read_answer

from stockade.http_api.fast_path.connection import LOOSE_BYTES_MAX, QUEUED_MAX, FastConnection
from stockade.http_api.request import call as calls
from stockade.http_api.server import HttpRunner

LINE = b"X%d: " + b"x" * 16_000 + b"\r\n"
"""A line that is within the bound of one."""
WAITS = f"GET {RECORDS}?offset=latest&min_bytes=1&max_wait_ms=60000 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
MANY = 40


def queued(node: Conversation) -> int:
    """Requests that the node has read and not begun to answer."""
    guests = cast(HttpRunner, node.server._runner).connections._where
    return sum(len(each._messages) for each in guests if isinstance(each, FastConnection))


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\nHost: x\r\n", b"\r\n"], ids=["a head", "blank lines"])
def test_a_head_without_an_end_is_answered_431_before_it_takes_much(first: bytes) -> None:
    line = first if first == b"\r\n" else LINE % 1

    async def test(node: Conversation) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(first)
        for _ in range(2 * LOOSE_BYTES_MAX // len(line)):
            writer.write(line)
        async with asyncio.timeout(60):
            answer = await read_answer(reader)
            assert (answer.status, answer.json["code"]) == (431, "HEADERS_TOO_LARGE")
            check_problem(answer)
            with suppress(ConnectionError):  # what the node did not read makes its end a reset
                assert await reader.read() == b""
        writer.transport.abort()

    run(test)


def test_trailers_without_an_end_end_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ARRIVAL_START_S", 0.1)
    read: list[int] = []
    received = FastConnection.data_received

    def count(self: FastConnection, data: bytes) -> None:
        read.append(len(data))
        self._lingering_time = 0.1
        received(self, data)

    async def test(node: Conversation) -> None:
        monkeypatch.setattr(FastConnection, "data_received", count)
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        head = f"POST {RECORDS} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode() + b"1\r\nx\r\n0\r\n")
        for number in range(500):
            writer.write(LINE % number)
        async with asyncio.timeout(60):
            assert (await read_answer(reader)).status == 400
        assert sum(read) < 1 << 21, "of 8 MB"
        writer.transport.abort()

    run(test)


def test_requests_behind_one_that_waits_are_read_a_few_at_a_time_and_all_are_answered() -> None:
    async def test(node: Conversation) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        lines = b"".join(b"X%d: y\r\n" % number for number in range(500))
        writer.write(WAITS + (b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n") * MANY)
        async with asyncio.timeout(60):
            while not queued(node):  # noqa: ASYNC110
                await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
                assert queued(node) <= QUEUED_MAX
            node.service.shared.wake()
            assert [(await read_answer(reader)).status for _ in range(MANY + 1)] == [200] * (MANY + 1)
        writer.transport.abort()

    run(test)
