"""The producer: idempotent always, ordered in each partition, exclusive on request."""

import secrets
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from ..partition.errors import InvalidRequest, MessageTooLarge, ProducerFenced, StockadeError, UnknownTopicOrPartition
from ..partition.partitioner import partition_for_key
from ..partition.records import Header
from .admin import Client
from .batches import Batch, Record
from .config import DEFAULT_BOOTSTRAP, Bootstrap
from .delivery import Buffer, Delivery, wait_settled
from .errors import ClientClosed
from .fencing import Fence, Session
from .model import Mode, ProducerPair, Topic
from .sender import Route, Sender


class Producer:
    """Sends records to one cluster. An async context manager, which flushes at its end; or ``start`` and ``close``.

    ``name``: a stable name; a later producer of the same name takes this one's place and fences it off. Made up when
    not given. The producer id and epoch that the cluster gives for it make every repetition harmless.

    After a partition refused a batch for good, or did not decide in ``delivery_timeout_ms``, everything behind that
    batch fails too, and this producer takes nothing more for that partition: look at the tail, then start a new one.
    """

    def __init__(self, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, *, name: str | None = None) -> None:
        self.client = Client(bootstrap)
        self.name = name or f"producer-{secrets.token_hex(8)}"
        self._buffer = Buffer(self.client.config.buffer_bytes_max)
        self._identity: ProducerPair | None = None
        self._sender: Sender | None = None
        self._fences: dict[tuple[str, int], Fence] = {}
        self._sticky: dict[str, int] = {}
        self._failed: list[Batch] = []

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        await (self.close() if kind is None else self.abort())

    @property
    def identity(self) -> ProducerPair:
        """Producer id and epoch in use."""
        if self._identity is None:
            raise ClientClosed("the producer was not started")
        return self._identity

    async def start(self) -> Self:
        """Reach the cluster and get an identity. Raises ClusterUnreachable at once when no node can be connected to."""
        try:
            await self.client.connect()
            self._identity = await self.client.init_producer(self.name)
        except BaseException:
            await self.client.close()
            raise
        self._sender = Sender(self.client, self._identity, self._on_settled, self._on_fenced)
        return self

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue one record; waits only while the buffer is full. Await the Delivery for its receipt, or ``flush``.

        Without ``partition``, equal keys go to one partition, and records without a key stay together in batches.
        ``timestamp_ms`` None: now. Raises InvalidRecord, MessageTooLarge, UnknownTopicOrPartition, or what halted the
        partition.
        """
        described = self.client.metadata.known(topic) or await self.client.metadata.topic(topic)
        record = Record(key, value, time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms, headers)
        record.check()
        size = record.size
        if size > described.config.max_batch_bytes:
            raise MessageTooLarge(limit=described.config.max_batch_bytes, unit="bytes")
        await self._buffer.take(size)
        try:
            route = self._route(described, self._choose(described, key) if partition is None else partition)
            batch, index = route.lane.add(record, size, time.monotonic())
        except StockadeError:
            self._buffer.give_back(size)
            raise
        if index == 0 or batch.sealed:
            self._running.pump(route)
        return Delivery(batch, index)

    async def send_batch(
        self,
        topic: str,
        partition: int | None,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Sequence[Header] | None] | None = None,
        timestamps_ms: Sequence[int] | None = None,
    ) -> Delivery:
        """Queue records that stay together as one batch, stored whole or not at all; the fast way for many records.

        ``partition`` None: one after the other, batch by batch. Raises InvalidRecord for no records or columns of
        unequal length, MessageTooLarge when they do not fit into one batch of the topic; else as ``send``.
        """
        described = self.client.metadata.known(topic) or await self.client.metadata.topic(topic)
        now_ms = time.time_ns() // 1_000_000
        batch = Batch.of(values, keys, headers, timestamps_ms, now_ms=now_ms)
        batch.encode(described.config.max_batch_bytes)
        await self._buffer.take(batch.size)
        try:
            route = self._route(described, self._next(described) if partition is None else partition)
            batch.created_s = time.monotonic()
            route.lane.add_batch(batch)
        except StockadeError:
            self._buffer.give_back(batch.size)
            raise
        self._running.pump(route)
        return Delivery(batch)

    async def flush(self) -> None:
        """Wait until everything sent so far has its outcome. Raises the first failure that no Delivery raised yet."""
        routes = self._running.routes
        for route in routes:
            route.lane.seal()
            self._running.pump(route)
        for route in routes:
            await wait_settled(route.lane.unsettled)
        failed, self._failed = self._failed, []
        for batch in failed:
            if not batch.is_reported:
                assert isinstance(batch.outcome, StockadeError)
                raise batch.outcome

    async def close(self) -> None:
        """Flush, then close all connections. Raises what ``flush`` raises, after closing."""
        try:
            if self._sender is not None:
                await self.flush()
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Close without waiting: what was never sent fails, what is under way has an unknown outcome."""
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.abort()
        await self.client.close()

    @asynccontextmanager
    async def exclusive(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        mode: Mode = "Exclusive",
        *,
        resume_epoch: int | None = None,
    ) -> AsyncIterator[Fence]:
        """Inside, nobody else can write to ``partitions`` (None: all of the topic), and what is sent there is fenced.

        Leaving waits for the deliveries, raises their first failure, and frees the partitions. When somebody takes
        over, everything pending there fails with ProducerFenced in order and ``fence.lost`` is set. Raises ProducerBusy
        when somebody else holds one of them; mode ``ExclusiveWithFencing`` throws the holder out instead.
        """
        described = await self.client.metadata.topic(topic)
        numbers = range(len(described.partitions)) if partitions is None else partitions
        routes = [self._route(described, number) for number in numbers]
        if not routes:
            raise InvalidRequest("partitions: at least one is needed")
        async with Session(self.client, self.name) as session:
            fence = await self._acquire(session, routes, described.topic_id, mode, resume_epoch)
            try:
                yield fence
                await self.flush()
            except BaseException as error:
                left = ClientClosed("the exclusive block was left with an exception")
                self._running.halt(routes, error if isinstance(error, StockadeError) else left)
                raise
            finally:
                self._leave(routes)

    @property
    def _running(self) -> Sender:
        if self._sender is None:
            raise ClientClosed("the producer was closed, or not started")
        return self._sender

    async def _acquire(
        self, session: Session, routes: list[Route], topic_id: int, mode: Mode, resume_epoch: int | None
    ) -> Fence:
        """Nothing is numbered meanwhile, so that no record leaves between unfenced and fenced."""
        for route in routes:
            route.lane.is_held = True
        try:
            for route in routes:
                await wait_settled(route.lane.window)
            numbers = [route.partition for route in routes]
            fence = await session.acquire(
                routes[0].topic, numbers, mode=mode, resume_epoch=resume_epoch, topic_id=topic_id
            )
            self._enter(fence, routes)
        finally:
            for route in routes:
                route.lane.is_held = False
                self._running.pump(route)
        return fence

    def _enter(self, fence: Fence, routes: list[Route]) -> None:
        def halt(error: StockadeError) -> None:
            fenced = [route for route in routes if self._fences.get((route.topic, route.partition)) is fence]
            if self._sender is not None:
                self._sender.halt(fenced, error)

        for route in routes:
            route.lane.token = fence.token(route.partition)
            self._fences[route.topic, route.partition] = fence
        fence.on_lost(halt)

    def _leave(self, routes: list[Route]) -> None:
        for route in routes:
            route.lane.token = None
            self._fences.pop((route.topic, route.partition), None)

    def _route(self, topic: Topic, partition: int) -> Route:
        if not 0 <= partition < len(topic.partitions):
            raise UnknownTopicOrPartition(topic=topic.name, partition=partition)
        return self._running.route(topic, partition)

    def _choose(self, topic: Topic, key: bytes | None) -> int:
        if key is not None:
            return partition_for_key(key, len(topic.partitions))
        current = self._sticky.get(topic.name)
        if current is not None and self._running.route(topic, current).lane.open_batch is not None:
            return current
        return self._next(topic)

    def _next(self, topic: Topic) -> int:
        """The partition after the last one used for records without a key; the first one depends on the name."""
        last = self._sticky.get(topic.name, zlib.crc32(self.name.encode()))
        self._sticky[topic.name] = (last + 1) % len(topic.partitions)
        return self._sticky[topic.name]

    def _on_settled(self, batch: Batch) -> None:
        self._buffer.give_back(batch.size)
        if isinstance(batch.outcome, StockadeError):
            self._failed.append(batch)

    def _on_fenced(self, route: Route, error: ProducerFenced) -> None:
        fence = self._fences.get((route.topic, route.partition))
        if fence is not None:
            fence.lose(error)
