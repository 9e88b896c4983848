"""The renewal of a session without anything that it can do without: ten thousand sessions make thousands a second.

What is answered here is answered as the route's own handler does (fencing.py). That one gets every request that is not
as plain as can be, and every one that is refused, once more: a renewal may be repeated.
"""

from typing import cast

from aiohttp import web

from . import wire
from .call import RequestHandler, Route
from .context import Context
from .plain import Plain, fields, is_plain


def shortened(route: Route, context: Context, general: RequestHandler) -> RequestHandler:
    """A handler for the short way; ``general`` is the endpoint of the route."""
    del route

    async def answer(request: web.Request) -> web.StreamResponse:
        if not is_plain(fields(request)):
            return await general(request)
        try:
            return cast(web.StreamResponse, await _renew(context, request))
        except Exception:  # whatever it is, the other one tells it
            return await general(request)

    return answer


async def _renew(context: Context, request: web.Request) -> Plain:
    context.requests.take(1)
    try:
        context.tokens.check(fields(request).get("authorization"), "read")
        session = await context.service.renew_session(request.match_info["session"])
    finally:
        context.requests.give_back(1)
    return Plain.of(context, context.service.controller(), wire.dump(session))
