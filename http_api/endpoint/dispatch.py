"""From a route to its answer: the common checks, the handler, and the answer to a refusal.

Every exception ends here. A StockadeError is answered as a problem document; any other exception is a bug, logged with
the request's id and answered as INTERNAL_ERROR. A client that closes its connection is not counted as an error.
"""

import logging
import secrets
from collections.abc import Awaitable
from urllib.parse import parse_qsl, unquote

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.typedefs import Middleware

from ...cluster.front.front import retry_at_leader, without_frames
from ...partition.errors import (
    HeadersTooLarge,
    InconsistentTopicId,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    NotLeaderOrFollower,
    StockadeError,
    Unauthenticated,
    UnknownTopicOrPartition,
)
from ..codec import media, problems
from ..codec.parameters import Parameters, is_utf8
from ..request.call import Call, RequestHandler, Route, leader_named_by
from ..request.context import Context
from ..request.metrics import NO_ROUTE, OBSERVATION, Observation
from ..request.tracing import TRACEPARENT, traced
from .forwarding import forward

HEADER_BYTES_MAX = 16 * 1024
"""Most bytes of all headers of a client's request. Forwarded requests are exempt: the node adds its own headers."""

ELSEWHERE = "/{elsewhere}"
"""The path template of the fallback route, which requests without a route get."""
LARGE_BYTES = 64 * 1024
"""Answers with bodies up to this size are left to aiohttp, because their bodies go to the kernel at once."""
PIECE_BYTES = 32 * 1024
"""Larger bodies are sent in pieces of this size: what is encrypted and not taken is in memory once for each client, and
a stranger may ask for the contract, of half a megabyte, on thousands of connections.
"""
CLIENT_GONE = 499
"""Status, in the log and the metrics only, of a request whose client closed the connection before the answer."""

_VERSIONS = (HttpVersion10, HttpVersion11)
_CHUNKED = "chunked"
_LINE_EXTRA = len(": \r\n")
_log = logging.getLogger(__name__)


def endpoint(route: Route, context: Context) -> RequestHandler:
    """The aiohttp handler of a route."""

    async def answer(request: web.Request) -> web.StreamResponse:
        call = Call(request, context, route)
        answering = conclude(call, _handle(call))
        if TRACEPARENT not in request.headers:
            return await answering
        return await traced(request.headers, route.method, route.path, answering)

    return answer


