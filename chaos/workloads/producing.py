"""Appends through the product's own producer, with its retries, recorded."""

import asyncio
from collections import Counter, deque

from ...client.delivery import Delivery
from ...client.producer import Producer
from ...partition.commands import Stamp
from ...partition.errors import StockadeError
from ..history import Event, record_name
from ..payload import payload
from .attempts import Batch, Guard, invoke_append
from .protocol import Stage

WINDOW_BATCHES = 5
"""Under way at once, as many as the producer itself allows."""
DELIVERY_TIMEOUT_MS = 60_000


class Pen:
    """One life of a producer: its records are named ``PROCESS@PARTITION/INDEX``, and its numbers begin at 0."""

    def __init__(self, producer: Producer, stage: Stage, process: str, *, size: int | None = None) -> None:
        """``size``: bytes of every record; None: they vary."""
        self._producer = producer
        self._stage = stage
        self._process = process
        self._suffix = f"~{size}" if size else ""
        self._next: Counter[int] = Counter()
        self._window: deque[asyncio.Task[None]] = deque()

    async def write(self, partition: int, count: int) -> None:
        """Send so many records as one batch; waits while too many are under way. Raises an earlier one's refusal."""
        if len(self._window) == WINDOW_BATCHES:
            await self._window.popleft()
        batch = Batch(f"{self._process}@{partition}{self._suffix}", self._next[partition], count)
        self._next[partition] += count
        identity = self._producer.identity
        stamp = Stamp(identity.producer_id, identity.producer_epoch, batch.first)
        invoked = invoke_append(self._stage.history, self._process, self._stage.topic, partition, batch, stamp, Guard())
        indices = range(batch.first, batch.first + count)
        try:
            delivery = await self._producer.send_batch(
                self._stage.topic,
                partition,
                [payload(batch.writer, index) for index in indices],
                keys=[record_name(batch.writer, index).encode() for index in indices],
            )
        except StockadeError as error:
            self._stage.history.settle_error(invoked, error)
            raise
        task = asyncio.create_task(self._settle(invoked, delivery))
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # the history has it
        self._window.append(task)

    async def finish(self) -> None:
        """Wait for everything under way. Raises the first refusal, after all have their outcome."""
        ended = await asyncio.gather(*self._window, return_exceptions=True)
        self._window.clear()
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome

    async def settled(self) -> None:
        """Return when everything under way has its outcome, whatever it is."""
        await asyncio.gather(*self._window, return_exceptions=True)

    async def _settle(self, invoked: Event, delivery: Delivery) -> None:
        try:
            receipt = await delivery
        except StockadeError as error:
            self._stage.history.settle_error(invoked, error)
            raise
        self._stage.history.settle(invoked, "ok", offset=receipt.base_offset)


async def write_on(
    stage: Stage, name: str, process: str, *, size: int | None = None, pause_s: float = 0.05, most: int = 4
) -> None:
    """One life of a producer called ``name``: write to partitions drawn, until told to stop or refused for good.
    ``most``: records in a batch.

    Raises the refusal.
    """
    invoked = stage.history.invoke(process, "init", topic=stage.topic, value=name)
    try:
        producer = await Producer(stage.config, name=name).start()
    except StockadeError as error:
        stage.history.settle_error(invoked, error)
        raise
    pair = producer.identity
    stage.history.settle(invoked, "ok", value=name, producer_id=pair.producer_id, producer_epoch=pair.producer_epoch)
    pen = Pen(producer, stage, process, size=size)
    try:
        while not stage.stopping.is_set():
            await pen.write(stage.chance.randrange(stage.partitions), stage.chance.randint(1, most))
            if pause_s:
                await stage.pause(0, 2 * pause_s)
        await pen.finish()
    except StockadeError:
        await pen.settled()
        raise
    finally:
        await producer.abort()
