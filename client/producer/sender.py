"""The asynchronous shell around the partition queues: performs the actions that each one decides, reports results.

It owns the requests in flight and the timers. partition_queue.py decides order and retries; the sender sends a batch
only when its queue returns `Send`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

from ...partition.api.producers import ProducerPair
from ...partition.api.records import AppendAnswer
from ...partition.api.topics import Topic
from ...partition.commands import Stamp
from ...partition.errors import (
    InconsistentTopicId,
    NotOwner,
    ProducerFenced,
    RequestTimedOut,
    SessionExpired,
    StockadeError,
    ThrottlingQuotaExceeded,
    UnknownSession,
)
from ..api.client import Client
from ..api.parts import Part
from ..errors import ClientClosed, ClientFault, ProducerAborted
from ..transport.outage import Call, asked, met, on_behalf_of
from ..transport.trace import carrying
from .delivery import wait_settled
from .leader_window import OPENS_S, LeaderWindow, requests
from .metrics import Counts
from .queue.batch import BATCH_OVERHEAD_BYTES, Batch, Receipt
from .queue.partition_queue import PartitionQueue, Send, Settle, Settled, Wait, committed_offset, is_forgotten

_log = logging.getLogger(__name__)

_TOLD = (ProducerFenced, NotOwner, SessionExpired, UnknownSession, InconsistentTopicId, ClientClosed)
"""Reasons of a halt that the application learns from its fence, or has caused itself: they are logged below the level
of a warning.
"""


@dataclass(eq=False, slots=True)
class Route:
    """A partition of a topic, and its queue.

    ``timer`` fires when the queue wants to be polled again. ``call``: the wait for the next outcome, while batches are
    in flight. ``bytes_max``: the longest batch that the topic takes. ``has_halted``: whether the log has the line that
    the queue halted. ``recovering``: held by one ``recover`` at a time, since records sent after a first ``recover``
    may be under way before a second one is done.
    """

    topic: str
    topic_id: int
    partition: int
    queue: PartitionQueue
    bytes_max: int
    timer: asyncio.Handle | None = None
    call: Call | None = None
    has_halted: bool = False
    recovering: asyncio.Lock = field(default_factory=asyncio.Lock)


class Sender:
    """Sends for one producer name.

    ``on_settled`` is called for each batch that has its outcome, in order within a partition; ``on_fenced`` for each
    refusal that says that the partition has a newer writer, or that its topic was deleted.
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
        """Producer id and epoch of the batches that get a number from now on."""
        self.failing: dict[str, frozenset[int]] = {}
        """Partitions of each topic whose oldest batch is being sent again."""
        self.counts: Counts = Counts()
        self._client = client
        self._outage = client.outage
        self._name = name
        self._on_settled = on_settled
        self._on_fenced = on_fenced
        self._routes: dict[tuple[str, int], Route] = {}
        self._windows: dict[str, LeaderWindow[Route]] = {}
        self._due: dict[str | None, list[tuple[Route, Batch]]] = {}
        """The batches that go out at the end of this turn of the event loop, by leader (None: not known)."""
        self._attempts: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()

    @property
    def routes(self) -> list[Route]:
        """Every route used so far."""
        return list(self._routes.values())

    async def topic(self, name: str) -> Topic:
        """The topic's description, asked of the cluster the first time."""
        return await self._client.metadata.topic(name)

    def route(self, topic: Topic, partition: int) -> Route:
        """The route of a partition, made at its first use. It follows the topic's ``max_batch_bytes``."""
        bytes_max, route = topic.config.max_batch_bytes, self._routes.get((topic.name, partition))
        if route is not None and route.bytes_max == bytes_max:
            return route
        config = self._client.config
        full = min(config.batch_bytes_max, bytes_max - BATCH_OVERHEAD_BYTES)
        if route is not None:
            route.bytes_max = bytes_max
            route.queue.limit(full)
            return route
        queue = PartitionQueue(config, lambda batch: batch.encode(made.bytes_max, config.compression), full)
        queue.identity = self.identity
        if self._renewing is not None:
            queue.hold(on=True)
        made = self._routes[topic.name, partition] = Route(topic.name, topic.topic_id, partition, queue, bytes_max)
        return made

    def pump(self, route: Route) -> None:
        """Perform the queue's actions until the next one is to wait."""
        try:
            self._perform(route)
        except Exception as bug:
            self._broken(route, bug)

    def _perform(self, route: Route) -> None:
        window = self._window(self._client.metadata.leader(route.topic, route.partition))
        may_send = window is None or not window.is_full
        if window is not None and not may_send:
            window.waiting[route] = None
        while True:
            if route.queue.needs_epoch:
                _ = self._renewal()
            action = route.queue.poll(time.monotonic(), may_send=may_send)
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
        """Request a newer epoch for all partitions; returns when it is in force. Raises the refusal."""
        renewal = self._renewal()
        await asyncio.wait([renewal])
        if renewal.cancelled():  # by `abort`, which has not cancelled the caller
            raise ProducerAborted
        renewal.result()

    async def follow(self, topic: Topic) -> bool:
        """Let the routes of a deleted topic of this name lead to ``topic``; returns whether there were such routes.
        Before that, their batches get their outcomes, and a new producer epoch begins, so that sequence numbers start
        again at 0.
        """
        strays = [route for route in self.routes if route.topic == topic.name and route.topic_id != topic.topic_id]
        for route in strays:
            await wait_settled(route.queue.unsettled)
        if strays:
            await self.renew()
        for route in strays:
            route.topic_id = topic.topic_id
        return bool(strays)

    def _renewal(self) -> "asyncio.Task[None]":
        """The renewal that is running, or a new one."""
        if self._renewing is None:
            for route in self.routes:
                route.queue.hold(on=True)
            self._renewing = asyncio.get_running_loop().create_task(self._renew())
            self._renewing.add_done_callback(self._renewed)
        return self._renewing

    async def _renew(self) -> None:
        """Get a newer epoch, the same for all partitions (SEMANTICS 9.5), once no batch waits for an answer under the
        old one. After the controller has raised the epoch, no batch of the old one can be stored any more (9.6).
        """
        while not all(route.queue.is_quiet for route in self.routes):
            self._moved.clear()
            await self._moved.wait()
        old = self.identity
        self.identity = await self._client.init_producer(self._name, pair=(old.producer_id, old.producer_epoch))
        self.counts.epochs += 1
        _log.info("%s: producer epoch %d is in force", self._name, self.identity.producer_epoch)
        for route in self.routes:
            route.queue.renew(self.identity)

    def _renewed(self, task: "asyncio.Task[None]") -> None:
        self._renewing = None
        for route in self.routes:
            route.queue.hold(on=False)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.halt(self.routes, error if isinstance(error, StockadeError) else fault_of(error))
        for route in self.routes:
            self.pump(route)

    def halt(self, routes: Iterable[Route], error: StockadeError) -> None:
        """Send no new batch there; each batch that is not stored fails with ``error`` and its own outcome."""
        is_fenced = isinstance(error, ProducerFenced | NotOwner)
        for route in routes:
            try:
                self._settle(route, route.queue.halt(error, resend_unknown=is_fenced))
            except Exception as bug:
                self._broken(route, bug)
            self.pump(route)

    async def abort(self) -> None:
        """Stop at once: unsent batches fail with ProducerAborted, the outcome of those in flight is unknown."""
        dropped = [batch for route in self.routes for batch in route.queue.unsettled]
        for route in self.routes:
            route.queue.stop()
        self.halt(self.routes, ProducerAborted())
        self._due.clear()
        tasks = [*self._attempts, *filter(None, [self._renewing])]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for route in self.routes:
                for batch in route.queue.window:
                    self._refused(route, batch, ProducerAborted())  # its attempt was cancelled before its first step
                self._wake_at(route, None)
        if dropped:
            unknown = sum(batch.count for batch in dropped if batch.maybe_stored)
            absent = sum(batch.count for batch in dropped) - unknown
            _log.warning(
                "producer %s was stopped without a flush: %d records were not sent, and of %d the outcome is unknown;"
                " each has its own outcome in its delivery and in errors()",
                self._name,
                absent,
                unknown,
            )

    def _start(self, route: Route, batch: Batch) -> None:
        if route.call is None:
            route.call = self._outage.begin(f"an append to {route.topic}/{route.partition}", self._patience_s(route))
        self.counts.attempt(batch)
        if not self._due:
            asyncio.get_running_loop().call_soon(self._send_due)
        leader = self._client.metadata.leader(route.topic, route.partition)
        self._due.setdefault(leader, []).append((route, batch))

    def _window(self, leader: str | None) -> LeaderWindow[Route] | None:
        """The requests to this leader; None if it is not known, or the producer writes to one partition only."""
        if leader is None or len(self._routes) < 2:
            return None
        window = self._windows.get(leader)
        if window is None:
            window = self._windows[leader] = LeaderWindow()
        return window

    def _send_due(self) -> None:
        """Send the batches that became due in this turn of the event loop: one request to each leader, or several if
        one request has no room for all.
        """
        due, self._due = self._due, {}
        for leader, started in due.items():
            batches = _open(started)
            for parts in requests(batches) if leader is not None else [[part] for part in batches]:
                answered = self._sent_to(leader)
                if leader is None or len(parts) == 1:
                    self._begin(self._attempt(*parts[0]), answered)
                else:
                    self._begin(self._attempt_together(parts, leader, answered), answered)

    def _sent_to(self, leader: str | None) -> Callable[[], None]:
        """A request to this leader goes out. Returns what to call when it begins to answer, and when it ends."""
        window, request = self._window(leader), object()
        if window is None:
            return _nothing

        def answered() -> None:
            timer.cancel()
            for route in window.answered(request):
                self.pump(route)

        window.sent(request)
        timer = asyncio.get_running_loop().call_later(OPENS_S, answered)
        return answered

    def _begin(self, attempt: Coroutine[Any, Any, None], ended: Callable[[], None] | None = None) -> None:
        task = asyncio.get_running_loop().create_task(attempt)
        self._attempts.add(task)
        task.add_done_callback(self._attempts.discard)
        if ended is not None:
            task.add_done_callback(lambda _: ended())

    async def _attempt_together(
        self, parts: list[tuple[Route, Batch]], leader: str, answered: Callable[[], None]
    ) -> None:
        """One attempt of each batch, in one request. Each has an outcome of its own.

        A leader proposes all parts before it answers one. So the first answer, and not the last byte that was written,
        says that no later batch can overtake one of these: their bodies are long, and come on different connections.
        """
        parts = _open(parts)
        if not parts:
            return
        unsettled, is_proposed = dict(enumerate(parts)), False

        def settle(place: int, outcome: AppendAnswer | StockadeError) -> None:
            nonlocal is_proposed
            if not is_proposed:
                is_proposed = True
                answered()
                for route, batch in parts:
                    self._written(route, batch)
            self._part_ended(*unsettled.pop(place), leader, outcome)

        refusal: StockadeError | None
        try:
            for route, batch in parts:
                with on_behalf_of(_awaited(route, batch)):
                    asked(leader)
            trace = next((batch.trace for _, batch in parts if batch.trace), None)
            with on_behalf_of(None), carrying(trace):
                sent = [_part(route, batch) for route, batch in parts]
                refusal = await self._client.append_parts(leader, sent, settle)
        except Exception as bug:
            refusal = fault_of(bug)
        for route, batch in unsettled.values():
            assert refusal is not None
            if isinstance(refusal, ThrottlingQuotaExceeded | ClientFault):
                self._part_ended(route, batch, leader, refusal)
            else:
                self._begin(self._attempt(route, batch))  # by itself: the refusal may be due to another part

    def _part_ended(self, route: Route, batch: Batch, leader: str, outcome: AppendAnswer | StockadeError) -> None:
        if isinstance(outcome, StockadeError):
            with on_behalf_of(_awaited(route, batch)):
                met(leader, f"{outcome.code}: {outcome.detail}")
        if isinstance(outcome, AppendAnswer):
            self._stored(route, batch, outcome)
        elif outcome.metadata_stale and outcome.no_side_effects:
            self._begin(self._attempt(route, batch))  # to the leader that was named, or that another node knows
            return
        else:
            self._refused(route, batch, outcome)
        self.pump(route)

    async def _attempt(self, route: Route, batch: Batch) -> None:
        if not _open([(route, batch)]):
            return
        try:
            with on_behalf_of(_awaited(route, batch)), carrying(batch.trace):
                answer = await self._append(route, batch)
        except StockadeError as error:
            self._refused(route, batch, error)
        except asyncio.CancelledError:
            self._refused(route, batch, RequestTimedOut("closed before the answer came; the outcome is unknown"))
            raise
        except Exception as bug:
            self._refused(route, batch, fault_of(bug))
        else:
            self._stored(route, batch, answer)
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
            conditions=batch.conditions,
            on_written=partial(self._written, route, batch),
        )

    def _written(self, route: Route, batch: Batch) -> None:
        route.queue.written(batch)
        self.pump(route)

    def _stored(self, route: Route, batch: Batch, answer: AppendAnswer) -> None:
        try:
            self._settle(route, route.queue.stored(batch, _receipt(answer, batch)))
        except Exception as bug:
            self._broken(route, bug)

    def _refused(self, route: Route, batch: Batch, error: StockadeError) -> None:
        try:
            self._note_refusal(route, batch, error)
        except Exception as bug:
            self._broken(route, bug)

    def _note_refusal(self, route: Route, batch: Batch, error: StockadeError) -> None:
        committed = _certified(route, error, batch) if is_forgotten(error) else None
        _log.debug("%s: %s/%d: attempt %d: %s", self._name, route.topic, route.partition, batch.attempts, error)
        call = _awaited(route, batch)
        if call is not None:
            call.error = error
        self._settle(route, route.queue.refused(batch, error, time.monotonic(), committed))
        if isinstance(error, ProducerFenced | NotOwner | InconsistentTopicId):
            self._on_fenced(route, error)
        if route.queue.error is not None:
            self._client.metadata.forget(route.topic)

    def _settle(self, route: Route, settled: list[Settled]) -> None:
        """Report outcomes. The queue no longer has these batches, so an exception here is logged, and delays no other
        report.
        """
        self._moved.set()
        try:
            self._note_changes(route)
            if settled and route.call is not None:
                self._note_progress(route, route.call, is_stored=isinstance(settled[-1][1], Receipt))
        except Exception:
            _log.exception("%s: %s/%d: a bug in the client library", self._name, route.topic, route.partition)
        for batch, outcome in settled:
            try:
                batch.settle(outcome)
                self.counts.settled(batch)
                self._on_settled(route, batch)
            except Exception:
                _log.exception("%s: %s/%d: a bug in the client library", self._name, route.topic, route.partition)

    def _note_progress(self, route: Route, call: Call, *, is_stored: bool) -> None:
        if route.queue.oldest is not None:
            self._outage.moved(call, self._patience_s(route))
        else:
            self._outage.end(call, is_answered=is_stored)
            route.call = None

    def _broken(self, route: Route, bug: Exception) -> None:
        """A partition's queue has raised an unexpected exception, so it is not used any more: every batch fails, those
        in flight with an unknown outcome, and the partition takes no records.
        """
        self._settle(route, route.queue.abandon(fault_of(bug)))

    def _note_changes(self, route: Route) -> None:
        """Note, and log once, that a partition begins to fail, works again, or halts."""
        queue, topic, partition = route.queue, route.topic, route.partition
        failing = self.failing.get(topic, frozenset())
        if queue.is_failing != (partition in failing):
            self.failing[topic] = failing ^ {partition}
            if queue.oldest is not None and queue.is_failing:
                _log.info("%s: %s/%d: sending again: %s", self._name, topic, partition, queue.oldest.last_error)
            elif queue.error is None:
                _log.info("%s: %s/%d: batches are stored again", self._name, topic, partition)
        if (queue.error is not None) != route.has_halted:
            route.has_halted = queue.error is not None
            if queue.error is not None and not isinstance(queue.error, ProducerAborted):
                level = logging.INFO if isinstance(queue.error, _TOLD) else logging.WARNING
                why = "%s: %s/%d has halted and takes no records until `recover`: %s"
                _log.log(level, why, self._name, topic, partition, queue.error)

    def _patience_s(self, route: Route) -> float:
        """How long the oldest batch in flight may still wait for its outcome."""
        assert route.queue.oldest is not None
        return route.queue.oldest.created_s + self._client.config.delivery_timeout_ms / 1000 - time.monotonic()

    def _wake_at(self, route: Route, until_s: float | None) -> None:
        if route.timer is not None:
            route.timer.cancel()
            route.timer = None
        if until_s is not None:
            delay_s = max(until_s - time.monotonic(), 0.0)
            route.timer = asyncio.get_running_loop().call_later(delay_s, self.pump, route)


