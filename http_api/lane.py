"""The short way of small, frequent requests (renewals, appends): from the bytes to the route's handler and back.

It is open to a request that came in one piece, on a connection on which nothing else is under way, and whose end is
known (framing.py). All others go through aiohttp, which answers them the same; so does everything on a connection from
the first bytes on of which the end of a request is not known. It decides nothing and checks nothing by itself.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple, cast

from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time

from .call import Route
from .context import Context
from .dispatch import endpoint
from .framing import HEADS_REMEMBERED_MAX, Head, Pattern, Template, pattern_of, read_again, read_head
from .metrics import note
from .plain import Plain, head_of
from .short import Request, RequestHandler, Starter

_SEGMENT = r"([A-Za-z0-9_-][A-Za-z0-9._-]*)"
_PARAMETER = re.compile(r"\{(\w+)\}")


class Exit(NamedTuple):
    """Where a short way leads."""

    pattern: re.Pattern[str]
    names: list[str]
    route: Route
    handler: RequestHandler
    start: Starter | None


class Lane:
    """The short ways of one application."""

    def __init__(self, routes: Iterable[Route], context: Context) -> None:
        """Those of ``routes`` that are frequent."""
        self._metrics = context.metrics
        self.find: Callable[[Template], tuple[Exit, dict[str, str]] | None]
        """The way of a request, and its path parameters; None: it has no short one."""
        self.find = lru_cache(HEADS_REMEMBERED_MAX)(self._search)
        self._exits: dict[str, list[Exit]] = {}
        for route in routes:
            if route.is_frequent:
                pattern = re.compile(_PARAMETER.sub(lambda _: _SEGMENT, route.path))
                handler = endpoint(route, context)
                start = None if route.shorten is None else route.shorten(route, context, handler)
                found = Exit(pattern, _PARAMETER.findall(route.path), route, handler, start)
                self._exits.setdefault(route.method, []).append(found)

    def _search(self, template: Template) -> tuple[Exit, dict[str, str]] | None:
        if "expect" in template.headers:
            return None
        for way in self._exits.get(template.method, ()):
            match = way.pattern.fullmatch(template.path)
            if match is not None:
                return way, dict(zip(way.names, match.groups(), strict=True))
        return None

    def note(self, route: Route, status: int, seconds: float, size: int) -> None:
        """Count an answer."""
        note(self._metrics, route.method, route.path, status, seconds, size)


class LaneHandler(web.RequestHandler):
    """A connection that takes the short way whenever it is open."""

    __slots__ = (
        *("_began", "_ended", "_held", "_in_step", "_is_fresh"),
        *("_known", "_lane", "_owed", "_under_way", "_work"),
    )

    def __init__(self, lane: Lane, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self._lane = lane
        self._is_fresh = True  # aiohttp has seen nothing yet
        self._in_step = True  # every byte so far belongs to a request whose end is known
        self._known: tuple[Pattern, Exit, dict[str, str]] | None = None  # the last head, its way and path parameters
        self._owed = 0  # bytes that are still to come of the last one
        self._held = b""
        self._under_way: Route | None = None
        self._began = 0.0
        self._work: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        """Called by the loop, and with nothing by aiohttp when it can read on."""
        if self._under_way is not None:
            # Answers go out in the order of their requests.
            self._hold(data)
        elif data and self._in_step and not self._owed and self._is_between():
            self._hold(data)
            self._loop.call_soon(self._go_on)
        elif not data or not self._in_step or not self._take(data):
            self._is_fresh = False
            super().data_received(data)

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109  # as aiohttp calls it
        """What is under way is answered first, if it takes no longer than ``timeout`` seconds."""
        if self._under_way is not None:
            self._ended = self._loop.create_future()
            await asyncio.wait((self._ended,), timeout=timeout)
        await super().shutdown(timeout)

    def _take(self, data: bytes) -> bool:
        """Whether the request is answered here."""
        if self._owed:
            self._owed -= len(data)
            self._in_step = self._owed >= 0
            return False
        head = None if self._known is None else read_again(self._known[0], data)
        is_known = head is not None
        head = head or read_head(data)
        if head is None or head.end < len(data):
            self._in_step = False
            return False
        self._owed = head.end - len(data)
        if self._owed or self._is_occupied() or not (is_known or self._know(head, data)):
            return False
        assert self._known is not None
        _, way, place = self._known
        self._begin(way, Request(self, head, place, data[head.body_start :]))
        return True

    def _know(self, head: Head, data: bytes) -> bool:
        """Remember a head and its way: it will most likely come again. False: it has no short way."""
        found = self._lane.find(head.template)
        self._known = None if found is None else (pattern_of(head, data), *found)
        return found is not None

    def _begin(self, way: Exit, request: Request) -> None:
        self._under_way, self._began = way.route, self._loop.time()
        self._next_keepalive_close_time = self._began + self._keepalive_timeout
        if way.start is None or not way.start(request):
            request.leave_to(way.handler)

    def answer_later(self, work: Awaitable[web.StreamResponse | Plain]) -> None:
        """Send what ``work`` makes, when it has."""
        self._work = self._loop.create_task(self._await(work))

    async def _await(self, work: Awaitable[web.StreamResponse | Plain]) -> None:
        try:
            response = await work
        except BaseException:
            self._end()
            raise
        self.answer(cast(web.Response | Plain, response))

    def answer(self, response: web.Response | Plain) -> None:
        """Send this, and look at what came meanwhile."""
        assert self._under_way is not None, "answered before"
        try:
            answer = serialized(response)
            if self.transport is not None and not self.transport.is_closing():
                self.transport.write(answer)
                if response.keep_alive is False:
                    self.force_close()
            now = self._loop.time()
            self._next_keepalive_close_time = now + self._keepalive_timeout
            self._lane.note(self._under_way, response.status, now - self._began, len(answer))
        finally:
            self._end()

    def _end(self) -> None:
        self._under_way = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        self._go_on()

    def _is_between(self) -> bool:
        """Whether aiohttp has answered, but does not wait for the next request yet: it will in a moment.

        A client that is fast would otherwise stay on the long way for ever.
        """
        if self._is_fresh or self._is_leaving() or self._messages or self._request_in_progress:
            return False
        return self._waiter is None

    def _is_leaving(self) -> bool:
        return self._close or self._force_close or self.transport is None or self.transport.is_closing()

    def _is_occupied(self) -> bool:
        """Whether aiohttp is at work here, or the client does not take its answers."""
        waiter = self._waiter
        is_idle = self._is_fresh or (waiter is not None and not waiter.done() and not self._messages)
        return not is_idle or self._paused or self._is_leaving()

    def _hold(self, data: bytes) -> None:
        self._held += data
        if self.transport is not None:
            self.transport.pause_reading()

    def _go_on(self) -> None:
        """Look at what came meanwhile."""
        held, self._held = self._held, b""
        if held:
            if self.transport is not None:
                self.transport.resume_reading()
            self.data_received(held)


def serialized(response: web.Response | Plain) -> bytes:
    """An answer as it goes out. Raises ValueError for a header that would end its line."""
    body = response.body or b""
    assert isinstance(body, bytes), "a frequent route answers with what it has"
    if isinstance(response, Plain):
        head = response.head
    else:
        head = head_of(response.status, response.reason, response.headers.items())
    if response.keep_alive is False:
        head += b"Connection: close\r\n"
    return b"%sContent-Length: %d\r\nDate: %s\r\n\r\n%s" % (head, len(body), rfc822_formatted_time().encode(), body)
