"""The fast path of small requests answers as aiohttp does, and takes no byte for something else than aiohttp does."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.http_parser import HttpRequestParser
from hypothesis import given
from hypothesis import strategies as st

from stockade.http_api.fast_path import connection as connections
from stockade.http_api.fast_path.connection import (
    LOOSE_BYTES_MAX,
    FastConnection,
    FastRequest,
    FastRoutes,
    RequestParser,
    pattern_of,
    read_again,
    serialized,
)
from stockade.http_api.fast_path.parser import Head, read_head
from stockade.http_api.fast_path.renew import FastRenewals
from stockade.http_api.reading.reader import BodyReader
from stockade.http_api.request.boundary import Boundary
from stockade.http_api.request.call import request_of
from stockade.http_api.request.context import Context
from stockade.http_api.request.peers import Peers
from stockade.http_api.request.pulse import Pulse
from stockade.http_api.request.stalls import Stalls

from .. import conversation
from ..conversation import RECORDS, Answer, Conversation, nodes
from ..test_server import read_answer

START = b"POST " + RECORDS.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def append(value: bytes, *headers: bytes) -> bytes:
    return START + b"".join(line + b"\r\n" for line in headers) + b"Content-Length: %d\r\n\r\n" % len(value) + value


_begun: list["Talk"] = []


async def end_talks() -> None:
    for talk in _begun:
        talk.writer.close()
        with suppress(ConnectionError):
            await talk.writer.wait_closed()
    _begun.clear()


def run(test: Callable[[Conversation], Awaitable[None]]) -> None:
    async def ended(node: Conversation) -> None:
        try:
            await test(node)
        finally:
            await end_talks()

    conversation.run(ended)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the requests that went the short way."""
    paths: list[str] = []

    class Noted(FastRequest):
        def __init__(self, connection: Any, head: Head, match_info: dict[str, str], body: bytes) -> None:
            super().__init__(connection, head, match_info, body)
            paths.append(head.template.path)

    monkeypatch.setattr(connections, "FastRequest", Noted)
    return paths


