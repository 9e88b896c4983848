"""From a route to its answer: common checks, the handler, and what becomes of a refusal.

Every exception ends here. A StockadeError is answered as the problem that it is; anything else is a bug,
logged with the request's id and answered INTERNAL_ERROR. A client that went away is no fault of anybody.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.typedefs import Middleware

from ..cluster.model import Leader
from ..partition.errors import (
    HeadersTooLarge,
    InconsistentTopicId,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    NotLeaderOrFollower,
    StockadeError,
    UnknownTopicOrPartition,
)
from . import media, problems
from .call import STALL_S, Call, Route
from .context import Context
from .forwarding import pass_on
from .leading import where_it_is_led
from .metrics import NO_ROUTE, OBSERVATION, Observation
from .short import RequestHandler

HEADER_BYTES_MAX = 16 * 1024
"""Largest headers of a request, all together."""

LARGE_BYTES = 64 * 1024
"""Bodies up to here are left to the kernel at once."""
SLOWEST_BYTES_PER_S = 64 * 1024
"""A client that takes a large body more slowly, and STALL_S longer, is cut off."""
CLIENT_GONE = 499
"""In the log and the metrics, and nowhere else: the client went away before it could be answered."""

_VERSIONS = (HttpVersion10, HttpVersion11)
_LINE_EXTRA = len(": \r\n")
_log = logging.getLogger(__name__)


def endpoint(route: Route, context: Context) -> RequestHandler:
    """The aiohttp handler of a route."""

    async def answer(request: web.Request) -> web.StreamResponse:
        call = Call(request, context, route)
        return await conclude(call, _enter(call))

    return answer


async def conclude(call: Call, work: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    """What ``work`` answers, or the problem that it met; then the places of the call are free."""
    route = call.route
    try:
        response = await work
    except StockadeError as refusal:
        response = _refuse(call, refusal)
    except Exception as error:
        if isinstance(error, ConnectionError) and call.is_gone():
            return call.stream or web.Response(status=CLIENT_GONE)
        _log.exception("request %s (%s %s) met a bug", call.id, route.method, route.path)
        response = _refuse(call, InternalError())
    finally:
        call.give_back()
    if not response.prepared:
        for name, value in call.leader_headers().items():
            response.headers.setdefault(name, value)
        if call.context.is_leaving:
            response.force_close()  # what is sent on a connection as it is closed is of unknown outcome
    return response


async def _enter(call: Call) -> web.StreamResponse:
    call.enter()
    response = await _attempt(call)
    if isinstance(response, web.Response):
        await _deliver(call, response)
    return response


def observer(context: Context) -> Middleware:
    """The middleware around everything: what the log line needs, and problems for what no route answers."""

    @web.middleware
    async def observe(request: web.Request, handler: RequestHandler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        request[OBSERVATION] = Observation(context.metrics, resource.canonical if resource is not None else NO_ROUTE)
        if request.version not in _VERSIONS:
            return _unspoken(context)
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            response = _problem(context, MethodNotAllowed(), secrets.token_hex(8))
            response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
            return response
        except web.HTTPNotFound:
            return _problem(context, NotFound("no such route", what="route"), secrets.token_hex(8))

    return observe


async def _attempt(call: Call) -> web.StreamResponse:
    """Checks in the contract's order: headers as a whole, parameters, the answer's form; then the handler."""
    raw_headers = call.request.raw_headers
    if raw_headers and sum(len(name) + len(value) + _LINE_EXTRA for name, value in raw_headers) > HEADER_BYTES_MAX:
        raise HeadersTooLarge(limit=HEADER_BYTES_MAX)
    call.check_right(call.route.needs)
    call.check_parameters()
    if call.route.answers_json:
        media.choose(call.accept, (media.JSON,))
    return await where_it_is_led(call, lambda: call.route.handler(call), lambda moved: pass_on(call, moved))


async def _deliver(call: Call, response: web.Response) -> None:
    """Send a large body here, where it has a time limit, and where its place is given back when it is sent."""
    body = response.body
    if not isinstance(body, bytes) or len(body) <= LARGE_BYTES:
        return
    call.stream = response
    for name, value in call.leader_headers().items():
        response.headers.setdefault(name, value)
    try:
        async with asyncio.timeout(STALL_S + len(body) / SLOWEST_BYTES_PER_S):
            await response.prepare(call.request)
            await response.write_eof()
    except TimeoutError as error:
        call.cut_off()
        raise ConnectionResetError("the client takes its answer too slowly") from error


def _unspoken(context: Context) -> web.Response:
    """What an unknown version means by what follows is unknown too: nothing of it is taken for a request."""
    response = _problem(context, InvalidRequest("not HTTP/1.1, and not HTTP/1.0"), secrets.token_hex(8))
    response.force_close()
    return response


def _refuse(call: Call, refusal: StockadeError) -> web.StreamResponse:
    if call.stream is not None:
        # Too late for a problem document: the client must not take what it has for the whole.
        call.break_off()
        return call.stream
    if isinstance(refusal, NotLeaderOrFollower):
        call.decided_by = Leader(None, refusal.fields["leader"], refusal.fields["leader_term"] or 0)
    elif isinstance(refusal, UnknownTopicOrPartition | InconsistentTopicId) and call.partition is None:
        call.decided_by = call.service.controller()
    return _problem(call.context, refusal, call.id)


def _problem(context: Context, refusal: StockadeError, instance: str) -> web.Response:
    context.metrics.refused(refusal.code)
    return problems.answer(problems.document(refusal, instance))
