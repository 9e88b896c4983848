"""The same client for code without an event loop: ``from stockade.sync import Producer, Consumer, Session``.

Every object has the names, parameters and errors of its asynchronous twin; what is awaited there blocks here. One
thread for all of them runs the event loop, so renewals, batching and retries go on while the caller does something
else. Objects may be used from several threads.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from ..partition.commands import Token
from ..partition.errors import StockadeError
from ..partition.records import Header
from . import delivery as deliveries
from . import fencing, owning, producer
from .admin import Client as _Client
from .batches import Receipt
from .config import DEFAULT_BOOTSTRAP, Bootstrap
from .interceptors import Interceptor
from .loop_thread import made
from .loop_thread import shared as _loop
from .model import Grant, Mode, ProducerPair, Tail
from .partitioners import Partitioner


class Delivery:
    """What became of what was sent."""

    def __init__(self, delivery: deliveries.Delivery) -> None:
        self._delivery = delivery

    @property
    def is_done(self) -> bool:
        """Whether ``result`` would return, or raise, at once."""
        return self._delivery.is_done

    @property
    def failure(self) -> StockadeError | None:
        """The refusal, once it is there; None while undecided and when it is stored."""
        return self._delivery.failure

    def result(self, timeout_s: float | None = None) -> Receipt:
        """The receipt. Raises the refusal, or TimeoutError, after which it may be asked again."""

        async def settled() -> Receipt:
            return await self._delivery

        return _loop.run(settled(), timeout_s)


class Producer:
    """See ``stockade.Producer``; leaving the ``with`` block flushes."""

    def __init__(
        self,
        bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
        *,
        name: str | None = None,
        partitioner: str | Partitioner = "murmur2",
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self._producer = _loop.run(
            made(lambda: producer.Producer(bootstrap, name=name, partitioner=partitioner, interceptors=interceptors))
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @property
    def name(self) -> str:
        """The stable name."""
        return self._producer.name

    @property
    def identity(self) -> ProducerPair:
        """Producer id and epoch in use."""
        return self._producer.identity

    def start(self) -> Self:
        """Reach the cluster and get an identity."""
        _loop.run(self._producer.start())
        return self

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue one record."""
        work = self._producer.send(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        return Delivery(_loop.run(work))

    def send_batch(
        self,
        topic: str,
        partition: int | None,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Sequence[Header] | None] | None = None,
        timestamps_ms: Sequence[int] | None = None,
    ) -> Delivery:
        """Queue records that stay together as one batch: much the fastest way from a thread."""
        work = self._producer.send_batch(
            topic, partition, values, keys=keys, headers=headers, timestamps_ms=timestamps_ms
        )
        return Delivery(_loop.run(work))

    def flush(self) -> None:
        """Wait until everything sent so far has its outcome."""
        _loop.run(self._producer.flush())

    def close(self) -> None:
        """Flush, then close all connections."""
        _loop.run(self._producer.close())

    def abort(self) -> None:
        """Close without waiting."""
        _loop.run(self._producer.abort())

    def recover(self, topic: str, partition: int, *, tail: int = 1) -> Tail:
        """Take records for a halted partition again."""
        return _loop.run(self._producer.recover(topic, partition, tail=tail))

    @contextmanager
    def exclusive(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        mode: Mode = "Exclusive",
        *,
        resume_epoch: int | None = None,
    ) -> Iterator["Fence"]:
        """Inside, nobody else can write. A thread cannot be cancelled: look at ``fence.is_lost`` in long work."""
        block = self._producer.exclusive(topic, partitions, mode, resume_epoch=resume_epoch, cancel_on_loss=False)
        fence = _loop.run(block.__aenter__())
        try:
            yield Fence(fence)
        except BaseException as error:
            if not _loop.run(block.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            _loop.run(block.__aexit__(None, None, None))


class Holding:
    """In force until it is lost."""

    def __init__(self, holding: fencing.Fence | owning.Ownership) -> None:
        self._holding = holding

    @property
    def is_lost(self) -> bool:
        """Whether somebody took over, or the session ended; then ``error`` says why."""
        return self._holding.error is not None

    @property
    def error(self) -> StockadeError | None:
        """Why it was lost."""
        return self._holding.error

    def wait_lost(self, timeout_s: float | None = None) -> bool:
        """Wait until it is lost; False after ``timeout_s``."""
        try:
            _loop.run(self._holding.lost.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def release(self) -> None:
        """Give it up; returns when the next one may have it."""
        _loop.run(self._holding.release())


class Fence(Holding):
    """A grant in force until it is lost."""

    def __init__(self, fence: fencing.Fence) -> None:
        super().__init__(fence)
        self.grant: Grant = fence.grant
        self.epoch: int = fence.epoch
        self.token: Callable[[int], Token] = fence.token


class Ownership(Holding):
    """A resource that a session owns until it is lost; ``fence_epoch`` is the fencing token for other stores."""

    def __init__(self, owned: owning.Ownership) -> None:
        super().__init__(owned)
        self.group: str = owned.group
        self.resource: str = owned.resource
        self.generation: int = owned.generation
        self.fence_epoch: int = owned.fence_epoch


class Session:
    """See ``stockade.Session``; ``bootstrap`` as for a Producer."""

    def __init__(self, client_id: str, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, *, ttl_ms: int | None = None) -> None:
        self._client = _loop.run(made(lambda: _Client(bootstrap)))
        self._session = _loop.run(made(lambda: fencing.Session(self._client, client_id, ttl_ms=ttl_ms)))

    def __enter__(self) -> Self:
        _loop.run(self._session.open())
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    @property
    def id(self) -> str:
        """The session id, a secret."""
        return self._session.id

    def acquire(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        *,
        mode: Mode = "Exclusive",
        producer_name: str | None = None,
        resume_epoch: int | None = None,
    ) -> Fence:
        """All of ``partitions`` (None: all of the topic) or none."""
        return Fence(
            _loop.run(
                self._session.acquire(
                    topic, partitions, mode=mode, producer_name=producer_name, resume_epoch=resume_epoch
                )
            )
        )

    def own(self, group: str, resource: str, *, generation: int | None = None, wait: bool = False) -> Ownership:
        """Own any text of ``group``; with ``wait``, once it is free."""
        return Ownership(_loop.run(self._session.own(group, resource, generation=generation, wait=wait)))

    def close(self) -> None:
        """Give up everything that the session holds."""
        try:
            _loop.run(self._session.__aexit__())
        finally:
            _loop.run(self._client.close())
