"""What a producer does to write alone: seats at partitions for its lanes, taken and left without a gap in between."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from ..partition.errors import StockadeError
from .delivery import wait_settled
from .fencing import Fence
from .sender import Route, Sender


class Seats:
    """The fences in force, by partition."""

    def __init__(self) -> None:
        self._fences: dict[tuple[str, int], Fence] = {}

    async def take(self, sender: Sender, routes: Sequence[Route], acquire: Callable[[], Awaitable[Fence]]) -> Fence:
        """Acquire, and fence the routes. Nothing is numbered meanwhile, so no record leaves between unfenced and
        fenced.
        """
        for route in routes:
            route.lane.hold(on=True)
        try:
            for route in routes:
                await wait_settled(route.lane.window)
            fence = await acquire()
            self._enter(sender, fence, routes)
        finally:
            for route in routes:
                route.lane.hold(on=False)
                sender.pump(route)
        return fence

    def leave(self, routes: Iterable[Route]) -> None:
        """From now on these routes are not fenced."""
        for route in routes:
            route.lane.token = None
            self._fences.pop((route.topic, route.partition), None)

    def fenced(self, route: Route, error: StockadeError) -> None:
        """An answer said that a newer writer holds the partition, or that its topic is gone."""
        fence = self._fence_of(route)
        if fence is not None:
            fence.lose(error)

    def error(self, route: Route) -> StockadeError | None:
        """Why the seat at this partition is lost, if there is one and it is."""
        fence = self._fence_of(route)
        return fence.error if fence is not None else None

    def _enter(self, sender: Sender, fence: Fence, routes: Iterable[Route]) -> None:
        def halt(error: StockadeError) -> None:
            sender.halt([route for route in routes if self._fence_of(route) is fence], error)

        for route in routes:
            route.lane.token = fence.token(route.partition)
            self._fences[route.topic, route.partition] = fence
        fence.on_lost(halt)

    def _fence_of(self, route: Route) -> Fence | None:
        return self._fences.get((route.topic, route.partition))
