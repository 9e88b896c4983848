"""Writes a stream through one producer, batch by batch, and records every request and answer."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ...client.producer.delivery import Delivery
from ...client.producer.producer import Producer
from ...client.session.session import Fence
from ...partition.api.topics import Mode
from ..history.history import Event, History, record_name
from .stream import Stream

WINDOW_BATCHES = 5
"""Batches of one writer in flight; as many as the producer itself allows, so that none waits in the producer."""

MaySend = Callable[[int], Awaitable[bool]]
"""Returns True when the record with this index may be sent; False ends the stream there."""
Acknowledged = Callable[[int], None]


class StreamWriter:
    """One writer of one stream. Its records are named ``writer/index``."""

    def __init__(self, producer: Producer, history: History, topic: str, writer: str, stream: Stream) -> None:
        self.writer = writer
        self.last_acknowledged: Event | None = None
        """The invocation of the latest append that was answered."""
        self._producer = producer
        self._history = history
        self._topic = topic
        self._stream = stream
        self._first = 0
        self._epoch: int | None = None

    @asynccontextmanager
    async def exclusive(self, mode: Mode = "Exclusive") -> AsyncIterator[Fence]:
        """Hold the slot of the stream's partition alone. Leaving waits for every batch sent, as Producer does."""
        partition = self._stream.partition
        invoked = self._history.invoke(self.writer, "acquire", topic=self._topic, partition=partition)
        async with self._producer.exclusive(self._topic, [partition], mode, cancel_on_loss=False) as fence:
            self._epoch = fence.epoch
            self._history.settle(invoked, "ok", epoch=fence.epoch)
            yield fence

    async def run(self, first: int, batch_records: int, *, may_send: MaySend, acknowledged: Acknowledged) -> None:
        """Write the stream from record ``first`` to its end, ``batch_records`` a batch.

        Asks ``may_send`` before each batch, and calls ``acknowledged(count)`` for each that is stored. Raises the first
        refusal, after every batch in flight has its outcome.
        """
        self._first = first
        window: deque[asyncio.Task[None]] = deque()
        try:
            for index in range(first, self._stream.records, batch_records):
                if not await may_send(index):
                    break
                if len(window) == WINDOW_BATCHES:
                    await window.popleft()
                count = min(batch_records, self._stream.records - index)
                window.append(await self._send(index, count, acknowledged))
            while window:
                await window.popleft()
        finally:
            await asyncio.gather(*window, return_exceptions=True)

    async def _send(self, index: int, count: int, acknowledged: Acknowledged) -> "asyncio.Task[None]":
        identity = self._producer.identity
        invoked = self._history.invoke(
            self.writer,
            "append",
            topic=self._topic,
            partition=self._stream.partition,
            epoch=self._epoch,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            seq=index - self._first,
            value=record_name(self.writer, index),
            count=count,
        )
        keys = [record_name(self.writer, index + k).encode() for k in range(count)]
        values = [self._stream.line(index + k) for k in range(count)]
        with self._history.refusals_of(invoked):
            delivery = await self._producer.send_batch(self._topic, self._stream.partition, values, keys=keys)
        return asyncio.create_task(self._settle(invoked, delivery, acknowledged))

    async def _settle(self, invoked: Event, delivery: Delivery, acknowledged: Acknowledged) -> None:
        with self._history.refusals_of(invoked):
            receipt = await delivery
        self.last_acknowledged = invoked
        self._history.settle(invoked, "ok", offset=receipt.base_offset)
        acknowledged(receipt.count)
