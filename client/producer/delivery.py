"""The delivery of sent records, which the application awaits, and the bound on the bytes that wait."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from ...partition.errors import StockadeError
from ..errors import BufferFull, with_fields
from ..loop_affinity import LoopAffinity
from .queue.batch import Batch, Receipt

TURN_BYTES = 256 << 10
"""A task that has taken this many bytes of the buffer without waiting lets the event loop run once."""

_log = logging.getLogger(__name__)


class Delivery(msgspec.Struct, eq=False):
    """The outcome of sent records: awaiting it returns their Receipt, or raises the refusal.

    ``error.fields["outcome"]["state"]`` of the refusal says whether these records are committed, absent or unknown.
    Awaiting may be cancelled and repeated, by any number of tasks; the records are sent all the same.
    """

    # A struct is made in half the time of another object, which counts for each record.
    _batch: Batch
    _first: int
    _count: int
    _affinity: LoopAffinity

    def __repr__(self) -> str:
        outcome = self.receipt or self.failure
        return f"<Delivery: {outcome or 'under way'}>"

    @property
    def is_done(self) -> bool:
        """Whether awaiting it would return, or raise, at once."""
        return self._batch.outcome is not None

    @property
    def failure(self) -> StockadeError | None:
        """The refusal; None while the outcome is open, and when the records are stored."""
        outcome = self._batch.outcome
        return self._part_of_failure(outcome) if isinstance(outcome, StockadeError) else None

    @property
    def receipt(self) -> Receipt | None:
        """The receipt; None while the outcome is open, and when the records failed."""
        outcome = self._batch.outcome
        if not isinstance(outcome, Receipt):
            return None
        return outcome if self._count == outcome.count else self._part_of(outcome)

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Call ``callback`` with this delivery when it is done: at once if it is done already, else in the event loop,
        before the tasks that await it continue. The callback must be quick; its exceptions are logged.
        """
        if self.is_done:
            _call(callback, self)
        else:
            self._batch.watchers.append(partial(_call, callback, self))

    def __await__(self) -> Generator[Any, None, Receipt]:
        if self._batch.outcome is None:
            self._affinity.enter()
            yield from _settled(self._batch).__await__()
        failure = self.failure
        if failure is not None:
            self._batch.is_reported = True
            raise with_fields(failure)  # each record of the batch may be awaited
        receipt = self.receipt
        assert receipt is not None
        return receipt

    def _part_of(self, whole: Receipt) -> Receipt:
        base = None if whole.base_offset is None else whole.base_offset + self._first
        return replace(whole, base_offset=base, count=self._count)

    def _part_of_failure(self, error: StockadeError) -> StockadeError:
        """The refusal with the offsets of these records, when it certifies where the whole batch is stored."""
        outcome = error.fields.get("outcome") or {}
        if self._count == self._batch.count or outcome.get("base_offset") is None:
            return error
        base = outcome["base_offset"] + self._first
        return with_fields(error, outcome={**outcome, "base_offset": base, "last_offset": base + self._count - 1})


class Buffer:
    """A bound on the bytes of records without an outcome: backpressure. Waiting tasks get room in the order of asking.

    ``timeout_ms``: how long a task waits.
    """

    def __init__(self, bytes_max: int, timeout_ms: int) -> None:
        self._bytes_max = bytes_max
        self._timeout_ms = timeout_ms
        self.used: int = 0
        self._turn_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take_now(self, size: int) -> bool:
        """Take room at once, and return True, if there is room, no task waits for it, and fewer than TURN_BYTES were
        taken since the last wait. A record larger than ``bytes_max`` is let in when the buffer is empty.
        """
        used = self.used + size
        if self._waiting or self._turn_bytes >= TURN_BYTES or (used > self._bytes_max and self.used):
            return False
        self.used = used
        self._turn_bytes += size
        return True

    async def take(self, size: int) -> None:
        """Wait for room, in the order of the calls. Raises BufferFull when there was none in time.

        After TURN_BYTES it lets the event loop run, since a task that only sends would otherwise keep its batches from
        leaving until the buffer is full.
        """
        if self.take_now(size):
            return
        loop = asyncio.get_running_loop()
        if self._turn_bytes >= TURN_BYTES:
            self._turn_bytes = 0
            loop.call_soon(self.give_back, 0)
        future = loop.create_future()
        self._waiting.append((size, future))
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await future
        except asyncio.CancelledError:
            self._leave(size, future)
            raise
        except TimeoutError:
            if future.cancelled():
                self._leave(size, future)
                raise BufferFull(bytes_max=self._bytes_max, waited_ms=self._timeout_ms) from None

    def _leave(self, size: int, future: "asyncio.Future[None]") -> None:
        if not future.cancelled():
            self.give_back(size)  # room was given at the last moment
        else:
            self.give_back(0)  # a task that waited behind it may fit

    def give_back(self, size: int) -> None:
        """Free room, and give it to the waiting tasks that fit."""
        self.used -= size
        while self._waiting:
            wanted, future = self._waiting[0]
            if not future.cancelled():
                if not self._has_room(wanted):
                    return
                self.used += wanted
                future.set_result(None)
            self._waiting.popleft()

    def _has_room(self, size: int) -> bool:
        return self.used + size <= self._bytes_max or self.used == 0


async def wait_settled(batches: list[Batch]) -> None:
    """Return when each batch has its outcome, stored or failed."""
    for batch in batches:
        if batch.outcome is None:
            await _settled(batch)


async def _settled(batch: Batch) -> None:
    future = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    batch.watchers.append(wake)
    await future


def _call(callback: Callable[[Delivery], object], delivery: Delivery) -> None:
    try:
        callback(delivery)
    except (Exception, asyncio.CancelledError):  # a future that the callback reads was cancelled, not this task
        _log.exception("a callback of a delivery failed")
