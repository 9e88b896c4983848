"""Forwards a whole request to the node that leads, and its answer to the client, piece by piece.

Only the first node forwards a request. A node that gets a forwarded request and does not lead answers 421 with the
leader that it knows.
"""

import asyncio
from collections.abc import Iterable

import aiohttp
from aiohttp import web

from ...cluster.front.front import unless_ended
from ...partition.errors import LeaderNotAvailable, NotLeaderOrFollower
from ..codec import media, problems
from ..request import peers
from ..request.call import Call
from ..request.tracing import carried

SILENT_S = 5.0
"""Time without a byte of an answer after which its node is asked whether it answers anything."""
_WHOLE_BYTES_MAX = 1024 * 1024  # answers up to here are sent in one piece
_RECORD_ENDS = {media.NDJSON: b"\n", media.EVENTS: b"\n\n"}
_STOCKADE = "stockade-"
_OF_NODES = tuple(name.lower() for name in (peers.CLIENT_CERTIFICATE, peers.CLIENT_ADDRESS, peers.FORWARDED_BY))
_REQUEST_HEADERS = ("content-type", "last-event-id")
_ANSWER_HEADERS = ("content-type", "location", "retry-after", "allow", "cache-control", "www-authenticate")


async def forward(call: Call, moved: NotLeaderOrFollower) -> web.StreamResponse:
    """The answer of the leader that ``moved`` names."""
    headers = _picked(call.request.headers.items(), _REQUEST_HEADERS) | call.credentials()
    headers |= carried(call.request.headers)
    if call.accept:
        headers["Accept"] = _in_ascii(call.accept)
    message = peers.Message(call.request.method, call.request.rel_url.raw_path_qs, headers, call.body)
    deadline_s = call.route.deadline_s + call.wait_s
    reaching = call.context.peers.reach(moved.fields["leader"], message, deadline_s)
    # A read ends when its client goes away; a request that may change something goes on to its end.
    upstream = await (unless_ended(call, reaching) if message.method == "GET" else reaching)
    try:
        return await _answer_with(call, upstream)
    finally:
        upstream.close()


async def _answer_with(call: Call, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
    """This node counts the records that are read for the caller: the leader leaves that to the node that forwarded."""
    headers = _picked(upstream.headers.items(), _ANSWER_HEADERS)
    length = upstream.content_length
    has_records = call.request.method == "GET" and call.route.group == "partition" and upstream.status == 200
    if upstream.status == 204:
        return web.Response(status=204, headers=headers)
    if call.route.fast is not None or (length is not None and length <= _WHOLE_BYTES_MAX):
        body = await peers.whole_body(upstream, call.route.deadline_s)
        if has_records:
            call.spend_bytes(len(body))
        return web.Response(status=upstream.status, headers=headers, body=body)
    stream = await call.start_stream(upstream.status, headers, length)
    await _relay_body(call, upstream, has_records=has_records)
    return stream


async def _relay_body(call: Call, upstream: aiohttp.ClientResponse, *, has_records: bool) -> None:
    """Send the pieces of an answer as they come. Records without a length before them, as of a followed stream, wait
    for the caller's quota.

    If the answer breaks off, or its node answers nothing any more, so does the one to the client, except for a followed
    stream between two records: it ends with a problem.
    """
    between = _RECORD_ENDS.get(upstream.content_type, b"") if upstream.content_length is None else b""
    last = between
    try:
        while chunk := await unless_ended(call, _next_piece(call, upstream)):
            await call.write(chunk)
            last = chunk
            if has_records and upstream.content_length is None:
                await call.pay(len(chunk))
            elif has_records:
                call.spend_bytes(len(chunk))
    except (aiohttp.ClientError, LeaderNotAvailable):
        gone = LeaderNotAvailable("the leader is gone, or this node stops")
        if between and last.endswith(between):
            await call.write(problems.stream_end(upstream.content_type, problems.document(gone, call.id)))
        else:
            call.break_off()


async def _next_piece(call: Call, upstream: aiohttp.ClientResponse) -> bytes:
    """The next piece of an answer, empty at its end.

    A followed stream may be silent for long, but a node that stands still, or is cut off, is silent, too, and its
    connections stay open: so the node is asked whether it answers. Raises LeaderNotAvailable.
    """
    while True:
        try:
            async with asyncio.timeout(SILENT_S):
                return await upstream.content.readany()
        except TimeoutError:
            await call.context.peers.prove(peers.node_of(upstream))


def _picked(headers: Iterable[tuple[str, str]], names: tuple[str, ...]) -> dict[str, str]:
    """Headers of the request or answer itself, not of one connection."""
    return {
        name: value if name.lower().startswith(_STOCKADE) else _in_ascii(value)
        for name, value in headers
        if (name.lower().startswith(_STOCKADE) and name.lower() not in _OF_NODES) or name.lower() in names
    }


def _in_ascii(value: str) -> str:
    """A header that means the same to a node: all that nodes know in these is ASCII, and a ``?`` is in none of it."""
    return value.encode("ascii", "replace").decode()
