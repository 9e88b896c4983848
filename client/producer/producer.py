"""The producer: always idempotent, in order within each partition, exclusive on request (KIP-98, PIP-68)."""

import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, get_args

from ...partition.api.producers import ProducerPair
from ...partition.api.topics import Mode, Topic
from ...partition.errors import InvalidRequest, MessageTooLarge, StockadeError, UnknownTopicOrPartition
from ...partition.records.batch import Header
from ..api.client import Client
from ..api.conditions import Conditions
from ..api.grants import partition_numbers
from ..api.tail import Tail
from ..config import Bootstrap
from ..errors import ClientClosed, ProducerAborted
from ..loop_affinity import LoopEnd
from ..session.held import HeldLease, Ownership
from ..session.session import Fence, Session
from .delivery import Buffer, Delivery, wait_settled
from .exclusive import FenceChain, ProducerFences
from .interceptors import Interceptor, intercepted, intercepted_columns
from .metrics import ProducerMetrics
from .queue.batch import BATCH_OVERHEAD_BYTES, Batch, Receipt, Record, frozen_bytes, record_of, too_large
from .queue.partitioners import Choice, Partitioner, choose, partitioner_of, stays_open
from .results import Failure, Results, ResultStream, Watcher
from .seats import Seats
from .sender import Route, Sender
from .serializers import Serializer, Serializers, serializer_of

Access = Literal["Shared"]
"""How a producer holds the slot of a partition for which it has no exclusive fence."""
_log = logging.getLogger(__name__)


async def _note_failure(error: Exception, flush: Callable[[], Awaitable[None]]) -> None:
    """Flush while ``error`` is being raised: a failure of records becomes a note of it, and does not replace it."""
    try:
        await flush()
    except StockadeError as failure:
        if failure is not error:
            error.add_note(f"and records of the producer failed: {failure}")


def _has(topic: Topic, partition: int | None) -> bool:
    """Whether this description of a topic has the partition; the topic may have got more partitions since."""
    return not isinstance(partition, int) or partition < len(topic.partitions)


_KEYLESS = Record(None, None, 0)  # stands for a batch that names no partition


