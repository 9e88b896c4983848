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
from ..partition.errors import InternalError, ProducerFenced, RequestTimedOut, StockadeError
from .accumulator import Lane, Send, Settle, Settled, Wait
from .admin import Client
from .batches import BATCH_OVERHEAD_BYTES, Batch, Receipt
from .errors import ClientClosed
from .model import AppendAnswer, ProducerPair, Topic


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
    ``on_fenced`` of each answer that says that a newer writer holds the partition.
    """

    def __init__(
        self,
        client: Client,
        identity: ProducerPair,
        on_settled: Callable[[Batch], None],
        on_fenced: Callable[[Route, ProducerFenced], None],
    ) -> None:
        self._client = client
        self._identity = identity
        self._on_settled = on_settled
        self._on_fenced = on_fenced
        self._routes: dict[tuple[str, int], Route] = {}
        self._attempts: set[asyncio.Task[None]] = set()

    @property
    def routes(self) -> list[Route]:
        """Every route used so far."""
        return list(self._routes.values())

    def route(self, topic: Topic, partition: int) -> Route:
        """The route to a partition, made at first use."""
        key = topic.name, partition
        if key not in self._routes:
            config, bytes_max = self._client.config, topic.config.max_batch_bytes
            full = min(config.batch_bytes_max, bytes_max - BATCH_OVERHEAD_BYTES)
            lane = Lane(config, lambda batch: batch.encode(bytes_max), full)
            self._routes[key] = Route(topic.name, topic.topic_id, partition, lane)
        return self._routes[key]

    def pump(self, route: Route) -> None:
        """Do what the lane decides until it decides to wait."""
        while True:
            action = route.lane.poll(time.monotonic())
            match action:
                case Send(batch=batch):
                    self._start(route, batch)
                case Settle(settled=settled):
                    self._settle(settled)
                case Wait(until_s=until_s):
                    self._wake_at(route, until_s)
                    return
                case _:
                    assert_never(action)

    def halt(self, routes: Iterable[Route], error: StockadeError) -> None:
        """Send nothing more there; what is not stored fails with ``error`` once its own outcome is known."""
        for route in routes:
            self._settle(route.lane.halt(error, asks=isinstance(error, ProducerFenced)))
            self.pump(route)

    async def abort(self) -> None:
        """Stop at once: what was never sent fails with ClientClosed, what is under way is unknown."""
        self.halt(self.routes, ClientClosed())
        for task in self._attempts:
            task.cancel()
        await asyncio.gather(*self._attempts, return_exceptions=True)

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
            self._settle(route.lane.stored(batch, _receipt(answer, batch)))
        self.pump(route)

    async def _append(self, route: Route, batch: Batch) -> AppendAnswer:
        assert batch.message is not None
        return await self._client.append(
            route.topic,
            route.partition,
            batch.message,
            topic_id=route.topic_id,
            stamp=Stamp(self._identity.producer_id, self._identity.producer_epoch, batch.first_seq),
            token=batch.token,
            on_written=partial(self._written, route, batch),
        )

    def _written(self, route: Route, batch: Batch) -> None:
        route.lane.written(batch)
        self.pump(route)

    def _refused(self, route: Route, batch: Batch, error: StockadeError) -> None:
        self._settle(route.lane.refused(batch, error, time.monotonic()))
        if isinstance(error, ProducerFenced):
            self._on_fenced(route, error)
        if route.lane.error is not None:
            self._client.metadata.forget(route.topic)

    def _settle(self, settled: list[Settled]) -> None:
        for batch, outcome in settled:
            batch.settle(outcome)
            self._on_settled(batch)

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
