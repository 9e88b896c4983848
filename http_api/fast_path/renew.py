"""The fast path of session renewals: a hundred thousand sessions make thousands of them a second.

The session's id comes in a header, or in the path of the deprecated route. A renewal is answered as the route's own
handler would (``handlers.grants``). The general handler gets every request that is not plain, and repeats a renewal
that was refused here, which is safe.
"""

from typing import cast

from aiohttp import web

from ...cluster.model import By
from ...partition.errors import StockadeError
from ..codec import json_codec
from ..request.call import RequestHandler, Route
from ..request.context import Context
from .connection import PLAIN_HEADERS, FastRequest, FastResponse, head_led_by, is_plain
from .parser import SESSION

_HEADERS = PLAIN_HEADERS | {SESSION.name}


class FastRenewals:
    """The fast path of renewals. ``general`` is the endpoint of the route."""

    def __init__(self, route: Route, context: Context, general: RequestHandler) -> None:
        self._route = route
        self._front = context.front
        self._metrics = context.metrics
        self._general = general

    def start(self, request: FastRequest) -> bool:
        """Begin to answer a plain request. False: it is not plain, and nothing was begun."""
        fields = request.fields
        session = request.match_info.get("session")
        names = PLAIN_HEADERS
        if session is None:
            session, names = fields.get(SESSION.name), _HEADERS
        if session is None or not is_plain(fields, names):
            return False
        request.connection.answer_later(self._answer(request, session))
        return True

    async def _answer(self, request: FastRequest, session: str) -> web.StreamResponse | FastResponse:
        try:
            return await self._renew(request, session)
        except StockadeError:
            pass  # the general handler gets the same refusal, and answers it
        except Exception:
            self._metrics.fast_path_bug(self._route.path)
        return await self._general(cast(web.Request, request))

    async def _renew(self, request: FastRequest, session: str) -> FastResponse:
        front = self._front
        front.in_flight.take_spare()
        try:
            caller = front.access.caller(request.fields.get("authorization"), request.certificate)
            renewed = await front.service.at_controller().sessions.renew_session(session, By(caller.principal))
        finally:
            front.in_flight.give_back(requests=1)
        leader = front.service.controller()
        return FastResponse(head_led_by(leader.url or "", leader.term), json_codec.dump(renewed), not front.is_leaving)
