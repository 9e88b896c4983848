"""The HTTP server under the application: its settings, its connections, and problems for bytes that are no request."""

import asyncio
import logging
from typing import cast

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from ..partition.errors import (
    HeadersTooLarge,
    InternalError,
    InvalidRequest,
    StockadeError,
    ThrottlingQuotaExceeded,
)
from .codec import problems
from .codec.parameters import printable
from .endpoint.dispatch import HEADER_BYTES_MAX
from .fast_path.connection import FastConnection, FastRoutes, serialized
from .fast_path.parser import HEADERS_MAX
from .library import check_library
from .request.call import SLOWEST_BYTES_PER_S, STALL_S, SentPast, reset
from .request.connections import FIRST_BYTE_S, HEAD_S, ClientConnection, Connections
from .request.metrics import AccessLogger, access_log

IDLE_S = 75.0
"""A connection without a request is closed this long after its last answer."""
STUCK_S = 5.0
"""When a client has taken an answer more slowly than SLOWEST_BYTES_PER_S for so long, its connection counts as idle:
it may be closed to make room for a new one.
"""
ADDED_HEADERS_MAX = 8
"""Most header lines that a node adds to a request that it forwards."""
REFUSED_RETRY_MS = 1000
"""Time after which a client whose connection was refused may try again."""

_TOO_MANY = "Too many headers"
_log = logging.getLogger(__name__)
check_library(aiohttp.__version__)


class HttpRunner(web.AppRunner):
    """Runs the application with connections that have a fast path."""

    def __init__(self, app: web.Application, drain_s: float, routes: FastRoutes, connections: Connections) -> None:
        """``drain_s``: time in which requests in flight must finish when the server is closed."""
        super().__init__(
            app,
            access_log_class=AccessLogger,
            access_log=access_log,
            shutdown_timeout=drain_s,
            keepalive_timeout=IDLE_S,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
            auto_decompress=False,
        )
        self.connections: Connections = connections
        self._routes = routes

    def connection_of(self, node_id: str) -> web.RequestHandler | None:
        """The protocol for a connection that the node ``node_id`` has opened, authenticated as that node. None: the
        server has stopped.
        """
        if self.server is None:
            return None
        connection = self.new_connection(max_headers=HEADERS_MAX + ADDED_HEADERS_MAX)
        connection.peer_node = node_id
        return connection

    def new_connection(self, **options: object) -> "HttpConnection":
        """The protocol of a client connection that is about to be made, with these options in place of the server's
        own. The server must run.
        """
        assert isinstance(self.server, _HttpConnections), "the server runs"
        return self.server.made(options)

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _HttpConnections(made, self._routes, self.connections, self._kwargs)


class _HttpConnections(web.Server):
    """The connection factory of an application, as aiohttp makes it, but for HttpConnection in place of its class."""

    def __init__(
        self, made: web.Server, routes: FastRoutes, connections: Connections, options: dict[str, object]
    ) -> None:
        super().__init__(made.request_handler, request_factory=made.request_factory)
        self._routes = routes
        self._open = connections
        self._options = options

    def __call__(self) -> web.RequestHandler:
        return self.made({})

    def made(self, options: dict[str, object]) -> "HttpConnection":
        """A connection with these options in place of the server's own."""
        return HttpConnection(self._open, self._routes, self, loop=self._loop, **(self._options | options))


