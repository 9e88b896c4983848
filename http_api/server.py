"""The HTTP server under the application: problem documents for what is not even a request."""

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from ..partition.errors import HeadersTooLarge, InternalError, InvalidRequest, StockadeError
from . import problems
from .dispatch import HEADER_BYTES_MAX
from .framing import HEADERS_MAX
from .lane import Lane, LaneHandler
from .metrics import AccessLogger, access_log
from .parameters import printable

IDLE_S = 75.0
"""A connection without a request for so long is closed; also one whose request's headers do not end."""

_TOO_MANY = "Too many headers"
_log = logging.getLogger(__name__)


class Runner(web.AppRunner):
    """Runs the application with ProblemHandler for connections."""

    def __init__(self, app: web.Application, drain_s: float, lane: Lane) -> None:
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
        self._lane = lane

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(made, self._lane, self._kwargs)


class _Server(web.Server):
    """As the one that aiohttp makes for an application, except for the class of its connections."""

    def __init__(self, made: web.Server, lane: Lane, options: dict[str, object]) -> None:
        super().__init__(made.request_handler, request_factory=made.request_factory)
        self._lane = lane
        self._options = options

    def __call__(self) -> web.RequestHandler:
        return ProblemHandler(self._lane, self, loop=self._loop, **self._options)


class ProblemHandler(LaneHandler):
    """A connection that answers what it cannot read, and what went wrong outside every handler, with a
    problem document.
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
