"""The renewal of a session without anything that it can do without: ten thousand sessions make thousands a second.

What is answered here is answered as the route's own handler does (fencing.py). That one gets every request that is not
as plain as can be, and every one that is refused, once more: a renewal may be repeated.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

from aiohttp import web

from . import media, wire
from .context import Context

_PLAIN = frozenset(
    ("host", "accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "user-agent")
)
_ACCEPT = (None, "*/*", media.JSON)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Renewed(NamedTuple):
    """As much of an answer as goes out (lane.serialized)."""

    headers: dict[str, str]
    body: bytes
    keep_alive: bool
    status: int = 200
    reason: str = "OK"


def shortened(context: Context, general: Handler) -> Handler:
    """A handler for the short way; ``general`` is the endpoint of the route."""

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = request.headers
        if not _PLAIN.issuperset(headers) or headers.get("accept") not in _ACCEPT:
            return await general(request)
        try:
            return cast(web.StreamResponse, await _renew(context, request))
        except Exception:  # whatever it is, the other one tells it
            return await general(request)

    return answer


async def _renew(context: Context, request: web.Request) -> Renewed:
    context.requests.take(1)
    try:
        context.tokens.check(request.headers.get("authorization"), "read")
        session = await context.service.renew_session(request.match_info["session"])
    finally:
        context.requests.give_back(1)
    leader = context.service.controller()
    headers = {
        "Content-Type": media.JSON,
        "Stockade-Leader": leader.url or "",
        "Stockade-Leader-Term": str(leader.term),
    }
    return Renewed(headers, wire.dump(session), keep_alive=not context.is_leaving)
