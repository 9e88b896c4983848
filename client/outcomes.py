"""Successes and errors as streams, for applications that would rather read results than await each delivery.

Nothing is kept until somebody asks. From then on a batch's bytes count as buffered until its outcome was read, so an
application that stops reading is stopped by ``send``; nothing grows without bound.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..partition.errors import StockadeError
from .batches import Batch, Receipt
from .delivery import Buffer


@dataclass(frozen=True, slots=True)
class Failure:
    """``count`` records sent together that were not stored as far as is known; ``error.fields["outcome"]`` tells."""

    topic: str
    partition: int
    count: int
    error: StockadeError


T = TypeVar("T")


class Outcomes(Generic[T]):
    """Of one kind, in the order of settling: receipts, or failures."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._is_read = False
        self._is_over = False
        self._ready: deque[tuple[T, int]] = deque()
        self._changed = asyncio.Event()

    def add(self, outcome: T, batch: Batch) -> None:
        """A batch was settled: its room in the buffer is free now, or when this was read."""
        if not self._is_read:
            self._buffer.give_back(batch.size)
            return
        self._ready.append((outcome, batch.size))
        self._changed.set()

    def close(self) -> None:
        """Whoever reads finds the end behind what is there already."""
        self._is_over = True
        self._changed.set()

    def subscribe(self) -> AsyncIterator[T]:
        """From now on outcomes are kept until they are read."""
        self._is_read = True
        return self._read()

    async def _read(self) -> AsyncIterator[T]:
        while True:
            while self._ready:
                outcome, size = self._ready.popleft()
                self._buffer.give_back(size)
                yield outcome
            if self._is_over:
                return
            self._changed.clear()
            await self._changed.wait()


Watcher = Callable[[Receipt | Failure, float], None]
"""Takes an outcome, and the seconds from the batch's beginning to it."""


class Results:
    """What a producer's batches came to, for everybody who asked."""

    def __init__(self, buffer: Buffer) -> None:
        self.successes: Outcomes[Receipt] = Outcomes(buffer)
        self.errors: Outcomes[Failure] = Outcomes(buffer)
        self.watchers: list[Watcher] = []
        self._failed: list[tuple[str, int, Batch]] = []

    def settled(self, topic: str, partition: int, batch: Batch) -> None:
        """Tell of a batch that has its outcome."""
        outcome: Receipt | Failure
        if isinstance(batch.outcome, StockadeError):
            self._failed.append((topic, partition, batch))
            outcome = Failure(topic, partition, batch.count, batch.outcome)
            self.errors.add(outcome, batch)
        else:
            assert batch.outcome is not None
            outcome = batch.outcome
            self.successes.add(outcome, batch)
        for watcher in self.watchers:
            watcher(outcome, time.monotonic() - batch.created_s)

    def raise_unseen(self) -> None:
        """Raise the first failure since the last call that no Delivery raised."""
        failed, self._failed = self._failed, []
        for _, _, batch in failed:
            if not batch.is_reported:
                assert isinstance(batch.outcome, StockadeError)
                raise batch.outcome

    def forget(self, topic: str, partition: int) -> None:
        """The application knows of the failures there."""
        self._failed = [failure for failure in self._failed if failure[:2] != (topic, partition)]

    def close(self) -> None:
        """Whoever reads finds the end."""
        self.successes.close()
        self.errors.close()
