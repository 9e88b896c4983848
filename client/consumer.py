"""The consumer: reads partitions from an offset on, without gap or repetition, through failovers.

A position is the next offset to read and moves only when a piece was handed over, so that whatever goes wrong in
between, the same offset is asked for again. Positions are not stored in the cluster.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from ..partition.errors import StockadeError, UnknownTopicOrPartition
from .admin import Client
from .config import DEFAULT_BOOTSTRAP, Bootstrap
from .fetched import Fetched
from .retry import backoff_s, is_momentary

if TYPE_CHECKING:
    from .group import GroupReading

Start = Literal["earliest", "latest"] | int
PIECES_AHEAD_MAX = 2
"""Fetched pieces that wait for the reader, over all partitions of a read."""


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record as it stands in the log. ``value`` None is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive records of a partition as one Arrow batch, ``base_offset`` being the offset of its first row."""

    topic: str
    partition: int
    base_offset: int
    batch: pa.RecordBatch

    def records(self) -> Iterator[ConsumedRecord]:
        """Row by row."""
        key, value, timestamp, headers = self.batch.columns
        rows = zip(
            timestamp.view(pa.int64()).to_pylist(),
            key.to_pylist() if key.null_count < len(key) else [None] * len(key),
            value.to_pylist(),
            map(_headers, headers.to_pylist()) if headers.null_count < len(headers) else [()] * len(headers),
            strict=True,
        )
        for offset, row in enumerate(rows, self.base_offset):
            yield ConsumedRecord(self.topic, self.partition, offset, *row)


class Consumer:
    """Reads from one cluster. An async context manager; otherwise ``close`` it."""

    def __init__(self, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
        self.client = Client(bootstrap)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self.client.close()

    async def read(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        start: Start | Mapping[int, Start] = "earliest",
        *,
        follow: bool = False,
    ) -> AsyncIterator[ConsumedRecord]:
        """Records of ``partitions`` (None: all), in order within each. Parameters and errors as ``pieces``."""
        async with self.pieces(topic, partitions, start, follow=follow) as pieces:
            async for piece in pieces:
                for record in piece.records():
                    yield record

    @asynccontextmanager
    async def pieces(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        start: Start | Mapping[int, Start] = "earliest",
        *,
        follow: bool = False,
    ) -> AsyncIterator[AsyncIterator[Piece]]:
        """The same in Arrow: ``async with consumer.pieces(...) as pieces: async for piece in pieces``.

        ``start``: earliest, latest, an offset, or one of these for each partition. Without ``follow`` it ends where
        each partition ended at its first answer; with it, it goes on waiting. Raises UnknownTopicOrPartition,
        OffsetOutOfRange (also when records were trimmed before they were read), InconsistentTopicId when the topic was
        deleted and created again.
        """
        described = await self.client.topic(topic)
        numbers = range(len(described.partitions)) if partitions is None else partitions
        for number in numbers:
            if not 0 <= number < len(described.partitions):
                raise UnknownTopicOrPartition(topic=topic, partition=number)
        reading = _Reading(self.client, topic, described.topic_id, follow=follow)
        starts = {n: start.get(n, "earliest") if isinstance(start, Mapping) else start for n in numbers}
        try:
            yield reading.begin(starts)
        finally:
            await reading.stop()

    def group(
        self, group: str, topic: str, *, start: Start = "earliest", client_id: str = "consumer"
    ) -> AbstractAsyncContextManager["GroupReading"]:
        """``async with consumer.group("g", "t") as reading: async for record in reading: ...; await reading.commit()``

        The topic's partitions are shared out among the group's members, and each goes on where the group has committed,
        at ``start`` where it has not. A member that is stalled for longer than ``session_ttl_ms`` is replaced, and can
        then neither read on nor commit. Records are handed over at least once.
        """
        from .group import reading_as_member  # noqa: PLC0415  # it is made of this module

        return reading_as_member(self.client, group, topic, start, client_id)

    async def fetch_arrow(
        self,
        topic: str,
        partition: int,
        offset: Start,
        *,
        max_bytes: int | None = None,
        max_wait_ms: int = 0,
        local_node: str | None = None,
    ) -> Fetched:
        """One piece of the log from ``offset`` on; repeated while the refusal is only momentary.

        ``max_bytes`` None: the configuration's. ``local_node``: base URL of a node whose own replica shall answer.
        """
        bytes_max = max_bytes or self.client.config.fetch_bytes_max
        return await fetch_again(
            self.client, topic, partition, offset, max_bytes=bytes_max, max_wait_ms=max_wait_ms, local_node=local_node
        )


class _Reading:
    """One read of some partitions: a task for each fetches ahead, boundedly. Iterate over it, then ``stop`` it."""

    def __init__(self, client: Client, topic: str, topic_id: int, *, follow: bool) -> None:
        self._client = client
        self._topic = topic
        self._topic_id = topic_id
        self._follow = follow
        self._ready: asyncio.Queue[Piece | Exception | None] = asyncio.Queue(PIECES_AHEAD_MAX)
        self._tasks: list[asyncio.Task[None]] = []
        self._unfinished = 0

    def begin(self, starts: Mapping[int, Start]) -> Self:
        """Read each partition from its start."""
        self._tasks = [asyncio.create_task(self._partition(*item)) for item in starts.items()]
        self._unfinished = len(self._tasks)
        return self

    async def stop(self) -> None:
        """Fetch nothing more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        while self._unfinished:
            ready = await self._ready.get()
            if isinstance(ready, Piece):
                return ready
            if ready is not None:
                raise ready
            self._unfinished -= 1
        raise StopAsyncIteration

    async def _partition(self, partition: int, start: Start) -> None:
        try:
            await self._read(partition, start)
        except Exception as error:
            await self._ready.put(error)
        else:
            await self._ready.put(None)

    async def _read(self, partition: int, start: Start) -> None:
        position: Start = start
        end: int | None = None
        while end is None or self._follow or (isinstance(position, int) and position < end):
            answer = await self._fetch(partition, position)
            for base, batch in answer.after(first_offset(position, answer)):
                await self._ready.put(Piece(self._topic, partition, base, batch))
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


def _headers(headers: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes], ...]:
    return tuple((header["key"], header["value"]) for header in headers or ())
