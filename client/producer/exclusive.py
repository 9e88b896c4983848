"""The fences and ownerships of a producer, bound to the queues of its partitions while no batch there is in flight.

Fences are grants on partitions, whose fencing tokens the batches carry. Ownerships are resources of a topic's
``writer_group``, whose fence_epoch the batches carry. A partition may have both.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from ...partition.errors import NotOwner, StockadeError
from ..errors import ClientClosed
from ..session.held import HeldLease, Ownership
from ..session.reacquire import CannotGoOn, ends_this_task
from ..session.session import Fence
from .delivery import wait_settled
from .sender import Route, Sender

_log = logging.getLogger(__name__)


class ProducerFences:
    """The fences and ownerships of a producer, by partition."""

    def __init__(self) -> None:
        self._fences: dict[tuple[str, int], Fence] = {}
        self._owned: dict[tuple[str, int], Ownership] = {}
        self._halts: dict[tuple[str, int], Callable[[StockadeError], None]] = {}
        """By partition, the watcher that halts it when its ownership is lost."""

    async def take(self, sender: Sender, routes: Sequence[Route], acquire: Callable[[], Awaitable[Fence]]) -> Fence:
        """Acquire a fence, and bind it to the routes. No batch gets a sequence number meanwhile: every batch numbered
        after the call carries the fence's token, and none numbered before it does.
        """
        async with _still(sender, routes):
            fence = await acquire()
            for route in routes:
                route.queue.token = fence.token(route.partition)
                self._fences[_key(route)] = fence
            fence.on_lost(_halting(sender, routes, lambda route: self._fences.get(_key(route)) is fence))
        return fence

    def leave(self, routes: Iterable[Route]) -> None:
        """Unbind the routes' fences: batches that get a number from now on carry no token."""
        for route in routes:
            route.queue.token = None
            self._fences.pop(_key(route), None)

    async def bind(self, sender: Sender, owned: Mapping[Route, Ownership]) -> None:
        """Bind ownerships to routes, as `take` binds a fence. Raises the error of an ownership that is lost."""
        async with _still(sender, list(owned)):
            lost = next((each.error for each in owned.values() if each.error is not None), None)
            if lost is not None:
                raise lost
            for route, ownership in owned.items():
                route.queue.fence_epoch = ownership.fence_epoch
                self._owned[_key(route)] = ownership
                halt = self._halts[_key(route)] = _halting(sender, [route], self._is_bound_to(ownership))
                ownership.on_lost(halt)

    def unbind(self, routes: Iterable[Route]) -> None:
        """Unbind the routes' ownerships: batches that get a number from now on carry no fence_epoch."""
        for route in routes:
            route.queue.fence_epoch = None
            ownership, halt = self._owned.pop(_key(route), None), self._halts.pop(_key(route), None)
            if ownership is not None and halt is not None:
                ownership.forget(halt)

    def fenced(self, route: Route, error: StockadeError) -> None:
        """Mark this producer's fence or ownership of the partition as lost: a refusal says that the partition has a
        newer writer or owner, or that its topic was deleted.
        """
        held: HeldLease | None = (self._owned if isinstance(error, NotOwner) else self._fences).get(_key(route))
        if held is not None:
            held.lose(error)

    def error(self, route: Route) -> StockadeError | None:
        """Why this partition's fence or ownership is lost; None without one, or while both are in force."""
        held = (self._fences.get(_key(route)), self._owned.get(_key(route)))
        return next((each.error for each in held if each is not None and each.error is not None), None)

    def _is_bound_to(self, ownership: Ownership) -> Callable[[Route], bool]:
        return lambda route: self._owned.get(_key(route)) is ownership


class FenceChain(HeldLease):
    """The successive fences of an exclusive block with ``reacquire``. The chain is lost when no other fence can follow.

    ``told`` is the application's callback; ``reopen`` lets a halted route take records again.
    """

    def __init__(
        self,
        fences: ProducerFences,
        sender: Sender,
        routes: Sequence[Route],
        told: Callable[[Fence], Awaitable[None] | None],
        reopen: Callable[[Route], None],
    ) -> None:
        super().__init__()
        self._fences = fences
        self._sender = sender
        self._routes = routes
        self._told = told
        self._reopen = reopen
        self._turn = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None

    def follow(self, fence: Fence) -> None:
        """Watch this fence, and each fence that replaces it; the chain is lost when a lost fence is not replaced."""
        self._following = asyncio.get_running_loop().create_task(self._follow(fence))

    async def renewed(self, fence: Fence | Ownership) -> None:
        """Bind a fence that was acquired again, under a new producer epoch, tell the application, and take records.
        Raises CannotGoOn, and loses the chain, if one of these is impossible.
        """
        assert isinstance(fence, Fence)
        async with self._turn:
            try:
                if self.error is None:
                    await self._bind(fence)
            except StockadeError as error:
                self.lose(error)
            except (Exception, asyncio.CancelledError) as error:
                if ends_this_task(error):
                    raise
                _log.exception("the reacquire callback failed")
                self.lose(ClientClosed(f"the reacquire callback failed: {error!r}"))
            if self.error is not None:
                raise CannotGoOn(self.error)

    async def _bind(self, fence: Fence) -> None:
        async def acquired() -> Fence:
            return fence

        for route in self._routes:
            await wait_settled(route.queue.unsettled)
        halted = [(route, route.queue.error) for route in self._routes if route.queue.error is not None]
        await self._fences.take(self._sender, self._routes, acquired)
        await self._sender.renew()
        answer = self._told(fence)
        if inspect.isawaitable(answer):
            await answer
        if fence.error is None and self.error is None:
            for route, error in halted:
                if route.queue.error is error:  # not if the application has recovered the route, and it halted anew
                    self._reopen(route)

    async def _follow(self, fence: Fence) -> None:
        try:
            while True:
                fence = await fence.again()
        except StockadeError as error:
            self.lose(error)


@asynccontextmanager
async def _still(sender: Sender, routes: Sequence[Route]) -> AsyncIterator[None]:
    """In the block, no batch of the routes is in flight, and none gets a number."""
    for route in routes:
        route.queue.hold(on=True)
    try:
        for route in routes:
            await wait_settled(route.queue.window)
        yield
    finally:
        for route in routes:
            route.queue.hold(on=False)
            sender.pump(route)


def _halting(
    sender: Sender, routes: Iterable[Route], is_bound: Callable[[Route], bool]
) -> Callable[[StockadeError], None]:
    """A watcher of a loss: it halts those of ``routes`` that are still bound to what was lost."""
    return lambda error: sender.halt(filter(is_bound, routes), error)


def _key(route: Route) -> tuple[str, int]:
    return route.topic, route.partition
