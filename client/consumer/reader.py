"""One read of some partitions, fetched ahead: iterating, positions, lag, and seeking.

A partition's position is the next offset to give to the application, and moves only when the application got a record:
after a failure the same offset is fetched again. The cluster does not store these positions; a group's it does.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from typing import Any, Literal, Self

import pyarrow as pa

from ...partition.errors import OffsetOutOfRange, UnknownTopicOrPartition
from ...partition.records.batch import SCHEMA
from ..api.client import Client
from ..api.fetched import Fetched
from .records import ConsumedRecord, Piece

Start = Literal["earliest", "latest"] | int
PIECES_AHEAD_MAX = 2
"""Fetched pieces that wait for the application, over all partitions of a read."""
AHEAD_BYTES_MAX = 64 << 20
"""Most bytes of the answers that the partitions of one read may hold, one each, until the application takes them."""
FETCH_BYTES_LEAST = 64 << 10
"""Least bytes to ask for at a time, however many partitions a read has."""
TURN_S = 0.01
"""A task that takes records for this long without waiting lets the event loop run once, since sessions must be renewed.
"""

_log = logging.getLogger(__name__)

_Ready = tuple["asyncio.Task[None] | None", Piece | Exception | None]


class Reading:
    """A read of some partitions: iterate over its pieces, or over ``records()``. A task for each partition fetches
    ahead, within a bound.

    ``positions``: by partition, the offset after the last record that the application got; absent before the first.
    """

    def __init__(self, client: Client, topic: str, topic_id: int, *, follow: bool, skip_trimmed: bool = False) -> None:
        self.positions: dict[int, int] = {}
        self._client = client
        self._topic = topic
        self._topic_id = topic_id
        self._follow = follow
        self._skip_trimmed = skip_trimmed
        self._ends: dict[int, int] = {}
        self._ready: asyncio.Queue[_Ready] = asyncio.Queue(PIECES_AHEAD_MAX)
        self._at: tuple[Piece, Iterator[ConsumedRecord]] | None = None  # the piece whose records are given out
        self._taking = asyncio.Lock()  # several tasks may iterate
        self._starts: dict[int, Start] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._unfinished: set[int] = set()
        self._left: set[asyncio.Task[None]] = set()

    def begin(self, starts: Mapping[int, Start]) -> Self:
        """Start to read each partition at its start."""
        for partition, start in starts.items():
            self._begin(partition, start)
        return self

    def _begin(self, partition: int, start: Start) -> None:
        self._starts[partition] = start
        self._tasks[partition] = asyncio.create_task(self._partition(partition, start))
        self._unfinished.add(partition)

    async def stop(self) -> None:
        """Stop fetching. An iteration ends."""
        self._unfinished.clear()
        if self._ready.empty():
            self._ready.put_nowait((None, None))  # wakes an iteration that waits
        tasks = [*self._tasks.values(), *self._left]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def lag(self) -> dict[int, int]:
        """By partition, the number of records after the position, as of the partition's last answer."""
        return {partition: max(self._ends[partition] - at, 0) for partition, at in self.positions.items()}

    def seek(self, partition: int, start: Start) -> None:
        """Continue at ``start`` in ``partition``; pieces that were fetched from elsewhere in it are dropped.

        Raises UnknownTopicOrPartition for a partition that is not read. For an offset that does not exist, the next
        iteration raises OffsetOutOfRange.
        """
        if partition not in self._tasks:
            raise UnknownTopicOrPartition(topic=self._topic, partition=partition)
        left = self._tasks[partition]
        left.cancel()
        self._left.add(left)
        left.add_done_callback(self._left.discard)
        self.positions.pop(partition, None)
        if self._at is not None and self._at[0].partition == partition:
            self._at = None
        self._begin(partition, start)

    def put_back(self, item: Piece | ConsumedRecord) -> None:
        """Let the next iteration begin with ``item``, which did not reach the application: it was interrupted."""
        offset = item.base_offset if isinstance(item, Piece) else item.offset
        piece = item if isinstance(item, Piece) else self._at[0] if self._at is not None else None
        is_next = self._at is None or self._at[0] is piece
        if piece is not None and is_next and piece.partition == item.partition and piece.base_offset <= offset:
            self._at = piece, piece.behind(offset).records()
        else:  # another iteration has gone on to a later piece
            self.seek(item.partition, offset)
        self.positions[item.partition] = offset

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        async with self._taking:
            piece = await self._next()
            self.positions[piece.partition] = piece.next_offset
            return piece

    async def records(self) -> AsyncIterator[ConsumedRecord]:
        """The records, one by one; another iteration goes on at the position, the offset after the present record."""
        positions, clock_s, turn_ends_s = self.positions, time.monotonic, 0.0  # looked up once, and not for each record
        while True:
            try:
                async with self._taking:
                    if self._at is None:
                        piece = await self._next()
                        self._at = piece, piece.records()
                    at = self._at
            except StopAsyncIteration:
                return
            partition = at[0].partition
            for record in at[1]:
                if self._at is not at:
                    break  # the application has called `seek`, or another iteration has the rest
                positions[partition] = record.offset + 1
                yield record
                if clock_s() >= turn_ends_s:  # between two records: another iteration could overtake one in hand
                    await asyncio.sleep(0)
                    turn_ends_s = clock_s() + TURN_S
            if self._at is at:
                self._at = None

    async def to_arrow(self) -> pa.Table:
        """All records up to the read's end as one table, without a copy. Never returns with ``follow``.

        The table has no columns for partition and offset; pieces have both.
        """
        return pa.Table.from_batches([piece.to_arrow() async for piece in self], schema=SCHEMA)

    async def to_pandas(self) -> Any:
        """The same records as one pandas.DataFrame. Raises ImportError where pandas is not installed."""
        return (await self.to_arrow()).to_pandas()

    async def _next(self) -> Piece:
        """The rest of the present piece, or the next piece."""
        self._client.affinity.enter()
        if self._at is not None:
            (piece, _), self._at = self._at, None
            rest = piece.behind(self.positions.get(piece.partition))
            if rest.batch.num_rows:
                return rest
        while self._unfinished:
            task, ready = await self._ready.get()
            if task not in self._tasks.values():
                continue  # fetched before the application called `seek`
            if isinstance(ready, Piece):
                return ready
            (partition,) = (partition for partition, own in self._tasks.items() if own is task)
            if ready is not None:
                self._begin(partition, self.positions.get(partition, self._starts[partition]))  # for the next iteration
                raise ready
            self._unfinished.discard(partition)
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
        # "latest" must become a number before a request waits: its repetition would skip records written meanwhile.
        waits = self._follow and isinstance(position, int)
        wait_ms = self._client.config.fetch_wait_ms if waits else 0
        return await fetch_again(
            self._client,
            self._topic,
            partition,
            position,
            max_bytes=bytes_of_a_fetch(self._client.config.fetch_bytes_max, len(self._unfinished)),
            max_wait_ms=wait_ms,
            skip_trimmed=self._skip_trimmed,
            topic_id=self._topic_id,
        )


