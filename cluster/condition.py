"""Waits: until replicated state has changed, or until the next common time of periodic tasks."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

_Value = TypeVar("_Value")


class Condition:
    """Wakes all waiters when the state that they look at may have changed."""

    def __init__(self) -> None:
        self.count: int = 0
        """The number of notifications so far."""
        self._waiters: set[asyncio.Future[None]] = set()
        self._watchers: dict[Callable[[], None], None] = {}

    def watch(self, look: Callable[[], None]) -> None:
        """Call ``look`` at each notification, until ``unwatch``. For one task that waits for many conditions."""
        self._watchers[look] = None

    def unwatch(self, look: Callable[[], None]) -> None:
        """Call ``look`` no more."""
        del self._watchers[look]

    def notify(self, _: object = None) -> None:
        """Let the waiters look again, since the state may have changed. Also a callback: the argument is ignored."""
        self.count += 1
        if self._waiters:
            waiters, self._waiters = self._waiters, set()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        for look in self._watchers:
            look()

    async def until(self, look: Callable[[], _Value | None], timeout_s: float) -> _Value | None:
        """The answer of ``look`` as soon as it is not None; None if it is None for ``timeout_s`` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while (found := look()) is None:
            remaining = deadline - loop.time()
            if remaining <= 0 or not await self._changed(loop, remaining):
                return look()
        return found

    async def _changed(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> bool:
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.add(waiter)
        try:
            done, _ = await asyncio.wait((waiter,), timeout=timeout_s)
            return bool(done)
        finally:
            self._waiters.discard(waiter)


class Followed(Protocol):
    """A log whose end a follower can wait for."""

    @property
    def changed(self) -> Condition:
        """Notified when ``has_news`` may have changed."""
        ...

    def has_news(self, offset: int) -> bool:
        """Whether a read from ``offset`` may return records, or a refusal, as far as this node knows: a hint, which may
        be wrong either way.
        """
        ...


def aligned_s(period_s: float) -> float:
    """Seconds from now to a multiple of ``period_s`` on the clock of the running loop: the first one that is more than
    half a period away. Looks that sleep so are a period apart, and all tasks with one period look at the same time.

    A period below 2 ms, as tests have it, is returned as it is.
    """
    period = round(period_s * 1000)
    if period < 2:
        return period_s
    now = asyncio.get_running_loop().time() * 1000
    return (((now + period / 2) // period + 1) * period - now) / 1000
