"""Sessions and fences: exclusive work that ends by itself when it must.

A session stands for this client at the cluster and is renewed in the background at a third of its ttl. Safety never
rests on these clocks (the log refuses an old epoch whatever we think); stopping before the ttl ends is a courtesy that
saves refused work. A stalled process finds itself lost as soon as it runs again.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ..partition.commands import Token
from ..partition.errors import (
    GenerationFenced,
    InconsistentTopicId,
    NotOwner,
    ProducerFenced,
    SessionExpired,
    StockadeError,
)
from .admin import Client
from .errors import ClientClosed
from .holding import Holding
from .model import Grant, Mode, Owned, Ticket, Topic
from .owning import ASK_AGAIN_S, Ownership
from .retry import is_momentary

_RENEWALS_PER_TTL = 3
_ATTEMPTS_PER_TTL = 10
_PAUSE_S_MAX = 1.0
"""Longest pause after a renewal that failed: a cluster may answer for a second at a time, a long ttl or not."""
_TIMEOUT_S_MAX = 10.0
"""Longest wait for the answer to one: the node that it was sent to may stand still."""
_MARGIN_OF_TTL = 0.2
"""Part of the ttl, at its end, in which an unrenewed session is given up already."""


@dataclass(slots=True)
class Lease:
    """When to renew and when to give up, on the caller's monotonic clock. Counted from before the request left."""

    ttl_ms: int
    asked_s: float

    @property
    def renew_at_s(self) -> float:
        """A third of the ttl after the last successful request left."""
        return self.asked_s + self.ttl_ms / 1000 / _RENEWALS_PER_TTL

    @property
    def lost_at_s(self) -> float:
        """The ttl minus a fifth of it."""
        return self.asked_s + self.ttl_ms / 1000 * (1 - _MARGIN_OF_TTL)


class Fence(Holding):
    """A grant in force until ``lost`` is set; then ``error`` says why.

    When a refused append found it out, ``error.fields["outcome"]`` is that batch's outcome certificate.
    """

    def __init__(self, grant: Grant, session: "Session") -> None:
        super().__init__()
        self.grant = grant
        self._session = session

    def __repr__(self) -> str:
        state = "in force" if self.error is None else f"lost: {self.error.code}"
        return f"<Fence: {self.grant.topic}, partitions and epochs {self.grant.epochs}, {state}>"

    @property
    def epoch(self) -> int:
        """The fencing epoch; of a Shared grant, the highest of its partitions'."""
        return self.grant.epoch if self.grant.epoch is not None else max(self.grant.epochs.values())

    def token(self, partition: int) -> Token:
        """What an append to ``partition`` must carry."""
        return Token(self.grant.grant, self.grant.epochs[str(partition)], self._session.id)

    def compare(self, topic: Topic | None) -> None:
        """What the cluster says of the topic (None: it is gone) may show that the grant is superseded."""
        if topic is None or topic.topic_id != self.grant.topic_id:
            self.lose(InconsistentTopicId(topic_id=topic.topic_id if topic else None))
            return
        for partition, epoch in self.grant.epochs.items():
            now = topic.partitions[int(partition)].topic_epoch
            if now is not None and now > epoch:
                self.lose(ProducerFenced(current_epoch=now, reason="superseded"))

    async def release(self) -> None:
        """Free the slots; returns when they are cleared."""
        await self._session.release(self)


