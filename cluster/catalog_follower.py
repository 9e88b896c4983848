"""Keeps a node's replicas in step with the catalog: from the controller replica of this node, or asked of a
controller.
"""

import asyncio
import itertools
import logging

from . import messages
from .control import Control
from .messages import Catalog, FollowCatalog
from .replicas import Replicas
from .router import Router

WAIT_S = 1.0
"""How long a controller holds back an answer that says nothing new."""
PAUSE_S = 0.2
"""Before the next controller is asked when one was away."""

_log = logging.getLogger(__name__)


class CatalogFollower:
    """Follows the catalog for as long as the node runs."""

    def __init__(self, control: Control | None, router: Router, controllers: list[str], replicas: Replicas) -> None:
        """``control`` is None on a node that holds no replica of the controller group."""
        self._control = control
        self._router = router
        self._controllers = itertools.cycle(controllers)
        self._replicas = replicas

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            catalog = await (self._ask() if self._control is None else self.newer(self._control, self._replicas.index))
            if catalog is not None:
                await self._replicas.follow(catalog)

    @staticmethod
    async def newer(control: Control, after: int, wait_s: float = WAIT_S) -> Catalog | None:
        """The catalog of this node's controller replica once it is newer than ``after``; None after ``wait_s``."""

        def look() -> Catalog | None:
            # While a restarted replica applies its log again, it passes through catalogs of the past.
            is_news = control.group.ready and control.machine.catalog_index > after
            return control.catalog() if is_news else None

        return await control.until(look, wait_s)

    async def _ask(self) -> Catalog | None:
        node_id = next(self._controllers)
        try:
            answer = await self._router.ask(
                node_id, FollowCatalog(self._replicas.index, int(WAIT_S * 1000)), 3 * WAIT_S
            )
        except (ConnectionError, TimeoutError):
            await asyncio.sleep(PAUSE_S)
            return None
        assert isinstance(answer, messages.Catalog), answer
        return answer