def bytes_of_a_fetch(bytes_max: int, partitions: int) -> int:
    """The most bytes to ask for at a time in a read of so many partitions; ``bytes_max``: the configured bound."""
    return min(bytes_max, max(AHEAD_BYTES_MAX // max(1, partitions), FETCH_BYTES_LEAST))


async def fetch_again(
    client: Client,
    topic: str,
    partition: int,
    offset: Start,
    *,
    max_wait_ms: int = 0,
    skip_trimmed: bool = False,
    **how: Any,
) -> Fetched:
    """`Client.fetch`, repeated for ``delivery_timeout_ms`` while there is no leader, no answer, or overload.

    ``skip_trimmed``: for an offset below the log's start it fetches from the log's start on, and logs a warning.
    """
    at = offset
    if max_wait_ms and isinstance(offset, int) and how.get("local_node") is None:
        has_waited = await client.news.wait(topic, partition, offset, how.get("topic_id"), max_wait_ms)
        # Not 0: with hundreds of partitions, the connections that other requests need must be left free now, too.
        max_wait_ms = 1 if has_waited else max_wait_ms

    def attempt() -> Awaitable[Fetched]:
        return client.fetch(topic, partition, at, max_wait_ms=max_wait_ms, **how)

    while True:
        try:
            return await client.calls.repeat(f"a read of {topic}/{partition}", attempt, quiet_s=max_wait_ms / 1000)
        except OffsetOutOfRange as error:
            log_start = error.fields["log_start"]
            if not skip_trimmed or not isinstance(at, int) or at >= log_start:
                raise
            _log.warning(
                "%s/%d: offsets %d to %d were trimmed before they were read: skipped",
                topic,
                partition,
                at,
                log_start - 1,
            )
            at = log_start


def first_offset(position: Start, answer: Fetched) -> int:
    """The first offset that a reader at ``position`` wants of ``answer``."""
    if isinstance(position, int):
        return position
    return answer.log_start if position == "earliest" else answer.log_end