class HttpConnection(FastConnection):
    """A server connection. It answers bytes that are no HTTP request, and errors outside every handler, with a problem
    document. It is counted among the client connections unless another node has opened it.
    """

    __slots__ = ("_held_up_s", "_open", "_past", "_unsent_bytes", "_wire", "handshake")

    def __init__(self, connections: Connections, routes: FastRoutes, manager: web.Server, **options: object) -> None:
        super().__init__(routes, manager, **options)
        self._open = connections
        self._wire: asyncio.Transport | None = None  # aiohttp forgets its own before the last bytes are sent
        self._held_up_s: float | None = None  # when the client stopped taking bytes
        self._unsent_bytes = 0  # in the write buffer at _held_up_s
        self._past: SentPast | None = None
        self.handshake: ClientConnection | None = None
        """The TLS handshake that is counted until this connection takes its place; None: there was none."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop; with TLS, after the handshake."""
        super().connection_made(transport)
        self._wire = cast(asyncio.Transport, transport)
        if self.peer_node is not None:
            return
        if self.handshake is not None:
            if not self._open.replaced(self.handshake, self):
                self.evict()
            return
        host, *_ = transport.get_extra_info("peername") or ("unknown address",)
        if not self._open.opened(self, host, transport.get_extra_info("socket").fileno()):
            text = "this node has as many connections as it takes"
            refused = self._last_answer(ThrottlingQuotaExceeded(text, retry_after_ms=REFUSED_RETRY_MS))
            self._wire.write(serialized(refused))
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the loop."""
        self._open.closed(self)
        self._wire, self._held_up_s = None, None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Called by the loop when the client does not take what is sent: aiohttp would wait without a limit."""
        super().pause_writing()
        self._hold_up(self._loop.time())

    def resume_writing(self) -> None:
        """Called by the loop."""
        super().resume_writing()
        self._held_up_s = None

    def _hold_up(self, now_s: float) -> None:
        self._held_up_s, self._unsent_bytes = now_s, self._unsent()

    def send_past(self, part: SentPast | None) -> None:
        """Count the bytes that are sent past the transport from now on; None: they are sent."""
        self._past = part
        self._held_up_s = None
        if part is not None:
            self._hold_up(self._loop.time())

    def _unsent(self) -> int:
        wire = self._wire
        past = 0 if self._past is None else self._past.left
        return past if wire is None or wire.is_closing() else past + wire.get_write_buffer_size()

    @property
    def has_asked(self) -> bool:
        """Whether this connection has received a whole request."""
        return self._began > 0 or self._request_count > 0

    @property
    def is_idle(self) -> bool:
        """Whether the connection may be closed for a new one: it answers no request, or its client has taken the answer
        more slowly than SLOWEST_BYTES_PER_S for STUCK_S or longer.
        """
        if self._rests:
            return True
        now_s = self._loop.time()
        if self._held_up_s is None or now_s - self._held_up_s < STUCK_S:
            return False
        return self._unsent_bytes - self._unsent() < (now_s - self._held_up_s) * SLOWEST_BYTES_PER_S

    @property
    def _rests(self) -> bool:
        return self._in_flight is None and self._turn() == "idle"

    def overdue(self, now_s: float) -> str | None:
        """The time limit that the connection has exceeded, None if none: ``silent`` (it never sent a request), ``head``
        (the headers of a request did not come whole), ``idle``, or ``stalled`` (the client does not take an answer).
        """
        if self._held_up_s is None and self._wire is not None and self._wire.is_closing():
            self._hold_up(now_s)
        if self._held_up_s is not None:
            time_s = STALL_S + self._unsent_bytes / SLOWEST_BYTES_PER_S
            return "stalled" if now_s - self._held_up_s >= time_s else None
        if not self._rests:
            return None
        if self._head_since_s > self._rested_s:
            return "head" if now_s - self._head_since_s >= HEAD_S else None
        waited_s = now_s - self._rested_s
        if waited_s >= FIRST_BYTE_S and not self.has_asked:
            return "silent"
        return "idle" if waited_s >= IDLE_S else None

    def evict(self) -> None:
        """Close the connection now, and drop the bytes that wait to be sent."""
        wire = self._wire
        if wire is None:
            return
        if self._held_up_s is None or wire.is_closing():
            wire.abort()
        else:
            reset(wire)
        if self._past is not None:
            self._past.stop()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Called by aiohttp to answer an error outside every handler; the connection is closed after the answer."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        if not isinstance(exc, HttpProcessingError):
            _log.error("a request failed outside its handler", exc_info=exc)
        return self._last_answer(_refusal(exc))

    def _last_answer(self, refusal: StockadeError) -> web.Response:
        """The answer to a refusal outside every handler, counted; the connection is closed after it."""
        self._routes.metrics.refused(refusal.code)
        response = problems.answer(problems.document(refusal))
        response.force_close()
        return response


def _refusal(error: BaseException | None) -> StockadeError:
    if _TOO_MANY in str(error):
        return HeadersTooLarge(f"the headers have more than {HEADERS_MAX} lines", limit=HEADER_BYTES_MAX)
    if isinstance(error, LineTooLong):
        return HeadersTooLarge(limit=HEADER_BYTES_MAX)
    if isinstance(error, HttpProcessingError):
        return InvalidRequest(f"not HTTP: {printable(error.message)}")
    return InternalError()
