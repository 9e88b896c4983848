"""How a session acquires grants and resources, and how it gives up what a cancelled acquisition leaves behind.

The cluster may carry out a request that the application has cancelled. The session, which lives on, would then have a
place in the queue, a grant or a resource that the application does not know of and never releases. So the session
undoes each such request in the background. The cluster answers a repeated request with the same ticket or grant, which
is how an undo finds out what a request of unknown outcome has done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from ...partition.api.ownership import Grant, OwnResult, Ticket
from ...partition.errors import NotOwner, StockadeError
from ..api.client import Client
from ..api.grants import GrantRequest, OwnRequest
from ..errors import ClientClosed
from ..retry import is_momentary
from ..transport.calls import Calls

_log = logging.getLogger(__name__)

DISOWNED_BYTES = 4096
"""The most bytes of resource names in one request, whose URL carries them."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Request(Protocol[T_co]):
    """A session's request for a grant or for resources."""

    def ask(self, calls: Calls, *, is_wanted: Callable[[], bool] | None = None) -> Coroutine[Any, Any, T_co]:
        """The answer; the request is repeated as long as ``is_wanted`` answers True."""
        ...


class Acquiring:
    """The acquisitions of one session, and the undos of those that were cancelled.

    ``is_held`` says whether the session has a fence in force for the grant of this id, ``is_owned`` whether it has an
    ownership in force of this group, resource and fence_epoch. ``ttl_ms``: how long an undo repeats a request; a
    session that gets no answer for longer has ended, with all that it had.
    """

    def __init__(
        self, client: Client, ttl_ms: int, is_held: Callable[[str], bool], is_owned: Callable[[str, str, int], bool]
    ) -> None:
        self._client = client
        self._ttl_ms = ttl_ms
        self._is_held = is_held
        self._is_owned = is_owned
        self._first: dict[asyncio.Future[None], tuple[type, str]] = {}
        """Acquisitions without a first answer, each with the type of its request, and the request's topic or group."""
        self._waiting: list[Ticket] = []
        self._undos: dict[asyncio.Task[None], asyncio.Task[Any] | None] = {}
        """Undos under way, each with the task of the request that it undoes (None: that request was answered)."""

    async def undone(self) -> None:
        """Return when every cancelled acquisition is undone. A new acquisition that began before that might be answered
        with the grant that an undo is about to release, or be refused because the session has a ticket that an undo is
        about to cancel.
        """
        while self._undos:
            await asyncio.wait(list(self._undos))

    async def ask(self, request: GrantRequest, hold: Callable[[Grant], T]) -> T | Ticket:
        """Ask for a grant; returns what ``hold`` makes of it, or the ticket for `wait`. A cancelled call leaves the
        queue, and holds nothing.

        The caller awaits ``undone`` right before.
        """
        with self._one_of(GrantRequest, request.topic):
            answer = await self._answer(request, self._undo)
            if isinstance(answer, Grant):
                return hold(answer)
            self._waiting.append(answer)
            return answer

    async def own(self, request: OwnRequest, hold: Callable[[list[OwnResult]], T]) -> T:
        """Claim resources; returns what ``hold`` makes of the verdicts. After a cancelled call the session owns no more
        than before. The caller awaits ``undone`` right before.
        """
        with self._one_of(OwnRequest, request.group):
            return hold(await self._answer(request, self._disown))

    def put_back(self, grant: Grant, session: str) -> None:
        """Give up, in the background, a grant that did not reach the caller, which was interrupted."""
        _ = self._begin(partial(self._leave, grant, session))

    def put_back_owned(self, group: str, session: str, epochs: Mapping[str, int]) -> None:
        """The same for resources of ``group``, each with its fence_epoch."""
        _ = self._begin(partial(self._leave_owned, group, session, epochs))

    @contextmanager
    def _one_of(self, kind: type, name: str) -> Iterator[None]:
        """Inside the block, an acquisition waits for its first answer, and the undos of its kind wait for the block."""
        known = asyncio.get_running_loop().create_future()
        self._first[known] = kind, name
        try:
            yield
        finally:
            del self._first[known]
            known.set_result(None)

    def cancel(self) -> None:
        """Cancel every undo: the session has ended, and with it everything that an undo would give up."""
        for undo, asking in self._undos.items():
            undo.cancel()
            if asking is not None:
                asking.cancel()

    async def close(self) -> None:
        """Stop undoing: the end of the session gives everything up."""
        tasks: list[asyncio.Task[Any]] = [*self._undos, *filter(None, self._undos.values())]
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(
        self, request: Request[T_co], undo: "Callable[[Any, asyncio.Task[Any]], Awaitable[None]]"
    ) -> T_co:
        is_wanted = True
        asking = asyncio.get_running_loop().create_task(request.ask(self._client.calls, is_wanted=lambda: is_wanted))
        asking.add_done_callback(seen)
        try:
            await asyncio.wait([asking])
        except asyncio.CancelledError:
            is_wanted = False
            if not asking.cancelling():  # else the event loop ends, and cancels all tasks
                _ = self._begin(partial(undo, request, asking), asking)
            raise
        return asking.result()

    async def wait(self, ticket: Ticket, session: str, hold: Callable[[Grant], T]) -> T:
        """Ask until the ticket has a grant; returns what ``hold`` makes of it. A caller that gives up leaves the queue,
        and releases a grant that came first, so that tickets behind it need not wait for the end of its session.

        The poll changes nothing, but the acquisition had effects: a place in the queue, or a grant that had evicted the
        owner before it ended itself. So its refusals never have ``no_side_effects``.
        """
        wait_ms = self._client.config.fetch_wait_ms
        first = ticket
        try:
            while ticket.grant is None:
                if ticket.state == "cancelled":
                    raise ClientClosed("the ticket was cancelled")
                ticket = await self._client.ticket(ticket.ticket, session, wait_ms)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, StockadeError):
                error.had_effects()
            self._waiting.remove(first)
            # A second cancellation ends this wait, not the undo.
            await asyncio.wait([self._begin(partial(self._leave, first, session))])
            raise
        self._waiting.remove(first)
        return hold(ticket.grant)

    def _begin(
        self, undo: Callable[[], Awaitable[None]], asking: "asyncio.Task[Any] | None" = None
    ) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self._done(undo))
        self._undos[task] = asking
        task.add_done_callback(self._undos.pop)
        return task

    async def _done(self, undo: Callable[[], Awaitable[None]]) -> None:
        try:
            await undo()
        except StockadeError as error:
            if is_momentary(error):
                _log.warning("the session may still hold a grant or a ticket of a cancelled acquisition: %s", error)

    async def _undo(self, request: GrantRequest, asking: "asyncio.Task[Grant | Ticket]") -> None:
        try:
            answer = await asking
        except StockadeError as error:
            if error.no_side_effects:
                return
            answer = await self._found_out(request)
        await self._leave(answer, request.session)

    async def _disown(self, request: OwnRequest, asking: "asyncio.Task[list[OwnResult]]") -> None:
        try:
            epochs = {each.resource: each.fence_epoch for each in await asking if each.granted}
        except StockadeError as error:
            if error.no_side_effects:
                return
            wanted = set(request.resources)
            there = await self._client.resources(request.group, patience_ms=self._ttl_ms)
            epochs = {each.resource: each.fence_epoch for each in there if each.owned and each.resource in wanted}
        await self._leave_owned(request.group, request.session, epochs)

    async def _leave_owned(self, group: str, session: str, epochs: Mapping[str, int]) -> None:
        """Give up the resources of these fence_epochs, unless the session has them by another claim, too."""
        await self._until_known(OwnRequest, group)
        left = [name for name, epoch in epochs.items() if not self._is_owned(group, name, epoch)]
        for names in chunked(left, DISOWNED_BYTES):
            try:
                await self._give_up(group, session, names)
            except NotOwner:  # another session owns one of them, and none was given up
                for name in names:
                    with suppress(NotOwner):
                        await self._give_up(group, session, [name])

    async def _give_up(self, group: str, session: str, names: list[str]) -> None:
        await self._client.disown(group, session, names, patience_ms=self._ttl_ms)

    async def _found_out(self, request: GrantRequest) -> Grant | Ticket:
        """The grant or ticket of a request of unknown outcome, found by repeating it in a mode that does not evict: if
        the first request had no effect, another session may hold the partitions by now, and must not lose them to a
        cancelled call.
        """
        if request.mode == "ExclusiveWithFencing":
            request = replace(request, mode="Exclusive")
        return await request.ask(self._client.calls, patience_ms=self._ttl_ms)

    async def _leave(self, answer: Grant | Ticket, session: str) -> None:
        """Give the grant or ticket up, unless the session has it by another acquisition, too."""
        await self._until_known(GrantRequest, answer.topic)
        if any(_places(each) == _places(answer) for each in self._waiting):
            return  # that acquisition holds it, or undoes it
        grant = answer if isinstance(answer, Grant) else answer.grant
        if grant is not None:
            await self._release(grant, session)
            return
        assert isinstance(answer, Ticket)
        left = await self._client.cancel_ticket(answer.ticket, session, patience_ms=self._ttl_ms)
        if left.grant is not None:
            await self._release(left.grant, session)
        elif left.state == "installing":
            # The grant has no id before it is in force, which takes as long as a partition has no leader.
            _ = self._begin(partial(self._release_later, answer, session))

    async def _release_later(self, ticket: Ticket, session: str) -> None:
        while ticket.grant is None:
            if ticket.state == "cancelled":
                return
            try:
                ticket = await self._client.ticket(ticket.ticket, session, self._client.config.fetch_wait_ms)
            except StockadeError as error:
                if not is_momentary(error):
                    raise
        await self._release(ticket.grant, session)

    async def _release(self, grant: Grant, session: str) -> None:
        if not self._is_held(grant.grant):
            await self._client.release(grant.grant, session)

    async def _until_known(self, kind: type, name: str) -> None:
        """Return when no acquisition of this kind waits for its first answer, which may be the grant to be undone."""
        while first := [known for known, each in self._first.items() if each == (kind, name)]:
            await asyncio.wait(first)


def chunked(names: Iterable[str], size: int) -> Iterator[list[str]]:
    """The names in order, in parts of at most ``size`` bytes as written in a URL; a longer name is a part by itself."""
    part: list[str] = []
    part_bytes = 0
    for name in names:
        name_bytes = len(quote(name, safe="")) + len("resource=&")
        if part and part_bytes + name_bytes > size:
            yield part
            part, part_bytes = [], 0
        part.append(name)
        part_bytes += name_bytes
    if part:
        yield part


def _places(of: Grant | Ticket) -> tuple[str, list[int]]:
    return of.topic, of.partitions


def seen(asking: "asyncio.Task[Any]") -> None:
    """Take the error of a request that ended, perhaps with its session, so that asyncio logs no unread error."""
    if not asking.cancelled():
        asking.exception()
