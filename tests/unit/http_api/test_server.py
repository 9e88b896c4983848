"""What happens below requests: broken HTTP, large headers, bodies that come in odd ways, and the end of the server."""

import asyncio
import json
import logging
from collections.abc import Callable

import pytest
from multidict import CIMultiDict
from waiting import until

from stockade.http_api.request import call, stalls

from .conversation import RECORDS, Answer, Conversation, check_problem, nodes, run

HOST = b"Host: x\r\n"
PATH = RECORDS.encode()
LENGTH = b"Content-Length: 1"
APPEND = b"POST " + PATH + b" HTTP/1.1\r\n" + HOST + b"Content-Type: text/plain\r\n" + LENGTH + b"\r\n"
TOPICS = b"GET /v1/topics HTTP/1.1\r\n" + HOST


async def exchange(node: Conversation, *pieces: bytes, read_first: bool = False) -> Answer:
    """Send bytes, read one answer. ``read_first``: wait for a line between the first piece and the others."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    try:
        writer.write(pieces[0])
        if read_first:
            assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
            assert await reader.readline() == b"\r\n"
        for piece in pieces[1:]:
            writer.write(piece)
        async with asyncio.timeout(60):
            return await read_answer(reader)
    finally:
        writer.close()
        await writer.wait_closed()


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    status = int((await reader.readline()).split()[1])
    headers: CIMultiDict[str] = CIMultiDict()
    while (line := (await reader.readline()).strip()) != b"":
        name, _, value = line.decode().partition(":")
        headers.add(name, value.strip())
    body = await reader.readexactly(int(headers["Content-Length"]))
    return Answer(status, headers, body)


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"GET /v1/topics HTTP/1.1\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"GET /v1/topics HTTP/1.1\r\n" + HOST + b"bad header\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"POST /v1/topics HTTP/1.1\r\n" + HOST + b"Content-Length: x\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431, "HEADERS_TOO_LARGE"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 17_000 + b"\r\n\r\n", 431, "HEADERS_TOO_LARGE"),
        (b"GET / HTTP/1.1\r\n" + HOST + (b"X: " + b"x" * 9_000 + b"\r\n") * 2 + b"\r\n", 431, "HEADERS_TOO_LARGE"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 600 + b"\r\n", 431, "HEADERS_TOO_LARGE"),
        (APPEND + b"".join(b"X%d: y\r\n" % n for n in range(510)) + b"\r\nx", 431, "HEADERS_TOO_LARGE"),
        (APPEND.replace(b"HTTP/1.1", b"HTTP/2.0") + b"\r\nx", 400, "INVALID_REQUEST"),
        *(
            (APPEND.replace(LENGTH, coding) + b"\r\n1\r\nx\r\n0\r\n\r\n", 400, "INVALID_REQUEST")
            for coding in (
                b"Transfer-Encoding: gzip, chunked",
                b"Transfer-Encoding: chunked, chunked",
                b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
            )
        ),
        (APPEND.replace(b"HTTP/1.1", b"HTTP/0.9") + b"\r\nx", 400, "INVALID_REQUEST"),
        (b"GET /healthz\r\n\r\n", 400, "INVALID_REQUEST"),
        (TOPICS + b"stockade-session: a\r\nStockade-Session: a\r\n\r\n", 400, "INVALID_REQUEST"),
        (TOPICS + b"Stockade-Session: \xff\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"PUT /v1/sessions/\xff HTTP/1.1\r\n" + HOST + b"\r\n", 400, "INVALID_REQUEST"),
        (b"GET /v1/topics?\xff=1 HTTP/1.1\r\n" + HOST + b"\r\n", 400, "INVALID_REQUEST"),
        (b"PUT /v1/sessions/%ff HTTP/1.1\r\n" + HOST + b"\r\n", 400, "INVALID_REQUEST"),
        (b"PUT /v1/sessions/a%2Fb HTTP/1.1\r\n" + HOST + b"\r\n", 404, "UNKNOWN_SESSION"),
    ],
    ids=lambda value: repr(value)[:60],
)  # fmt: skip
def test_malformed_http_is_answered_with_a_problem_document(request_bytes: bytes, status: int, code: str) -> None:
    async def test(node: Conversation) -> None:
        answer = await exchange(node, request_bytes)
        assert (answer.status, answer.json["code"]) == (status, code), answer.body
        check_problem(answer)
        assert (await node.call("GET", "/healthz")).status == 200
        counted = f'stockade_http_refusals_total{{code="{code}"}} 1.0'
        assert counted in (await node.call("GET", "/metrics")).body.decode().splitlines()
        assert await node.values() == []

    run(test)


def test_512_header_lines_pass_on_both_ways() -> None:
    async def test(node: Conversation) -> None:
        request = APPEND + b"".join(b"X%d: y\r\n" % n for n in range(509)) + b"\r\nx"
        assert (await exchange(node, request)).status == 200
        assert (await exchange(node, b"\r\n" + request)).status == 200

    run(test)


def test_the_refusal_of_too_many_header_lines_speaks_of_lines_and_not_of_bytes() -> None:
    async def test(node: Conversation) -> None:
        answer = await exchange(node, APPEND + b"".join(b"X%d: y\r\n" % n for n in range(510)) + b"\r\nx")
        assert (answer.status, answer.json["detail"]) == (431, "the headers have more than 512 lines")

    run(test)


def test_a_client_of_http_1_0_is_not_told_to_continue() -> None:
    async def test(node: Conversation) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(APPEND.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Expect: 100-continue\r\n\r\n")
        await node.call("GET", "/healthz")  # what was sent before that was read before
        writer.write(b"x")
        async with asyncio.timeout(60):
            assert (await read_answer(reader)).status == 200
        writer.close()
        await writer.wait_closed()

    run(test)


def test_headers_of_16_kib_pass() -> None:
    async def test(node: Conversation) -> None:
        start = b"GET /v1/topics HTTP/1.1\r\n"
        room = 16 * 1024 - len(HOST) - len(b"X: \r\n")
        fits = await exchange(node, start + HOST + b"X: " + b"x" * room + b"\r\n\r\n")
        assert fits.status == 200
        over = await exchange(node, start + HOST + b"X: " + b"x" * (room + 1) + b"\r\n\r\n")
        assert (over.status, over.json["limit"]) == (431, 16_384)
        assert "Stockade-Leader" in over.headers

    run(test)


def test_a_chunked_body_is_bounded_as_it_comes() -> None:
    async def test(node: Conversation) -> None:
        head = (
            b"POST /v1/topics HTTP/1.1\r\n"
            + HOST
            + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        body = json.dumps({"name": "chunked"}).encode()
        whole = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        assert (await exchange(node, head, whole)).status == 201
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        too_large = await exchange(node, head, *[chunk] * 17, b"0\r\n\r\n")
        assert (too_large.status, too_large.json["code"]) == (413, "MESSAGE_TOO_LARGE")

    run(test)  # fmt: skip


def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    async def test(node: Conversation) -> None:
        head = (
            b"POST " + PATH + b" HTTP/1.1\r\n" + HOST + b"Content-Type: text/plain\r\nContent-Length: 99999999\r\n\r\n"
        )
        refused = await exchange(node, head)
        assert (refused.status, refused.json["code"]) == (413, "MESSAGE_TOO_LARGE")

    run(test)


def test_a_body_that_is_no_batch_is_not_called_one_when_it_is_too_large() -> None:
    async def test(node: Conversation) -> None:
        answer = await node.call("POST", "/v1/sessions", {"client_id": "x" * call.JSON_BYTES_MAX})
        assert (answer.status, answer.json["limit"]) == (413, call.JSON_BYTES_MAX)
        assert answer.json["detail"] == "the request is above the limit of 1048576 bytes"
        assert "batch" not in answer.json["title"]

    run(test)


def test_a_client_is_told_to_continue_only_when_its_body_is_wanted() -> None:
    async def test(node: Conversation) -> None:
        head = b"POST " + PATH + b" HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n"
        stored = await exchange(node, head + b"Content-Type: text/plain\r\n\r\n", b"x\n", read_first=True)
        assert stored.status == 200 and "Connection" not in stored.headers
        refused = await exchange(node, head + b"Content-Type: image/png\r\n\r\n")
        assert (refused.status, refused.headers["Connection"]) == (415, "close")  # the body may never come

    run(test)


@pytest.mark.parametrize("expectation", [b"100-continue", b"foo"])
@pytest.mark.parametrize(("route", "status"), [(b"POST /nope", 404), (b"PUT " + PATH, 405)])
def test_a_request_without_a_route_is_refused_whatever_it_expects(
    route: bytes, status: int, expectation: bytes
) -> None:
    async def test(node: Conversation) -> None:
        head = route + b" HTTP/1.1\r\n" + HOST + b"Expect: " + expectation + b"\r\nContent-Length: 2\r\n\r\n"
        refused = await exchange(node, head)
        assert refused.status == status
        assert refused.headers["X-Content-Type-Options"] == "nosniff"
        assert refused.headers["Connection"] == "close"
        check_problem(refused)

    run(test)


def test_a_body_that_does_not_come_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "ARRIVAL_S", 0.05)

    async def test(node: Conversation) -> None:
        head = b"POST " + PATH + b" HTTP/1.1\r\n" + HOST + b"Content-Type: text/plain\r\nContent-Length: 9\r\n\r\nx"
        answer = await exchange(node, head)
        assert (answer.status, answer.json["code"]) == (400, "INVALID_REQUEST")
        assert "body" in answer.json["reason"]

    run(test)


def test_a_client_that_goes_away_in_the_middle_of_its_body_is_no_fault_of_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def test(node: Conversation) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(
            b"POST " + PATH + b" HTTP/1.1\r\n" + HOST + b"Content-Type: text/plain\r\nContent-Length: 9\r\n\r\nx"
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await until(lambda: any(" 499 " in record.getMessage() for record in caplog.records))
        assert await node.values() == []

    run(test)
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record for record in told if record.name != stalls.__name__] == []  # the loop is that of all tests


def test_bodies_in_memory_are_bounded_and_their_place_is_given_back() -> None:
    async def test(node: Conversation) -> None:
        for _ in range(3):
            assert (await node.call("POST", RECORDS, b"x\n", {"Content-Type": "text/plain"})).status == 200
            assert (await node.call("POST", RECORDS, b"{", {"Content-Type": "application/json"})).status == 400

    run(test)


def test_a_connection_is_kept_for_the_next_request() -> None:
    async def test(node: Conversation) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        for path in (b"/healthz", b"/v1/nothing", b"/v1/topics?x=1", b"/healthz"):
            writer.write(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
            await read_answer(reader)
        writer.close()
        await writer.wait_closed()

    run(test)


STREAMS = [
    pytest.param(
        lambda pid, number: {"Producer-Id": pid, "Producer-Epoch": 0, "Producer-Seq": number},
        (409, {"expected_seq": 1}),
        id="numbers",
    ),
    pytest.param(lambda pid, number: {"If-Log-End": number}, (412, {"log_end": 1}), id="conditions"),
]


@pytest.mark.parametrize(("guard", "refusal"), STREAMS)
def test_115_behind_a_refused_append_of_a_stream_everything_is_refused_and_nothing_stored(
    guard: Callable[[int, int], dict[str, int]], refusal: tuple[int, dict[str, int]]
) -> None:
    async def test(node: Conversation) -> None:
        pid = (await node.call("POST", "/v1/producers", {})).json["producer_id"]
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        for number in (0, 2, 3, 4):  # 1 was lost on its way
            lines = [f"Stockade-{name}: {value}\r\n" for name, value in guard(pid, number).items()]
            writer.write(APPEND + "".join(lines).encode() + b"\r\nx")
        answers = [await read_answer(reader) for _ in range(4)]
        status, told = refusal
        assert [answer.status for answer in answers] == [200, status, status, status]
        for answer in answers[1:]:
            assert told.items() <= answer.json.items()
        assert await node.values() == ["x"]
        writer.close()
        await writer.wait_closed()

    run(test)


def test_closing_lets_requests_finish_and_takes_no_new_ones() -> None:
    async def main() -> None:
        async with nodes(1) as (node,), asyncio.timeout(60):
            await node.topic()
            shared = node.service.shared
            shared.may_store.clear()
            stored = asyncio.create_task(node.call("POST", RECORDS, {"records": [{"value": "x"}]}))
            await shared.writer_came.wait()
            closing = asyncio.create_task(node.server.close())
            await asyncio.sleep(0)
            shared.may_store.set()
            assert (await stored).status == 200
            await closing
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", node.port)

    asyncio.run(main())


def test_closing_does_not_wait_for_bodies() -> None:
    async def main() -> None:
        async with nodes(1) as (node,), asyncio.timeout(60):
            await node.topic()
            head = b"POST " + PATH + b" HTTP/1.1\r\n" + HOST + b"Content-Type: text/plain\r\nExpect: 100-continue\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            writer.write(head + b"Content-Length: 2\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
            await reader.readline()
            await node.server.close()
            answer = await read_answer(reader)
            assert (answer.status, answer.json["no_side_effects"]) == (503, True)
            writer.close()
            await writer.wait_closed()

    asyncio.run(main())
