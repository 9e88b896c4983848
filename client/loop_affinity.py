"""The process and the event loop that a client belongs to.

Connections, timers and tasks live in one event loop of one process. Used in another event loop they would wait for
ever, and in a forked child two processes would write into one connection, so such a use is refused at once.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from threading import get_ident

from .errors import OtherEventLoop, UsedAfterFork

_forks = 0
"""How many forks lie between the first process of this program and this one."""


def _forked() -> None:
    global _forks  # noqa: PLW0603  # it describes the process
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class LoopAffinity:
    """The process in which this object was made, and the event loop of the first ``enter``."""

    __slots__ = ("_forks", "_loop", "_thread")

    def __init__(self) -> None:
        self._forks = _forks
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0  # the id of the thread in which `enter` last saw the loop

    @property
    def is_forked(self) -> bool:
        """Whether the present process is a forked child of the one in which this object was made."""
        return self._forks != _forks

    def check_process(self) -> None:
        """Raises UsedAfterFork in a forked child."""
        if self._forks != _forks:
            raise UsedAfterFork

    def enter(self) -> None:
        """Raises UsedAfterFork in a forked child, OtherEventLoop in another event loop than that of the first call."""
        if self._forks != _forks:
            raise UsedAfterFork
        bound = self._loop
        # A thread runs one loop at a time. Python 3.11 asks the kernel for the running one: too much for each record.
        if bound is not None and self._thread == get_ident() and bound.is_running():
            return
        loop = asyncio.get_running_loop()
        if bound is not None and loop is not bound:
            raise OtherEventLoop
        self._loop, self._thread = loop, get_ident()


class LoopEnd:
    """Calls ``close`` when the event loop ends (``asyncio.run``, ``asyncio.Runner``), or when nothing refers to its
    owner any more, unless it was told to ``forget`` before.

    An event loop announces its end only to its asynchronous generators, while it still runs; its tasks may have ended
    by then, or others begun.
    """

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close: Callable[[], Awaitable[None]] | None = close
        self._generator: AsyncGenerator[None, None] | None = None

    async def watch(self) -> None:
        """Call ``close`` at the end of the running loop."""
        if self._generator is None:
            self._generator = self._wait()
            await anext(self._generator)

    async def forget(self) -> None:
        """Call nothing at the end."""
        close, self._close = self._close, None
        if close is not None and self._generator is not None:
            await self._generator.aclose()

    async def _wait(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._generator = None  # it ends already, with its loop: `forget` has nothing to end
            if self._close is not None:
                await asyncio.sleep(0)  # the application's generators end beside this one, and may close the owner
            close, self._close = self._close, None
            if close is not None:
                with suppress(UsedAfterFork):  # a child that was forked inside the loop ends its copy of it
                    await close()
