"""Connections with a fast path for small, frequent requests: from the bytes to the route's answer, past aiohttp.

The requests and answers of the fast path are here, too: what its handlers see of a request, and how they answer.

A request takes the fast path if it came in one piece, no other request is in flight on its connection, and its end is
known (parser.py). aiohttp answers all other requests, with the same answers. From the first request whose end is not
known, aiohttp gets everything on that connection. The fast path itself decides nothing and checks nothing.
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
"""Headers, in lower case, that a plain request may have: beside the fast path's own checks, no code reads them."""
QUEUED_MAX = 4
"""Most pipelined requests of one connection that aiohttp parses before it begins to answer them: a parsed head takes a
hundred times the memory of its bytes.
"""
LOOSE_BYTES_MAX = 48 * 1024
"""Most bytes in a row that neither belong to a body nor end a head (request line and headers, or trailers): 16 KiB each
for request line and headers fit, with white space. The chunk that is being parsed comes on top.
"""
LEADERS_REMEMBERED_MAX = 1024
"""Pairs of leader and term for which the head of an answer is cached."""

_VALUE_BYTES_MAX = 64
_ACCEPT = (None, "*/*", media.JSON)
_SEGMENT = r"([A-Za-z0-9_-][A-Za-z0-9._-]*)"
_PARAMETER = re.compile(r"\{(\w+)\}")


class FastResponse(NamedTuple):
    """A JSON answer. ``head``: status line and headers, without Content-Length and Date, which every answer gets."""

    head: bytes
    body: bytes
    keep_alive: bool
    status: int = 200


class FastBody(NamedTuple):
    """A body that has come whole, with those methods of aiohttp's StreamReader that ``Call`` uses."""

    data: bytes

    def is_eof(self) -> bool:
        return True

    def read_nowait(self) -> bytes:
        return self.data


class FastRequest:
    """A request on the fast path: those attributes of ``aiohttp.web.Request`` that handlers of frequent routes use."""

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
        """The certificate that the client has shown. None for a forwarded request: one with a certificate is not plain,
        and so does not come here.
        """
        return None if self.connection.peer_node is not None else self.connection.certificate

    @property
    def remote(self) -> str | None:
        """The address of the client; None: not known."""
        transport = self.connection.transport
        address = None if transport is None else transport.get_extra_info("peername")
        return str(address[0]) if isinstance(address, tuple) else None

    @property
    def method(self) -> str:
        """The HTTP method, in capitals."""
        return self.head.template.method

    @property
    def raw_path(self) -> str:
        """Path and query, as they were sent."""
        return self.head.template.path

    @property
    def fields(self) -> Mapping[str, str]:
        """The headers, by name in lower case."""
        return self.head.headers

    @property
    def protocol(self) -> "FastConnection":
        """The connection, under aiohttp's name for it."""
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
        """Path and query, as they were sent."""
        return URL(self.raw_path, encoded=True)

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection's transport; None when the client is gone."""
        return self.connection.transport

    def answer_by(self, handler: RequestHandler) -> None:
        """Let a handler with aiohttp's signature answer."""
        self.connection.answer_later(handler(cast(web.Request, self)))


