"""What is held until it is lost: a grant (fencing.py), a resource (owning.py). Knows neither cluster nor clock."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Self, TypeVar

from ..partition.errors import StockadeError


class Holding:
    """In force until ``lost`` is set; then ``error`` says why. It never comes back."""

    def __init__(self) -> None:
        self.lost: asyncio.Event = asyncio.Event()
        self.error: StockadeError | None = None
        self._watchers: list[Callable[[StockadeError], None]] = []

    def on_lost(self, watcher: Callable[[StockadeError], None]) -> None:
        """Call ``watcher`` once with the error when it is lost."""
        self._watchers.append(watcher)

    def forget(self, watcher: Callable[[StockadeError], None]) -> None:
        """Take back one ``on_lost``."""
        self._watchers.remove(watcher)

    def lose(self, error: StockadeError) -> None:
        """It is gone. Only the first call counts."""
        if self.error is not None:
            return
        self.error = error
        self.lost.set()
        for watcher in tuple(self._watchers):
            watcher(error)

    def guard(self) -> "Guard[Self]":
        """``async with fence.guard():`` cancels its block when it is lost, and raises why."""
        return Guard(self)


H = TypeVar("H", bound=Holding)


class Guard(Generic[H]):
    """A block of work that ends with what is held, as ``asyncio.timeout`` ends one with time.

    The cancellation is a courtesy that saves refused work: what makes it safe is that the log, or whoever is shown
    the epoch, refuses an old one.
    """

    def __init__(self, holding: H) -> None:
        self._holding = holding
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_hit = False

    async def __aenter__(self) -> H:
        self._task = asyncio.current_task()
        assert self._task is not None
        if self._holding.error is not None:
            raise self._holding.error
        self._cancelling = self._task.cancelling()
        self._holding.on_lost(self._cancel)
        return self._holding

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        task, self._task = self._task, None
        self._holding.forget(self._cancel)
        if not self._is_hit:
            return
        assert task is not None
        if kind is not asyncio.CancelledError:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # the cancellation that the block did not live to see
        is_ours = task.uncancel() <= self._cancelling
        if is_ours and (kind is None or kind is asyncio.CancelledError):
            assert self._holding.error is not None
            raise self._holding.error from error

    def _cancel(self, _: StockadeError) -> None:
        if self._task is not None:
            self._is_hit = True
            self._task.cancel()
