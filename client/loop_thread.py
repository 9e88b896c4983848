"""An event loop on a thread of its own, for callers that have none."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """The thread that runs everything; started at the first use, a daemon, so it keeps no program alive."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """The result of ``work``, or what it raised. What the caller interrupts (Ctrl-C, a timeout) is cancelled."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread; the next ``run`` starts another one. What still runs there never ends."""
        with self._starting:
            loop, self._loop = self._loop, None
            if loop is not None and self._thread is not None:
                loop.call_soon_threadsafe(loop.stop)
                self._thread.join()
                loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="stockade.sync", daemon=True)
                self._thread.start()
            return self._loop


async def made(make: Callable[[], T]) -> T:
    """What ``make`` makes, made on the loop."""
    return make()


shared: LoopThread = LoopThread()
"""The one of stockade.sync."""
