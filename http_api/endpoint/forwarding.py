"""Forwards a request to the node that leads, and relays the leader's answer to the client, piece by piece.

Only the first node forwards a request. A node that receives a forwarded request and does not lead answers 421 with the
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
"""After so long without a byte of the answer, the node that sends it is asked whether it is alive."""
_WHOLE_BYTES_MAX = 1024 * 1024  # answers up to here are sent in one piece, if the bound on them has room
_RECORD_ENDS = {media.NDJSON: b"\n", media.EVENTS: b"\n\n"}
_STOCKADE = "stockade-"
_OF_NODES = tuple(name.lower() for name in (peers.CLIENT_CERTIFICATE, peers.CLIENT_ADDRESS, peers.FORWARDED_BY))
_REQUEST_HEADERS = ("content-type", "last-event-id")
_ANSWER_HEADERS = ("content-type", "location", "retry-after", "allow", "cache-control", "www-authenticate")


async def forward(call: Call, moved: NotLeaderOrFollower) -> web.StreamResponse:
    """Forward the request to the leader that ``moved`` names, and answer with its answer. Raises as ``Peers.reach``."""
    headers = _picked(call.request.headers.items(), _REQUEST_HEADERS) | call.credentials()
    headers |= carried(call.request.headers)
    if call.accept:
        headers["Accept"] = _in_ascii(call.accept)
    message = peers.Message(call.request.method, call.request.rel_url.raw_path_qs, headers, call.body)
    deadline_s = call.route.deadline_s + call.wait_s
    asked = moved.fields["leader"]
    reaching = call.context.peers.reach(asked, message, deadline_s)
    # A read is cancelled when its client disconnects. If the leader hangs until another node leads, and this node
    # learns of that, the read is sent to the new leader. A request that may change something is never cancelled.
    if message.method == "GET" or call.route.is_asked_again:
        seen = call.leader_headers()["Stockade-Leader"]
        upstream = await unless_ended(
            call, reaching, lambda: call.leader_headers()["Stockade-Leader"] not in ("", seen, asked)
        )
    else:
        upstream = await reaching
    try:
        return await _answer_with(call, upstream)
    finally:
        upstream.close()


async def _answer_with(call: Call, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
    """Relay the leader's answer. This node charges the records in it to the caller's quota, because the leader does not
    charge for forwarded requests.
    """
    headers = _picked(upstream.headers.items(), _ANSWER_HEADERS)
    length = upstream.content_length
    has_records = call.request.method == "GET" and call.route.group == "partition" and upstream.status == 200
    if upstream.status == 204:
        return web.Response(status=204, headers=headers)
    if call.route.fast is not None or (
        length is not None and length <= _WHOLE_BYTES_MAX and call.may_hold_answer(length)
    ):
        body = await peers.whole_body(upstream, call.route.deadline_s)
        if has_records:
            call.spend_bytes(len(body))
        return web.Response(status=upstream.status, headers=headers, body=body)
    stream = await call.start_stream(upstream.status, headers, length)
    await _relay_body(call, upstream, has_records=has_records)
    return stream


async def _relay_body(call: Call, upstream: aiohttp.ClientResponse, *, has_records: bool) -> None:
    """Send the pieces of an answer as they come. Records of a followed stream (no Content-Length) wait for the caller's
    quota.

    If the leader's answer breaks off, or the leader is not alive any more, the answer to the client is broken off, too;
    but a followed stream that stands between two records ends with a problem.
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
    """The next piece of an answer, empty at its end. Raises LeaderNotAvailable when its node is not alive.

    A followed stream may be silent for long. A node that hangs, or is partitioned off, is silent, too, and its
    connections stay open: so after SILENT_S the node is asked whether it is alive.
    """
    while True:
        try:
            async with asyncio.timeout(SILENT_S):
                return await upstream.content.readany()
        except TimeoutError:
            await call.context.peers.prove(peers.node_of(upstream))


def _picked(headers: Iterable[tuple[str, str]], names: tuple[str, ...]) -> dict[str, str]:
    """The end-to-end headers to relay: those in ``names``, and all Stockade-* headers but those between nodes."""
    return {
        name: value if name.lower().startswith(_STOCKADE) else _in_ascii(value)
        for name, value in headers
        if (name.lower().startswith(_STOCKADE) and name.lower() not in _OF_NODES) or name.lower() in names
    }


def _in_ascii(value: str) -> str:
    """The header's value with ``?`` for each character beyond ASCII. Its meaning to a node stays the same: every value
    that a node knows here is ASCII, and none has a ``?``.
    """
    return value.encode("ascii", "replace").decode()
