"""Connections with a fast path for small, frequent requests: from the bytes to the route's answer, past aiohttp.

Requests and answers on the fast path are here, too: what its handlers see of a request, and how they answer.

A request takes the fast path if it came in one piece, on a connection on which no other request is in flight, and if
its end is known (parser.py). aiohttp answers all others, with the same answers; it also gets everything on a connection
from the first request on whose end is not known. The fast path decides and checks nothing by itself.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast

from aiohttp import StreamReader, web
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.http_exceptions import LineTooLong
from multidict import CIMultiDict
from yarl import URL

from ...cluster.https import ClientCertificate, ShownCertificate, client_certificate
from ...partition.errors import Unauthenticated
from ..codec import media
from ..endpoint.dispatch import endpoint
from ..request.call import FastPath, RequestHandler, Route
from ..request.context import Context
from ..request.metrics import Metrics
from .parser import HEADS_REMEMBERED_MAX, Head, HeadTemplate, Varying, read_head

PLAIN_HEADERS = frozenset(
    ("host", "accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "user-agent")
)
"""Headers that nothing but the checks of the fast path looks at."""
QUEUED_MAX = 4
"""Requests of one connection that aiohttp has read and not begun to answer. Their heads take a hundred times the bytes
that they came in.
"""
LOOSE_BYTES_MAX = 48 * 1024
"""Bytes in a row that are neither of a body nor end a head: a request line and headers of 16 KiB each fit, with white
space. The piece that is being read comes on top.
"""
LEADERS_REMEMBERED_MAX = 1024
"""Pairs of leader and term whose headers are not written out again."""

_VALUE_BYTES_MAX = 64
_ACCEPT = (None, "*/*", media.JSON)
_SEGMENT = r"([A-Za-z0-9_-][A-Za-z0-9._-]*)"
_PARAMETER = re.compile(r"\{(\w+)\}")


class FastResponse(NamedTuple):
    """A JSON answer. ``head``: its first lines, without the headers that every answer has."""

    head: bytes
    body: bytes
    keep_alive: bool
    status: int = 200


class FastBody(NamedTuple):
    """A body that has come whole, as aiohttp's stream of a body."""

    data: bytes

    def is_eof(self) -> bool:
        return True

    def read_nowait(self) -> bytes:
        return self.data


class FastRequest:
    """As much of ``aiohttp.web.Request`` as the handlers of frequent routes look at."""

    __slots__ = ("_headers", "body", "connection", "head", "match_info")
    raw_headers: tuple[tuple[bytes, bytes], ...] = ()  # the parser has checked their size

    def __init__(self, connection: "FastConnection", head: Head, match_info: dict[str, str], body: bytes) -> None:
        self.connection: FastConnection = connection
        self.head: Head = head
        self._headers: CIMultiDict[str] | None = None
        self.match_info: dict[str, str] = match_info
        self.body: bytes = body

    @property
    def certificate(self) -> ClientCertificate | None:
        """What the client has shown; a request that another node passes on with one is not plain."""
        return None if self.connection.peer_node is not None else self.connection.certificate

    @property
    def remote(self) -> str | None:
        """The address of the client; None: not known."""
        transport = self.connection.transport
        address = None if transport is None else transport.get_extra_info("peername")
        return str(address[0]) if isinstance(address, tuple) else None

    @property
    def method(self) -> str:
        """GET, and the like."""
        return self.head.template.method

    @property
    def raw_path(self) -> str:
        """Path and query, as they came."""
        return self.head.template.path

    @property
    def fields(self) -> Mapping[str, str]:
        """The headers, by name in lower case."""
        return self.head.headers

    @property
    def protocol(self) -> "FastConnection":
        """The connection, as aiohttp names it."""
        return self.connection

    @property
    def content(self) -> FastBody:
        """The body, as a stream that is at its end."""
        return FastBody(self.body)

    @property
    def headers(self) -> CIMultiDict[str]:
        """The headers, by name."""
        if self._headers is None:
            self._headers = CIMultiDict(self.fields)
        return self._headers

    @property
    def content_length(self) -> int:
        """Bytes of the body."""
        return len(self.body)

    @property
    def rel_url(self) -> URL:
        """Path and query, as they came."""
        return URL(self.raw_path, encoded=True)

    @property
    def transport(self) -> asyncio.Transport | None:
        """None when the client is gone."""
        return self.connection.transport

    def answer_by(self, handler: RequestHandler) -> None:
        """Let a handler of aiohttp's kind answer."""
        self.connection.answer_later(handler(cast(web.Request, self)))


