"""The producer: idempotent always, ordered in each partition, exclusive on request."""

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from types import TracebackType
from typing import Self

from ..partition.errors import InvalidRequest, StockadeError, UnknownTopicOrPartition
from ..partition.records import Header
from .admin import Client
from .batches import Batch, Receipt, Record, too_large
from .config import DEFAULT_BOOTSTRAP, Bootstrap
from .delivery import Buffer, Delivery, wait_settled
from .errors import ClientClosed
from .exclusive import Seats
from .fencing import Fence, Session
from .interceptors import Interceptor, intercepted, intercepted_columns
from .model import Mode, ProducerPair, Tail, Topic
from .outcomes import Failure, Results, Watcher
from .partitioners import Choice, Partitioner, choose, partitioner_of, stays_open
from .sender import Route, Sender

_KEYLESS = Record(None, None, 0)  # stands for a batch that names no partition


class Producer:
    """Sends records to one cluster. An async context manager, which flushes at its end; or ``start`` and ``close``.

    ``name``: a stable name; a later producer of the same name takes this one's place and fences it off. Made up when
    not given. The producer id and epoch that the cluster gives for it make every repetition harmless.

    - ``partitioner``: where a record goes that names no partition: ``murmur2`` (by key as Kafka does it; without a key
      batch by batch), ``sticky``, ``round_robin``, ``manual`` (it must name one), or a callable of your own.
    - ``interceptors``: called in order with each record once, before it is queued.

    After a partition refused a batch for good, or did not decide in ``delivery_timeout_ms``, everything behind that
    batch fails too, and this producer takes nothing more for that partition until ``recover`` (KIP-98's rule for
    idempotent producers); with the configuration's ``on_error="continue"`` it goes on with the next batch.
    """

    def __init__(
        self,
        bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
        *,
        name: str | None = None,
        partitioner: str | Partitioner = "murmur2",
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self.client: Client = Client(bootstrap)
        self.name: str = name or f"producer-{secrets.token_hex(8)}"
        self._partitioner = partitioner_of(partitioner, self.name)
        self._interceptors = tuple(interceptors)
        self._stays_open = stays_open(self._partitioner)
        self._buffer = Buffer(self.client.config.buffer_bytes_max, self.client.config.send_timeout_ms)
        self._sender: Sender | None = None
        self._seats = Seats()
        self._is_closing = False
        self._open: dict[str, Route] = {}
        self._closed: dict[str, frozenset[int]] = {}
        self._results = Results(self._buffer)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        await (self.close() if kind is None else self.abort())

    @property
    def identity(self) -> ProducerPair:
        """Producer id and epoch in use; a later epoch after a failure was recovered from."""
        return self._running.identity

    async def start(self) -> Self:
        """Reach the cluster and get an identity. Raises ClusterUnreachable at once when no node can be connected to."""
        try:
            await self.client.connect()
            identity = await self.client.init_producer(self.name)
        except BaseException:
            await self.client.close()
            raise
        self._sender = Sender(self.client, self.name, identity, self._on_settled, self._seats.fenced)
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
        """Queue one record; waits while the buffer is full. Await the Delivery for its receipt, or ``flush``.

        Without ``partition``, the partitioner chooses one. ``timestamp_ms`` None: now. Raises InvalidRecord,
        MessageTooLarge, UnknownTopicOrPartition, InvalidRequest from a partitioner that chose none, BufferFull after
        ``send_timeout_ms``, ClientClosed, or what halted the partition.
        """
        described = self.client.metadata.known(topic) or await self._running.topic(topic)
        record = Record(key, value, time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms, headers)
        if self._interceptors:
            record = intercepted(self._interceptors, topic, record)
        size = record.checked_size()
        if size > described.config.max_batch_bytes:
            raise too_large(size, described.config.max_batch_bytes)
        if not self._buffer.take_now(size):
            await self._buffer.take(size)
        try:
            route = self._choose(described, record) if partition is None else self._route(described, partition)
            batch, index = route.lane.add(record, size, time.monotonic())
        except StockadeError:
            self._buffer.give_back(size)
            raise
        if index == 0 or batch.sealed:
            self._running.pump(route)
        return Delivery(batch, index, 1)

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
        """Queue records that stay together, stored whole or not at all: the fast way for dozens of records and more.

        They leave as soon as there is room in flight, in one request with what else is queued for the partition by then
        (alone with headers, or with ``on_error="continue"``). ``partition`` None: one after the other, batch by batch.
        Raises InvalidRecord for no records or columns of unequal length, MessageTooLarge when they do not fit into one
        batch of the topic; else as ``send``.
        """
        described = self.client.metadata.known(topic) or await self._running.topic(topic)
        now_ms = time.time_ns() // 1_000_000
        if self._interceptors:
            columns = values, keys, headers, timestamps_ms
            values, keys, headers, timestamps_ms = intercepted_columns(self._interceptors, topic, columns, now_ms)
        batch = Batch.of(values, keys, headers, timestamps_ms, now_ms=now_ms)
        batch.check(described.config.max_batch_bytes)
        size, count = batch.size, batch.count
        await self._buffer.take(size)
        try:
            route = self._choose(described, _KEYLESS) if partition is None else self._route(described, partition)
            batch.created_s = time.monotonic()
            batch, first = route.lane.add_batch(batch)
        except StockadeError:
            self._buffer.give_back(size)
            raise
        self._running.pump(route)
        return Delivery(batch, first, count)

    async def flush(self) -> None:
        """Wait until everything sent so far has its outcome. Raises the first failure that no Delivery raised yet."""
        routes = self._running.routes
        for route in routes:
            route.lane.seal()
            self._running.pump(route)
        for route in routes:
            await wait_settled(route.lane.unsettled)
        self._results.raise_unseen()

    async def close(self) -> None:
        """Take nothing more, flush, then close all connections. Raises what ``flush`` raises, after closing."""
        self._is_closing = True
        try:
            if self._sender is not None:
                await self.flush()
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Close without waiting: what was never sent fails, what is under way has an unknown outcome."""
        self._is_closing = True
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.abort()
        self._results.close()
        await self.client.close()

    async def recover(self, topic: str, partition: int, *, tail: int = 1) -> Tail:
        """Take records for a halted partition again; answers the last ``tail`` records of its log.

        Everything sent there has its outcome by then, and a new epoch, in force before the log is read, keeps anything
        late out. So the tail is the truth: go on after it (SEMANTICS 9.9). Other partitions go on under the new epoch
        as well. Raises what ended the seat at the partition when it is lost, and ProducerFenced when a later producer
        of this name has started.
        """
        described = await self.client.metadata.now(topic)
        route = self._route(described, partition)
        lost = self._seats.error(route)
        if lost is not None:
            raise lost
        await wait_settled(route.lane.unsettled)
        if route.lane.error is not None:
            if not await self._running.follow(described):
                await self._running.renew()
            route.lane.reopen()
            self._closed[topic] = self._closed.get(topic, frozenset()) - {partition}
            self._results.forget(topic, partition)
        return await self.client.tail(topic, partition, tail)

    def successes(self) -> AsyncIterator[Receipt]:
        """Every batch stored from now on, in order for each partition; ends when the producer is closed.

        What is not read yet counts as buffered: read it, or ``send`` will wait.
        """
        return self._results.successes.subscribe()

    def errors(self) -> AsyncIterator[Failure]:
        """Every batch that failed from now on, as ``successes``."""
        return self._results.errors.subscribe()

    def on_outcome(self, watcher: Watcher) -> None:
        """Call ``watcher`` for each batch that has its outcome, with the seconds since it began. It must not raise."""
        self._results.watchers.append(watcher)

    @asynccontextmanager
    async def exclusive(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        mode: Mode = "Exclusive",
        *,
        resume_epoch: int | None = None,
        cancel_on_loss: bool = True,
    ) -> AsyncIterator[Fence]:
        """Inside, nobody else can write to ``partitions`` (None: all of the topic), and what is sent there is fenced.

        Leaving waits for the deliveries, raises their first failure, and frees the partitions. When somebody takes
        over, everything pending there fails with ProducerFenced in order, ``fence.lost`` is set, and with
        ``cancel_on_loss`` the block is cancelled and raises why. Raises ProducerBusy when somebody else holds one of
        them; mode ``ExclusiveWithFencing`` throws the holder out instead.
        """
        described = await self.client.metadata.now(topic)
        _ = await self._running.follow(described)
        numbers = range(len(described.partitions)) if partitions is None else partitions
        routes = [self._route(described, number) for number in numbers]
        if not routes:
            raise InvalidRequest("partitions: at least one is needed")
        async with Session(self.client, self.name) as session:
            fence = await self._seats.take(
                self._running,
                routes,
                lambda: session.acquire(
                    topic,
                    [route.partition for route in routes],
                    mode=mode,
                    resume_epoch=resume_epoch,
                    topic_id=described.topic_id,
                ),
            )
            try:
                async with fence.guard() if cancel_on_loss else nullcontext():
                    yield fence
                    await self.flush()
            except BaseException as error:
                left = ClientClosed("the exclusive block was left with an exception")
                self._running.halt(routes, error if isinstance(error, StockadeError) else left)
                raise
            finally:
                self._seats.leave(routes)

    @property
    def _running(self) -> Sender:
        if self._sender is None:
            raise ClientClosed("the producer was closed, or not started")
        return self._sender

    def _route(self, topic: Topic, partition: int) -> Route:
        if self._is_closing:
            raise ClientClosed("the producer is being closed, or was")
        if not 0 <= partition < len(topic.partitions):
            raise UnknownTopicOrPartition(topic=topic.name, partition=partition)
        return self._running.route(topic, partition)

    def _choose(self, topic: Topic, record: Record) -> Route:
        route = self._open.get(topic.name)
        if route is not None and route.lane.open_batch is None:
            route = None
        if route is not None and self._stays_open and record.key is None and not self._is_closing:
            return route
        current = None if route is None else route.partition
        closed = self._closed.get(topic.name, frozenset())
        while True:
            choice = Choice(topic.name, record, len(topic.partitions), current, closed)
            route = self._route(topic, choose(self._partitioner, choice))
            if route.lane.error is None or route.partition in closed:
                break
            closed = self._closed[topic.name] = closed | {route.partition}
        self._open[topic.name] = route
        return route

    def _on_settled(self, route: Route, batch: Batch) -> None:
        self._results.settled(route.topic, route.partition, batch)
