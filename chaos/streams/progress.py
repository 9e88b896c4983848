"""How far the writers of several streams are, and how far they may go.

Faults wait for a part of the records to be acknowledged; writers wait at gates until the previous fault is over.
Without the gates a small run would end before the first fault has healed.
"""

import asyncio
from collections.abc import Callable, Sequence

from .stream import Stream


class Progress:
    """The records acknowledged so far, by stream, and the gates. A ``part`` is a share of every stream, from 0 to 1."""

    def __init__(
        self, streams: Sequence[Stream], gates: Sequence[float], on_growth: Callable[[int], None] = lambda _: None
    ) -> None:
        """``gates``: parts at which writers wait for ``open``. ``on_growth`` gets the records acknowledged."""
        self.streams = streams
        self.total: int = sum(stream.records for stream in streams)
        self.acknowledged: dict[int, int] = dict.fromkeys((stream.partition for stream in streams), 0)
        self._gates = {part: asyncio.Event() for part in sorted(gates)}
        self._grew = asyncio.Event()
        self._on_growth = on_growth

    @property
    def records(self) -> int:
        """Records acknowledged over all streams."""
        return sum(self.acknowledged.values())

    def add(self, partition: int, count: int) -> None:
        """Count ``count`` more acknowledged records of a partition."""
        self.acknowledged[partition] += count
        self._on_growth(self.records)
        self._grew.set()
        self._grew = asyncio.Event()

    def found(self, partition: int, log_end: int) -> None:
        """Count all records below ``log_end``: the log may hold more than the acknowledgements seen so far."""
        self.add(partition, log_end - self.acknowledged[partition])

    async def reached(self, part: float) -> None:
        """Return once that part of all records is acknowledged, and at least 1 % more than at the call."""
        wanted = max(sum(stream.share(part) for stream in self.streams), self.records + self.total // 100)
        while self.records < wanted:
            await self._grew.wait()

    async def level(self, part: float) -> None:
        """Return once every stream has that part of its own records acknowledged."""
        while any(self.acknowledged[stream.partition] < stream.share(part) for stream in self.streams):
            await self._grew.wait()

    async def grown(self, partition: int, beyond: int) -> None:
        """Return once more than ``beyond`` records of a partition are acknowledged."""
        while self.acknowledged[partition] <= beyond:
            await self._grew.wait()

    def open(self, part: float) -> None:
        """Let every writer go beyond the gate at ``part``."""
        self._gates[part].set()

    async def opened(self, part: float) -> None:
        """Return once the gate at ``part`` is open."""
        await self._gates[part].wait()

    async def may_send(self, stream: Stream, index: int) -> bool:
        """Return True when record ``index`` of a stream may be sent."""
        for part, gate in self._gates.items():
            if index >= stream.share(part):
                await gate.wait()
        return True