class HeadPattern(NamedTuple):
    """The bytes of a head, to recognize it. ``start`` is all of it and ``rest`` None; or they are the bytes before and
    after what varies.
    """

    template: HeadTemplate
    varying: Varying
    start: bytes
    rest: bytes | None


def pattern_of(head: Head, data: bytes) -> HeadPattern:
    """The pattern of the head that was read from ``data``."""
    template, varying, value, body_start, _ = head
    if value is None:
        return HeadPattern(template, varying, data[:body_start], None)
    begin = data.find(varying.start) + len(varying.start)
    return HeadPattern(template, varying, data[:begin], data[begin + len(value) : body_start])


def read_again(pattern: HeadPattern, data: bytes) -> Head | None:
    """The head at the start of ``data``, as ``read_head`` reads it, if it differs in nothing but what varies; else
    None.
    """
    template, varying, start, rest = pattern
    if not data.startswith(start):
        return None
    if rest is None:
        body_start = len(start)
        return Head(template, varying, None, body_start, body_start + template.length)
    stop = data.find(b"\r", len(start), len(start) + _VALUE_BYTES_MAX + 1)
    value = data[len(start) : stop]
    if not (varying.fits(value) and data.startswith(rest, stop)):  # with no end found, there is no such rest
        return None
    body_start = stop + len(rest)
    return Head(template, varying, value.decode(), body_start, body_start + template.length)


class FastRoute(NamedTuple):
    """A route with a fast path. ``names``: its path parameters; ``endpoint`` answers what ``handler`` leaves."""

    pattern: re.Pattern[str]
    names: list[str]
    route: Route
    endpoint: RequestHandler
    handler: FastPath


Found = tuple[FastRoute, dict[str, str]]
"""A route, and the path parameters of a request for it."""


class FastRoutes:
    """The routes of one application that have a fast path."""

    def __init__(self, routes: Iterable[Route], context: Context) -> None:
        self.context: Context = context
        self.metrics: Metrics = context.metrics
        self.find: Callable[[HeadTemplate], Found | None] = lru_cache(HEADS_REMEMBERED_MAX)(self._search)
        """The route of a request; None: it has no fast path."""
        self._by_method: dict[str, list[FastRoute]] = {}
        for route in routes:
            if route.fast is not None:
                pattern = re.compile(_PARAMETER.sub(lambda _: _SEGMENT, route.path))
                general = endpoint(route, context)
                handler = route.fast(route, context, general)
                found = FastRoute(pattern, _PARAMETER.findall(route.path), route, general, handler)
                self._by_method.setdefault(route.method, []).append(found)

    def _search(self, template: HeadTemplate) -> Found | None:
        if "expect" in template.headers:
            return None
        for fast in self._by_method.get(template.method, ()):
            match = fast.pattern.fullmatch(template.path)
            if match is not None:
                return fast, dict(zip(fast.names, match.groups(), strict=True))
        return None


