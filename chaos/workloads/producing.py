"""Appends through the product's own producer, with its retries, recorded."""

import asyncio
from collections import Counter, deque

from ...client.producer.delivery import Delivery
from ...client.producer.producer import Producer
from ...partition.commands import Stamp
from ...partition.errors import StockadeError
from ..history.history import Event, payload, record_name
from .attempts import Batch, Guard, invoke_append
from .protocol import ActorContext

WINDOW_BATCHES = 5
"""Batches in flight; as many as the producer itself allows."""


class RecordingProducer:
    """One instance of a producer, recorded. Its records are named ``PROCESS@PARTITION/INDEX``, index from 0 on."""

    def __init__(self, producer: Producer, context: ActorContext, process: str, *, size: int | None = None) -> None:
        """``size``: bytes of every record; None: sizes vary."""
        self._producer = producer
        self._context = context
        self._process = process
        self._suffix = f"~{size}" if size else ""
        self._next: Counter[int] = Counter()
        self._window: deque[asyncio.Task[None]] = deque()

    async def write(self, partition: int, count: int) -> None:
        """Send ``count`` records as a batch; wait while the window is full. Raises the refusal of an earlier batch."""
        if len(self._window) == WINDOW_BATCHES:
            await self._window.popleft()
        batch = Batch(f"{self._process}@{partition}{self._suffix}", self._next[partition], count)
        self._next[partition] += count
        identity = self._producer.identity
        stamp = Stamp(identity.producer_id, identity.producer_epoch, batch.first)
        invoked = invoke_append(
            self._context.history, self._process, self._context.topic, partition, batch, stamp, Guard()
        )
        indices = range(batch.first, batch.first + count)
        with self._context.history.refusals_of(invoked):
            delivery = await self._producer.send_batch(
                self._context.topic,
                partition,
                [payload(batch.writer, index) for index in indices],
                keys=[record_name(batch.writer, index).encode() for index in indices],
            )
        task = asyncio.create_task(self._settle(invoked, delivery))
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # the history has the refusal
        self._window.append(task)

    async def finish(self) -> None:
        """Wait until all batches in flight have outcomes; then raise the first refusal, if any."""
        ended = await asyncio.gather(*self._window, return_exceptions=True)
        self._window.clear()
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome

    async def settled(self) -> None:
        """Return when all batches in flight have outcomes, refusals included."""
        await asyncio.gather(*self._window, return_exceptions=True)

    async def _settle(self, invoked: Event, delivery: Delivery) -> None:
        with self._context.history.refusals_of(invoked):
            receipt = await delivery
        self._context.history.settle(invoked, "ok", offset=receipt.base_offset)


async def write_on(
    context: ActorContext, name: str, process: str, *, size: int | None = None, pause_s: float = 0.05, most: int = 4
) -> None:
    """Write to random partitions through a producer called ``name`` until the actor must stop, at most ``most`` records
    in a batch; often to several in one turn of the event loop, which share a request where one node leads them. Raises
    the refusal that ends the producer.
    """
    invoked = context.history.invoke(process, "init", topic=context.topic, value=name)
    with context.history.refusals_of(invoked):
        producer = await Producer(context.config, name=name).start()
    pair = producer.identity
    context.history.settle(invoked, "ok", value=name, producer_id=pair.producer_id, producer_epoch=pair.producer_epoch)
    recording = RecordingProducer(producer, context, process, size=size)
    try:
        while not context.stopping.is_set():
            count = context.chance.randint(1, context.partitions)
            for partition in context.chance.sample(range(context.partitions), count):
                await recording.write(partition, context.chance.randint(1, most))
            if pause_s:
                await context.pause(0, 2 * pause_s * count)
        await recording.finish()
    except StockadeError:
        await recording.settled()
        raise
    finally:
        await producer.abort()
