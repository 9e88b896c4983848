"""A load that lasts as long as the cluster: records into a topic with retention, read by a consumer that follows."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...client.consumer.consumer import Consumer
from ...client.producer.producer import Producer
from ...partition.errors import StockadeError, TopicAlreadyExists

TOPIC = "endurance"
PARTITIONS = 6
RETENTION_BYTES = 8 << 20
"""``retention_bytes`` of the topic: bytes of each partition."""
VALUE = b"x" * 1000
BATCH = 100
"""Records to each partition before a flush."""
PAUSE_S = 0.5

_log = logging.getLogger(__name__)


class Steady:
    """Appends and reads until cancelled; both begin again after any refusal."""

    def __init__(self, bootstrap: Sequence[str]) -> None:
        self._config = ClientConfig(bootstrap=tuple(bootstrap))
        self.appended: int = 0
        self.read: int = 0
        self.begun: int = 0
        """How often a refusal made the producer or the consumer begin again."""

    async def run(self) -> None:
        """Create the topic; then append and read until cancelled."""
        await self._again(self._create)
        await asyncio.gather(self._for_ever(self._append), self._for_ever(self._follow))

    async def _create(self) -> None:
        async with Client(self._config) as client:
            with suppress(TopicAlreadyExists):
                await client.create_topic(TOPIC, partitions=PARTITIONS, config={"retention_bytes": RETENTION_BYTES})

    async def _append(self) -> None:
        async with Producer(self._config) as producer:
            while True:
                for number in range(PARTITIONS * BATCH):
                    _ = await producer.send(TOPIC, VALUE, partition=number % PARTITIONS)
                await producer.flush()
                self.appended += PARTITIONS * BATCH
                await asyncio.sleep(PAUSE_S)

    async def _follow(self) -> None:
        async with Consumer(self._config) as consumer:
            async for _ in consumer.read(TOPIC, start="latest", follow=True):
                self.read += 1

    async def _for_ever(self, attempt: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._again(attempt)

    async def _again(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Repeat ``attempt`` until one ends without a refusal."""
        while True:
            try:
                return await attempt()
            except StockadeError as error:  # faults strike
                _log.debug("the steady load begins again: %s", error)
                self.begun += 1
                await asyncio.sleep(PAUSE_S)
