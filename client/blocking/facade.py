"""Producer, consumer and session for code without an event loop: ``from stockade.sync import Producer``.

Every object has the names, parameters and errors of its asynchronous twin; a call that is awaited there blocks here.
One background thread runs the event loop of all objects, so renewals, batching and retries continue while the caller
works. Objects are thread-safe. In a forked child their methods raise UsedAfterFork: make new ones there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast, overload

import pyarrow as pa

from ...partition.api.ownership import Grant, Sever
from ...partition.api.producers import ProducerPair
from ...partition.api.topics import Mode
from ...partition.commands import Token
from ...partition.errors import StockadeError
from ...partition.records.batch import Header
from ..config import Bootstrap
from ..consumer import consumer as consumers
from ..consumer import group as groups
from ..consumer import reader as readings
from ..consumer.reader import Start
from ..consumer.records import ConsumedRecord, Piece
from ..producer import delivery as deliveries
from ..producer import producer
from ..producer.interceptors import Interceptor
from ..producer.metrics import ProducerMetrics
from ..producer.queue.batch import Receipt
from ..producer.queue.partitioners import Partitioner
from ..producer.results import Failure, Watcher
from ..producer.serializers import Serializer
from ..session import held, session
from .client import Client
from .loop_thread import Blocking, Callback, blocking

T = TypeVar("T")
H = TypeVar("H", session.Fence, held.Ownership, session.Session)
L = TypeVar("L", session.Fence, held.Ownership)


class Delivery(Blocking[deliveries.Delivery]):
    """The outcome of sent records, see ``stockade.Delivery``."""

    def __repr__(self) -> str:
        return repr(self._twin)

    @property
    def is_done(self) -> bool:
        """Whether ``result`` would return, or raise, at once."""
        return self.twin.is_done

    @property
    def failure(self) -> StockadeError | None:
        """The refusal; None while the outcome is open, and when the records are stored."""
        return self.twin.failure

    @property
    def receipt(self) -> Receipt | None:
        """The receipt; None while the outcome is open, and when the records failed."""
        return self.twin.receipt

    def result(self, timeout_s: float | None = None) -> Receipt:
        """Wait for the receipt, ``timeout_s`` at most (None: no limit). Raises the refusal, or TimeoutError."""
        if self.is_done:  # also in a callback, on the background thread, where a call may not wait
            try:
                next(self.twin.__await__())
            except StopIteration as over:
                return cast(Receipt, over.value)

        async def settled() -> Receipt:
            return await self.twin

        return self._run(settled(), timeout_s)

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Call ``callback`` with this delivery when it is done, on the background thread. The callback must not block
        that thread; its exceptions are logged.
        """
        self._call(lambda: self.twin.add_done_callback(Callback(lambda _: callback(self))))


