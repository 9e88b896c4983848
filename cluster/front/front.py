"""What all fronts of one node share: access rights, bounds on the requests in flight, and the retry of a request at the
node that leads.

The bounds are on what the requests in flight hold together: the node's backpressure towards clients.

A change of leadership, planned or not, delays a request and does not fail it. A request is tried again only when it was
surely not proposed.

Nothing here is global: a process may hold several nodes, each with a front of its own.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ...partition.api.cluster import Unready
from ...partition.errors import (
    InternalError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    StockadeError,
    ThrottlingQuotaExceeded,
)
from ..access.principals import Access
from ..access.quotas import Spending
from ..api.service import Service
from .writes import Writes

REQUESTS_MAX = 10_000
"""Requests that a node works on at one time, long polls included; beyond it they are THROTTLING_QUOTA_EXCEEDED. What a
stranger may ask (whether the node is alive, its metrics, pages) is not counted: as many as there are connections.
"""
KEEPING_MAX = 1_000
"""Further requests beyond REQUESTS_MAX, for renewals and releases only, so that a node full of long polls lets no
session expire.
"""
ARRIVING_MAX = 5_000
"""Requests among REQUESTS_MAX whose body is still on its way; beyond it they are THROTTLING_QUOTA_EXCEEDED, too. Slow
bodies leave the other half to requests that came whole.
"""
BODY_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of all bodies that a node holds at one time; requests beyond it are THROTTLING_QUOTA_EXCEEDED, too."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of the batches, unpacked, that a node renders as text at one time, in followed streams, too, and of other large
answers; requests beyond it are THROTTLING_QUOTA_EXCEEDED, too. Beyond half of it Arrow answers, and those of other
nodes, are not held in memory, but sent piece by piece.
"""
FOLLOWERS_MAX = 9_000
"""Followed streams of a node at one time; requests beyond it are THROTTLING_QUOTA_EXCEEDED, too. They leave a thousand
requests to others.
"""
UNACKED_MAX = 1000
"""Appends with acks=0 that a node works on at one time; requests beyond it are THROTTLING_QUOTA_EXCEEDED, too."""

_RETRY_AFTER_MS = 250
_FOLLOWER_RETRY_AFTER_MS = 1000

LEADER_WAIT_S = 5.0
"""Time that a request waits for a leader that is known and can be reached; then it is LEADER_NOT_AVAILABLE."""
GONE_CHECK_S = 1.0
"""Interval of the checks whether the client of a request that waits is still connected."""
RECHECK_S = 0.1
"""Interval of the tries while this node hears nothing new: another node may know a new leader before it."""
TRIES_PER_S = 2000
"""Rate at which all waiting requests of a node together try again, because an election runs on the same processor. The
first try after news is made at once, and does not count.
"""

_T = TypeVar("_T")
_E = TypeVar("_E", bound=BaseException)
_log = logging.getLogger(__name__)


class Budget:
    """One bound: ``used <= limit``, unless ``limit`` was lowered meanwhile. ``what`` names it in refusals."""

    __slots__ = ("limit", "retry_after_ms", "used", "what")

    def __init__(self, limit: int, what: str, retry_after_ms: int = _RETRY_AFTER_MS) -> None:
        self.limit: int = limit
        self.used: int = 0
        self.what: str = what
        self.retry_after_ms: int = retry_after_ms

    def refusal(self) -> ThrottlingQuotaExceeded:
        """The refusal of a request that does not fit any more."""
        return ThrottlingQuotaExceeded(f"the node has too many {self.what} already", retry_after_ms=self.retry_after_ms)


