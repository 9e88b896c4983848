"""One request on its way through: what its handler knows of it, and how it is answered."""

import asyncio
import os
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

from aiohttp import web

from ..cluster.model import Leader
from ..cluster.service import Partition, Service
from ..partition.errors import LeaderNotAvailable
from . import wire
from .context import Context
from .parameters import Parameters
from .peers import FORWARDED_BY
from .short import RequestHandler, Starter
from .tokens import Right

DEADLINE_S = 10.0
"""Time to reach a leader that answers, on top of the time that the request itself asks to wait."""
LOOK_S = 1.0
"""Between two looks whether a client that waits is still there."""

STALL_S = 30.0
"""Time in which a client must take something of its answer."""

_NO_LINGERING = struct.pack("ii", 1, 0)
_T = TypeVar("_T")

NOBODY = Leader(None, None, 0)
_UNREAD = Parameters({}, (), (), ())


Handler = Callable[["Call"], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Route:
    """One operation. ``group`` says whose leader decides it; ``query`` are its query parameters, ``repeated`` those
    that may be given several times; ``answers_json`` whether 406 is due when JSON is not accepted; ``is_frequent`` says
    that it may go the short way (lane.py), and that its answers are small; ``shorten`` makes what begins that way, of
    the handler that is used wherever it does not; ``needs`` is the right that a token must give (None: none).
    """

    method: str
    path: str
    handler: Handler
    group: Literal["controller", "partition", "node"]
    query: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    answers_json: bool = True
    deadline_s: float = DEADLINE_S
    is_frequent: bool = False
    needs: Right | None = "admin"
    shorten: "Callable[[Route, Context, RequestHandler], Starter] | None" = None


class _FileStream(web.StreamResponse):
    """Its length is known, and parts of it do not pass through aiohttp."""

    _length_check = False


class Call:
    """One request on its way through."""

    def __init__(self, request: web.Request, context: Context, route: Route) -> None:
        self.request = request
        self.context = context
        self.route = route
        self.body = b""
        self.has_body = False
        self.held_bytes: int = 0
        self.answer_bytes: int = 0
        self.places: int = 0
        self.wait_s: float = 0.0
        self.partition: Partition | None = None
        self.decided_by: Leader | None = None
        self.stream: web.StreamResponse | None = None
        self.is_answered: bool = False
        self.parameters: Parameters = _UNREAD

    @cached_property
    def id(self) -> str:
        """The request's id, in its problem and in the log."""
        return secrets.token_hex(8)

    @property
    def service(self) -> Service:
        """The node."""
        return self.context.service

    def check_right(self, needed: Right | None) -> None:
        """Whether whoever calls may do what needs that right. Raises Unauthenticated, PermissionDenied."""
        self.context.tokens.check(self.request.headers.get("Authorization"), needed)

    def credentials(self) -> dict[str, str]:
        """The header that a node must pass on with whatever it asks another one for this call."""
        authorization = self.request.headers.get("Authorization")
        return {} if authorization is None else {"Authorization": authorization}

    def check_parameters(self) -> None:
        """Read path, query and headers. Raises InvalidRequest when they are not well-formed."""
        request = self.request
        pairs = list(request.query.items()) if "?" in request.raw_path else ()
        route = self.route
        self.parameters = Parameters(request.match_info, pairs, request.headers.items(), route.query, route.repeated)

    @property
    def accept(self) -> str | None:
        """The Accept header; None when there is none."""
        values = self.request.headers.getall("Accept", [])
        return ",".join(values) if values else None

    @property
    def is_forwarded(self) -> bool:
        """Whether a node passed this on, or a client asked that nobody does."""
        return FORWARDED_BY in self.request.headers

    def leader(self) -> Leader:
        """Who leads the group that decides this, as far as it is known."""
        if self.decided_by is not None:
            return self.decided_by
        if self.partition is not None:
            return self.partition.leader()
        return self.service.controller() if self.route.group == "controller" else NOBODY

    def leader_headers(self) -> dict[str, str]:
        """Stockade-Leader and Stockade-Leader-Term; nothing on routes that no group decides."""
        if self.route.group == "node":
            return {}
        leader = self.leader()
        return {"Stockade-Leader": leader.url or "", "Stockade-Leader-Term": str(leader.term)}

    def give_back(self) -> None:
        """Free the places of the request, its body and its answer."""
        self.context.requests.give_back(self.places)
        self.context.bodies.give_back(self.held_bytes)
        self.context.answers.give_back(self.answer_bytes)
        self.places = self.held_bytes = self.answer_bytes = 0

    def enter(self) -> None:
        """Take a place among the requests under way. Raises ThrottlingQuotaExceeded."""
        self.context.requests.take(1)
        self.places = 1

    def hold_answer(self, count: int) -> None:
        """Take a place for an answer of about so many bytes. Raises ThrottlingQuotaExceeded."""
        self.context.answers.take(count)
        self.answer_bytes += count

    def finish_later(self, work: Coroutine[Any, Any, object]) -> None:
        """Let ``work`` go on when the call was answered; its body counts until then. Raises
        ThrottlingQuotaExceeded.
        """
        held = self.held_bytes
        self.context.background.start(work, lambda: self.context.bodies.give_back(held))
        self.held_bytes = 0
        self.is_answered = True

    def is_gone(self) -> bool:
        """Whether the client has closed the connection before it was answered."""
        transport = self.request.transport
        return not self.is_answered and (transport is None or transport.is_closing())

    async def start_stream(self, status: int, headers: dict[str, str], length: int | None = None) -> web.StreamResponse:
        """Begin an answer that is written piece by piece; ``length`` None: not known beforehand."""
        stream = (web.StreamResponse if length is None else _FileStream)(
            status=status, headers=self.leader_headers() | headers
        )
        stream.content_length = length
        self.stream = stream
        await stream.prepare(self.request)
        return stream

    async def write(self, data: bytes) -> None:
        """Send the next piece of a begun answer. Raises ConnectionError when the client is gone or takes nothing."""
        assert self.stream is not None
        try:
            async with asyncio.timeout(STALL_S):
                await self.stream.write(data)
        except TimeoutError as error:
            self.cut_off()
            raise ConnectionResetError("the client takes nothing") from error

    def break_off(self) -> None:
        """Close the connection in the middle of an answer, so that nobody takes it for whole."""
        if self.request.transport is not None:
            self.request.transport.close()

    def cut_off(self) -> None:
        """Reset the connection: what the client did not take is thrown away, also by the kernel."""
        transport = self.request.transport
        if transport is not None:
            with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as own:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
            transport.abort()


async def unless_ended(call: Call, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of ``work``, which must only read: it is cancelled when the client goes away or the node
    stops.

    Raises ConnectionResetError and LeaderNotAvailable then.
    """
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait((task, call.context.stopping), timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if call.is_gone():
                raise ConnectionResetError("the client is gone")
            if call.context.stopping.done() and not task.done():
                raise LeaderNotAvailable("the node is stopping")
        return task.result()
    finally:
        task.cancel()


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON answer."""
    return web.Response(body=wire.dump(value), status=status, headers=headers, content_type="application/json")