class HeadPattern(NamedTuple):
    """The bytes by which the next head of a client is recognized. ``start`` and ``rest`` are the bytes before and after
    the value of ``varying``; without such a value ``start`` is the whole head, and ``rest`` None.
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
    """The head at the start of ``data``, as ``read_head`` reads it; None if it differs from the pattern's head in more
    than the value of ``varying``.
    """
    template, varying, start, rest = pattern
    if not data.startswith(start):
        return None
    if rest is None:
        body_start = len(start)
        return Head(template, varying, None, body_start, body_start + template.length)
    stop = data.find(b"\r", len(start), len(start) + _VALUE_BYTES_MAX + 1)
    value = data[len(start) : stop]
    if not (varying.fits(value) and data.startswith(rest, stop)):  # without an end (stop -1), rest does not match
        return None
    body_start = stop + len(rest)
    return Head(template, varying, value.decode(), body_start, body_start + template.length)


class FastRoute(NamedTuple):
    """A route with a fast path. ``names``: its path parameters; ``endpoint`` answers requests that ``handler`` does not
    begin.
    """

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
        """The route and path parameters for a head, cached; None: such a request has no fast path."""
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
    """aiohttp's parser, with a bound on heads and trailers as a whole: its own bounds, on the length and the number of
    lines, let each grow to 8 MB.
    """

    def __init__(self, connection: "FastConnection", loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(connection, loop, **options)
        self._body: StreamReader | None = None  # of the last request
        self._body_bytes = 0  # of that body, so far
        self._loose_bytes = 0  # since the last head that ended, or byte of a body: see LOOSE_BYTES_MAX

    def feed_data(  # type: ignore[override]  # the parser in C has no further parameters
        self, data: bytes
    ) -> tuple[list[tuple[RawRequestMessage, StreamReader]], bool, bytes]:
        """Called by aiohttp. Raises LineTooLong beyond LOOSE_BYTES_MAX, and the errors of aiohttp's own parser."""
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
    """A connection that routes each request to the fast path if it may, otherwise to aiohttp.

    Invariant: at most one of them works on the connection at a time, so answers keep the order of their requests.
    """

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
        self._is_fresh = True  # aiohttp has been given no bytes yet
        self._is_in_step = True  # every byte so far belongs to a request whose end is known
        self._last: tuple[HeadPattern, FastRoute, dict[str, str]] | None = None  # the last head, and its route
        self._missing_bytes = 0  # of the last request's body: not received yet
        self._held_back = b""  # bytes that came while a request was in flight
        self._in_flight: Route | None = None
        self._began = 0.0
        self._head_since_s = 0.0  # when aiohttp was given the first bytes of a head that is not whole yet
        self._work: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._certificate: tuple[ShownCertificate | None] | None = None  # None: not looked up yet; (None,): none shown
        self.peer_node: str | None = None
        """The id of the node at the other end, whose headers about its clients are trusted; None: the other end is a
        client.
        """

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
        """Called by the loop with what came, and by aiohttp with no bytes when it can read on after a pause."""
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
        """The latest of three times: the connection was opened, a request began on the fast path, one was answered."""
        return self._next_keepalive_close_time - self._idle_s

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109  # as aiohttp calls it
        """Answer the request in flight first, if that takes no longer than ``timeout`` seconds."""
        if self._in_flight is not None:
            self._ended = self._loop.create_future()
            await asyncio.wait((self._ended,), timeout=timeout)
        await super().shutdown(timeout)

    def _take(self, data: bytes) -> bool:
        """Begin the request in ``data`` on the fast path. False: aiohttp must be given ``data``."""
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
        """Whether boundary.py accepts the Host. A request with an Origin is not plain: Origin needs no check."""
        context = self._routes.context
        return not context.front.access.is_open or context.boundary.is_safe(host) or self.is_encrypted

    def answer_later(self, work: Awaitable[web.StreamResponse | FastResponse]) -> None:
        """Send the answer that ``work`` will return. A request is answered once, by this method or by ``answer``."""
        self._work = self._loop.create_task(self._await(work))

    async def _await(self, work: Awaitable[web.StreamResponse | FastResponse]) -> None:
        try:
            response = await work
        except BaseException:
            self._end()
            raise
        self.answer(cast(web.Response | FastResponse, response))

    def answer(self, response: web.Response | FastResponse) -> None:
        """Send the answer to the request in flight, then read the bytes that were held back meanwhile."""
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
        """The state of aiohttp. ``idle``: it waits for a request, or has not been given one; ``busy``: it works on a
        request, or closes; ``ending``: it has answered, and becomes idle in a moment. Until then the next request is
        held back: otherwise aiohttp would answer it, and a fast client would never return to the fast path.
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
        """Process the bytes that were held back, and resume reading."""
        data, self._held_back = self._held_back, b""
        if data:
            if self.transport is not None:
                self.transport.resume_reading()
            self.data_received(data)


def serialized(response: web.Response | FastResponse) -> bytes:
    """The bytes of an answer. Raises ValueError for a header with a line break."""
    body = response.body or b""
    assert isinstance(body, bytes), "a frequent route answers with bytes"
    if isinstance(response, FastResponse):
        head = response.head
    else:
        head = head_of(response.status, response.reason, response.headers.items())
    if response.keep_alive is False:
        head += b"Connection: close\r\n"
    return b"%sContent-Length: %d\r\nDate: %s\r\n\r\n%s" % (head, len(body), rfc822_formatted_time().encode(), body)


def is_plain(headers: Mapping[str, str], names: frozenset[str]) -> bool:
    """Whether all headers are among ``names`` (in lower case), and the client accepts JSON."""
    return names.issuperset(headers) and headers.get("accept") in _ACCEPT


def head_of(status: int, reason: str | None, headers: Iterable[tuple[str, str]]) -> bytes:
    """The status line and headers of an answer. Raises ValueError for a header with a line break."""
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers), ""]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError("a header has a line end in it")
    return "\r\n".join(lines).encode()


@lru_cache(LEADERS_REMEMBERED_MAX)
def head_led_by(url: str, term: int) -> bytes:
    """Status line and headers of a 200 with JSON that the leader with this base URL decided in this term."""
    headers = {
        "Content-Type": media.JSON,
        "Stockade-Leader": url,
        "Stockade-Leader-Term": str(term),
    } | media.NO_SNIFFING
    return head_of(200, "OK", headers.items())
