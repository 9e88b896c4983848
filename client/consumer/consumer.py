"""The consumer: reads partitions from an offset on, without gap or repetition, through failovers."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Self

from ...partition.errors import UnknownTopicOrPartition
from ..api.client import Client
from ..api.fetched import Fetched
from ..api.grants import partition_numbers
from ..config import Bootstrap
from .group import GroupReading, reading_as_member
from .reader import Reading, Start, fetch_again
from .records import ConsumedRecord


class Consumer:
    """Reads from one cluster. Use it in ``async with``, or call ``close``. ``bootstrap`` as for `Client`."""

    def __init__(self, bootstrap: Bootstrap | None = None) -> None:
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
        skip_trimmed: bool = False,
    ) -> AsyncIterator[ConsumedRecord]:
        """Records of ``partitions`` (None: all), in offset order within each. Arguments and errors as ``pieces``."""
        async with self.pieces(topic, partitions, start, follow=follow, skip_trimmed=skip_trimmed) as reading:
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
        skip_trimmed: bool = False,
    ) -> AsyncIterator[Reading]:
        """Like `read`, in Arrow batches: ``async with consumer.pieces(...) as reading: async for piece in reading``.

        The Reading also has positions and lag, seeks, and makes one Arrow table or pandas frame of all records.

        ``start``: "earliest", "latest", an offset, or one of these for each partition ("earliest" where none is given).
        ``follow`` False: each partition is read up to the log end in its first answer; True: the read never ends.
        Fetches are repeated for ``delivery_timeout_ms``, also in a failover. ``skip_trimmed``: records that were
        trimmed before they were read are skipped, with a warning in the log; False: they raise OffsetOutOfRange. Raises
        UnknownTopicOrPartition, OffsetOutOfRange, InconsistentTopicId when the topic was deleted and created again.
        """
        described = await self.client.topic(topic)
        numbers = partition_numbers(partitions, described)
        for number in numbers:
            if not 0 <= number < len(described.partitions):
                raise UnknownTopicOrPartition(topic=topic, partition=number)
        reading = Reading(self.client, topic, described.topic_id, follow=follow, skip_trimmed=skip_trimmed)
        starts = {n: start.get(n, "earliest") if isinstance(start, Mapping) else start for n in numbers}
        try:
            yield reading.begin(starts)
        finally:
            await reading.stop()

    def group(
        self,
        group: str,
        topic: str,
        *,
        start: Start = "earliest",
        client_id: str | None = None,
        skip_trimmed: bool = False,
    ) -> AbstractAsyncContextManager[GroupReading]:
        """``async with consumer.group("g", "t") as reading: async for record in reading: ...; await reading.commit()``

        The group's members share the topic's partitions; members of the same group that read another topic share that
        one. A member starts a partition at the group's committed position, or at ``start`` where there is none. A
        member that stands still for longer than ``session_ttl_ms`` is replaced, and can then neither read on nor
        commit. Delivery is at least once: records that were not committed go to the partition's next reader again; a
        member that gives a partition up to another one has one ttl left to commit. ``client_id``: the name of the
        member in lists of sessions and owners; None: ``consumer-HOST-PROCESS-`` and four random hexadecimal digits.

        Where records behind the group's position were trimmed before a member read them, an iteration raises
        OffsetOutOfRange, again and again, until a position is set that exists (`stockade groups reset`); with
        ``skip_trimmed`` the member goes on at the log's start, with a warning in the log.
        """
        return reading_as_member(self.client, group, topic, start, client_id, skip_trimmed=skip_trimmed)

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
        """One fetch from ``offset`` on, repeated for ``delivery_timeout_ms`` while there is no leader or no answer.

        ``max_bytes`` None: ``fetch_bytes_max``. ``max_wait_ms``: how long the node waits for a record at the log's end.
        ``local_node``: base URL of a node that answers from its own replica. Raises OffsetOutOfRange.
        """
        bytes_max = max_bytes or self.client.config.fetch_bytes_max
        return await fetch_again(
            self.client, topic, partition, offset, max_bytes=bytes_max, max_wait_ms=max_wait_ms, local_node=local_node
        )
