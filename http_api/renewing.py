"""The renewal of a session without anything that it can do without: ten thousand sessions make thousands a second.

What is answered here is answered as the route's own handler does (fencing.py). That one gets every request that is not
as plain as can be, and every one that is refused, once more: a renewal may be repeated.
"""

from typing import cast

from aiohttp import web

from . import wire
from .call import Route
from .context import Context
from .plain import Plain, is_plain
from .short import Request, RequestHandler, Starter


def shortened(route: Route, context: Context, general: RequestHandler) -> Starter:
    """The beginning of the short way; ``general`` is the endpoint of the route."""
    del route

    async def answer(request: Request) -> web.StreamResponse | Plain:
        try:
            return await _renew(context, request)
        except Exception:  # whatever it is, the other one tells it
            return await general(cast(web.Request, request))

    def start(request: Request) -> bool:
        if not is_plain(request.fields):
            return False
        request.connection.answer_later(answer(request))
        return True

    return start


async def _renew(context: Context, request: Request) -> Plain:
    context.requests.take(1)
    try:
        context.tokens.check(request.fields.get("authorization"), "read")
        session = await context.service.renew_session(request.match_info["session"])
    finally:
        context.requests.give_back(1)
    return Plain.of(context, context.service.controller(), wire.dump(session))