class InFlight:
    """The budgets of a node's requests in flight. Each ``take`` is followed by a ``give_back`` of the same counts."""

    def __init__(self) -> None:
        self.requests: Budget = Budget(REQUESTS_MAX, "requests in flight")
        self.body_bytes: Budget = Budget(BODY_BYTES_MAX, "bytes of bodies in memory")
        self.answer_bytes: Budget = Budget(ANSWER_BYTES_MAX, "bytes of answers in memory")
        self.followers: Budget = Budget(FOLLOWERS_MAX, "followers", _FOLLOWER_RETRY_AFTER_MS)
        self.arriving: Budget = Budget(ARRIVING_MAX, "bodies on their way")
        self._budgets = (self.requests, self.body_bytes, self.answer_bytes, self.followers, self.arriving)

    def take_spare(self) -> None:
        """Count a renewal or a release: KEEPING_MAX of them fit beyond the bound. Raises ThrottlingQuotaExceeded."""
        requests = self.requests
        if requests.used >= requests.limit + KEEPING_MAX:
            raise requests.refusal()
        requests.used += 1

    def take(
        self, requests: int = 0, body_bytes: int = 0, answer_bytes: int = 0, followers: int = 0, arriving: int = 0
    ) -> None:
        """Count these as held: all of them or none. Raises ThrottlingQuotaExceeded."""
        counts = (requests, body_bytes, answer_bytes, followers, arriving)
        for budget, count in zip(self._budgets, counts, strict=True):
            if count and budget.used + count > budget.limit:
                raise budget.refusal()
        for budget, count in zip(self._budgets, counts, strict=True):
            budget.used += count

    def give_back(
        self, requests: int = 0, body_bytes: int = 0, answer_bytes: int = 0, followers: int = 0, arriving: int = 0
    ) -> None:
        """Count these as held no longer."""
        counts = (requests, body_bytes, answer_bytes, followers, arriving)
        for budget, count in zip(self._budgets, counts, strict=True):
            budget.used -= count


class UnackedAppends:
    """Appends with acks=0: each is answered before its verdict is known, and goes on as a task."""

    def __init__(self, tasks_max: int = UNACKED_MAX) -> None:
        self.budget: Budget = Budget(tasks_max, "unacknowledged appends")
        self._tasks: set[asyncio.Task[None]] = set()

    def start(
        self, append: Coroutine[Any, Any, object], finished: Callable[[], None], refused: Callable[[str], None]
    ) -> None:
        """Run ``append``, then call ``finished``, and before it ``refused`` with the code if it was refused, or met a
        bug. Raises ThrottlingQuotaExceeded, and then runs none of them.
        """
        if self.budget.used >= self.budget.limit:
            append.close()
            raise self.budget.refusal()
        self.budget.used += 1
        task = asyncio.create_task(self._run(append, finished, refused))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def close(self, timeout_s: float) -> None:
        """Wait for the appends in flight, and cancel those that are not done in time."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in late:
                task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.budget.used -= 1

    async def _run(
        self, append: Coroutine[Any, Any, object], finished: Callable[[], None], refused: Callable[[str], None]
    ) -> None:
        try:
            await append
        except StockadeError as refusal:
            _log.debug("an append with acks=0 was refused: %s", refusal)
            refused(refusal.code)
        except Exception:
            _log.exception("an append with acks=0 met a bug")
            refused(InternalError.code)
        finally:
            finished()


@dataclass
class Front:
    """The state that all requests to one node share."""

    service: Service
    access: Access = field(default_factory=Access)
    in_flight: InFlight = field(default_factory=InFlight)
    unacked: UnackedAppends = field(default_factory=UnackedAppends)
    writes: Writes = field(default_factory=Writes)
    leader_wait_s: float = LEADER_WAIT_S
    waiting_for_leader: int = 0
    """Requests, and parts of them, that wait for a leader now."""
    is_leaving: bool = False
    """The node is not ready any more: clients should send their next requests to other nodes."""
    _stopping: asyncio.Future[None] | None = None

    @property
    def stopping(self) -> asyncio.Future[None]:
        """Done when the node stops and every wait shall end."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_future()
        return self._stopping

    def admit(self, spending: Spending, body_bytes: int = 0) -> None:
        """Count one request in flight for its principal, with a body that has come. Raises ThrottlingQuotaExceeded: its
        rates are used up, or its share of a budget is (check_share). A refused request is not counted.
        """
        spending.admit()
        spending.held_requests += 1
        spending.held_body_bytes += body_bytes
        try:
            self.check_share(spending, self.in_flight.requests, spending.held_requests - 1)
            if body_bytes:
                self.check_share(spending, self.in_flight.body_bytes, spending.held_body_bytes - body_bytes)
        except ThrottlingQuotaExceeded:
            spending.held_requests -= 1
            spending.held_body_bytes -= body_bytes
            spending.take_back()
            raise

    def check_share(self, spending: Spending, budget: Budget, others: int) -> None:
        """Raises ThrottlingQuotaExceeded if the other requests of this principal hold ``others`` of a budget, and it
        has less room left. So one principal takes at most half of a node, two at most two thirds (dynamic thresholds of
        shared buffers, Choudhury and Hahne 1998), plus one request. Requests of no principal have no share of their
        own.
        """
        if spending.is_principals and others > budget.limit - budget.used:
            raise ThrottlingQuotaExceeded(
                f"{spending.name} has {others} {budget.what}, and the node has room for "
                f"{budget.limit - budget.used} more, which are for others",
                retry_after_ms=budget.retry_after_ms,
            )

    def unready(self) -> list[Unready]:
        """What the node is not ready for, with the reasons, the weightiest first."""
        leaving = [Unready("node", "stopping", "the node is stopping")] if self.is_leaving else []
        return leaving + self.service.unready()

    def stop(self) -> None:
        """End every wait. Repeating it does nothing."""
        if not self.stopping.done():
            self.stopping.set_result(None)