class Producer:
    """Sends records to one cluster. Use it in ``async with``, or ``start`` and ``close``.

    The end of the block flushes, also when an exception leaves it: records that ``send`` took are stored, as the close
    of a file writes what was written. That lasts up to ``delivery_timeout_ms``; failures become a note of the
    exception. When the block is cancelled, or ended by KeyboardInterrupt or SystemExit, it calls ``abort``. The end of
    ``asyncio.run`` also calls ``abort`` for a producer that is still open.

    - ``bootstrap``: as for `Client`; or a Client, whose connections and topic descriptions several producers can share.
      The producer does not close such a Client. A record that is sent after the Client was closed fails with
      ClientClosed.
    - ``name``: a stable name. A later producer of the same name fences this one: the writes of this one are refused
      from then on. None: a random name. The producer id and epoch of the name make repetitions harmless: a batch is
      stored once.
    - ``partitioner``: chooses the partition of a record that names none. "murmur2" (by key, as Kafka; without a key as
      "sticky"), "sticky" (one partition until its batch is full), "round_robin", "manual" (each record must name a
      partition), or a callable that takes a `Choice`.
    - ``interceptors``: called in order with each record once, after serialization and before it is queued.
    - ``key_serializer``, ``value_serializer``: how keys and values become bytes: "bytes" (as they are), "str" (UTF-8),
      "json", or a callable that returns bytes. None stays None. A serializer that fails fails that record alone, with
      InvalidRecord.
    - ``access``: None: the producer writes where no session holds a slot, and its records wait while one does, up to
      ``delivery_timeout_ms`` (``on_busy`` in the configuration). "Shared" (Pulsar's ProducerAccessMode): it takes a
      Shared seat before its first batch to a partition, so that an exclusive request of another session is refused with
      ProducerBusy, waits, or evicts it. Where another session holds or awaits the slot its records fail at once with
      ProducerBusy, which names the holder; after an eviction they fail with ProducerFenced. Either halts the partition
      until ``recover``, which takes a new seat. Exclusive access is `exclusive`.

    When a partition refuses a batch for good, or does not answer within ``delivery_timeout_ms``, that batch and all
    batches after it in the partition fail, and the producer takes no records for the partition until ``recover``. With
    ``on_error="continue"`` in the configuration only the batch fails. Other partitions are not affected.
    """

    def __init__(
        self,
        bootstrap: Bootstrap | Client | None = None,
        *,
        name: str | None = None,
        partitioner: str | Partitioner = "murmur2",
        interceptors: Sequence[Interceptor] = (),
        key_serializer: str | Serializer = "bytes",
        value_serializer: str | Serializer = "bytes",
        access: Access | None = None,
    ) -> None:
        if name is not None and not (isinstance(name, str) and name):
            raise InvalidRequest(f"name: a text of at least one character is needed, or None, not {name!r:.100}")
        if access not in (None, *get_args(Access)):
            raise InvalidRequest(f"access: None or 'Shared', not {access!r:.100}; for exclusive access use `exclusive`")
        serializers = Serializers(
            serializer_of(key_serializer, "key_serializer"), serializer_of(value_serializer, "value_serializer")
        )
        self._serializers = serializers if any(serializers) else None
        self._is_sharing = isinstance(bootstrap, Client)
        self.client: Client = bootstrap if isinstance(bootstrap, Client) else Client(bootstrap)
        self.name: str = name or f"producer-{secrets.token_hex(8)}"
        self._partitioner = partitioner_of(partitioner, self.name)
        self._interceptors = tuple(interceptors)
        self._stays_open = stays_open(self._partitioner)
        self._buffer = Buffer(self.client.config.buffer_bytes_max, self.client.config.send_timeout_ms)
        self._sender: Sender | None = None
        self._loop_end = LoopEnd(self.abort)
        self._fences = ProducerFences()
        self._seats = Seats(self.client, self.name) if access is not None else None
        self._is_closing = False
        self._open: dict[str, Route] = {}
        self._closed: dict[str, frozenset[int]] = {}
        self._results = Results(self._buffer)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        elif isinstance(error, Exception):
            await _note_failure(error, self.close)
        else:
            await self.abort()

    @property
    def identity(self) -> ProducerPair:
        """Producer id and epoch in use. Among other calls, `recover` raises the epoch."""
        if self._sender is None:
            raise ClientClosed("the producer was closed, or not started")
        return self._sender.identity

    async def start(self) -> Self:
        """Connect, and get a producer id and epoch.

        Repeated for ``delivery_timeout_ms`` while no node answers, as every call is; then it raises ClusterUnreachable.
        `Client.connect` tells at once whether there is a cluster.
        """
        try:
            _ = await self.client.connect(patience_ms=self.client.config.delivery_timeout_ms)
            identity = await self.client.init_producer(self.name)
        except BaseException:
            await self._disconnect()
            raise
        self._sender = Sender(self.client, self.name, identity, self._on_settled, self._on_fenced)
        await self._loop_end.watch()
        return self

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[Header] | None = None,
        timestamp_ms: int | None = None,
        metadata: object = None,
    ) -> Delivery:
        """Queue one record; waits while the buffer is full. Await the Delivery for the receipt, or ``flush``.

        ``key`` and ``value``: what their serializers take; by default bytes, bytearray or memoryview (copied where they
        could change). ``value`` None: a tombstone.
        ``partition`` None: the partitioner chooses. ``headers``: (name, bytes) pairs.
        ``timestamp_ms``: Unix time; None: now. ``metadata`` is not sent: `successes`, `errors` and watchers give it
        back with the outcome. Raises InvalidRecord, MessageTooLarge, UnknownTopicOrPartition,
        InvalidRequest (the partitioner chose no partition), BufferFull after ``send_timeout_ms``, ClientClosed, or the
        error that halted the partition.
        """
        self.client.affinity.enter()
        described = self.client.metadata.known(topic) or await self._running.topic(topic)
        now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        if self._serializers is not None:
            key, value = self._serializers.row(key, value)
        if self._interceptors:
            key, value = frozen_bytes(key), frozen_bytes(value)
            record = intercepted(self._interceptors, topic, Record(key, value, now_ms, headers, metadata))
        else:
            record = record_of((key, value, now_ms, headers, metadata))  # `checked` makes bytes of it
        size = record.plain_size()
        if size is None:
            record = record.checked()
            size = record.size
        if size + BATCH_OVERHEAD_BYTES > described.config.max_batch_bytes or not _has(described, partition):
            described = await self._taking(record, described, partition)
        if not self._buffer.take_now(size):
            await self._buffer.take(size)
        try:
            route = self._choose(described, record) if partition is None else self._route(described, partition)
            if self._seats is not None:
                self._seats.want(self._running, route)
            batch, index = route.queue.add(record, size, time.monotonic())
        except BaseException:
            self._buffer.give_back(size)
            raise
        if index == 0 or batch.is_due:
            self._running.pump(route)
        return Delivery(batch, index, 1, self.client.affinity)

    async def send_batch(
        self,
        topic: str,
        partition: int | None,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        headers: Sequence[Sequence[Header] | None] | None = None,
        timestamps_ms: Sequence[int] | None = None,
        if_log_end: int | None = None,
        message_id: str | None = None,
    ) -> Delivery:
        """Queue records that are stored together, all or none: the fastest way for dozens of records and more.

        The records do not wait for ``linger_ms``. They leave when there is room in flight, in one request with other
        records of the partition (alone with ``headers``, and with ``on_error="continue"``). ``keys``, ``headers`` and
        ``timestamps_ms`` have one entry for each value, or are None. ``partition`` None: the partitioner chooses for a
        record without a key. Raises InvalidRecord for no records or columns of unequal length, MessageTooLarge when one
        batch of the topic cannot hold them; otherwise as ``send``.

        ``if_log_end``: store them only if the partition's next offset is this one; otherwise the delivery raises
        OffsetMismatch with the ``log_end``. ``message_id``: their name, 1 to 128 printable characters: within the
        topic's ``dedupe_window_ms`` the partition stores one batch of a name, from any producer, and answers a second
        one with the offsets of the first (``duplicate``). Either needs a ``partition``, and makes these records a
        request of its own, with no other batch of the partition in flight. Repetitions are harmless: a batch that was
        stored is recognised by its sequence number before its condition is judged. OffsetMismatch fails these records
        alone and does not halt the partition, unless an earlier attempt may still be stored. Raises InvalidRequest for
        a message id that a topic without ``dedupe_window_ms`` cannot remember.
        """
        self.client.affinity.enter()
        described = self.client.metadata.known(topic) or await self._running.topic(topic)
        conditions = Conditions(if_log_end, message_id)
        described = await self._checked(conditions, described, partition)
        now_ms = time.time_ns() // 1_000_000
        if self._serializers is not None:
            keys, values = self._serializers.columns(keys, values)
        if self._interceptors:
            columns = values, keys, headers, timestamps_ms
            values, keys, headers, timestamps_ms = intercepted_columns(self._interceptors, topic, columns, now_ms)
        batch = Batch.of(values, keys, headers, timestamps_ms, now_ms=now_ms)
        batch.conditions = conditions
        described = await self._fitting(batch, described)
        size, count = batch.size, batch.count
        await self._buffer.take(size)
        try:
            route = self._choose(described, _KEYLESS) if partition is None else self._route(described, partition)
            if self._seats is not None:
                self._seats.want(self._running, route)
            batch.created_s = time.monotonic()
            batch, first = route.queue.add_batch(batch)
        except BaseException:
            self._buffer.give_back(size)
            raise
        self._running.pump(route)
        return Delivery(batch, first, count, self.client.affinity)

    async def flush(self) -> None:
        """Wait until every record sent so far has its outcome. Raises the first failure that no Delivery has raised.

        Of tasks that flush at the same time, each raises a failure among the records that it waited for.
        """
        routes = self._running.routes
        self._results.raise_unseen(await self._settle(routes))

    async def _settle(self, routes: Sequence[Route]) -> list[Batch]:
        """Send what waits in these queues, and wait for the outcomes. Returns the batches that had none before."""
        waited = [batch for route in routes for batch in route.queue.unsettled]
        for route in routes:
            route.queue.seal()
            self._running.pump(route)
        await wait_settled(waited)
        return waited

    async def _flush_held(self, routes: Sequence[Route]) -> None:
        """``flush`` for these routes alone: failures on other partitions do not concern an exclusive block."""
        waited = await self._settle(routes)
        self._results.raise_unseen(waited, {(route.topic, route.partition) for route in routes})

    async def close(self) -> None:
        """Take no more records, wait for the outcome of each, then close all connections.

        Raises ProducerErrors afterwards, with every failure since the last ``flush`` that the application has not seen.
        """
        self.client.affinity.enter()
        self._is_closing = True
        try:
            await self._loop_end.forget()
            _ = await self._settle(() if self._sender is None else self._sender.routes)
        finally:
            await self.abort()
        self._results.raise_all_unseen()

    async def abort(self) -> None:
        """Close without waiting: unsent records fail with ProducerAborted, the outcome of those in flight is unknown.

        Each record has its own outcome; one line of the log tells how many were not sent, and how many are unknown.
        """
        self.client.affinity.enter()
        self._is_closing = True
        sender, self._sender = self._sender, None
        async with AsyncExitStack() as ends:  # each of these runs, also when this call is cancelled
            ends.push_async_callback(self._loop_end.forget)
            ends.push_async_callback(self._disconnect)
            ends.callback(self._results.close)
            if self._seats is not None:
                ends.push_async_callback(self._seats.close)
            if sender is not None:
                await sender.abort()

    async def _disconnect(self) -> None:
        if not self._is_sharing:
            await self.client.close()

    async def recover(self, topic: str, partition: int, *, tail: int = 1) -> Tail:
        """Take records for a halted partition again; returns the last ``tail`` records of its log.

        Before the log is read, every record sent to the partition has its outcome and a new producer epoch is in force,
        so no late attempt can be stored: the application continues after the tail (SEMANTICS 9.9). Other partitions
        continue under the new epoch, too. With ``access="Shared"`` the producer takes a new seat (ProducerBusy). Raises
        the error of the partition's fence if the fence is lost, and ProducerFenced when a later producer of this name
        has started.
        """
        described = await self.client.metadata.now(topic)
        route = self._route(described, partition)
        async with route.recovering:
            lost = self._fences.error(route)
            if lost is not None:
                raise lost
            await wait_settled(route.queue.unsettled)
            if route.queue.error is not None:
                if not await self._running.follow(described):
                    await self._running.renew()
                if self._seats is not None:
                    await self._seats.take(self._running, route)
            # An exclusive block that has acquired the partition again may have opened it meanwhile.
            if route.queue.error is not None:
                self._opened(route)
        return await self.client.tail(topic, partition, tail)

    def successes(self) -> ResultStream[Receipt]:
        """The receipts of all batches stored from now on, in order within a partition; ends when the producer closes.

        Unread receipts count as buffered records: ``send`` waits when they fill the buffer.
        """
        return self._results.successes.subscribe()

    def errors(self) -> ResultStream[Failure]:
        """All batches that fail from now on; otherwise as ``successes``."""
        return self._results.errors.subscribe()

    def on_outcome(self, watcher: Watcher) -> None:
        """Call ``watcher`` for each batch, with its Receipt or Failure and the seconds since its first record. The
        watcher must be quick; its exceptions are logged.
        """
        self._results.watchers.append(watcher)

    def metrics(self) -> ProducerMetrics:
        """A snapshot: counts since the producer's start, and what is under way. Raises ClientClosed unless it runs."""
        sender = self._running
        queues = [route.queue for route in sender.routes]
        return ProducerMetrics(
            **vars(sender.counts),
            buffered_bytes=self._buffer.used,
            buffer_bytes_max=self.client.config.buffer_bytes_max,
            batches_in_flight=sum(len(queue.window) for queue in queues),
            batches_waiting=sum(len(queue.unsettled) - len(queue.window) for queue in queues),
            partitions_failing=sum(map(len, sender.failing.values())),
            partitions_halted=sum(queue.error is not None for queue in queues),
        )

    @asynccontextmanager
    async def exclusive(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        mode: Mode = "Exclusive",
        *,
        resume_epoch: int | None = None,
        cancel_on_loss: bool = True,
        reacquire: Callable[[Fence], Awaitable[None] | None] | None = None,
    ) -> AsyncIterator[Fence]:
        """Inside the block, only this producer can write to ``partitions`` (None: all of the topic).

        Records that are sent there carry the fencing token. The end of the block waits for the deliveries, raises their
        first failure, and frees the partitions. When another writer takes over, the records that wait fail in order
        with ProducerFenced, ``fence.lost`` is set, and with ``cancel_on_loss`` the block is cancelled and raises the
        reason.

        ``mode``: see `stockade.model.Mode`. "Exclusive" raises ProducerBusy when one of the partitions has a holder,
        "WaitForExclusive" waits, "ExclusiveWithFencing" evicts the holder. ``resume_epoch``: the epoch of an earlier
        grant, to be granted again; ProducerFenced if the partitions are at a higher epoch. If they are at the same one,
        a Shared grant or another session that resumed it may have written meanwhile.

        ``reacquire`` None: a loss is final. Otherwise the block lives on through losses, with any ``cancel_on_loss``:
        the records that waited fail with ProducerFenced (or why the session ended) and so does each `send` there; then
        the partitions are acquired again in the background, with a new fencing epoch and a new producer epoch. A newer
        holder is never evicted: the request waits in the queue until it has left. Before the partitions take records
        again, ``reacquire`` is called with the new fence, and awaited if it answers an awaitable: there the application
        reads the tail, since others may have written between the two epochs, and decides what it sends next. `again`
        of the lost fence waits until the partitions take records, and answers the new one. The block is cancelled, with
        ``cancel_on_loss``, and raises the reason, when that becomes impossible: the topic was deleted, a later producer
        of this name has started, or ``reacquire`` raised.
        """
        described = await self.client.metadata.now(topic)
        _ = await self._running.follow(described)
        numbers = partition_numbers(partitions, described)
        routes = [self._route(described, number) for number in numbers]
        if not routes:
            raise InvalidRequest("partitions: at least one is needed")
        chain = None if reacquire is None else FenceChain(self._fences, self._running, routes, reacquire, self._opened)
        told = None if chain is None else chain.renewed
        async with self._without_seats(routes) as leave, Session(self.client, self.name, reacquire=told) as session:

            async def acquire() -> Fence:
                await leave()
                return await session.acquire(
                    topic,
                    [route.partition for route in routes],
                    mode=mode,
                    resume_epoch=resume_epoch,
                    topic_id=described.topic_id,
                )

            fence = await self._fences.take(self._running, routes, acquire)
            if chain is not None:
                chain.follow(fence)
            try:
                async with self._while_held(routes, [chain or fence], cancel_on_loss):
                    yield fence
            finally:
                self._fences.leave(routes)
                if self._seats is not None:
                    self._seats.hold(routes)

    @asynccontextmanager
    async def _without_seats(self, routes: Sequence[Route]) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Yields a function that gives up the producer's own Shared seats; the end of the block takes them again."""
        if self._seats is None:
            yield _nothing
            return
        try:
            yield partial(self._seats.leave, routes)
        finally:
            if self._sender is not None:
                self._seats.come_back(self._sender, routes)

    @asynccontextmanager
    async def owning(self, *owned: Ownership, cancel_on_loss: bool = True) -> AsyncIterator[None]:
        """Inside the block, records for the partitions that ``owned`` names carry its fence_epoch.

        For topics with a ``writer_group``: only the owner of ``<topic>/<partition>`` in this group can write there.
        ``owned``: what `Session.own` answered for such resources. The end of the block waits for the deliveries and
        raises their first failure; the ownerships remain. When one is lost, the records that wait for its partition
        fail in order with NotOwner, and with ``cancel_on_loss`` the block is cancelled and raises the reason.

        Raises InvalidRequest for a resource that names no partition, or that is of another group than the topic's
        ``writer_group``, and the error of an ownership that is lost already.
        """
        bound = {await self._owned_route(each): each for each in owned}
        await self._fences.bind(self._running, bound)
        try:
            async with self._while_held(list(bound), list(owned), cancel_on_loss):
                yield
        finally:
            self._fences.unbind(bound)

    async def _owned_route(self, owned: Ownership) -> Route:
        topic, slash, number = owned.resource.rpartition("/")
        if not slash or not number.isdecimal():
            raise InvalidRequest(f"owned: {owned.resource!r} is not <topic>/<partition>")
        described = await self.client.metadata.now(topic)
        _ = await self._running.follow(described)
        if described.config.writer_group != owned.group:
            group = described.config.writer_group
            raise InvalidRequest(f"owned: {owned.resource} is owned in {owned.group}, and the writer_group is {group}")
        return self._route(described, int(number))

    @asynccontextmanager
    async def _while_held(
        self, routes: Sequence[Route], held: Sequence[HeldLease], cancel_on_loss: bool
    ) -> AsyncIterator[None]:
        """A block that waits for its deliveries at its end; the routes halt after an exception, or a cancellation."""
        try:
            async with AsyncExitStack() as guards:
                for lease in held if cancel_on_loss else ():
                    await guards.enter_async_context(lease.guard())
                yield
                await self._flush_held(routes)
        except BaseException as error:
            if isinstance(error, Exception):
                await _note_failure(error, partial(self._flush_held, routes))
            left = ProducerAborted("the exclusive block was left with an exception")
            self._running.halt(routes, error if isinstance(error, StockadeError) else left)
            raise

    @property
    def _running(self) -> Sender:
        self.client.affinity.enter()
        if self._sender is None:
            raise ClientClosed("the producer was closed, or not started")
        return self._sender

    def _route(self, topic: Topic, partition: int) -> Route:
        if self._is_closing or self._sender is None:
            raise ClientClosed("the producer is being closed, was closed, or was not started")
        if not isinstance(partition, int):
            raise InvalidRequest(f"partition: a number is needed, not {partition!r:.100}")
        if not 0 <= partition < len(topic.partitions):
            raise UnknownTopicOrPartition(topic=topic.name, partition=partition)
        return self._sender.route(topic, partition)

    async def _taking(self, record: Record, topic: Topic, partition: int | None) -> Topic:
        """The topic's description, asked for again if the known one lacks the partition, or allows less than this
        record alone. Raises InvalidRecord, MessageTooLarge.
        """
        size = record.message_size()
        if size > topic.config.max_batch_bytes or not _has(topic, partition):
            topic = await self.client.metadata.anew(topic.name)
        if size > topic.config.max_batch_bytes:
            raise too_large(size, topic.config.max_batch_bytes)
        return topic

    async def _fitting(self, batch: Batch, topic: Topic) -> Topic:
        """The topic's description, asked for again if the known one allows less than this batch. Raises InvalidRecord,
        MessageTooLarge.
        """
        compression = self.client.config.compression
        try:
            batch.check(topic.config.max_batch_bytes, compression)
        except MessageTooLarge:
            topic = await self.client.metadata.anew(topic.name)
            batch.check(topic.config.max_batch_bytes, compression)
        return topic

    async def _checked(self, conditions: Conditions, topic: Topic, partition: int | None) -> Topic:
        """The topic's description, asked for again if the known one lacks the partition, or a window for message ids.
        Raises InvalidRequest.
        """
        if not _has(topic, partition):
            topic = await self.client.metadata.anew(topic.name)
        if not conditions.is_unstamped:
            return topic
        conditions.check()
        if partition is None:
            raise InvalidRequest("partition: if_log_end and message_id each refer to one partition")
        if conditions.message_id is not None and not topic.config.dedupe_window_ms:
            topic = await self.client.metadata.anew(topic.name)
            if not topic.config.dedupe_window_ms:
                raise InvalidRequest("message_id: the topic has no dedupe_window_ms; `stockade topics alter` sets it")
        return topic

    def _choose(self, topic: Topic, record: Record) -> Route:
        route = self._open.get(topic.name)
        if route is not None and route.queue.open_batch is None:
            route = None
        failing = self._running.failing.get(topic.name, frozenset())
        stays = self._stays_open and record.key is None and not self._is_closing
        if route is not None and stays and route.partition not in failing:
            return route
        current = None if route is None else route.partition
        closed = self._closed.get(topic.name, frozenset())
        while True:
            choice = Choice(topic.name, record, len(topic.partitions), current, closed, failing)
            route = self._route(topic, choose(self._partitioner, choice))
            if route.queue.error is None or route.partition in closed:
                break
            closed = self._closed[topic.name] = closed | {route.partition}
        self._open[topic.name] = route
        return route

    def _opened(self, route: Route) -> None:
        """Take records for a halted partition again, under a new epoch."""
        route.queue.reopen()
        _log.info("%s: %s/%d has recovered and takes records again", self.name, route.topic, route.partition)
        self._closed[route.topic] = self._closed.get(route.topic, frozenset()) - {route.partition}
        self._results.forget(route.topic, route.partition)

    def _on_fenced(self, route: Route, error: StockadeError) -> None:
        self._fences.fenced(route, error)
        if self._seats is not None:
            self._seats.fenced(route, error)

    def _on_settled(self, route: Route, batch: Batch) -> None:
        self._results.settled(route.topic, route.partition, batch)


async def _nothing() -> None:
    """There are no seats to give up."""
