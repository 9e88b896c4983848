"""How far a run is, and how far it may go: what the nemesis waits for, and what makes writers wait for the nemesis.

Without the second a small run would be over before the first fault has healed.
"""

import asyncio
from collections.abc import Sequence

from .streams import Stream


class Progress:
    """Records acknowledged so far, over all streams. Parts are from 0 to 1, the same part of every stream."""

    def __init__(self, streams: Sequence[Stream], gates: Sequence[float]) -> None:
        """``gates``: the parts beyond which no writer goes before ``open``."""
        self.streams = streams
        self.total = sum(stream.records for stream in streams)
        self.acknowledged = dict.fromkeys((stream.partition for stream in streams), 0)
        self._gates = {part: asyncio.Event() for part in sorted(gates)}
        self._grew = asyncio.Event()

    @property
    def records(self) -> int:
        """Acknowledged over all streams."""
        return sum(self.acknowledged.values())

    def add(self, partition: int, count: int) -> None:
        """``count`` more records of a partition are acknowledged."""
        self.acknowledged[partition] += count
        self._grew.set()
        self._grew = asyncio.Event()

    def found(self, partition: int, log_end: int) -> None:
        """A partition's log turned out to be longer than what was acknowledged: all of it counts."""
        self.add(partition, log_end - self.acknowledged[partition])

    async def reached(self, part: float) -> None:
        """Return once that part of all records is acknowledged."""
        wanted = sum(stream.share(part) for stream in self.streams)
        while self.records < wanted:
            await self._grew.wait()

    async def grown(self, partition: int, beyond: int) -> None:
        """Return once more than ``beyond`` records of a partition are acknowledged."""
        while self.acknowledged[partition] <= beyond:
            await self._grew.wait()

    def open(self, part: float) -> None:
        """Let every writer go beyond the gate at ``part``."""
        self._gates[part].set()

    async def may_send(self, stream: Stream, index: int) -> None:
        """Return when record ``index`` of a stream may be sent."""
        for part, gate in self._gates.items():
            if index >= stream.share(part):
                await gate.wait()