class Producer(Blocking[producer.Producer]):
    """See ``stockade.Producer``; the end of the ``with`` block flushes, and Ctrl-C there aborts."""

    def __init__(
        self,
        bootstrap: Bootstrap | Client | None = None,
        *,
        name: str | None = None,
        partitioner: str | Partitioner = "murmur2",
        interceptors: Sequence[Interceptor] = (),
        key_serializer: str | Serializer = "bytes",
        value_serializer: str | Serializer = "bytes",
        access: producer.Access | None = None,
    ) -> None:
        made = producer.Producer(
            bootstrap.twin if isinstance(bootstrap, Client) else bootstrap,
            name=name,
            partitioner=partitioner,
            interceptors=interceptors,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            access=access,
        )
        super().__init__(made)
        self.client: Client = Client.of(self.twin.client)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self._is_parents:
            self._run(self.twin.__aexit__(kind, error, trace))

    @property
    def name(self) -> str:
        """The stable name."""
        return self.twin.name

    @property
    def identity(self) -> ProducerPair:
        """Producer id and epoch in use."""
        return self.twin.identity

    def start(self) -> Self:
        """Connect, and get a producer id and epoch."""

        async def started() -> None:
            self._thread.started.add(await self.twin.start())

        self._run(started())
        return self

    def send(
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
        """Queue one record; blocks while the buffer is full."""
        work = self.twin.send(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
            metadata=metadata,
        )
        return Delivery(self._run(work))

    def send_batch(
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
        """Queue records that are stored together: by far the fastest way from a thread."""
        work = self.twin.send_batch(
            topic,
            partition,
            values,
            keys=keys,
            headers=headers,
            timestamps_ms=timestamps_ms,
            if_log_end=if_log_end,
            message_id=message_id,
        )
        return Delivery(self._run(work))

    flush: Final = blocking(producer.Producer.flush)
    close: Final = blocking(producer.Producer.close)
    abort: Final = blocking(producer.Producer.abort)
    recover: Final = blocking(producer.Producer.recover)

    def successes(self) -> Iterator[Receipt]:
        """The receipts of all batches stored from now on; ``next`` waits for one, and ends when the producer closes."""
        found = self._call(self.twin.successes)
        return self._each(found, found.put_back)

    def errors(self) -> Iterator[Failure]:
        """All batches that fail from now on; otherwise as ``successes``."""
        found = self._call(self.twin.errors)
        return self._each(found, found.put_back)

    def on_outcome(self, watcher: Watcher) -> None:
        """Call ``watcher`` for each batch, with its Receipt or Failure and the seconds since its first record, on the
        background thread. The watcher must not block that thread; its exceptions are logged.
        """
        self._call(lambda: self.twin.on_outcome(Callback(watcher)))

    def metrics(self) -> ProducerMetrics:
        """A snapshot: counts since the producer's start, and what is under way."""
        return self._call(self.twin.metrics)

    @contextmanager
    def exclusive(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        mode: Mode = "Exclusive",
        *,
        resume_epoch: int | None = None,
        cancel_on_loss: bool = True,
        reacquire: "Callable[[Fence], object] | None" = None,
    ) -> Iterator["Fence"]:
        """Inside the block, only this producer can write to ``partitions`` (None: all of the topic).

        No thread can be cancelled: check ``fence.is_lost`` in long work. With ``cancel_on_loss`` and no ``reacquire``,
        the end of the block raises the reason of a loss, even if nothing was sent since. ``reacquire`` is called on a
        thread of its own, and may block.
        """

        async def told(fence: session.Fence) -> None:
            assert reacquire is not None
            await self._thread.apart(reacquire, Fence(fence))

        block = self.twin.exclusive(
            topic,
            partitions,
            mode,
            resume_epoch=resume_epoch,
            cancel_on_loss=False,
            reacquire=None if reacquire is None else told,
        )
        with self._entered(block) as fence:
            yield Fence(fence)
            end = fence.end
            if cancel_on_loss and end is not None:
                raise end

    @contextmanager
    def owning(self, *owned: "Ownership", cancel_on_loss: bool = True) -> Iterator[None]:
        """Inside the block, records for the partitions that ``owned`` names carry its fence_epoch; ``cancel_on_loss``
        as for ``exclusive``.
        """
        with self._entered(self.twin.owning(*(each.twin for each in owned), cancel_on_loss=False)):
            yield
            lost = next((each.error for each in owned if each.error is not None), None)
            if cancel_on_loss and lost is not None:
                raise lost

    @contextmanager
    def _entered(self, block: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Inside the block, the asynchronous ``block`` is entered; both its ends run on the background thread."""
        value = self._run(block.__aenter__())
        try:
            yield value
        except BaseException as error:
            if not self._run(block.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self._run(block.__aexit__(None, None, None))


class Losable(Blocking[H]):
    """A session, or a lease that a session holds: the cluster may end it."""

    @property
    def is_lost(self) -> bool:
        """Whether the cluster has ended it, or it was closed or released; then ``error`` says why."""
        return self.twin.error is not None

    @property
    def error(self) -> StockadeError | None:
        """The reason of the loss; None until then."""
        return self.twin.error

    def wait_lost(self, timeout_s: float | None = None) -> bool:
        """Wait until it is lost; returns whether it was lost within ``timeout_s`` (None: no limit)."""
        try:
            self._run(self.twin.lost.wait(), timeout_s)
        except TimeoutError:
            return self.is_lost
        return True


class HeldLease(Losable[L]):
    """A grant or a resource that a session holds until it is lost."""

    def __repr__(self) -> str:
        return repr(self._twin)

    def on_lost(self, watcher: Callable[[StockadeError], None]) -> None:
        """Call ``watcher`` with the error, once, when the lease is lost, or at once if it is lost already: on the
        background thread, which the watcher must not block. Its exceptions are logged.
        """
        self._call(lambda: self.twin.on_lost(Callback(watcher)))

    def forget(self, watcher: Callable[[StockadeError], None]) -> None:
        """Undo one ``on_lost``."""
        self._call(lambda: self.twin.forget(Callback(watcher)))

    def release(self) -> None:
        """Give the lease up; returns once another session can have it."""
        self._run(self.twin.release())


class Fence(HeldLease[session.Fence]):
    """A grant, in force until it is lost. See ``stockade.Fence``."""

    def __init__(self, fence: session.Fence) -> None:
        super().__init__(fence)
        self.grant: Grant = fence.grant
        self.epoch: int = fence.epoch

    @property
    def session_id(self) -> str:
        """The id of the session that holds the grant, a secret."""
        return self.twin.session_id

    def token(self, partition: int) -> Token:
        """The fencing token that an append to ``partition`` carries."""
        return self.twin.token(partition)

    def again(self) -> Self:
        """Wait until the fence is lost and acquired again (``reacquire``); returns the fence that replaces it."""
        return type(self)(self._run(self.twin.again()))


class Ownership(HeldLease[held.Ownership]):
    """A resource that a session owns until it is lost; ``fence_epoch`` is a fencing token for other stores."""

    def __init__(self, owned: held.Ownership) -> None:
        super().__init__(owned)
        self.group: str = owned.group
        self.resource: str = owned.resource
        self.generation: int = owned.generation
        self.fence_epoch: int = owned.fence_epoch

    def again(self) -> Self:
        """Wait until the resource is lost and owned again (``reacquire``); returns the ownership that replaces it."""
        return type(self)(self._run(self.twin.again()))


class Session(Losable[session.Session]):
    """See ``stockade.Session``. Use it in ``with``, or ``open`` and ``close`` it.

    ``reacquire`` is called on a thread of its own, and may block; a process runs 64 such callbacks at a time.
    """

    def __init__(
        self,
        client: Client,
        client_id: str,
        *,
        ttl_ms: int | None = None,
        reacquire: Callable[[Fence | Ownership], object] | None = None,
    ) -> None:
        async def told(lease: session.Fence | held.Ownership) -> None:
            assert reacquire is not None
            again = Fence(lease) if isinstance(lease, session.Fence) else Ownership(lease)
            await self._thread.apart(reacquire, again)

        wished = None if reacquire is None else told
        super().__init__(session.Session(client.twin, client_id, ttl_ms=ttl_ms, reacquire=wished))
        self.client_id: str = client_id

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if not self._is_parents:
            self._run(self.twin.__aexit__())

    @property
    def id(self) -> str:
        """The session id, a secret."""
        return self.twin.id

    def open(self) -> Self:
        """Open the session at the cluster, and start to renew it."""
        self._run(self.twin.open())
        return self

    close: Final = blocking(session.Session.close)

    def acquire(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        *,
        mode: Mode = "Exclusive",
        producer_name: str | None = None,
        resume_epoch: int | None = None,
        topic_id: int | None = None,
    ) -> Fence:
        """Acquire all of ``partitions`` (None: all of the topic) or none."""
        work = self.twin.acquire(
            topic,
            partitions,
            mode=mode,
            producer_name=producer_name,
            resume_epoch=resume_epoch,
            topic_id=topic_id,
        )
        return Fence(self._run(work, put_back=self.twin.put_back))

    @overload
    def own(
        self,
        group: str,
        resource: str,
        *,
        generation: int | None = None,
        sever: Sever = "session",
        wait: bool = False,
    ) -> Ownership: ...
    @overload
    def own(
        self,
        group: str,
        resource: list[str] | tuple[str, ...],
        *,
        generation: int | None = None,
        atomic: bool = True,
        sever: Sever = "session",
        wait: bool = False,
    ) -> list[Ownership]: ...
    def own(
        self,
        group: str,
        resource: str | list[str] | tuple[str, ...],
        *,
        generation: int | None = None,
        atomic: bool = True,
        sever: Sever = "session",
        wait: bool = False,
    ) -> Ownership | list[Ownership]:
        """Own a resource of ``group``, any text, or several at once; ``wait``: wait until all of them are free."""
        wanted = [resource] if isinstance(resource, str) else resource
        work = self.twin.own(group, wanted, generation=generation, atomic=atomic, sever=sever, wait=wait)
        owned = [Ownership(each) for each in self._run(work, put_back=self.twin.put_back_owned)]
        return owned[0] if isinstance(resource, str) else owned

    def release(self, fence: Fence) -> None:
        """End one grant; returns when its slots are free."""
        fence.release()


class Consumer(Blocking[consumers.Consumer]):
    """See ``stockade.Consumer``."""

    def __init__(self, bootstrap: Bootstrap | None = None) -> None:
        super().__init__(consumers.Consumer(bootstrap))
        self.client: Client = Client.of(self.twin.client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if not self._is_parents:
            self.close()

    close: Final = blocking(consumers.Consumer.close)
    fetch_arrow: Final = blocking(consumers.Consumer.fetch_arrow)

    def read(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        start: Start | Mapping[int, Start] = "earliest",
        *,
        follow: bool = False,
        skip_trimmed: bool = False,
    ) -> Iterator[ConsumedRecord]:
        """Records of ``partitions`` (None: all), in offset order within each."""
        with self.pieces(topic, partitions, start, follow=follow, skip_trimmed=skip_trimmed) as reading:
            for piece in reading:
                yield from piece.records()

    @contextmanager
    def pieces(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        start: Start | Mapping[int, Start] = "earliest",
        *,
        follow: bool = False,
        skip_trimmed: bool = False,
    ) -> "Iterator[Reading]":
        """Like `read`, in Arrow batches: ``with consumer.pieces(...) as reading: for piece in reading``."""
        block = self.twin.pieces(topic, partitions, start, follow=follow, skip_trimmed=skip_trimmed)
        reading = self._run(block.__aenter__())
        try:
            yield Reading(reading)
        finally:
            self._run(block.__aexit__(None, None, None))

    @contextmanager
    def group(
        self,
        group: str,
        topic: str,
        *,
        start: Start = "earliest",
        client_id: str | None = None,
        skip_trimmed: bool = False,
    ) -> "Iterator[GroupReading]":
        """``with consumer.group("g", "t") as reading: for record in reading: ...; reading.commit()``"""
        block = self.twin.group(group, topic, start=start, client_id=client_id, skip_trimmed=skip_trimmed)
        reading = self._run(block.__aenter__())
        try:
            yield GroupReading(reading)
        finally:
            self._run(block.__aexit__(None, None, None))


class Reading(Blocking[readings.Reading]):
    """See ``stockade.Reading``."""

    def __iter__(self) -> Iterator[Piece]:
        return self._each(self.twin, self.twin.put_back)

    def records(self) -> Iterator[ConsumedRecord]:
        """The records, one by one; the position is the offset after the present record."""
        return self._each(self.twin.records(), self.twin.put_back)

    @property
    def positions(self) -> dict[int, int]:
        """By partition, the offset after the last record that the application got."""
        return dict(self.twin.positions)

    @property
    def lag(self) -> dict[int, int]:
        """By partition, the number of records after the position, as of the partition's last answer."""
        return self.twin.lag

    def seek(self, partition: int, start: Start) -> None:
        """Continue at ``start`` in ``partition``."""
        self._call(lambda: self.twin.seek(partition, start))

    def to_arrow(self) -> pa.Table:
        """All records up to the read's end as one table, without a copy."""
        return self._run(self.twin.to_arrow())

    def to_pandas(self) -> Any:
        """The same records as one pandas.DataFrame."""
        return self.to_arrow().to_pandas()


class GroupReading(Blocking[groups.GroupReading]):
    """A member of a group: iterate over its records, or over ``pieces``, and ``commit`` what is processed."""

    def __iter__(self) -> Iterator[ConsumedRecord]:
        return self._each(self.twin, self.twin.put_back)

    def pieces(self) -> Iterator[Piece]:
        """Arrow batches of the partitions that this member owns, as they come."""
        return self._each(self.twin.pieces(), self.twin.put_back)

    @property
    def partitions(self) -> list[int]:
        """The partitions that this member owns now."""
        return self.twin.partitions

    @property
    def positions(self) -> dict[int, int]:
        """By partition, the offset after the last record that the application got; absent before the first."""
        return self.twin.positions

    @property
    def lag(self) -> dict[int, int]:
        """By partition, the number of records after the position, as of the partition's last answer."""
        return self.twin.lag

    def back_to(self, partition: int, offset: int) -> None:
        """Records of ``partition`` from ``offset`` on are not processed: ``commit`` leaves them to the next reader."""
        self._call(lambda: self.twin.back_to(partition, offset))

    commit: Final = blocking(groups.GroupReading.commit)
