"""The fast path of session renewals: ten thousand sessions make thousands of them a second.

An answer from here is the same as that of the route's own handler (``handlers.grants``). That handler gets every
request that is not plain, and once more every one that is refused: a renewal may be repeated.
"""

from typing import cast

from aiohttp import web

from ...cluster.model import By
from ...partition.errors import StockadeError
from ..codec import json_codec
from ..request.call import RequestHandler, Route
from ..request.context import Context
from .connection import FastRequest, FastResponse, head_led_by, is_plain


class FastRenewals:
    """Renews sessions. ``general`` is the endpoint of the route."""

    def __init__(self, route: Route, context: Context, general: RequestHandler) -> None:
        self._route = route
        self._front = context.front
        self._metrics = context.metrics
        self._general = general

    def start(self, request: FastRequest) -> bool:
        """Answer a plain request; False: nothing was begun."""
        if not is_plain(request.fields):
            return False
        request.connection.answer_later(self._answer(request))
        return True

    async def _answer(self, request: FastRequest) -> web.StreamResponse | FastResponse:
        try:
            return await self._renew(request)
        except StockadeError:
            pass  # the general handler meets the refusal again, and answers it
        except Exception:
            self._metrics.fast_path_bug(self._route.path)
        return await self._general(cast(web.Request, request))

    async def _renew(self, request: FastRequest) -> FastResponse:
        front = self._front
        front.in_flight.take(requests=1)
        try:
            caller = front.access.caller(request.fields.get("authorization"), request.certificate)
            session = await front.service.at_controller().sessions.renew_session(
                request.match_info["session"], By(caller.principal)
            )
        finally:
            front.in_flight.give_back(requests=1)
        leader = front.service.controller()
        return FastResponse(head_led_by(leader.url or "", leader.term), json_codec.dump(session), not front.is_leaving)
