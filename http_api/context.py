"""What all handlers of one application share: the service, the other nodes, the counters and the bounds.

Nothing here is global: a process may hold several applications, each with its own.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from ..cluster.service import Service
from ..partition.errors import StockadeError, ThrottlingQuotaExceeded
from .metrics import Metrics
from .peers import Peers
from .refused_writes import RefusedWrites
from .tokens import Tokens

_log = logging.getLogger(__name__)

BODY_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of all bodies that a node holds at one time; beyond it requests are THROTTLING_QUOTA_EXCEEDED."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of the batches that a node renders as text at one time; likewise. Arrow answers are not held in memory."""
UNACKED_MAX = 1000
"""Appends with acks=0 that a node works on at one time; likewise."""

LEADER_WAIT_S = 5.0
"""Time that a request waits for a leader to be known that can be reached; then it is LEADER_NOT_AVAILABLE."""
REQUESTS_MAX = 10_000
"""Requests that a node works on at one time, long polls included; likewise."""

_THROTTLED_MS = 250


class Budget:
    """Something that all requests together may have only so much of. ``what`` it is, for people."""

    def __init__(self, limit: int, what: str) -> None:
        self.limit = limit
        self.used: int = 0
        self._what = what

    def has_room(self, count: int) -> bool:
        """Whether there is that much left."""
        return self.used + count <= self.limit

    def take(self, count: int) -> None:
        """Raises ThrottlingQuotaExceeded when there is not that much left."""
        if not self.has_room(count):
            text = f"the node has too many {self._what} already"
            raise ThrottlingQuotaExceeded(text, retry_after_ms=_THROTTLED_MS)
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
    tokens: Tokens = field(default_factory=lambda: Tokens({}))
    metrics: Metrics = field(default_factory=Metrics)
    bodies: Budget = field(default_factory=lambda: Budget(BODY_BYTES_MAX, "bytes of bodies in memory"))
    answers: Budget = field(default_factory=lambda: Budget(ANSWER_BYTES_MAX, "bytes of answers in memory"))
    requests: Budget = field(default_factory=lambda: Budget(REQUESTS_MAX, "requests under way"))
    is_leaving: bool = False
    leader_wait_s: float = LEADER_WAIT_S
    waiting: int = 0
    """Requests, and parts of them, that wait for a leader now."""
    background: Background = field(default_factory=Background)
    refused_writes: RefusedWrites = field(default_factory=RefusedWrites)
    followers: int = 0
    _stopping: asyncio.Future[None] | None = None

    @property
    def stopping(self) -> asyncio.Future[None]:
        """Done when the node stops and everything that waits shall end."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_future()
        return self._stopping

    def admit(self, body_bytes: int) -> bool:
        """Take a place for one request and its body; False: both are not to be had, and nothing was taken."""
        if not (self.bodies.has_room(body_bytes) and self.requests.has_room(1)):
            return False
        self.bodies.take(body_bytes)
        self.requests.take(1)
        return True

    def dismiss(self, body_bytes: int) -> None:
        """What ``admit`` took."""
        self.bodies.give_back(body_bytes)
        self.requests.give_back(1)

    def stop(self) -> None:
        """End what waits. Repeating it does nothing."""
        if not self.stopping.done():
            self.stopping.set_result(None)
