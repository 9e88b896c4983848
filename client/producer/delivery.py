"""What a producer's user holds and waits for: the delivery of what was sent, and room in the buffer."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

from ..partition.errors import StockadeError
from .batches import Batch, Receipt
from .errors import BufferFull, with_fields

TURN_BYTES = 256 << 10
"""Whoever takes more than this without waiting for anything lets the event loop go round once."""

_log = logging.getLogger(__name__)


class Delivery:
    """Await it for the Receipt of what was sent; raises the refusal.

    The refusal's ``fields["outcome"]["state"]`` says what became of these very records: committed, absent or unknown.
    Waiting may be given up and taken up again; the records are sent all the same.
    """

    __slots__ = ("_batch", "_count", "_first")

    def __init__(self, batch: Batch, first: int, count: int) -> None:
        self._batch = batch
        self._first = first
        self._count = count

    def __repr__(self) -> str:
        outcome = self.receipt or self.failure
        return f"<Delivery: {outcome or 'under way'}>"

    @property
    def is_done(self) -> bool:
        """Whether awaiting it would return, or raise, at once."""
        return self._batch.outcome is not None

    @property
    def failure(self) -> StockadeError | None:
        """The refusal, once it is there; None while undecided and when it is stored."""
        outcome = self._batch.outcome
        return self._part_of_failure(outcome) if isinstance(outcome, StockadeError) else None

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, once it is stored; None while undecided and when it failed."""
        outcome = self._batch.outcome
        if not isinstance(outcome, Receipt):
            return None
        return outcome if self._count == outcome.count else self._part_of(outcome)

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Call it with this delivery once that is done: at once if it is, else in the loop, before whoever awaits it
        goes on. Like an interceptor it must be quick; what it raises is logged.
        """
        if self.is_done:
            _call(callback, self)
        else:
            self._batch.watchers.append(partial(_call, callback, self))

    def __await__(self) -> Generator[Any, None, Receipt]:
        if self._batch.outcome is None:
            yield from _settled(self._batch).__await__()
        failure = self.failure
        if failure is not None:
            self._batch.is_reported = True
            raise failure
        receipt = self.receipt
        assert receipt is not None
        return receipt

    def _part_of(self, whole: Receipt) -> Receipt:
        base = None if whole.base_offset is None else whole.base_offset + self._first
        return replace(whole, base_offset=base, count=self._count)

    def _part_of_failure(self, error: StockadeError) -> StockadeError:
        """A refusal may certify where the batch was stored earlier: these records have their own place in it."""
        outcome = error.fields.get("outcome") or {}
        if self._count == self._batch.count or outcome.get("base_offset") is None:
            return error
        base = outcome["base_offset"] + self._first
        return with_fields(error, outcome={**outcome, "base_offset": base, "last_offset": base + self._count - 1})


class Buffer:
    """A bound on the bytes that wait for their answer. Who waits for room gets it in the order of asking.

    ``timeout_ms``: how long anybody waits.
    """

    def __init__(self, bytes_max: int, timeout_ms: int) -> None:
        self._bytes_max = bytes_max
        self._timeout_ms = timeout_ms
        self._used = 0
        self._turn_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take_now(self, size: int) -> bool:
        """Take room, if there is some, nobody waits, and it is nobody else's turn. More than there is in all is let in
        when nothing else is.
        """
        used = self._used + size
        if self._waiting or self._turn_bytes >= TURN_BYTES or (used > self._bytes_max and self._used):
            return False
        self._used = used
        self._turn_bytes += size
        return True

    async def take(self, size: int) -> None:
        """Wait for room. Raises BufferFull when there was none in time.

        A loop that only sends would otherwise keep the event loop to itself until the buffer is full, and nothing of
        what it sent could leave before.
        """
        while self._turn_bytes >= TURN_BYTES:
            self._turn_bytes = 0
            await asyncio.sleep(0)
        if self.take_now(size):
            return
        future = asyncio.get_running_loop().create_future()
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
            self.give_back(0)  # who waited behind may fit

    def give_back(self, size: int) -> None:
        """Free room and let in who fits now."""
        self._used -= size
        while self._waiting:
            wanted, future = self._waiting[0]
            if not future.cancelled():
                if not self._has_room(wanted):
                    return
                self._used += wanted
                future.set_result(None)
            self._waiting.popleft()

    def _has_room(self, size: int) -> bool:
        return self._used + size <= self._bytes_max or self._used == 0


async def wait_settled(batches: list[Batch]) -> None:
    """Return when each of them has its outcome, whatever it is."""
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
    except Exception:
        _log.exception("a callback of a delivery failed")
