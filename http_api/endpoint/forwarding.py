"""Passes a whole request on to the node that leads, and its answer back, as it comes.

A request is passed on by the first node alone; a node that was passed one, and does not lead either, answers
421 with the leader it knows.
"""

from collections.abc import Iterable

import aiohttp
from aiohttp import web

from ..partition.errors import LeaderNotAvailable, NotLeaderOrFollower
from . import media, peers, problems
from .call import Call, unless_ended
from .following import farewell

_WHOLE_BYTES_MAX = 1024 * 1024  # answers up to here are passed back in one piece
_RECORD_ENDS = {media.NDJSON: b"\n", media.EVENTS: b"\n\n"}
_OURS = "stockade-"
_REQUEST_HEADERS = ("accept", "authorization", "content-type", "last-event-id")
_ANSWER_HEADERS = ("content-type", "location", "retry-after", "allow", "cache-control")


async def pass_on(call: Call, moved: NotLeaderOrFollower) -> web.StreamResponse:
    """The leader's answer to a call that must be answered elsewhere."""
    headers = _picked(call.request.headers.items(), _REQUEST_HEADERS)
    message = peers.Message(call.request.method, call.request.rel_url.raw_path_qs, headers, call.body)
    deadline_s = call.route.deadline_s + call.wait_s
    reaching = call.context.peers.reach(moved.fields["leader"], message, deadline_s)
    # A read is given up with its client; what may change something goes on to its end.
    upstream = await (unless_ended(call, reaching) if message.method == "GET" else reaching)
    try:
        return await _pass_back(call, upstream)
    finally:
        upstream.close()


async def _pass_back(call: Call, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = _picked(upstream.headers.items(), _ANSWER_HEADERS)
    length = upstream.content_length
    if upstream.status == 204:
        return web.Response(status=204, headers=headers)
    if call.route.is_frequent or (length is not None and length <= _WHOLE_BYTES_MAX):
        body = await peers.whole_body(upstream, call.route.deadline_s)
        return web.Response(status=upstream.status, headers=headers, body=body)
    stream = await call.start_stream(upstream.status, headers, length)
    await _pour(call, upstream, stream)
    return stream


async def _pour(call: Call, upstream: aiohttp.ClientResponse, stream: web.StreamResponse) -> None:
    """Pass an answer back in the pieces in which it comes.

    If it breaks off, so does the answer to the client, unless it is a followed stream between two records:
    that one ends with a problem.
    """
    between = _RECORD_ENDS.get(upstream.content_type, b"") if upstream.content_length is None else b""
    last = between
    try:
        while chunk := await unless_ended(call, upstream.content.readany()):
            await call.write(chunk)
            last = chunk
    except (aiohttp.ClientError, LeaderNotAvailable):
        gone = LeaderNotAvailable("the leader is gone, or this node stops")
        if between and last.endswith(between):
            await call.write(farewell(upstream.content_type, problems.document(gone, call.id)))
        else:
            call.break_off()


def _picked(headers: Iterable[tuple[str, str]], names: tuple[str, ...]) -> dict[str, str]:
    """Headers that speak of the request or answer itself, not of one connection."""
    return {
        name: value
        for name, value in headers
        if name.lower().startswith(_OURS) or (name.lower() in names and value.isascii())
    }
