"""Successes and errors as streams, for applications that would rather read results than await each delivery.

Nothing is kept until somebody asks. From then on a batch's bytes count as buffered until its outcome was read, so an
application that stops reading is stopped by ``send``; nothing grows without bound.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..partition.errors import StockadeError
from .batches import Batch
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