class Talk:
    """One connection."""

    def __init__(self, node: Conversation, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._node, self._reader, self.writer = node, reader, writer

    @staticmethod
    async def begin(node: Conversation) -> "Talk":
        talk = Talk(node, *await asyncio.open_connection("127.0.0.1", node.port))
        _begun.append(talk)
        return talk

    async def ask(self, *pieces: bytes) -> Answer:
        """Each piece arrives by itself."""
        for piece in pieces[:-1]:
            self.writer.write(piece)
            await self._node.call("GET", "/healthz")  # what was sent before that was read before
        self.writer.write(pieces[-1])
        return await self.answer()

    async def answer(self) -> Answer:
        async with asyncio.timeout(60):
            return await read_answer(self._reader)


async def session_of(node: Conversation) -> bytes:
    session: str = (await node.call("POST", "/v1/sessions", {"client_id": "c"})).json["session"]
    return session.encode()


def renewal_of(session: bytes, *headers: bytes) -> bytes:
    lines = (b"Host: x", b"Stockade-Session: " + session, *headers)
    return b"PUT /v1/session HTTP/1.1\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def renewal_by_id(session: bytes, *headers: bytes) -> bytes:
    lines = b"".join(line + b"\r\n" for line in headers)
    return b"PUT /v1/sessions/" + session + b" HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n"


RENEWALS = pytest.mark.parametrize("renewal", [renewal_of, renewal_by_id])


def test_appends_and_renewals_in_one_piece_take_the_fast_path_and_get_the_same_answers(
    taken: list[str],
) -> None:
    async def test(node: Conversation) -> None:
        session = await session_of(node)
        renewals = renewal_of(session), renewal_by_id(session)
        talk = await Talk.begin(node)
        for request in (append(b"a"), append(b"b", b"Stockade-If-Log-End: 9"), append(b"c", b"X: y"), *renewals):
            before = len(taken)
            short = await talk.ask(request)
            assert len(taken) == before + 1
            long = await (await Talk.begin(node)).ask(request[:20], request[20:])
            assert len(taken) == before + 1
            assert short.status == long.status
            assert set(long.headers) - {"Server"} == set(short.headers)
            assert short.json.keys() == long.json.keys()
        assert await node.values() == ["a", "a", "c", "c"]
        counted = (await node.call("GET", "/metrics", valid=False)).body
        assert b'route="/v1/session",status="200"} 2.0' in counted
        assert b'route="/v1/sessions/{session}",status="200"} 2.0' in counted
        assert session not in counted

    run(test)


def test_a_connection_alternates_between_fast_path_and_aiohttp_while_each_requests_end_is_known(
    taken: list[str],
) -> None:
    async def test(node: Conversation) -> None:
        talk = await Talk.begin(node)
        assert (await talk.ask(append(b"1"))).status == 200
        assert (await talk.ask(HEALTH)).status == 200
        assert (await talk.ask(append(b"22")[:-2], b"2", b"2")).status == 200
        assert (await talk.ask(append(b"3"))).status == 200
        assert len(taken) == 2

    run(test)


def test_a_fast_client_returns_to_the_fast_path(taken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    finish = FastConnection.finish_response

    async def eager(handler: FastConnection, *request: Any) -> Any:
        """The next request is there before aiohttp waits for it."""
        found = await finish(handler, *request)
        handler._loop.call_soon(handler.data_received, append(b"a"))
        return found

    async def test(node: Conversation) -> None:
        talk = await Talk.begin(node)
        monkeypatch.setattr(FastConnection, "finish_response", eager)
        assert (await talk.ask(HEALTH)).status == 200
        assert (await talk.answer()).json["base_offset"] == 0
        assert taken == [RECORDS]

    run(test)


def test_bytes_of_a_body_are_never_taken_for_a_request(taken: list[str]) -> None:
    async def test(node: Conversation) -> None:
        inner = append(b"inner")
        for pieces in (
            [append(inner)[: -len(inner)], inner],
            [HEALTH + append(inner)[: -len(inner)], inner],
            [START + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(inner), inner, b"\r\n0\r\n\r\n"],
            [append(inner)[:30], append(inner)[30 : -len(inner)], inner],
        ):
            talk = await Talk.begin(node)
            answer = await talk.ask(*pieces)
            if pieces[0].startswith(HEALTH):
                answer = await talk.answer()
            assert answer.status == 200
        assert await node.values() == inner.decode().splitlines() * 4
        assert taken == []

    run(test)


def test_bytes_that_arrive_during_an_answer_wait_for_its_end(taken: list[str]) -> None:
    async def test(node: Conversation) -> None:
        talk = await Talk.begin(node)
        for value in b"abc":
            talk.writer.write(append(bytes((value,))))
            await asyncio.sleep(0)
        talk.writer.write(HEALTH)
        answers = [await talk.answer() for _ in range(4)]
        assert [answer.json["base_offset"] for answer in answers[:3]] == [0, 1, 2]
        assert answers[3].status == 200
        assert await node.values() == ["a", "b", "c"]

    run(test)


def test_an_append_whose_client_went_away_is_finished(taken: list[str]) -> None:
    async def test(node: Conversation) -> None:
        talk = await Talk.begin(node)
        talk.writer.write(append(b"a"))
        talk.writer.close()
        found = await node.call("GET", f"{RECORDS}?offset=0&max_wait_ms=30000")
        assert [record["value"] for record in found.json["records"]] == ["a"]

    run(test)


def test_a_request_on_the_fast_path_is_forwarded_like_any_other(taken: list[str]) -> None:
    async def main() -> None:
        async with nodes(2) as (one, two):
            await one.topic()
            talk = await Talk.begin(two)
            answer = await talk.ask(append(b"a", b"Stockade-If-Log-End: 0"))
            assert (answer.status, answer.headers["Stockade-Leader"]) == (200, one.url)
            assert (await talk.ask(append(b"a", b"Stockade-Forwarded-By: client"))).status == 421
            assert taken[0] == RECORDS
            await end_talks()

    asyncio.run(main())


@pytest.mark.parametrize(
    "request_bytes",
    [
        append(b"a", b"Expect: 100-continue"),
        append(b"a", b"X: " + b"x" * 600),
        append(b"a", b"Connection: close"),
        append(b"a", b"X: \xc3\xa4"),
        append(b"a", b"X: y", b"x: y"),
        append(b"a").replace(b"POST", b"PUT"),
        append(b"a").replace(b"orders", b"ord%65rs"),
        append(b"a").replace(b"orders", b".."),
        append(b"a").replace(b"records", b"records?acks=all"),
        append(b"a").replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_a_request_that_is_not_plain_is_left_to_aiohttp(request_bytes: bytes, taken: list[str]) -> None:
    async def test(node: Conversation) -> None:
        talk = await Talk.begin(node)
        assert (await talk.ask(request_bytes)).status in (100, 200, 404, 405)
        assert taken == []

    run(test)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"POST / HTTP/1.1\r\nHost: x\r\n",
        b"POST / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nA: b\nC: d\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"POST http://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"post / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\r\nPOST / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: x\r\nProxy-Connection: close\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nStockade-Producer-Seq: 1\r\nStockade-Producer-Seq: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nStockade-Producer-Seq: 1\r\nstockade-producer-seq: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X%d: %0400d\r\n" % (n, n) for n in range(11)) + b"\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(512)) + b"\r\n",
    ],
)
def test_a_head_that_could_be_read_in_two_ways_is_not_read(data: bytes) -> None:
    assert read_head(data) is None


@pytest.mark.parametrize("last", [False, True])
def test_a_sequence_number_is_read_apart_and_the_rest_is_known_from_the_request_before(last: bool) -> None:
    lines = [b"Stockade-Producer-Seq: %d", b"Content-Length: 3"]
    text = b"\r\n".join([b"POST /a HTTP/1.1", b"Host: x", *(reversed(lines) if last else lines)]) + b"\r\n\r\nabc"
    first, second = read_head(text % 7), read_head(text % 1234567890)
    assert first is not None
    assert second is not None
    assert second.template is first.template
    assert (first.value, second.value) == ("7", "1234567890")
    assert dict(second.headers) == {"host": "x", "content-length": "3", "stockade-producer-seq": "1234567890"}
    for head, data in ((first, text % 7), (second, text % 1234567890)):
        assert (data[head.body_start :], head.end) == (b"abc", len(data))


NAMES = st.sampled_from(
    [
        *(b"Host", b"content-length", b"Content-Length", b"X-Y", b"Connection", b"Stockade-Session", b"A "),
        *(b"Stockade-Producer-Seq", b"stockade-producer-seq"),
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        [b"", b"0", b"3", b" 3 ", b"3,3", b"0x3", b"keep-alive", b"close", b"a\tb", b"a b", b"\t", b"\x0b3"]
    ),
    st.binary(max_size=4),
)
HEADS = st.builds(
    lambda method, path, lines, end: method + b" " + path + b" HTTP/1.1\r\nHost: x\r\n" + b"".join(lines) + end,
    st.sampled_from([b"GET", b"POST", b"PUT", b"M-SEARCH", b"PRI", b"CONNECT"]),
    st.sampled_from([b"/", b"/a/b", b"/a?b=c", b"*", b"//x", b"/a#b", b"/%zz"]),
    st.lists(st.builds(lambda name, value: name + b":" + value + b"\r\n", NAMES, VALUES), max_size=4),
    st.sampled_from([b"\r\n", b"\n", b"\r\n\r\n", b""]),
)


@given(
    HEADS,
    st.binary(max_size=6),
    st.sampled_from([b"7", b"12345678901", b"0", b"007", b"", b"1 ", b"-1", b"9\r\nA: b", b"s-1", b"s\r", b"s" * 65]),
    st.sampled_from([b"Stockade-Producer-Seq:", b"Stockade-Session:"]),
)
def test_a_head_that_is_known_is_read_as_if_it_were_not(
    head_bytes: bytes, rest: bytes, number: bytes, name: bytes
) -> None:
    head_bytes = head_bytes.replace(name, name + b" 1")
    first = read_head(head_bytes)
    if first is None:
        return
    pattern = pattern_of(first, head_bytes)
    assert read_again(pattern, head_bytes + rest) == read_head(head_bytes + rest) == first
    other = head_bytes.replace(name + b" 1", name + b" " + number) + rest
    assert read_again(pattern, other) in (None, read_head(other))


def test_a_session_is_read_apart_from_a_renewal_and_from_nothing_else() -> None:
    text = b"%b /v1/session HTTP/1.1\r\nHost: x\r\nStockade-Session: %b\r\n\r\n"
    first, second = read_head(text % (b"PUT", b"s-1")), read_head(text % (b"PUT", b"s-22"))
    assert first is not None
    assert second is not None
    assert second.template is first.template
    assert dict(second.headers) == {"host": "x", "stockade-session": "s-22"}
    again = read_again(pattern_of(first, text % (b"PUT", b"s-1")), text % (b"PUT", b"s-22"))
    assert again == second
    other = read_head(text % (b"POST", b"s-22"))
    assert other is not None
    assert (other.value, dict(other.template.headers)) == (None, {"host": "x", "stockade-session": "s-22"})


@pytest.mark.parametrize("number", [b"2", b"1234567890"])
def test_a_number_that_is_another_one_is_known_again(number: bytes) -> None:
    text = b"POST /a HTTP/1.1\r\nHost: x\r\nStockade-Producer-Seq: %b\r\nContent-Length: 3\r\n\r\nabc"
    first = read_head(text % b"1")
    assert first is not None
    again = read_again(pattern_of(first, text % b"1"), text % number)
    assert again is not None
    assert again == read_head(text % number)


@given(HEADS, st.binary(max_size=6))
def test_where_a_request_ends_is_where_aiohttp_sees_its_end(head_bytes: bytes, rest: bytes) -> None:
    data = head_bytes + rest
    head = read_head(data)
    if head is None or head.end > len(data):
        return

    async def parse() -> None:
        loop = asyncio.get_running_loop()
        protocol = BaseProtocol(loop)
        protocol._parser = parser = HttpRequestParser(protocol, loop, 2**16)
        try:
            ((message, payload),), upgraded, tail = parser.feed_data(data[: head.end])
        except HttpProcessingError:
            return  # aiohttp answers 400 and closes: there is no next request
        assert not upgraded
        assert not tail
        assert payload.is_eof()
        assert (message.method, message.path) == (head.template.method, head.template.path)
        assert {name.lower(): value for name, value in message.headers.items()} == head.headers
        body = await payload.read()
        assert body == data[head.body_start : head.end]

    asyncio.run(parse())


def test_a_header_with_a_line_break_is_refused() -> None:
    with pytest.raises(ValueError, match="line end"):
        serialized(web.Response(headers={"A": "b\r\nC: d"}))


def test_only_frequent_routes_have_a_fast_path() -> None:
    async def test(node: Conversation) -> None:
        found = FastRoutes(
            [],
            Context(
                node.server.front,
                Peers(node.service),
                node.server.metrics,
                BodyReader(),
                Stalls(request_of),
                Boundary(),
                Pulse(),
            ),
        )
        head = read_head(append(b""))
        assert head is not None
        assert found.find(head.template) is None

    run(test)


@RENEWALS
@pytest.mark.parametrize("more", [(), (b"X-Other: 1",), (b"Accept: application/json",)])
def test_a_renewal_with_optional_headers_and_body_gets_the_same_answer(
    taken: list[str], more: tuple[bytes, ...], renewal: Callable[..., bytes]
) -> None:
    async def test(node: Conversation) -> None:
        session = await session_of(node)
        long = await node.call("PUT", f"/v1/sessions/{session.decode()}", {})
        request = renewal(session, *more)
        short = await (await Talk.begin(node)).ask(request)
        assert taken[-1] == request.split()[1].decode()
        assert (short.status, set(short.json)) == (200, set(long.json))
        assert short.json["session"] == session.decode()
        for name in ("Content-Type", "Stockade-Leader", "Stockade-Leader-Term"):
            assert short.headers.get(name) == long.headers.get(name)

    run(test)


@RENEWALS
def test_a_renewal_that_is_refused_is_refused_alike(taken: list[str], renewal: Callable[..., bytes]) -> None:
    async def test(node: Conversation) -> None:
        talking = await Talk.begin(node)
        unknown = await talking.ask(renewal(b"none"))
        assert (unknown.status, unknown.json["code"]) == (404, "UNKNOWN_SESSION")
        assert (await talking.ask(renewal(b"none", b"Accept: text/html"))).json["code"] == "NOT_ACCEPTABLE"
        assert len(taken) == 2

    run(test)


def test_the_session_id_in_the_path_has_precedence_over_the_header(taken: list[str]) -> None:
    async def test(node: Conversation) -> None:
        session = await session_of(node)
        talking = await Talk.begin(node)
        refused = await talking.ask(renewal_by_id(b"none", b"Stockade-Session: " + session))
        assert refused.json["code"] == "UNKNOWN_SESSION"
        renewed = await talking.ask(renewal_by_id(session, b"Stockade-Session: none"))
        assert renewed.json["session"] == session.decode()
        assert len(taken) == 2

    run(test)


@pytest.mark.parametrize(
    ("lines", "status", "reason"),
    [
        (b"", 400, "Stockade-Session: missing"),
        (b"Stockade-Session:\r\n", 404, None),
        (b"Stockade-Session: a b\r\n", 404, None),
        (b"Stockade-Session: " + b"s" * 400 + b"\r\n", 404, None),
        (b"Stockade-Session: none\r\nstockade-session: none\r\n", 400, "Stockade-Session: occurs 2 times"),
        (b"Stockade-Session: none\r\nStockade-Session: none\r\n", 400, "Stockade-Session: occurs 2 times"),
        (b"stockade-session: none\r\n", 404, None),
    ],
)
def test_a_malformed_session_id_gets_the_same_refusal_on_both_paths(
    lines: bytes, status: int, reason: str | None
) -> None:
    async def test(node: Conversation) -> None:
        start = b"PUT /v1/session HTTP/1.1\r\nHost: x\r\n" + lines
        short = await (await Talk.begin(node)).ask(start + b"\r\n")
        long = await (await Talk.begin(node)).ask(start[:20], start[20:] + b"\r\n")
        for answer in (short, long):
            assert (answer.status, answer.json.get("reason")) == (status, reason)
            assert answer.json["code"] == ("UNKNOWN_SESSION" if status == 404 else "INVALID_REQUEST")

    run(test)


def test_renewals_of_many_sessions_over_one_connection_know_the_head_of_the_one_before(
    taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand sessions are renewed over some hundred connections: only the id is read anew."""

    async def test(node: Conversation) -> None:
        sessions = [await session_of(node) for _ in range(5)]
        talking, read = await Talk.begin(node), list[bytes]()

        def noted(data: bytes) -> Any:
            read.append(data)
            return read_head(data)

        monkeypatch.setattr(connections, "read_head", noted)
        for session in [*sessions, *sessions]:
            assert (await talking.ask(renewal_of(session))).json["session"] == session.decode()
        assert (len(read), taken) == (1, ["/v1/session"] * 10)

    run(test)


@RENEWALS
def test_a_bug_on_the_fast_path_of_renewals_is_counted_and_the_routes_handler_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, renewal: Callable[..., bytes]
) -> None:
    async def bug(*_: Any) -> Any:
        raise ZeroDivisionError

    async def test(node: Conversation) -> None:
        session = await session_of(node)
        monkeypatch.setattr(FastRenewals, "_renew", bug)
        assert (await (await Talk.begin(node)).ask(renewal(session))).status == 200
        assert node.server.metrics.fast_path_bugs == 1

    run(test)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_bytes_that_are_no_body_and_end_no_head_are_bounded(more: int, fits: bool) -> None:
    first = b"GET / HTTP/1.1\r\nHost: x\r\nX: "

    async def main() -> None:
        loop = asyncio.get_running_loop()
        connection = cast(FastConnection, BaseProtocol(loop))
        parser = RequestParser(connection, loop, limit=1 << 30, max_line_size=1 << 20, max_field_size=1 << 20)
        for _ in range(3):  # each begins anew
            parser.feed_data(first)
            parser.feed_data(b"x" * (LOOSE_BYTES_MAX - len(first)))
            [(_, body)], *_ = parser.feed_data(b"\r\nContent-Length: 1000000\r\n\r\n")
            for _ in range(100):
                parser.feed_data(b"x" * 10_000)
            assert body.total_bytes == 1_000_000
        parser.feed_data(first)
        with nullcontext() if fits else pytest.raises(LineTooLong):
            parser.feed_data(b"x" * (LOOSE_BYTES_MAX - len(first) + more))

    asyncio.run(main())
