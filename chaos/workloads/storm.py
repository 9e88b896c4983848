"""A storm of repetitions: every request is sent twice or more, to any nodes, and some do not wait for their answer."""

import asyncio
from collections.abc import Sequence

from ...client.admin import Client
from ...client.model import TopicConfig
from ...client.transport import Transport
from ...partition.commands import Stamp
from ...partition.errors import StockadeError
from .attempts import Batch, Desk
from .protocol import Actor, Stage

COPIES = (2, 4)
DROPPED_RATE = 0.3
"""Requests whose answer nobody waits for: the connection is closed at a moment that is drawn."""
TRIES_MAX = 40
"""Rounds of copies after which this identity is given up."""


async def repeat(stage: Stage) -> None:
    """Write with one identity after another, each batch as several requests at once."""
    async with Client(stage.config) as client, Transport(stage.config) as transport:
        for process in stage.lives():
            try:
                pair = await client.init_producer()
            except StockadeError:
                await stage.pause(0, 0.2)
                continue
            await _Storm(stage, Desk(transport, stage), process).rage(pair.producer_id, pair.producer_epoch)


class _Storm:
    """One identity at one partition."""

    def __init__(self, stage: Stage, desk: Desk, process: str) -> None:
        self._stage = stage
        self._desk = desk
        self._process = process
        self._partition = stage.chance.randrange(stage.partitions)
        self._copies = 0

    async def rage(self, pid: int, epoch: int) -> None:
        """Batches in order; the next one only once some copy of this one is known to be stored."""
        index = 0
        for _ in range(self._stage.chance.randint(5, 40)):
            count = self._stage.chance.randint(1, 3)
            batch = Batch(f"{self._process}@{self._partition}", index, count)
            if self._stage.stopping.is_set() or not await self._stored(batch, Stamp(pid, epoch, index)):
                return
            index += count

    async def _stored(self, batch: Batch, stamp: Stamp) -> bool:
        for _ in range(TRIES_MAX):
            copies = [self._copy(batch, stamp) for _ in range(self._stage.chance.randint(*COPIES))]
            answers = await asyncio.gather(*copies)
            if any(answer is not None and not isinstance(answer, StockadeError) for answer in answers):
                return True
            await self._stage.pause(0, 0.3)
        return False

    async def _copy(self, batch: Batch, stamp: Stamp) -> object:
        """One request of its own process, as nobody else waits for it; None: given up."""
        self._copies += 1
        process = f"{self._process}#{self._copies}"
        node, patience_s = self._stage.chance.choice(self._stage.config.bootstrap), None
        if self._stage.chance.random() < DROPPED_RATE:
            patience_s = self._stage.chance.uniform(0, 0.02)
        delay_s = self._stage.chance.uniform(0, 0.01)
        await asyncio.sleep(delay_s)
        try:
            async with asyncio.timeout(patience_s):
                return await self._desk.append(process, self._partition, batch, stamp=stamp, node=node)
        except TimeoutError:
            return None


class Storm:
    """However often a batch is sent, it is stored once, and every answer names the same place."""

    name = "storm"
    about = "every request twice or more, to any nodes, answers dropped"
    partitions = 2
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (Actor("storm-1", repeat), Actor("storm-2", repeat))

    def config(self, _: str) -> TopicConfig:
        """As users have it."""
        return TopicConfig()