class RequestParser(HttpRequestParser):
    """aiohttp's, with a bound on heads and trailers as a whole: its own on lines and their number leave each 8 MB."""

    def __init__(self, connection: "FastConnection", loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(connection, loop, **options)
        self._body: StreamReader | None = None  # of the last request
        self._body_bytes = 0
        self._loose_bytes = 0

    def feed_data(  # type: ignore[override]  # the parser in C has no further parameters
        self, data: bytes
    ) -> tuple[list[tuple[RawRequestMessage, StreamReader]], bool, bytes]:
        """Called by aiohttp. Raises LineTooLong, and what aiohttp's own does."""
        found: tuple[list[tuple[RawRequestMessage, StreamReader]], bool, bytes] = super().feed_data(data)
        if found[0]:
            self._body = found[0][-1][1]
        came = 0 if self._body is None else self._body.total_bytes
        if found[0] or came != self._body_bytes:
            self._body_bytes, self._loose_bytes = came, 0
        else:
            self._loose_bytes += len(data)
            if self._loose_bytes > LOOSE_BYTES_MAX:
                raise LineTooLong(b"", LOOSE_BYTES_MAX)
        return found


class FastConnection(web.RequestHandler):
    """A connection that takes the fast path whenever it may."""

    __slots__ = (
        *("_began", "_ended", "_held_back", "_idle_s", "_in_flight", "_is_fresh"),
        *("_is_in_step", "_last", "_missing_bytes", "_routes", "_work"),
        *("_certificate", "_head_since_s", "peer_node"),
    )

    def __init__(self, routes: FastRoutes, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self._parser = RequestParser(
            self,
            self._loop,
            limit=self._read_bufsize,
            max_line_size=self.max_line_size,
            max_field_size=self.max_field_size,
            max_headers=self.max_headers,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=QUEUED_MAX,
        )
        self._max_msg_queue_size, self._msg_queue_resume_size = QUEUED_MAX, QUEUED_MAX // 2
        self._routes = routes
        self._idle_s = self.keepalive_timeout
        self._is_fresh = True  # aiohttp has seen nothing yet
        self._is_in_step = True  # every byte so far belongs to a request whose end is known
        self._last: tuple[HeadPattern, FastRoute, dict[str, str]] | None = None  # the last head, and its route
        self._missing_bytes = 0  # of the last request
        self._held_back = b""  # bytes that came while a request was in flight
        self._in_flight: Route | None = None
        self._began = 0.0
        self._head_since_s = 0.0  # when aiohttp got the first bytes of a head whose end it has not seen
        self._work: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._certificate: tuple[ShownCertificate | None] | None = None  # as it was found
        self.peer_node: str | None = None
        """The node at the other end, if it is one: it speaks for the clients whose requests it forwards."""

    @property
    def is_encrypted(self) -> bool:
        """Whether the client speaks TLS with this node."""
        return self.transport is not None and self.transport.get_extra_info("ssl_object") is not None

    @property
    def certificate(self) -> ClientCertificate | None:
        """The verified certificate that the client has shown. Raises Unauthenticated when it has expired since."""
        if self._certificate is None and self.transport is not None:
            self._certificate = (client_certificate(self.transport.get_extra_info("ssl_object")),)
        shown = None if self._certificate is None else self._certificate[0]
        if self.has_expired:
            raise Unauthenticated("the client's certificate has expired: connect again with a new one")
        return None if shown is None else shown.certificate

    @property
    def has_expired(self) -> bool:
        """Whether the certificate that the client has shown has expired since."""
        shown = None if self._certificate is None else self._certificate[0]
        return shown is not None and shown.expires_s <= time.time()

    def data_received(self, data: bytes) -> None:
        """Called by the loop, and with no bytes by aiohttp when it can read on."""
        if self._in_flight is not None:
            self._hold_back(data)  # answers are sent in the order of their requests
        elif data and self._is_in_step and not self._missing_bytes and self._turn() == "ending":
            self._hold_back(data)
            self._loop.call_soon(self._read_on)
        elif not data or not self._is_in_step or not self._take(data):
            self._is_fresh = False
            super().data_received(data)
            if data and not self._messages and not self._request_in_progress and self._head_since_s <= self._rested_s:
                self._head_since_s = self._loop.time()

    @property
    def _rested_s(self) -> float:
        """When the last request was answered, or begun on the fast path, or the connection was opened."""
        return self._next_keepalive_close_time - self._idle_s

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109  # as aiohttp calls it
        """Answer the request in flight first, if that takes no longer than ``timeout`` seconds."""
        if self._in_flight is not None:
            self._ended = self._loop.create_future()
            await asyncio.wait((self._ended,), timeout=timeout)
        await super().shutdown(timeout)

    def _take(self, data: bytes) -> bool:
        """Whether the request takes the fast path."""
        if self._missing_bytes:
            self._missing_bytes -= len(data)
            self._is_in_step = self._missing_bytes >= 0
            return False
        head = None if self._last is None else read_again(self._last[0], data)
        if head is None:
            head = read_head(data)
            found = None if head is None else self._routes.find(head.template)
            if head is not None and found is not None and not self._may_ask(head.template.headers["host"]):
                found = None
            self._last = None if head is None or found is None else (pattern_of(head, data), *found)
        if head is None or head.end < len(data):
            self._is_in_step = False
            return False
        self._missing_bytes = head.end - len(data)
        if self._last is None or self._missing_bytes or self.writing_paused or self._turn() != "idle":
            return False
        _, fast, path_parameters = self._last
        request = FastRequest(self, head, path_parameters, data[head.body_start :])
        self._routes.context.stalls.touch()
        self._in_flight, self._began = fast.route, self._loop.time()
        self._next_keepalive_close_time = self._began + self._idle_s
        if not fast.handler.start(request):
            request.answer_by(fast.endpoint)
        return True

    def _may_ask(self, host: str) -> bool:
        """Whether the Host is not refused (boundary.py). A request with an Origin is not plain."""
        context = self._routes.context
        return not context.front.access.is_open or context.boundary.is_safe(host) or self.is_encrypted

    def answer_later(self, work: Awaitable[web.StreamResponse | FastResponse]) -> None:
        """Send the answer that ``work`` returns. A request is answered once, by this or by ``answer``."""
        self._work = self._loop.create_task(self._await(work))

    async def _await(self, work: Awaitable[web.StreamResponse | FastResponse]) -> None:
        try:
            response = await work
        except BaseException:
            self._end()
            raise
        self.answer(cast(web.Response | FastResponse, response))

    def answer(self, response: web.Response | FastResponse) -> None:
        """Send this, and read what came meanwhile."""
        route = self._in_flight
        assert route is not None, "answered before"
        try:
            answer = serialized(response)
            if self.transport is not None and not self.transport.is_closing():
                self.transport.write(answer)
                if response.keep_alive is False:
                    self.force_close()
            now = self._loop.time()
            self._next_keepalive_close_time = now + self._idle_s
            self._routes.metrics.answered(route.method, route.path, response.status, now - self._began, len(answer))
        finally:
            self._end()

    def _end(self) -> None:
        self._in_flight = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        if self._held_back:
            self._read_on()

    def _turn(self) -> Literal["idle", "busy", "ending"]:
        """What aiohttp does on this connection: it waits for a request (or has seen none yet), or works or closes, or
        has answered and will wait for the next request in a moment. In that moment the next request is held back:
        aiohttp would answer it otherwise, and a fast client would never get back to the fast path.
        """
        if self._close or self._force_close or self.transport is None or self.transport.is_closing():
            return "busy"
        waiter = self._waiter
        if self._is_fresh or (waiter is not None and not waiter.done() and not self._messages):
            return "idle"
        return "busy" if waiter is not None or self._messages or self._request_in_progress else "ending"

    def _hold_back(self, data: bytes) -> None:
        self._held_back += data
        if self.transport is not None:
            self.transport.pause_reading()

    def _read_on(self) -> None:
        """Read what was held back."""
        data, self._held_back = self._held_back, b""
        if data:
            if self.transport is not None:
                self.transport.resume_reading()
            self.data_received(data)


def serialized(response: web.Response | FastResponse) -> bytes:
    """An answer as it is sent. Raises ValueError for a header that would end its line."""
    body = response.body or b""
    assert isinstance(body, bytes), "a frequent route answers with bytes"
    if isinstance(response, FastResponse):
        head = response.head
    else:
        head = head_of(response.status, response.reason, response.headers.items())
    if response.keep_alive is False:
        head += b"Connection: close\r\n"
    return b"%sContent-Length: %d\r\nDate: %s\r\n\r\n%s" % (head, len(body), rfc822_formatted_time().encode(), body)


def is_plain(headers: Mapping[str, str], names: frozenset[str] = PLAIN_HEADERS) -> bool:
    """Whether all headers are among ``names`` (in lower case), and the client accepts JSON."""
    return names.issuperset(headers) and headers.get("accept") in _ACCEPT


def head_of(status: int, reason: str | None, headers: Iterable[tuple[str, str]]) -> bytes:
    """The first lines of an answer. Raises ValueError for a header that would end its line."""
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers), ""]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError("a header has a line end in it")
    return "\r\n".join(lines).encode()


@lru_cache(LEADERS_REMEMBERED_MAX)
def head_led_by(url: str, term: int) -> bytes:
    """The first lines of a JSON answer, 200, that the leader with this base URL decided in this term."""
    headers = {
        "Content-Type": media.JSON,
        "Stockade-Leader": url,
        "Stockade-Leader-Term": str(term),
    } | media.NO_SNIFFING
    return head_of(200, "OK", headers.items())
