"""Sessions and fences: exclusive work that ends when the cluster no longer grants it.

A session represents this client at the cluster; the client renews it in the background at a third of its ttl. Safety
never depends on the client's clock: the log refuses an old fencing epoch whenever it comes. Giving a session up a fifth
of the ttl before its end only saves requests that would be refused. A process that stood still for longer than the ttl
finds its session lost when it runs again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self, overload

from ...partition.api.ownership import Grant, OwnResult, SessionInfo, Sever, Ticket
from ...partition.api.topics import Mode, Topic
from ...partition.commands import Token
from ...partition.errors import (
    GenerationFenced,
    InconsistentTopicId,
    InvalidRequest,
    NotOwner,
    ProducerFenced,
    SessionExpired,
    StockadeError,
    UnknownTopicOrPartition,
)
from ..api.client import Client
from ..api.grants import GrantRequest, OwnRequest, SessionRequest
from ..errors import ClientClosed, ClientFault
from ..retry import AT_ONCE_MS, is_momentary
from .acquiring import Acquiring, seen
from .held import ASK_AGAIN_S, HeldLease, Ownership
from .reacquire import Reacquirer

_log = logging.getLogger(__name__)
_RENEWALS_PER_TTL = 3
_ATTEMPTS_PER_TTL = 10
_PAUSE_S_MAX = 1.0
"""Longest pause after a failed renewal, in seconds: a cluster in trouble may answer for a second at a time only."""
_SILENCE_S_MAX = 10.0
"""Longest wait for the answer to a renewal before another node is asked, too, in seconds."""
_TIMEOUT_S_MAX = 30.0
"""Longest wait for the answer to one renewal, in seconds: so few of them are under way at a time."""
_CONNECTIONS_LEAST = 8
"""With fewer connections one renewal is under way at a time: others would wait for the connection of one that hangs."""
_LOOK_S_MIN = 3.0
"""Least time for a session to check what it holds, in seconds: a node asks others for up to one before it answers."""
_LOOKS_MAX = 8
"""Checks under way at a time: renewals need connections, too."""
_CLAIMS_MAX = 8
"""Lost grants and resources that are asked for again at a time: with thousands of requests before it, a renewal comes
too late.
"""
_MARGIN_OF_TTL = 0.2
"""Part of the ttl before its end at which an unrenewed session is given up."""


@dataclass(slots=True)
class Lease:
    """When to renew a session and when to give it up, on the caller's monotonic clock. Both count from ``asked_s``, the
    moment before the last successful request was sent.
    """

    ttl_ms: int
    asked_s: float

    @property
    def renew_at_s(self) -> float:
        """A third of the ttl after the last successful request left."""
        return self.asked_s + self.ttl_ms / 1000 / _RENEWALS_PER_TTL

    @property
    def lost_at_s(self) -> float:
        """A fifth of the ttl before its end."""
        return self.asked_s + self.ttl_ms / 1000 * (1 - _MARGIN_OF_TTL)

    @property
    def pause_s(self) -> float:
        """A tenth of the ttl, in seconds: the pause after a failed renewal."""
        return self.ttl_ms / 1000 / _ATTEMPTS_PER_TTL


class Fence(HeldLease):
    """A grant, in force until ``lost`` is set; then ``error`` says why.

    ``grant``: its partitions and their fencing epochs. ``session_id``: of the session that holds it, a secret. When a
    refused append showed the loss, ``error.fields["outcome"]`` is the outcome certificate of that batch.
    """

    def __init__(self, grant: Grant, session: "Session") -> None:
        super().__init__()
        self.grant = grant
        self.session_id: str = session.id
        self._session = session

    def __repr__(self) -> str:
        state = "in force" if self.error is None else f"lost: {self.error.code}"
        return f"<Fence: {self.grant.topic}, partitions and epochs {self.grant.epochs}, {state}>"

    @property
    def epoch(self) -> int:
        """The fencing epoch, a fencing token for other stores; of a Shared grant, the highest of its partitions."""
        return self.grant.epoch if self.grant.epoch is not None else max(self.grant.epochs.values())

    def token(self, partition: int) -> Token:
        """The fencing token that an append to ``partition`` carries."""
        return Token(self.grant.grant, self.grant.epochs[str(partition)], self.session_id)

    def compare(self, topic: Topic | None) -> None:
        """Lose the grant when the topic (None: it was deleted) has another topic id or a newer epoch."""
        if topic is None or topic.topic_id != self.grant.topic_id:
            self.lose(InconsistentTopicId(topic_id=topic.topic_id if topic else None))
            return
        for partition, epoch in self.grant.epochs.items():
            if int(partition) >= len(topic.partitions):
                continue  # the node that answered has not heard of this partition yet
            now = topic.partitions[int(partition)].topic_epoch
            if now is not None and now > epoch:
                self.lose(ProducerFenced(current_epoch=now, reason="superseded"))

    async def release(self) -> None:
        """End the grant; returns when its slots are free."""
        await self._session.release(self)


class Session:
    """A session of ``client_id``, renewed in the background. Use it in ``async with``, or ``open`` and ``close`` it.

    ``ttl_ms``: the cluster ends the session when it was not renewed for so long; None: the configuration's
    ``session_ttl_ms``. When the session is lost, ``lost`` is set, ``error`` says why, and everything that was acquired
    or owned through it is lost too.

    ``reacquire`` None: what is lost stays lost. Otherwise each grant and ownership that is lost, alone or with the
    session, is acquired again in the background, for as long as the session is not closed. The lost `Fence` or
    `Ownership` stays lost; ``reacquire`` is called (and awaited, if it answers an awaitable) with the new one, which
    has a new epoch, and ``again`` of the lost one answers it. A newer owner that came between is never evicted:
    exclusive grants wait in the queue as "WaitForExclusive", Shared ones and resources until they are free. Others may
    have written between the two epochs, so read the log's tail before you write. A lost session is replaced by a new
    one with another ``id``: ``error`` is None and ``lost`` is clear then. A refusal that cannot pass (the topic was
    deleted, no permission) ends the attempts for that lease: it is logged, and ``again`` raises it. ``release`` of a
    lost lease ends the attempts, too. A session that had several grants may wait for one while it holds others; two
    such sessions can block each other, so acquire partitions that belong together in one call.
    """

    def __init__(
        self,
        client: Client,
        client_id: str,
        *,
        ttl_ms: int | None = None,
        reacquire: "Callable[[Fence | Ownership], Awaitable[None] | None] | None" = None,
    ) -> None:
        self.client_id = client_id
        self.lost: asyncio.Event = asyncio.Event()
        self.error: StockadeError | None = None
        self._client = client
        self._ttl_ms = ttl_ms or client.config.session_ttl_ms
        self._id: str | None = None
        self._fences: list[Fence] = []
        self._owned: list[Ownership] = []
        self._acquiring = Acquiring(client, self._ttl_ms, self._is_held, self._is_owned)
        self._renewal: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._to_end: str | None = None
        """Id of the session that is closed here, but not yet at the cluster."""
        self._opening = asyncio.Lock()
        self._claiming = asyncio.Semaphore(_CLAIMS_MAX)
        self._reacquirer = Reacquirer(self._revive, self._ended, reacquire) if reacquire is not None else None

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        try:
            await self.close()
        except StockadeError as error:
            # A session that cannot be closed now ends by its ttl.
            if not is_momentary(error):
                raise

    @property
    def id(self) -> str:
        """The session id, a secret."""
        if self._id is None:
            raise ClientClosed("the session is not open")
        return self._id

    async def open(self) -> Self:
        """Open the session at the cluster, and start to renew it."""
        state, asked_s = await SessionRequest(self.client_id, self._ttl_ms).ask(self._client.calls)
        self._id = state.session
        self._renewal = asyncio.create_task(self._kept(partial(self._renew_until_lost, Lease(state.ttl_ms, asked_s))))
        return self

    async def close(self) -> None:
        """End the session and all its grants and ownerships; returns when their slots are free.

        This object loses them even if the request fails. The request is repeated for at most one ttl, after which the
        cluster ends the session by itself. After a failed or cancelled ``close``, another call sends the request again.
        A session that was lost needs no request.
        """
        self._client.affinity.enter()
        self._stop_renewing()
        try:
            if self._reacquirer is not None:
                await self._reacquirer.close()
            await self._acquiring.close()
            tasks = [task for task in (self._renewal, self._looking) if task is not None]
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            if self.error is None:
                self._to_end = self._id
            self._lose(ClientClosed("the session was closed"))
        if self._to_end is not None:
            await self._client.close_session(self._to_end, patience_ms=self._ttl_ms)
            self._to_end = None

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
        """Acquire all of ``partitions`` (None: all of the topic) or none.

        When it returns, each partition refuses every older token. ``mode``: see `stockade.model.Mode`. In the mode
        "WaitForExclusive" the call waits in the queue without a limit: cancel it (``asyncio.timeout``) to leave the
        queue. What a cancelled call has acquired, or still acquires, is given up in the background; the next call waits
        for that. ``producer_name``: shown to other writers; None: the client_id. ``resume_epoch``: the epoch of an
        earlier grant, to be granted again; ProducerFenced if the partitions are at a higher epoch. If they are at the
        same epoch, a Shared grant or another session that resumed it may have written meanwhile: never give the number
        to another writer. Raises ProducerBusy in the other modes, ProducerFenced, HoldAndWait, SessionExpired.
        """
        name = producer_name or self.client_id
        return await self._acquire(nullcontext(), topic, partitions, mode, name, resume_epoch, topic_id)

    async def _acquire(
        self,
        turn: AbstractAsyncContextManager[object],
        topic: str,
        partitions: Sequence[int] | None,
        mode: Mode,
        name: str,
        resume_epoch: int | None,
        topic_id: int | None,
    ) -> Fence:
        """As `acquire`, with the request inside ``turn``; the wait in the queue comes after it."""
        async with turn:
            await self._acquiring.undone()
            request = GrantRequest(topic, self.id, partitions, mode, name, resume_epoch, topic_id)
            answer = await self._acquiring.ask(request, self._hold)
        if isinstance(answer, Ticket):
            answer = await self._acquiring.wait(answer, request.session, self._hold)
        fence = answer
        if self._reacquirer is not None:
            mode = "Shared" if mode == "Shared" else "WaitForExclusive"
            again = partial(self._acquire, self._claiming, topic, partitions, mode, name, None, fence.grant.topic_id)
            self._reacquirer.watch(fence, again)
        if self.error is not None:
            fence.lose(self.error)
        return fence

    @overload
    async def own(
        self,
        group: str,
        resource: str,
        *,
        generation: int | None = None,
        sever: Sever = "session",
        wait: bool = False,
    ) -> Ownership: ...
    @overload
    async def own(
        self,
        group: str,
        resource: list[str] | tuple[str, ...],
        *,
        generation: int | None = None,
        atomic: bool = True,
        sever: Sever = "session",
        wait: bool = False,
    ) -> list[Ownership]: ...
    async def own(
        self,
        group: str,
        resource: str | list[str] | tuple[str, ...],
        *,
        generation: int | None = None,
        atomic: bool = True,
        sever: Sever = "session",
        wait: bool = False,
    ) -> Ownership | list[Ownership]:
        """Own ``resource`` of ``group``: any text of 1 to 1024 bytes; ``<topic>/<partition>`` guards that partition.

        A list or tuple of 1 to 10,000 resources is claimed in one request: all of them or none; the answer is a list in
        the same order. With ``atomic=False`` each claim has its own verdict, and the list has those that succeeded,
        perhaps none.

        ``generation`` None: only a free resource. A number takes over from an owner whose generation is at most this
        number; 0 always does. ``sever``: what the previous owner loses in a takeover: all grants and resources of its
        "session", which itself lives on, or this "resource" alone. ``wait``: wait until the resource is free (several:
        until all are free at the same moment) instead of raising GenerationFenced; cancel the call to give up. What a
        cancelled call owns, or still gets, is given up in the background; the next call waits for that. The client of
        an evicted owner notices within a third of its ttl. Raises GenerationFenced, SessionExpired, and InvalidRequest
        (no resource, one named twice, ``wait`` without ``atomic``).
        """
        if wait and not atomic:
            raise InvalidRequest(
                "wait: only with atomic, since claims that are not atomic are decided one by one, and never wait"
            )
        wanted = [resource] if isinstance(resource, str) else list(resource)
        owned = await self._claim(OwnRequest(group, self.id, wanted, generation, atomic, sever), wait=wait)
        if self._reacquirer is not None:
            for each in owned:
                self._reacquirer.watch(each, partial(self._own_again, group, each.resource))
        if self.error is not None:
            for each in owned:
                each.lose(self.error)
        return owned[0] if isinstance(resource, str) else owned

    async def _own_again(self, group: str, resource: str) -> Ownership:
        async with self._claiming:
            return await self.own(group, resource)

    async def _claim(self, request: OwnRequest, *, wait: bool) -> list[Ownership]:
        while self.error is None:
            await self._acquiring.undone()
            try:
                return await self._acquiring.own(replace(request, session=self.id), partial(self._own, request.group))
            except GenerationFenced:
                if not wait:
                    raise
            with suppress(TimeoutError):
                await asyncio.wait_for(self.lost.wait(), ASK_AGAIN_S)
        raise self.error

    def _own(self, group: str, results: list[OwnResult]) -> list[Ownership]:
        owned = [Ownership(group, each, self._disown) for each in results if each.granted]
        self._owned = [*(each for each in self._owned if each.error is None), *owned]
        return owned

    def _is_owned(self, group: str, resource: str, epoch: int) -> bool:
        mine = (each for each in self._owned if each.error is None)
        return any((each.group, each.resource, each.fence_epoch) == (group, resource, epoch) for each in mine)

    async def _disown(self, ownership: Ownership) -> None:
        if ownership.error is None:
            with suppress(NotOwner):
                await self._client.disown(ownership.group, self.id, ownership.resource)
        if self._reacquirer is not None:
            await self._reacquirer.released(ownership)
        if ownership in self._owned:
            self._owned.remove(ownership)
        ownership.lose(ClientClosed("the resource was given up"))

    def _hold(self, grant: Grant) -> Fence:
        fence = Fence(grant, self)
        self._fences = [*(each for each in self._fences if each.error is None), fence]
        return fence

    def _is_held(self, grant: str) -> bool:
        return any(each.grant.grant == grant and each.error is None for each in self._fences)

    def put_back(self, fence: Fence) -> None:
        """Give up a fence that did not reach the caller, which was interrupted; as after a cancelled `acquire`."""
        if self._reacquirer is not None:
            self._reacquirer.forget(fence)
        if fence in self._fences:
            self._fences.remove(fence)
        fence.lose(ClientClosed("the caller was interrupted"))
        if self.error is None:
            self._acquiring.put_back(fence.grant, fence.session_id)

    def put_back_owned(self, owned: Sequence[Ownership]) -> None:
        """Give up, as `put_back` does a fence, the ownerships of one claim."""
        for each in owned:
            if self._reacquirer is not None:
                self._reacquirer.forget(each)
            if each in self._owned:
                self._owned.remove(each)
            each.lose(ClientClosed("the caller was interrupted"))
        if self.error is None and owned:
            epochs = {each.resource: each.fence_epoch for each in owned}
            self._acquiring.put_back_owned(owned[0].group, self.id, epochs)

    async def release(self, fence: Fence) -> None:
        """End one grant; returns when its slots are free."""
        if self._reacquirer is not None:
            await self._reacquirer.released(fence)
        await self._client.release(fence.grant.grant, fence.session_id)
        if fence in self._fences:
            self._fences.remove(fence)
        fence.lose(ClientClosed("the grant was released"))

    async def _kept(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` in the background. An unexpected exception in it loses the session, since otherwise the
        application would not learn that the work has ended.
        """
        try:
            await work()
        except Exception as bug:
            _log.exception("session of %s: a bug in the client library", self.client_id)
            self._lose(ClientFault(f"a bug in the client library: {bug!r}"))
            self._stop_renewing()  # the application takes the session for lost, so the cluster must end it

    async def _renew_until_lost(self, lease: Lease) -> None:
        """Renew the session until it is lost. A renewal without an answer waits on beside the next one, which goes to
        another node: an answer counts however late it comes, from the moment of its own request on.
        """
        asked: dict[asyncio.Task[SessionInfo], float] = {}
        next_s = lease.renew_at_s
        try:
            while True:
                await _until(next_s, asked)
                answered = next((each for each in asked if each.done()), None)
                if answered is not None:
                    lease, next_s = self._renewed(lease, next_s, answered, asked.pop(answered))
                    continue
                asked_s = time.monotonic()
                left_s = lease.lost_at_s - asked_s
                if left_s <= 0:
                    raise SessionExpired(f"not renewed in time; given up before its ttl of {lease.ttl_ms} ms ended")
                silence_s = min(2 * lease.pause_s, _SILENCE_S_MAX)
                has_room = self._client.config.connections_max >= _CONNECTIONS_LEAST
                renewal = asyncio.create_task(
                    self._ask_to_renew(min(left_s, _TIMEOUT_S_MAX if has_room else silence_s))
                )
                renewal.add_done_callback(seen)
                asked[renewal] = asked_s
                next_s = min(asked_s + silence_s, lease.lost_at_s) if has_room else lease.lost_at_s
        except StockadeError as error:
            self._lose(error)
        finally:
            for renewal in asked:
                renewal.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _ask_to_renew(self, timeout_s: float) -> SessionInfo:
        async with asyncio.timeout(timeout_s):  # the request may try several nodes, each for this long
            return await self._client.renew_session(self.id, max(int(timeout_s * 1000), 1))

    def _renewed(
        self, lease: Lease, next_s: float, renewal: "asyncio.Task[SessionInfo]", asked_s: float
    ) -> tuple[Lease, float]:
        """The lease after a renewal that has ended, and when to ask again. Raises the refusal that ends the session."""
        try:
            newer = Lease(renewal.result().ttl_ms, asked_s)
        except (TimeoutError, StockadeError) as error:
            if isinstance(error, StockadeError) and not is_momentary(error):
                raise
            return lease, min(time.monotonic() + min(lease.pause_s, _PAUSE_S_MAX), lease.lost_at_s)
        if newer.lost_at_s <= lease.lost_at_s:
            return lease, next_s  # a later renewal was answered first
        if self._looking is None or self._looking.done():
            seconds = newer.renew_at_s - time.monotonic()
            self._looking = asyncio.create_task(self._kept(partial(self._look, seconds)))
        return newer, newer.renew_at_s

    async def _look(self, seconds: float) -> None:
        """Check what the session holds, _LOOKS_MAX topics or groups at a time, for ``seconds``, but at least
        _LOOK_S_MIN. A node that takes a question and does not answer delays neither other checks nor a renewal.
        """
        some = asyncio.Semaphore(_LOOKS_MAX)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, _LOOK_S_MIN)), asyncio.TaskGroup() as looks:
                for topic in {fence.grant.topic for fence in self._fences if fence.error is None}:
                    looks.create_task(self._look_at_topic(topic, some))
                for group in {each.group for each in self._owned if each.error is None}:
                    looks.create_task(self._look_at_group(group, some))

    async def _look_at_topic(self, topic: str, some: asyncio.Semaphore) -> None:
        """Detect a newer writer on partitions where this client sends no writes that could be refused."""
        held, described = list[Fence](), None
        try:
            async with some:
                held = [fence for fence in self._fences if fence.grant.topic == topic]  # the answer may lack later ones
                described = await self._client.topic(topic, patience_ms=AT_ONCE_MS)
        except UnknownTopicOrPartition:
            pass  # deleted
        except StockadeError as error:
            _not_seen(f"topic {topic}", error)
            return
        for fence in held:
            fence.compare(described)

    async def _look_at_group(self, group: str, some: asyncio.Semaphore) -> None:
        """Detect resources that were taken over without ending this session."""
        try:
            async with some:
                owned = [each for each in self._owned if each.group == group]  # the answer may lack later ones
                resources = {
                    each.resource: each for each in await self._client.resources(group, patience_ms=AT_ONCE_MS)
                }
        except StockadeError as error:
            _not_seen(f"group {group}", error)
            return
        for each in owned:
            each.compare(resources)

    def _stop_renewing(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _lose(self, error: StockadeError) -> None:
        if self.error is not None:
            return
        self.error = error
        self.lost.set()
        self._acquiring.cancel()
        for lease in (*self._fences, *self._owned):
            lease.lose(error)

    def _ended(self, session_id: str, error: StockadeError) -> None:
        if session_id == self._id:
            self._lose(error)

    async def _revive(self) -> str:
        """Open a new session if this one is lost; returns the id of the session."""
        async with self._opening:
            if self.error is not None:
                self._stop_renewing()
                await self.open()
                self.error = None
                self.lost.clear()
        return self.id


async def _until(when_s: float, tasks: "Collection[asyncio.Task[SessionInfo]]") -> None:
    """Return at ``when_s`` of the monotonic clock, or when one of the tasks has ended."""
    pause_s = max(when_s - time.monotonic(), 0.0)
    if tasks:
        await asyncio.wait(tasks, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
    else:
        await asyncio.sleep(pause_s)


def _not_seen(what: str, error: StockadeError) -> None:
    """Log that a check was refused. The owner stays unknown until the check after the next renewal."""
    level = logging.INFO if is_momentary(error) else logging.WARNING
    _log.log(level, "%s: not known whether another session holds it by now: %s", what, error)
