"""Reacquires the leases that a session has lost, if the application gave a ``reacquire`` callback. The application
always learns of the loss: the lost lease stays lost, and ``reacquire`` gets a new lease, with a new epoch.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ...partition.errors import (
    GenerationFenced,
    HoldAndWait,
    NotFound,
    ProducerBusy,
    ProducerFenced,
    SessionExpired,
    StockadeError,
    UnknownSession,
)
from ..errors import ClientClosed, ClientFault
from ..retry import is_momentary
from .held import ASK_AGAIN_S, HeldLease

_SESSION_ENDED = (SessionExpired, UnknownSession)
_LATER = (*_SESSION_ENDED, GenerationFenced, HoldAndWait, NotFound, ProducerBusy, ProducerFenced)
"""Refusals while others hold or claim what was lost, or because the session, and with it a ticket, has just ended."""


def can_pass(error: StockadeError) -> bool:
    """Whether to request a lost lease again after this refusal: others hold it now, or no node answered in time."""
    return isinstance(error, _LATER) or is_momentary(error)


def ends_this_task(error: BaseException) -> bool:
    """Whether the error is the cancellation of this task, and not that of a task or future for which it has waited."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class CannotGoOn(Exception):
    """``told`` cannot use the reacquired lease: `again` of the lost lease raises ``reason``."""

    def __init__(self, reason: StockadeError) -> None:
        super().__init__(str(reason))
        self.reason = reason


Told = Callable[[Any], Awaitable[None] | None]
"""Takes a lease that was acquired again. Exceptions other than CannotGoOn are logged."""

_log = logging.getLogger(__name__)


class Reacquirer:
    """Runs a task for each lost lease, which opens the session again if that is lost too, acquires the lease again, and
    tells the application by ``told``.

    ``revive`` opens the session if it is lost, and answers its id; ``lose`` notes that the cluster has ended the
    session of this id. After a refusal that can pass the task asks again, with a pause of ASK_AGAIN_S; any other is
    final for this lease, and ``again`` raises it.
    """

    def __init__(
        self, revive: Callable[[], Awaitable[str]], lose: Callable[[str, StockadeError], None], told: Told
    ) -> None:
        self._revive = revive
        self._lose = lose
        self._told = told
        self._watched: dict[HeldLease, Callable[[], Awaitable[HeldLease]]] = {}
        self._tasks: dict[HeldLease, asyncio.Task[HeldLease]] = {}
        self._released: set[HeldLease] = set()
        """Lost leases that the application has released since: what replaces them is given up."""
        self._is_closed = False

    def watch(self, lease: HeldLease, again: Callable[[], Awaitable[HeldLease]]) -> None:
        """Acquire the lease anew, by a call of ``again``, when it is lost."""
        lease.expect_successor()
        if self._is_closed:  # while the request for the lease was under way
            lease.succeeded(None, _closed())
            return
        self._watched[lease] = again
        lease.on_lost(lambda _: self._begin(lease))

    def forget(self, lease: HeldLease) -> None:
        """Stop watching the lease, or acquiring it again: the application has released it. What is acquired already is
        given up, in the background; a callback that releases its own lost lease goes on before that.
        """
        if self._watched.pop(lease, None) is not None:
            lease.succeeded(None, _released())
        task = self._tasks.get(lease)
        if task is not None:
            self._released.add(lease)
            if task is not asyncio.current_task():
                task.cancel()

    async def released(self, lease: HeldLease) -> None:
        """`forget` the lease; returns when nothing is left of what replaces it. A callback does not wait for that."""
        self.forget(lease)
        task = self._tasks.get(lease)
        if task is not None and task is not asyncio.current_task():
            await asyncio.wait([task])

    async def close(self) -> None:
        """Acquire nothing any more, also nothing that is watched from now on. A callback may call this: it goes on."""
        self._is_closed = True
        for lease in self._watched:
            lease.succeeded(None, _closed())
        self._watched.clear()
        tasks = [task for task in self._tasks.values() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _begin(self, lease: HeldLease) -> None:
        again = self._watched.pop(lease, None)
        if again is not None:
            task = self._tasks[lease] = asyncio.get_running_loop().create_task(self._acquire_again(lease, again))
            task.add_done_callback(partial(self._over, lease))

    def _over(self, lease: HeldLease, task: "asyncio.Task[HeldLease]") -> None:
        del self._tasks[lease]
        self._released.discard(lease)
        if task.cancelled():
            lease.succeeded(None, lease.error)
            return
        end = task.exception()
        if isinstance(end, CannotGoOn):
            end = end.reason
        if end is None:
            lease.succeeded(task.result(), None)
        else:
            _log.warning("%r is not acquired again: %s", lease, end)
            lease.succeeded(
                None, end if isinstance(end, StockadeError) else ClientFault(f"a bug in the client: {end!r}")
            )

    async def _acquire_again(self, lease: HeldLease, again: Callable[[], Awaitable[HeldLease]]) -> HeldLease:
        successor = await self._until_held(again)
        try:
            if successor.error is None:
                await self._tell(successor)
        finally:
            if lease in self._released and not self._is_closed:
                await successor.release()
        if self._is_closed:
            raise _closed()
        if lease in self._released:
            raise _released()
        return successor

    async def _until_held(self, again: Callable[[], Awaitable[HeldLease]]) -> HeldLease:
        while True:
            session_id = ""
            try:
                session_id = await self._revive()
                return await again()
            except StockadeError as error:
                if isinstance(error, _SESSION_ENDED):
                    self._lose(session_id, error)
                elif not can_pass(error):
                    raise
            await asyncio.sleep(ASK_AGAIN_S)

    async def _tell(self, successor: HeldLease) -> None:
        try:
            answer = self._told(successor)
            if inspect.isawaitable(answer):
                await answer
        except CannotGoOn:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if ends_this_task(error):
                raise
            _log.exception("the reacquire callback failed for %r, which is held all the same", successor)


def _released() -> ClientClosed:
    return ClientClosed("it was released")


def _closed() -> ClientClosed:
    return ClientClosed("the session was closed")
