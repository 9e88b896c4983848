"""One read of some partitions, fetched ahead: what is handed over, where it stands, and moving it.

A position is the next offset to hand over and moves only when something was, so that whatever goes wrong in between,
the same offset is asked for again. Positions are not stored in the cluster.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Self

import pyarrow as pa

from ..partition.errors import StockadeError, UnknownTopicOrPartition
from ..partition.records import SCHEMA
from .admin import Client
from .fetched import Fetched
from .pieces import ConsumedRecord, Piece
from .retry import backoff_s, is_momentary

Start = Literal["earliest", "latest"] | int
PIECES_AHEAD_MAX = 2
"""Fetched pieces that wait for the reader, over all partitions of a read."""

_Ready = tuple["asyncio.Task[None]", Piece | Exception | None]


class Reading:
    """Iterate over its pieces, or over ``records()``. A task for each partition fetches ahead, boundedly.

    ``positions``: by partition, the offset behind the last record handed over; absent before the first.
    """

    def __init__(self, client: Client, topic: str, topic_id: int, *, follow: bool) -> None:
        self.positions: dict[int, int] = {}
        self._client = client
        self._topic = topic
        self._topic_id = topic_id
        self._follow = follow
        self._ends: dict[int, int] = {}
        self._ready: asyncio.Queue[_Ready] = asyncio.Queue(PIECES_AHEAD_MAX)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._unfinished: set[int] = set()
        self._left: set[asyncio.Task[None]] = set()

    def begin(self, starts: Mapping[int, Start]) -> Self:
        """Read each partition from its start."""
        for partition, start in starts.items():
            self._begin(partition, start)
        return self

    def _begin(self, partition: int, start: Start) -> None:
        self._tasks[partition] = asyncio.create_task(self._partition(partition, start))
        self._unfinished.add(partition)

    async def stop(self) -> None:
        """Fetch nothing more."""
        tasks = [*self._tasks.values(), *self._left]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def lag(self) -> dict[int, int]:
        """By partition: records stored behind the position, as of the partition's last answer."""
        return {partition: max(self._ends[partition] - at, 0) for partition, at in self.positions.items()}

    def seek(self, partition: int, start: Start) -> None:
        """Go on at ``start`` there: nothing that was fetched from elsewhere in the partition is handed over any more.

        Raises UnknownTopicOrPartition for a partition that is not read. An offset that is not there is refused where
        the next piece is waited for: OffsetOutOfRange.
        """
        if partition not in self._tasks:
            raise UnknownTopicOrPartition(topic=self._topic, partition=partition)
        left = self._tasks[partition]
        left.cancel()
        self._left.add(left)
        left.add_done_callback(self._left.discard)
        self.positions.pop(partition, None)
        self._begin(partition, start)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        _, piece = await self._next()
        self.positions[piece.partition] = piece.next_offset
        return piece

    async def records(self) -> AsyncIterator[ConsumedRecord]:
        """Row by row; the position is behind the record at hand."""
        while True:
            try:
                task, piece = await self._next()
            except StopAsyncIteration:
                return
            for record in piece.records():
                if self._tasks[piece.partition] is not task:
                    break  # somebody sought
                self.positions[piece.partition] = record.offset + 1
                yield record

    async def to_arrow(self) -> pa.Table:
        """Everything up to where it ends, as one table in the memory of the answers: no copy. Not for one that follows.

        The table has no column for partition and offset: pieces know them.
        """
        return pa.Table.from_batches([piece.to_arrow() async for piece in self], schema=SCHEMA)

    async def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame. Raises ImportError where pandas is not installed."""
        return (await self.to_arrow()).to_pandas()

    async def _next(self) -> "tuple[asyncio.Task[None], Piece]":
        while self._unfinished:
            task, ready = await self._ready.get()
            if task not in self._tasks.values():
                continue  # fetched before somebody sought
            if isinstance(ready, Piece):
                return task, ready
            if ready is not None:
                raise ready
            self._unfinished -= {partition for partition, own in self._tasks.items() if own is task}
        raise StopAsyncIteration

    async def _partition(self, partition: int, start: Start) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await self._read(task, partition, start)
        except Exception as error:
            await self._ready.put((task, error))
        else:
            await self._ready.put((task, None))

    async def _read(self, task: "asyncio.Task[None]", partition: int, start: Start) -> None:
        position: Start = start
        end: int | None = None
        while end is None or self._follow or (isinstance(position, int) and position < end):
            answer = await self._fetch(partition, position)
            if self._tasks[partition] is task:
                self._ends[partition] = answer.log_end
            for base, batch in answer.after(first_offset(position, answer)):
                await self._ready.put((task, Piece(self._topic, partition, base, batch)))
            position = answer.next_offset
            end = answer.log_end if end is None else end

    async def _fetch(self, partition: int, position: Start) -> Fetched:
        # The word "latest" must become a number before anything waits, or a repetition would skip what came meanwhile.
        waits = self._follow and isinstance(position, int)
        wait_ms = self._client.config.fetch_wait_ms if waits else 0
        max_bytes = self._client.config.fetch_bytes_max
        return await fetch_again(
            self._client,
            self._topic,
            partition,
            position,
            max_bytes=max_bytes,
            max_wait_ms=wait_ms,
            topic_id=self._topic_id,
        )


async def fetch_again(client: Client, topic: str, partition: int, offset: Start, **how: Any) -> Fetched:
    """`Client.fetch`, repeated while there is no leader or no answer, until ``delivery_timeout_ms``."""
    deadline_s = time.monotonic() + client.config.delivery_timeout_ms / 1000
    attempts = 0
    while True:
        try:
            return await client.fetch(topic, partition, offset, **how)
        except StockadeError as error:
            attempts += 1
            pause_s = backoff_s(client.config, attempts, error)
            if not is_momentary(error) or time.monotonic() + pause_s > deadline_s:
                raise
        await asyncio.sleep(pause_s)


def first_offset(position: Start, answer: Fetched) -> int:
    """The offset that a reader at ``position`` wants first."""
    if isinstance(position, int):
        return position
    return answer.log_start if position == "earliest" else answer.log_end
