"""What a handler knows of its request, and what all handlers of a node share.

Nothing here is global: a process may hold several applications, each with its own service, metrics and
bounds.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from aiohttp import web

from ..cluster.model import Leader
from ..cluster.service import Partition, Service
from ..partition.errors import LeaderNotAvailable, StockadeError, ThrottlingQuotaExceeded
from . import wire
from .metrics import Metrics
from .parameters import Parameters
from .peers import FORWARDED_BY, Peers

_log = logging.getLogger(__name__)

BODY_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of all bodies that a node holds at one time; beyond it requests are THROTTLING_QUOTA_EXCEEDED."""
UNACKED_MAX = 1000
"""Appends with acks=0 that a node works on at one time; likewise."""
DEADLINE_S = 10.0
"""Time to reach a leader that answers, on top of the time that the request itself asks to wait."""

LOOK_S = 1.0
"""Between two looks whether a client that waits is still there."""

_THROTTLED_MS = 250
_T = TypeVar("_T")

NOBODY = Leader(None, None, 0)


class Budget:
    """Bytes of bodies in memory, of all requests together."""

    def __init__(self, bytes_max: int = BODY_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    def take(self, count: int) -> None:
        """Raises ThrottlingQuotaExceeded when there is not that much left."""
        if self.used + count > self.bytes_max:
            raise ThrottlingQuotaExceeded("the node holds too many bodies already", retry_after_ms=_THROTTLED_MS)
        self.used += count

    def give_back(self, count: int) -> None:
        """What ``take`` took."""
        self.used -= count


class Background:
    """Work whose result nobody waits for: appends with acks=0."""

    def __init__(self, tasks_max: int = UNACKED_MAX) -> None:
        self.tasks_max = tasks_max
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, object], finished: Callable[[], None]) -> None:
        """Run ``work``, then call ``finished``. Raises ThrottlingQuotaExceeded, and then runs neither."""
        if len(self._tasks) >= self.tasks_max:
            work.close()
            raise ThrottlingQuotaExceeded("too many unanswered appends are under way", retry_after_ms=_THROTTLED_MS)
        task = asyncio.create_task(self._run(work, finished))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, timeout_s: float) -> None:
        """Wait for what is under way, and cancel what is not done in time."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in late:
                task.cancel()

    async def _run(self, work: Coroutine[Any, Any, object], finished: Callable[[], None]) -> None:
        try:
            await work
        except StockadeError as refusal:
            _log.debug("an append with acks=0 was refused: %s", refusal)
        except Exception:
            _log.exception("an append with acks=0 failed")
        finally:
            finished()


@dataclass
class Context:
    """What the handlers of one application share."""

    service: Service
    peers: Peers
    metrics: Metrics = field(default_factory=Metrics)
    bodies: Budget = field(default_factory=Budget)
    background: Background = field(default_factory=Background)
    followers: int = 0
    _stopping: asyncio.Future[None] | None = None

    @property
    def stopping(self) -> asyncio.Future[None]:
        """Done when the node stops and everything that waits shall end."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_future()
        return self._stopping

    def stop(self) -> None:
        """End what waits. Repeating it does nothing."""
        if not self.stopping.done():
            self.stopping.set_result(None)


Handler = Callable[["Call"], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Route:
    """One operation. ``group`` says whose leader decides it; ``query`` are its query parameters;
    ``answers_json`` whether 406 is due when JSON is not accepted.
    """

    method: str
    path: str
    handler: Handler
    group: Literal["controller", "partition", "node"]
    query: tuple[str, ...] = ()
    answers_json: bool = True
    deadline_s: float = DEADLINE_S


class Call:
    """One request on its way through."""

    def __init__(self, request: web.Request, context: Context, route: Route) -> None:
        self.request = request
        self.context = context
        self.route = route
        self.id = secrets.token_hex(8)
        self.body = b""
        self.held_bytes = 0
        self.wait_s = 0.0
        self.partition: Partition | None = None
        self.decided_by: Leader | None = None
        self.stream: web.StreamResponse | None = None
        self.parameters = Parameters({}, (), (), ())

    @property
    def service(self) -> Service:
        """The node."""
        return self.context.service

    def check_parameters(self) -> None:
        """Read path, query and headers. Raises InvalidRequest when they are not well-formed."""
        request = self.request
        pairs = list(request.query.items())
        self.parameters = Parameters(request.match_info, pairs, list(request.headers.items()), self.route.query)

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
        """Free the place of the body."""
        self.context.bodies.give_back(self.held_bytes)
        self.held_bytes = 0

    def finish_later(self, work: Coroutine[Any, Any, object]) -> None:
        """Let ``work`` go on when the call was answered; its body counts until then. Raises
        ThrottlingQuotaExceeded.
        """
        held = self.held_bytes
        self.context.background.start(work, lambda: self.context.bodies.give_back(held))
        self.held_bytes = 0

    def is_gone(self) -> bool:
        """Whether the client has closed the connection."""
        transport = self.request.transport
        return transport is None or transport.is_closing()

    async def start_stream(self, status: int, headers: dict[str, str], length: int | None = None) -> web.StreamResponse:
        """Begin an answer that is written piece by piece; ``length`` None: not known beforehand."""
        stream = web.StreamResponse(status=status, headers=self.leader_headers() | headers)
        stream.content_length = length
        self.stream = stream
        await stream.prepare(self.request)
        return stream

    def break_off(self) -> None:
        """Close the connection in the middle of an answer, so that nobody takes it for whole."""
        if self.request.transport is not None:
            self.request.transport.close()


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