class Request(Protocol):
    """A request in flight, of any protocol."""

    front: Front

    @property
    def id(self) -> str:
        """The request's id, in its refusal and in the log."""
        ...

    @property
    def is_forwarded(self) -> bool:
        """Whether a node forwarded the request (once at most), or its client allows no forwarding."""
        ...

    @property
    def is_answering(self) -> bool:
        """Whether a part of the answer was sent, so that the request cannot be tried again."""
        ...

    def is_gone(self) -> bool:
        """Whether the client has closed the connection before the answer."""
        ...


async def unless_ended(
    request: Request, read: Coroutine[Any, Any, _T], has_moved: Callable[[], bool] = lambda: False
) -> _T:
    """The result of ``read``, which must change nothing: it is cancelled when the client goes away, the node stops, or
    another node leads than the one that was asked, as ``has_moved`` says.

    Raises ConnectionResetError, and for the other two LeaderNotAvailable.
    """
    stopping = request.front.stopping
    task = asyncio.ensure_future(read)
    try:
        while not task.done():
            await asyncio.wait((task, stopping), timeout=GONE_CHECK_S, return_when=asyncio.FIRST_COMPLETED)
            if request.is_gone():
                raise ConnectionResetError("the client is gone")
            if not task.done() and (stopping.done() or has_moved()):
                raise LeaderNotAvailable("the node is stopping" if stopping.done() else "another node leads now")
        return task.result()
    finally:
        task.cancel()


async def retry_at_leader(
    request: Request, here: Callable[[], Awaitable[_T]], there: Callable[[NotLeaderOrFollower], Awaitable[_T]]
) -> _T:
    """The answer of ``here`` or, when another node leads, of ``there``; tried again while no leader can be reached.

    ``here`` raises NotLeaderOrFollower, ``there`` LeaderNotAvailable, only when surely nothing was proposed. Raises
    NotLeaderOrFollower for a request that may not be forwarded, and LeaderNotAvailable after ``leader_wait_s``.
    """
    front = request.front
    deadline: float | None = None
    pause_s = 0.0
    while True:
        news = front.service.leadership_news
        try:
            return await here()
        except NotLeaderOrFollower as moved:
            if request.is_forwarded or request.is_answering:
                raise
            elsewhere = without_frames(moved)
        try:
            return await there(elsewhere)
        except LeaderNotAvailable:
            now = asyncio.get_running_loop().time()
            deadline = now + front.leader_wait_s if deadline is None else deadline
            if now >= deadline or request.is_answering or front.stopping.done():
                raise
        await unless_ended(request, _pause(front, news, pause_s, deadline - now))
        # Chance spreads the tries; no secret depends on it.
        pause_s = 2 * random.random() * (front.waiting_for_leader + 1) / TRIES_PER_S  # noqa: S311  # nosec B311


def without_frames(error: _E) -> _E:
    """The error, without its traceback; the errors that it came from lose theirs, too.

    A function that raises an error from a variable makes a cycle: the error, its traceback, the function's frame. Only
    the garbage collector ends it, after thousands of requests, whose bodies would be in memory until then.
    """
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


async def _pause(front: Front, news: int, pause_s: float, left_s: float) -> None:
    front.waiting_for_leader += 1
    try:
        await asyncio.sleep(min(left_s, pause_s))
        await front.service.await_leadership_news(news, min(left_s, RECHECK_S))
    finally:
        front.waiting_for_leader -= 1