def fault_of(bug: BaseException) -> ClientFault:
    """The error of batches that a bug of this library has failed; the log has its traceback."""
    _log.error("a bug in the client library", exc_info=bug)
    return ClientFault(f"a bug in the client library: {bug!r}")


def _awaited(route: Route, batch: Batch) -> Call | None:
    """The call for which this batch is sent; None for a batch behind the oldest one. What holds up the partition is
    what the oldest one meets with: a later one may be refused only because that one is missing.
    """
    return route.call if batch is route.queue.oldest else None


def _open(parts: list[tuple[Route, Batch]]) -> list[tuple[Route, Batch]]:
    """The parts whose batch has no outcome yet. A batch may get its outcome after its queue has returned `Send`: it
    expires, or its queue fails, before the end of this turn, before the task of its attempt runs, or during a request
    after which it would be sent again. The application knows that outcome, so such a batch is not sent.
    """
    return [part for part in parts if part[1].outcome is None]


def _nothing() -> None:
    pass


def _part(route: Route, batch: Batch) -> Part:
    assert batch.message is not None
    assert batch.identity is not None
    stamp = Stamp(batch.identity.producer_id, batch.identity.producer_epoch, batch.first_seq)
    return Part(route.topic, route.topic_id, route.partition, batch.message, stamp, batch.token, batch.conditions)


def _receipt(answer: AppendAnswer, batch: Batch) -> Receipt:
    return Receipt(
        answer.topic, answer.partition, answer.base_offset, batch.count, answer.duplicate, answer.timestamp_ms
    )


def _certified(route: Route, error: StockadeError, batch: Batch) -> Receipt | None:
    base_offset = committed_offset(error)
    if base_offset is None:
        return None
    return Receipt(route.topic, route.partition, base_offset, batch.count, True, None)
