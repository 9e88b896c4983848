"""Keeps a node's replicas in step with the catalog: from the controller replica of this node, or asked of a
controller.
"""

import asyncio
import itertools
import logging

from .book import Book
from .control import Control
from .messages import Catalog, FollowCatalog
from .replicas import Replicas
from .router import Router
from .seat import Seat

WAIT_S = 1.0
"""How long a controller holds back an answer that says nothing new."""
PAUSE_S = 0.2
"""Before the next controller is asked when one was away."""

_log = logging.getLogger(__name__)


class CatalogFollower:
    """Follows the catalog for as long as the node runs."""

    def __init__(self, node_id: str, seat: Seat, router: Router, book: Book, replicas: Replicas) -> None:
        self._node_id = node_id
        self._seat = seat
        self._router = router
        self._book = book
        self._replicas = replicas
        self._turns = itertools.count()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            control = self._seat.control
            catalog = None
            if control is not None:
                catalog = await self.newer(control, self._after)
            if control is None or (catalog is None and control.group.leader is None):
                # A replica that belongs to the group no more hears nothing of it: not even that it was removed.
                catalog = await self._ask()
            if catalog is None:
                continue
            self._replicas.heard_of_controller(catalog.leader, catalog.term)
            if catalog.index >= self._book.index:
                await self._book.follow(catalog)
                await self._replicas.follow(catalog)

    @property
    def _after(self) -> int:
        """A restarted node takes the catalog again that it knew, and no older one."""
        return max(self._replicas.index, self._book.index - 1)

    @staticmethod
    async def newer(control: Control, after: int, wait_s: float = WAIT_S) -> Catalog | None:
        """The catalog of this node's controller replica once it is newer than ``after``; None after ``wait_s``."""

        def look() -> Catalog | None:
            # While a restarted replica applies its log again, it passes through catalogs of the past.
            is_news = control.group.ready and control.machine.catalog_index > after
            return control.catalog() if is_news else None

        return await control.until(look, wait_s)

    async def _ask(self) -> Catalog | None:
        others = [node_id for node_id in self._book.controllers if node_id != self._node_id]
        if not others:
            await asyncio.sleep(PAUSE_S)
            return None
        node_id = others[next(self._turns) % len(others)]
        try:
            answer = await self._router.ask(node_id, FollowCatalog(self._after, int(WAIT_S * 1000)), 3 * WAIT_S)
        except (ConnectionError, TimeoutError):
            answer = None
        if not isinstance(answer, Catalog):  # it is away, or no controller
            await asyncio.sleep(PAUSE_S)
            return None
        return answer
