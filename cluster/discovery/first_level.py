"""A new cluster has the newest feature level that its members support, so that only upgrades need an operator's word.

The node that founds the cluster asks for it, in the run in which it has founded it, once all members that are
configured have come and support the level. If they do not come in time, or one does not support it, the cluster begins
with level 1.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from ...partition.errors import StockadeError
from ...raft.host import Software
from ..controller import commands
from ..controller.commands import Arranged, RaiseFeatureLevel
from ..controller.topology.catalog import CONTROLLER_GROUP
from ..features import NEWEST_LEVEL
from ..groups import Router
from .cluster_view import ClusterView

PATIENCE_S = 120.0
"""Time after its founding in which a cluster can still begin with the newest level."""
ATTEMPT_S = 5.0
"""How long the controller group may take to decide."""
LOOK_S = 0.5
"""Between two looks, at the latest."""

_log = logging.getLogger(__name__)


class FirstLevel:
    """Asks for the level of a new cluster. ``members`` are the ids of those that are configured; ``software_of`` tells
    what a node runs, None: this node is not connected to it.
    """

    def __init__(
        self,
        members: Sequence[str],
        view: ClusterView,
        software_of: Callable[[str], Software | None],
        router: Router,
    ) -> None:
        self._members = members
        self._view = view
        self._software_of = software_of
        self._router = router

    async def run(self) -> None:
        """To be run when the cluster is founded. Returns when there is nothing to ask for any more."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while loop.time() < deadline:
            come = await self._view.changed.until(self._all_have_come, LOOK_S)
            if come is not None and await self._raised(come):
                _log.info("the new cluster begins with feature level %d", NEWEST_LEVEL)
                return

    def _all_have_come(self) -> list[str] | None:
        """The registered nodes, if all that are configured are among them and all support the level."""
        registered = {entry.node_id for entry in self._view.members() if entry.incarnation is not None}
        software = [self._software_of(node_id) for node_id in registered]
        is_supported = all(each is not None and each.supports(NEWEST_LEVEL) for each in software)
        return sorted(registered) if is_supported and registered.issuperset(self._members) else None

    async def _raised(self, supporting: list[str]) -> bool:
        wall_ms = time.time_ns() // 1_000_000
        command = RaiseFeatureLevel(  # the lease clock is the leader's
            now_ms=0, wall_ms=wall_ms, level=NEWEST_LEVEL, supporting=supporting
        )
        data = commands.encode_command(command)
        try:
            answer = await self._router.propose(CONTROLLER_GROUP, self._view.controllers, data, ATTEMPT_S)
        except StockadeError:
            return False
        return isinstance(commands.decode_result(answer), Arranged)
