"""The seats of a producer with ``access="Shared"``: a Shared grant on each partition that it writes to.

While a producer has a seat, exclusive requests of others are refused (ProducerBusy), wait, or evict it, and it is told
when that happens: its batches carry the seat's fencing token. A partition's queue numbers no batch before it has its
seat. Only ``recover`` takes a lost seat again, so that the application always learns that another writer may have
written in between.
"""

import asyncio
from collections.abc import Iterable

from ...partition.errors import StockadeError
from ..api.client import Client
from ..session.session import Fence, Session
from .sender import Route, Sender, fault_of


class Seats:
    """The seats by route, and the session that holds them, which is opened for the first one."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._seats: dict[Route, Fence] = {}
        self._taking: dict[Route, asyncio.Task[None]] = {}
        self._vacated: dict[Route, bool] = {}
        """Routes under an exclusive grant of the same producer; whether they had a seat before."""
        self._held: set[Route] = set()

    def want(self, sender: Sender, route: Route) -> None:
        """Take a seat in the background, unless the partition has one, one is being taken, the producer has an
        exclusive grant there, or the partition has halted.

        Until the seat is taken, the queue holds its batches. A refusal halts the partition: the records fail with
        ProducerBusy, which names the holder.
        """
        if route in self._seats or route in self._taking or route in self._vacated or route.queue.error is not None:
            return
        route.queue.hold(on=True)
        task = self._taking[route] = asyncio.get_running_loop().create_task(self._take_or_halt(sender, route))
        task.add_done_callback(lambda _: self._taking.pop(route, None))

    async def take(self, sender: Sender, route: Route) -> None:
        """Take a seat in place of a lost or refused one. Raises ProducerBusy, which names the holder."""
        await self._settled([route])
        known = self._seats.get(route)
        if known is not None and known.error is None:
            return
        self._seats.pop(route, None)
        session = await self._opened()
        seat = await session.acquire(
            route.topic, [route.partition], mode="Shared", producer_name=self._name, topic_id=route.topic_id
        )

        def halt(error: StockadeError) -> None:
            if self._seats.get(route) is seat:
                sender.halt([route], error)

        self._seats[route], route.queue.token = seat, seat.token(route.partition)
        seat.on_lost(halt)

    async def leave(self, routes: Iterable[Route]) -> None:
        """Give up these seats for an exclusive grant of the same producer, until ``come_back``.

        Their queues must be held, with no batch in flight.
        """
        routes = list(routes)
        self._vacated |= dict.fromkeys(routes, False)
        await self._settled(routes)
        for route in routes:
            seat, route.queue.token = self._seats.pop(route, None), None
            self._vacated[route] = seat is not None
            if seat is not None and seat.error is None:
                await seat.release()

    def hold(self, routes: Iterable[Route]) -> None:
        """Hold the queues, since the exclusive grant ends: no batch gets a sequence number before ``come_back``."""
        for route in routes:
            self._held.add(route)
            route.queue.hold(on=True)

    def come_back(self, sender: Sender, routes: Iterable[Route]) -> None:
        """Undo ``leave`` and ``hold``: take the seats again that were given up."""
        for route in routes:
            if self._vacated.pop(route, False) or not route.queue.is_idle:
                self.want(sender, route)
            if route in self._held:
                self._held.remove(route)
                route.queue.hold(on=False)
                sender.pump(route)

    def fenced(self, route: Route, error: StockadeError) -> None:
        """Lose the seat, because a refusal says that it is lost."""
        seat = self._seats.get(route)
        if seat is not None:
            seat.lose(error)

    async def close(self) -> None:
        """Give up all seats, with the session. A session that cannot be closed now ends by its ttl."""
        self._seats.clear()
        tasks = list(self._taking.values())
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            session, self._session = self._session, None
            if session is not None:
                await session.__aexit__()

    async def _take_or_halt(self, sender: Sender, route: Route) -> None:
        try:
            await self.take(sender, route)
        except StockadeError as error:
            sender.halt([route], error)
        except Exception as bug:  # without a seat its batches must not leave
            sender.halt([route], fault_of(bug))
        finally:
            route.queue.hold(on=False)
            sender.pump(route)

    async def _settled(self, routes: Iterable[Route]) -> None:
        """Return when no task but the caller's own is taking a seat of these routes."""
        tasks = [task for route in routes if (task := self._taking.get(route)) not in (None, asyncio.current_task())]
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)

    async def _opened(self) -> Session:
        async with self._opening:
            if self._session is None or self._session.error is not None:
                self._session = await Session(self._client, self._name).open()
            return self._session
