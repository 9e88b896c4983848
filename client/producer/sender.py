"""The async shell around the lanes: asks each what to do, does it, tells it what came of it.

Owns the requests under way and the timers. It decides nothing about order or repetition (that is accumulator.py's),
and it must never send a batch other than the lane told it to.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from ..partition.commands import Stamp
from ..partition.errors import InconsistentTopicId, InternalError, ProducerFenced, RequestTimedOut, StockadeError
from .accumulator import Lane
from .actions import Send, Settle, Settled, Wait
from .admin import Client
from .batches import BATCH_OVERHEAD_BYTES, Batch, Receipt
from .delivery import wait_settled
from .errors import ClientClosed
from .model import AppendAnswer, ProducerPair, Topic
from .verdicts import committed_offset, is_forgotten


@dataclass(eq=False, slots=True)
class Route:
    """A lane and where it leads."""

    topic: str
    topic_id: int
    partition: int
    lane: Lane
    timer: asyncio.TimerHandle | None = None


class Sender:
    """Sends for one producer identity. ``on_settled`` hears of each batch that has its outcome, in order per partition;
    ``on_fenced`` of each answer that says that a newer writer holds the partition, or that its topic is gone.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        identity: ProducerPair,
        on_settled: Callable[[Route, Batch], None],
        on_fenced: Callable[[Route, StockadeError], None],
    ) -> None:
        self.identity: ProducerPair = identity
        """Producer id and epoch that new batches are numbered under."""
        self._client = client
        self._name = name
        self._on_settled = on_settled
        self._on_fenced = on_fenced
        self._routes: dict[tuple[str, int], Route] = {}
        self._attempts: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()

    @property
    def routes(self) -> list[Route]:
        """Every route used so far."""
        return list(self._routes.values())

    async def topic(self, name: str) -> Topic:
        """What the cluster says of it, asked the first time."""
        return await self._client.metadata.topic(name)

    def route(self, topic: Topic, partition: int) -> Route:
        """The route to a partition, made at first use."""
        key = topic.name, partition
        if key not in self._routes:
            config, bytes_max = self._client.config, topic.config.max_batch_bytes
            full = min(config.batch_bytes_max, bytes_max - BATCH_OVERHEAD_BYTES)
            lane = Lane(config, lambda batch: batch.encode(bytes_max), full)
            lane.identity = self.identity
            if self._renewing is not None:
                lane.hold(on=True)
            self._routes[key] = Route(topic.name, topic.topic_id, partition, lane)
        return self._routes[key]

    def pump(self, route: Route) -> None:
        """Do what the lane decides until it decides to wait."""
        while True:
            if route.lane.needs_epoch:
                _ = self._renewal()
            action = route.lane.poll(time.monotonic())
            match action:
                case Send(batch=batch):
                    self._start(route, batch)
                case Settle(settled=settled):
                    self._settle(route, settled)
                case Wait(until_s=until_s):
                    self._wake_at(route, until_s)
                    return
                case _:
                    assert_never(action)

    async def renew(self) -> None:
        """Take a newer epoch for all partitions; returns when it is in force, or raises why there is none."""
        await asyncio.shield(self._renewal())

    async def follow(self, topic: Topic) -> bool:
        """Whether routes led to a topic of this name that is gone. Then they lead to this one now: what was under way
        has failed there, and numbers start again under a new epoch, as none is known to the new partitions.
        """
        strays = [route for route in self.routes if route.topic == topic.name and route.topic_id != topic.topic_id]
        for route in strays:
            await wait_settled(route.lane.unsettled)
        if strays:
            await self.renew()
        for route in strays:
            route.topic_id = topic.topic_id
        return bool(strays)

    def _renewal(self) -> "asyncio.Task[None]":
        """The one that is under way, or a new one."""
        if self._renewing is None:
            for route in self.routes:
                route.lane.hold(on=True)
            self._renewing = asyncio.get_running_loop().create_task(self._renew())
            self._renewing.add_done_callback(self._renewed)
        return self._renewing

    async def _renew(self) -> None:
        """One for all partitions, as an epoch is (SEMANTICS 9.5). Once the cluster has it, nothing under the old one
        can be stored any more (9.6).
        """
        while not all(route.lane.is_quiet for route in self.routes):
            self._moved.clear()
            await self._moved.wait()
        old = self.identity
        self.identity = await self._client.init_producer(self._name, pair=(old.producer_id, old.producer_epoch))
        for route in self.routes:
            route.lane.renew(self.identity)

    def _renewed(self, task: "asyncio.Task[None]") -> None:
        self._renewing = None
        for route in self.routes:
            route.lane.hold(on=False)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StockadeError):
            self.halt(self.routes, error)
        for route in self.routes:
            self.pump(route)

    def halt(self, routes: Iterable[Route], error: StockadeError) -> None:
        """Send nothing more there; what is not stored fails with ``error`` once its own outcome is known."""
        for route in routes:
            self._settle(route, route.lane.halt(error, asks=isinstance(error, ProducerFenced)))
            self.pump(route)

    async def abort(self) -> None:
        """Stop at once: what was never sent fails with ClientClosed, what is under way is unknown."""
        self.halt(self.routes, ClientClosed())
        tasks = [*self._attempts, *filter(None, [self._renewing])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, route: Route, batch: Batch) -> None:
        task = asyncio.get_running_loop().create_task(self._attempt(route, batch))
        self._attempts.add(task)
        task.add_done_callback(self._attempts.discard)

    async def _attempt(self, route: Route, batch: Batch) -> None:
        try:
            answer = await self._append(route, batch)
        except StockadeError as error:
            self._refused(route, batch, error)
        except asyncio.CancelledError:
            self._refused(route, batch, RequestTimedOut("closed before the answer came; the outcome is unknown"))
            raise
        except Exception as bug:
            # A batch must never be left without an outcome, whatever went wrong here.
            self._refused(route, batch, InternalError(f"a bug in the client: {bug!r}"))
            raise
        else:
            self._settle(route, route.lane.stored(batch, _receipt(answer, batch)))
        self.pump(route)

    async def _append(self, route: Route, batch: Batch) -> AppendAnswer:
        assert batch.message is not None
        assert batch.identity is not None
        return await self._client.append(
            route.topic,
            route.partition,
            batch.message,
            topic_id=route.topic_id,
            stamp=Stamp(batch.identity.producer_id, batch.identity.producer_epoch, batch.first_seq),
            token=batch.token,
            on_written=partial(self._written, route, batch),
        )

    def _written(self, route: Route, batch: Batch) -> None:
        route.lane.written(batch)
        self.pump(route)

    def _refused(self, route: Route, batch: Batch, error: StockadeError) -> None:
        committed = _certified(route, error, batch) if is_forgotten(error) else None
        self._settle(route, route.lane.refused(batch, error, time.monotonic(), committed))
        if isinstance(error, ProducerFenced | InconsistentTopicId):
            self._on_fenced(route, error)
        if route.lane.error is not None:
            self._client.metadata.forget(route.topic)

    def _settle(self, route: Route, settled: list[Settled]) -> None:
        self._moved.set()
        for batch, outcome in settled:
            batch.settle(outcome)
            self._on_settled(route, batch)

    def _wake_at(self, route: Route, until_s: float | None) -> None:
        if route.timer is not None:
            route.timer.cancel()
            route.timer = None
        if until_s is not None:
            delay_s = max(until_s - time.monotonic(), 0.0)
            route.timer = asyncio.get_running_loop().call_later(delay_s, self.pump, route)


def _receipt(answer: AppendAnswer, batch: Batch) -> Receipt:
    return Receipt(
        answer.topic, answer.partition, answer.base_offset, batch.count, answer.duplicate, answer.timestamp_ms
    )


def _certified(route: Route, error: StockadeError, batch: Batch) -> Receipt | None:
    base_offset = committed_offset(error)
    if base_offset is None:
        return None
    return Receipt(route.topic, route.partition, base_offset, batch.count, True, None)