class Session:
    """A session of ``client_id``, kept alive in the background. An async context manager, or ``open`` and ``close``.

    ``ttl_ms`` None: the configuration's. When it is lost, ``lost`` is set, ``error`` says why, and so it is with
    all that was acquired or owned through it; it never comes back.
    """

    def __init__(self, client: Client, client_id: str, *, ttl_ms: int | None = None) -> None:
        self.client_id = client_id
        self.lost: asyncio.Event = asyncio.Event()
        self.error: StockadeError | None = None
        self._client = client
        self._ttl_ms = ttl_ms or client.config.session_ttl_ms
        self._id: str | None = None
        self._fences: list[Fence] = []
        self._owned: list[Ownership] = []
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        try:
            await self.close()
        except StockadeError as error:
            # What cannot be closed now ends by its ttl.
            if not is_momentary(error):
                raise

    @property
    def id(self) -> str:
        """The session id, a secret."""
        if self._id is None:
            raise ClientClosed("the session is not open")
        return self._id

    async def open(self) -> Self:
        """Open it at the cluster and begin to renew it."""
        asked_s = time.monotonic()
        state = await self._client.open_session(self.client_id, self._ttl_ms)
        self._id = state.session
        self._keeper = asyncio.create_task(self._keep(Lease(state.ttl_ms, asked_s)))
        return self

    async def close(self) -> None:
        """Give up everything that the session holds; returns when its slots are cleared.

        A lost session is left to its end, and no longer than its ttl is spent on closing any other.
        """
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._id is not None and self.error is None:
            await self._client.close_session(self._id, patience_ms=self._ttl_ms)
        self._lose(ClientClosed("the session was closed"))

    async def acquire(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        *,
        mode: Mode = "Exclusive",
        producer_name: str | None = None,
        resume_epoch: int | None = None,
        topic_id: int | None = None,
    ) -> Fence:
        """All of ``partitions`` (None: all of the topic) or none; every older token is dead on them when it returns.

        With the mode ``WaitForExclusive`` it stays in line until its turn has come, however long that takes; to give
        up, cancel it (``asyncio.timeout``): the place in the line is left. Raises ProducerBusy in the other modes,
        ProducerFenced, HoldAndWait, SessionExpired.
        """
        name = producer_name or self.client_id
        answer = await self._client.acquire(
            topic, self.id, partitions, mode, name, resume_epoch=resume_epoch, topic_id=topic_id
        )
        fence = Fence(await self._wait(answer) if isinstance(answer, Ticket) else answer, self)
        self._fences.append(fence)
        if self.error is not None:
            fence.lose(self.error)
        return fence

    async def own(self, group: str, resource: str, *, generation: int | None = None, wait: bool = False) -> Ownership:
        """Own ``resource`` of ``group``: any text of 1 to 1024 bytes; ``<topic>/<partition>`` guards the partition too.

        ``generation`` None: only what is free; else take it over from an owner with one up to this (0 always wins).
        ``wait``: until it is free, in place of GenerationFenced; to give up, cancel it. Whoever was thrown out learns
        it within a third of its ttl. Raises GenerationFenced, SessionExpired.
        """
        owned = await self._claim(group, resource, generation, wait=wait)
        ownership = Ownership(group, owned, self._disown)
        self._owned.append(ownership)
        if self.error is not None:
            ownership.lose(self.error)
        return ownership

    async def _claim(self, group: str, resource: str, generation: int | None, *, wait: bool) -> Owned:
        while self.error is None:
            try:
                return (await self._client.own(group, self.id, [resource], generation=generation))[0]
            except GenerationFenced:
                if not wait:
                    raise
            with suppress(TimeoutError):
                await asyncio.wait_for(self.lost.wait(), ASK_AGAIN_S)
        raise self.error

    async def _disown(self, ownership: Ownership) -> None:
        if ownership.error is None:
            with suppress(NotOwner):
                await self._client.disown(ownership.group, self.id, ownership.resource)
        if ownership in self._owned:
            self._owned.remove(ownership)
        ownership.lose(ClientClosed("the resource was given up"))

    async def _wait(self, ticket: Ticket) -> Grant:
        """Whoever gives up leaves the line, and gives back what was granted meanwhile: nobody waits behind a ghost."""
        wait_ms = self._client.config.fetch_wait_ms
        try:
            while ticket.grant is None:
                if ticket.state == "cancelled":
                    raise ClientClosed("the ticket was cancelled")
                ticket = await self._client.ticket(ticket.ticket, self.id, wait_ms)
        except BaseException:
            with suppress(StockadeError):
                left = await self._client.cancel_ticket(ticket.ticket, self.id, patience_ms=self._ttl_ms)
                if left.grant is not None:
                    await self._client.release(left.grant.grant, self.id)
            raise
        return ticket.grant

    async def release(self, fence: Fence) -> None:
        """Free one fence's slots; returns when they are cleared."""
        await self._client.release(fence.grant.grant, self.id)
        self._fences.remove(fence)
        fence.lose(ClientClosed("the grant was released"))

    async def _keep(self, lease: Lease) -> None:
        next_s = lease.renew_at_s
        while True:
            await asyncio.sleep(next_s - time.monotonic())
            asked_s = time.monotonic()
            if asked_s >= lease.lost_at_s:
                self._lose(SessionExpired(f"not renewed in time; given up before its ttl of {lease.ttl_ms} ms ended"))
                return
            pause_s = lease.ttl_ms / 1000 / _ATTEMPTS_PER_TTL
            timeout_s = min(2 * pause_s, _TIMEOUT_S_MAX, lease.lost_at_s - asked_s)
            try:
                state = await self._client.renew_session(self.id, max(int(timeout_s * 1000), 1))
            except StockadeError as error:
                if not is_momentary(error):
                    self._lose(error)
                    return
                next_s = min(time.monotonic() + min(pause_s, _PAUSE_S_MAX), lease.lost_at_s)
            else:
                lease = Lease(state.ttl_ms, asked_s)
                next_s = lease.renew_at_s
                await self._look_after_fences()
                await self._look_after_resources()

    async def _look_after_fences(self) -> None:
        """Find out about a newer writer also where nothing is sent that could be refused."""
        for topic in {fence.grant.topic for fence in self._fences if fence.error is None}:
            try:
                described = await self._client.topic(topic, patience_ms=1)
            except StockadeError as error:
                if is_momentary(error):
                    continue
                described = None
            for fence in self._fences:
                if fence.grant.topic == topic:
                    fence.compare(described)

    async def _look_after_resources(self) -> None:
        """The same for what was taken over without ending this session."""
        for group in {each.group for each in self._owned if each.error is None}:
            try:
                resources = await self._client.resources(group, patience_ms=1)
            except StockadeError as error:
                if is_momentary(error):
                    continue
                resources = []
            for each in self._owned:
                if each.group == group:
                    each.compare(resources)

    def _lose(self, error: StockadeError) -> None:
        if self.error is not None:
            return
        self.error = error
        self.lost.set()
        for holding in (*self._fences, *self._owned):
            holding.lose(error)
