"""Group commit: one flush at a time; the next one takes everything that was appended while it ran."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from .wal_files import WalWriter
from .wal_records import WalFailed
from .wal_tail import Tail


class GroupCommit:
    """Moves the tail to disk. Lives on the loop; only write and fdatasync run in its thread.

    ``on_durable`` is called after each flush, ``on_failure`` at most once: after it nothing is flushed any more.
    """

    durable_lsn: int = 0
    """Every record up to and including this number is on disk."""
    durable_bytes: int = 0
    """The same in bytes appended since the log was opened."""
    failure: BaseException | None = None

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tail: Tail,
        writer: WalWriter,
        on_durable: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._tail = tail
        self._writer = writer
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="wal")
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_scheduled = False
        self._landing: asyncio.Event | None = None

    def request(self) -> None:
        """Flush the tail: at the end of this turn of the loop, so that all it appends goes together."""
        if self._idle.is_set() and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._start)

    async def until_durable(self, lsn: int) -> None:
        """Return when the record is on disk. Raises WalFailed when it never will be."""
        while self.durable_lsn < lsn:
            if self.failure is not None:
                raise WalFailed("the log failed") from self.failure
            self._landing = self._landing or asyncio.Event()
            await self._landing.wait()

    async def finish(self) -> None:
        """Flush what is left, unless the log has failed, and let go of thread and file."""
        self._start()
        await self._idle.wait()
        self._thread.shutdown()
        self._writer.close()

    def _start(self) -> None:
        self._is_scheduled = False
        if self._idle.is_set() and self.failure is None and (runs := self._tail.take()):
            self._idle.clear()
            landed = partial(self._landed, self._tail.lsn, self._tail.appended_bytes)
            flight = self._thread.submit(self._writer.write, runs)
            # Half the delay and work of loop.run_in_executor, which adds futures of its own.
            flight.add_done_callback(partial(self._loop.call_soon_threadsafe, landed))

    def _landed(self, lsn: int, appended_bytes: int, flight: Future[None]) -> None:
        self._idle.set()
        if self._landing is not None:
            self._landing.set()
            self._landing = None
        self.failure = flight.exception()
        if self.failure is not None:
            self._on_failure(self.failure)
            return
        self.durable_lsn, self.durable_bytes = lsn, appended_bytes
        self._start()
        self._on_durable()
