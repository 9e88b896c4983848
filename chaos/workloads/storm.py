"""A storm of repetitions: every request is sent twice or more, to random nodes, and some connections are dropped."""

import asyncio
from collections.abc import Sequence

from ...client.api.client import Client
from ...client.transport.http import Transport
from ...partition.api.topics import TopicConfig
from ...partition.commands import Stamp
from ...partition.errors import StockadeError
from .attempts import AttemptRecorder, Batch
from .protocol import Actor, ActorContext

COPIES = (2, 4)
DROPPED_RATE = 0.3
"""The share of requests whose connection is closed at a random moment, before the answer."""
TRIES_MAX = 40
"""Rounds of copies after which the actor gives up this producer."""


async def repeat(context: ActorContext) -> None:
    """Write as one producer after another, each batch as several requests at once."""
    async with Client(context.config) as client, Transport(context.config) as transport:
        for process in context.lives():
            try:
                pair = await client.init_producer()
            except StockadeError:
                await context.pause(0, 0.2)
                continue
            await _Storm(context, AttemptRecorder(transport, context), process).write(
                pair.producer_id, pair.producer_epoch
            )


class _Storm:
    """One producer at one partition."""

    def __init__(self, context: ActorContext, recorder: AttemptRecorder, process: str) -> None:
        self._context = context
        self._recorder = recorder
        self._process = process
        self._partition = context.chance.randrange(context.partitions)
        self._copies = 0

    async def write(self, pid: int, epoch: int) -> None:
        """Write batches in order, each as soon as a copy of the previous batch is known to be stored."""
        index = 0
        for _ in range(self._context.chance.randint(5, 40)):
            count = self._context.chance.randint(1, 3)
            batch = Batch(f"{self._process}@{self._partition}", index, count)
            if self._context.stopping.is_set() or not await self._stored(batch, Stamp(pid, epoch, index)):
                return
            index += count

    async def _stored(self, batch: Batch, stamp: Stamp) -> bool:
        for _ in range(TRIES_MAX):
            copies = [self._copy(batch, stamp) for _ in range(self._context.chance.randint(*COPIES))]
            answers = await asyncio.gather(*copies)
            if any(answer is not None and not isinstance(answer, StockadeError) for answer in answers):
                return True
            await self._context.pause(0, 0.3)
        return False

    async def _copy(self, batch: Batch, stamp: Stamp) -> object:
        """One request under a process name of its own; None if its connection was dropped."""
        self._copies += 1
        process = f"{self._process}#{self._copies}"
        node, patience_s = self._context.chance.choice(self._context.config.bootstrap), None
        if self._context.chance.random() < DROPPED_RATE:
            patience_s = self._context.chance.uniform(0, 0.02)
        delay_s = self._context.chance.uniform(0, 0.01)
        await asyncio.sleep(delay_s)
        try:
            async with asyncio.timeout(patience_s):
                return await self._recorder.append(process, self._partition, batch, stamp=stamp, node=node)
        except TimeoutError:
            return None


class Storm:
    """However often a batch is sent, it is stored once, and every answer has the same offset."""

    name = "storm"
    about = "each batch is sent twice or more, to random nodes, and some answers are dropped"
    partitions = 2
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (Actor("storm-1", repeat), Actor("storm-2", repeat))

    def config(self, _: str) -> TopicConfig:
        return TopicConfig()
