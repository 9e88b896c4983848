"""The HTTP server under the application: its settings, its connections, and problems for bytes that are no request."""

import logging

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from ..partition.errors import HeadersTooLarge, InternalError, InvalidRequest, StockadeError
from .codec import problems
from .codec.parameters import printable
from .endpoint.dispatch import HEADER_BYTES_MAX
from .fast_path.connection import FastConnection, FastRoutes
from .fast_path.parser import HEADERS_MAX
from .library import check_library
from .request.metrics import AccessLogger, access_log

IDLE_S = 75.0
"""A connection without a request for so long is closed; also one whose request's headers do not end."""

_TOO_MANY = "Too many headers"
_log = logging.getLogger(__name__)
check_library(aiohttp.__version__)


class HttpRunner(web.AppRunner):
    """Runs the application with connections that have a fast path."""

    def __init__(self, app: web.Application, drain_s: float, routes: FastRoutes) -> None:
        """``drain_s`` bounds how long requests under way may take to finish when the server is closed."""
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
        self._routes = routes

    def connection_of(self, node_id: str) -> web.RequestHandler | None:
        """Serves a connection that another node has opened, and whose other end is surely that node; None: stopped."""
        if self.server is None:
            return None
        connection = self.server()
        assert isinstance(connection, FastConnection)
        connection.peer_node = node_id
        return connection

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _HttpConnections(made, self._routes, self._kwargs)


class _HttpConnections(web.Server):
    """The factory of connections that aiohttp makes for an application, with another class of connections."""

    def __init__(self, made: web.Server, routes: FastRoutes, options: dict[str, object]) -> None:
        super().__init__(made.request_handler, request_factory=made.request_factory)
        self._routes = routes
        self._options = options

    def __call__(self) -> web.RequestHandler:
        return HttpConnection(self._routes, self, loop=self._loop, **self._options)


class HttpConnection(FastConnection):
    """A connection that answers bytes that are no request, and errors outside every handler, with a problem
    document.
    """

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Called by aiohttp; the connection is closed after the answer."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        if not isinstance(exc, HttpProcessingError):
            _log.error("a request failed outside its handler", exc_info=exc)
        response = problems.answer(problems.document(_refusal(exc)))
        response.force_close()
        return response


def _refusal(error: BaseException | None) -> StockadeError:
    if isinstance(error, LineTooLong) or _TOO_MANY in str(error):
        return HeadersTooLarge(limit=HEADER_BYTES_MAX)
    if isinstance(error, HttpProcessingError):
        return InvalidRequest(f"not HTTP: {printable(error.message)}")
    return InternalError()