async def conclude(call: Call, work: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    """The answer that ``work`` returns, or the problem document of its error. Gives back all that the call held."""
    route, front = call.route, call.front
    try:
        response = await work
    except StockadeError as refusal:
        response = _refuse(call, without_frames(refusal))
    except Exception as error:
        if isinstance(error, ConnectionError) and call.is_gone():
            return call.stream or web.Response(status=CLIENT_GONE)
        _log.exception("request %s (%s %s) met a bug", call.id, route.method, route.path)
        response = _refuse(call, InternalError())
    finally:
        front.in_flight.give_back(call.held_requests, call.held_body_bytes, call.held_answer_bytes)
        if call.held_for is not None:
            call.held_for.held_requests -= call.held_requests
            call.held_for.held_body_bytes -= call.held_body_bytes
            call.held_for.held_answer_bytes -= call.held_answer_bytes
    if not response.prepared:
        response.headers.update(media.NO_SNIFFING)
        for name, value in call.leader_headers().items():
            response.headers.setdefault(name, value)
        if front.is_leaving:
            response.force_close()  # a request that arrives while connections are closed has an unknown outcome
    return response


async def _handle(call: Call) -> web.StreamResponse:
    """Check in the contract's order: size of the headers, Host and Origin, rights and quota, parameters, Accept. Then
    call the handler, or forward the request to the leader.
    """
    request, route = call.request, call.route
    if route.needs is not None:
        if route.is_metered:
            call.front.in_flight.take(requests=1)
        else:
            call.front.in_flight.take_spare()
        call.held_requests = 1
    raw_headers = request.raw_headers
    header_bytes = sum(len(name) + len(value) + _LINE_EXTRA for name, value in raw_headers) if raw_headers else 0
    if header_bytes > HEADER_BYTES_MAX and call.peer_node is None:
        raise HeadersTooLarge(limit=HEADER_BYTES_MAX)
    if route.checks_page:
        is_open = call.front.access.is_open
        call.context.boundary.check(request.headers, is_open=is_open, is_encrypted=lambda: call.is_encrypted)
    if route.needs is not None:
        route.check(call.caller, request.match_info)
        call.admit()
    if "%" in request.raw_path and not is_utf8(unquote(request.raw_path.partition("?")[0], errors="surrogateescape")):
        raise InvalidRequest("path: not UTF-8")  # aiohttp would keep such an escape as a part of the name
    query = _query(request.rel_url.raw_query_string) if "?" in request.raw_path else ()
    call.parameters = Parameters(request.match_info, query, request.headers.items(), route.query, route.repeated)
    if route.answers_json:
        media.choose(",".join(request.headers.getall("Accept", ())), (media.JSON,))
    response = await retry_at_leader(call, lambda: route.handler(call), lambda moved: forward(call, moved))
    if isinstance(response, web.Response) and isinstance(response.body, bytes) and len(response.body) > LARGE_BYTES:
        # Answers open to callers without a principal are in memory once, for all of them. Records were counted as they
        # were read, and what another node has answered as it came. The answer to a mutating request is sent in any
        # case: a refusal would say that the request had no effect.
        is_counted = route.needs is not None and not call.held_answer_bytes
        if is_counted and route.method == "GET":
            call.hold_answer(len(response.body))
        await _send_large(call, response, response.body)
    return response


def _query(raw: str) -> list[tuple[str, str]]:
    """The names and values of a query. Escaped bytes that are not UTF-8 become half surrogates, as unescaped ones do in
    aiohttp's parser; Parameters refuses these. aiohttp's own decoding would give U+FFFD, which a name may have.
    """
    return parse_qsl(raw, keep_blank_values=True, errors="surrogateescape")


def observer(context: Context) -> Middleware:
    """The outermost middleware: it prepares the log line, and refuses requests without a route, or whose end is
    ambiguous.
    """

    @web.middleware
    async def observe(request: web.Request, handler: RequestHandler) -> web.StreamResponse:
        context.stalls.touch()
        resource = request.match_info.route.resource
        path = NO_ROUTE if resource is None or resource.canonical == ELSEWHERE else resource.canonical
        request[OBSERVATION] = Observation(context.metrics, path)
        if (why := _unreadable(request)) is not None:
            response: web.StreamResponse = _problem(context, InvalidRequest(why), secrets.token_hex(8))
            response.force_close()
            return response
        try:
            response = await handler(request)
        except web.HTTPMethodNotAllowed as error:
            response = _problem(context, MethodNotAllowed(), secrets.token_hex(8))
            response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
        except web.HTTPNotFound:
            response = _problem(context, NotFound("no such route", what="route"), secrets.token_hex(8))
        if "Expect" in request.headers and not (response.prepared or request.content.is_eof()):
            response.force_close()  # a client that was not told to continue may leave its body out (RFC 9110, 10.1.1)
        return response

    return observe


def _unreadable(request: web.Request) -> str | None:
    """Why the end or the coding of the request's body is uncertain; None: it is not. With ``Transfer-Encoding: gzip,
    chunked``, for example, aiohttp would hand over the compressed body.
    """
    if request.version not in _VERSIONS:
        return "not HTTP/1.1, and not HTTP/1.0"
    codings = ",".join(request.headers.getall("Transfer-Encoding", (_CHUNKED,)))
    return None if codings.strip().lower() == _CHUNKED else f"Transfer-Encoding: not {_CHUNKED} alone"


async def _send_large(call: Call, response: web.Response, body: bytes) -> None:
    """Send a large body here, within a time limit, so that the call holds its memory until the client has taken it."""
    pieces = memoryview(body) if call.request.method != "HEAD" else memoryview(b"")
    call.stream = response
    response.headers.update(media.NO_SNIFFING)
    for name, value in call.leader_headers().items():
        response.headers.setdefault(name, value)
    async with call.taken_in_time(len(body)):
        await response.prepare(call.request)
        for start in range(0, len(pieces), PIECE_BYTES):
            await response.write(pieces[start : start + PIECE_BYTES])
        response.body = None  # it is sent
        await response.write_eof()


def _refuse(call: Call, refusal: StockadeError) -> web.StreamResponse:
    call.log_denial(refusal)
    if call.stream is not None:
        # It is too late for a problem document: break off, so that the client does not take a part of the answer for
        # the whole.
        call.break_off()
        return call.stream
    if isinstance(refusal, NotLeaderOrFollower):
        call.decided_by = leader_named_by(refusal)
    elif isinstance(refusal, UnknownTopicOrPartition | InconsistentTopicId) and call.partition is None:
        call.decided_by = call.service.controller()
    response = _problem(call.context, refusal, call.id)
    if isinstance(refusal, Unauthenticated) and call.must_reconnect:
        response.force_close()
    return response


def _problem(context: Context, refusal: StockadeError, instance: str) -> web.Response:
    context.metrics.refused(refusal.code)
    return problems.answer(problems.document(refusal, instance))
