"""The consumer: reads partitions from an offset on, without gap or repetition, through failovers."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Self

from ..partition.errors import UnknownTopicOrPartition
from .admin import Client
from .config import DEFAULT_BOOTSTRAP, Bootstrap
from .fetched import Fetched
from .group import GroupReading, reading_as_member
from .pieces import ConsumedRecord
from .reading import Reading, Start, fetch_again


class Consumer:
    """Reads from one cluster. An async context manager; otherwise ``close`` it."""

    def __init__(self, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
        self.client: Client = Client(bootstrap)

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
        async with self.pieces(topic, partitions, start, follow=follow) as reading:
            async for record in reading.records():
                yield record

    @asynccontextmanager
    async def pieces(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        start: Start | Mapping[int, Start] = "earliest",
        *,
        follow: bool = False,
    ) -> AsyncIterator[Reading]:
        """The same in Arrow: ``async with consumer.pieces(...) as reading: async for piece in reading``.

        The Reading also tells positions and lag, seeks, and makes one Arrow table or pandas frame of it all.

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
        reading = Reading(self.client, topic, described.topic_id, follow=follow)
        starts = {n: start.get(n, "earliest") if isinstance(start, Mapping) else start for n in numbers}
        try:
            yield reading.begin(starts)
        finally:
            await reading.stop()

    def group(
        self, group: str, topic: str, *, start: Start = "earliest", client_id: str = "consumer"
    ) -> AbstractAsyncContextManager[GroupReading]:
        """``async with consumer.group("g", "t") as reading: async for record in reading: ...; await reading.commit()``

        The topic's partitions are shared out among the group's members, and each goes on where the group has committed,
        at ``start`` where it has not. A member that is stalled for longer than ``session_ttl_ms`` is replaced, and can
        then neither read on nor commit. Records are handed over at least once: only ``commit`` makes them done. When a
        newcomer takes a partition over, what is not committed there within a ttl is handed over to it again.
        """
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
