"""What a producer's user holds and waits for: the delivery of what was sent, and room in the buffer."""

import asyncio
from collections import deque
from collections.abc import Generator
from typing import Any

from ..partition.errors import StockadeError
from .batches import Batch, Receipt


class Delivery:
    """Await it for the Receipt of what was sent; raises the refusal.

    The refusal's ``fields["outcome"]["state"]`` says what became of these very records: committed, absent or unknown.
    Waiting may be given up and taken up again; the records are sent all the same.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int | None = None) -> None:
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        """Whether awaiting it would return, or raise, at once."""
        return self._batch.outcome is not None

    @property
    def failure(self) -> StockadeError | None:
        """The refusal, once it is there; None while undecided and when it is stored."""
        return self._batch.outcome if isinstance(self._batch.outcome, StockadeError) else None

    def __await__(self) -> Generator[Any, None, Receipt]:
        if self._batch.outcome is None:
            yield from _settled(self._batch).__await__()
        outcome = self._batch.outcome
        assert outcome is not None
        if isinstance(outcome, StockadeError):
            self._batch.is_reported = True
            raise outcome
        return outcome if self._index is None else _record_of(outcome, self._index)


class Buffer:
    """A bound on the bytes that wait for their answer. Who waits for room gets it in the order of asking."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Wait for room. More than there is in all is let in when the buffer is empty."""
        if not self._waiting and self._has_room(size):
            self._used += size
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(size)
            raise

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


def _record_of(receipt: Receipt, index: int) -> Receipt:
    base = None if receipt.base_offset is None else receipt.base_offset + index
    return Receipt(receipt.topic, receipt.partition, base, 1, receipt.duplicate, receipt.timestamp_ms)
