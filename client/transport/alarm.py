"""One timer for many entries that are due some time, such as requests that wait for an answer."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Due(Protocol):
    """An entry of an alarm. ``due_s``: when the alarm rings for it (loop time). In an alarm, ``due_s`` only grows."""

    due_s: float


E = TypeVar("E", bound=Due)


class Alarm(Generic[E]):
    """Calls ``ring`` with the entries that are due; ``ring`` gives each of them a later ``due_s``, or discards it."""

    def __init__(self, ring: Callable[[list[E]], None]) -> None:
        self.entries: set[E] = set()
        self.rings_at_s: float | None = None
        """When the timer fires (loop time); None without a timer. For a moment that is due already, uvloop's
        ``call_at`` returns a handle that cannot tell.
        """
        self._ring = ring
        self._timer: asyncio.Handle | None = None

    def add(self, entry: E) -> None:
        """Ring when ``entry`` is due, unless it is discarded before."""
        if self.rings_at_s is None or entry.due_s < self.rings_at_s:
            self._wake_at(entry.due_s)
        self.entries.add(entry)

    def discard(self, entry: E) -> None:
        """Remove the entry: the alarm rings for it no more."""
        self.entries.discard(entry)

    def close(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _wake_at(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due_s, self._wake)
        self.rings_at_s = due_s

    def _wake(self) -> None:
        self._timer = self.rings_at_s = None
        now_s = asyncio.get_running_loop().time()
        due = [entry for entry in self.entries if entry.due_s <= now_s]
        if due:
            self._ring(due)
        if self.entries:
            self._wake_at(min(entry.due_s for entry in self.entries))
