"""Raises a new cluster to the newest feature level, so that only upgrades need an operator's word.

The node that has founded the cluster proposes the level, in the same run of its process, once all configured members
have registered and support it. If they do not register in time, or one does not support it, the cluster begins with
level 1.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from ...partition.errors import StockadeError
from ...raft.host import Software
from ..controller.commands import Arranged, RaiseFeatureLevel
from ..features import NEWEST_LEVEL
from ..groups import Router
from .cluster_view import ClusterView

PATIENCE_S = 120.0
"""Time after the founding of a cluster in which it can still begin with the newest level."""
ATTEMPT_S = 5.0
"""Time that the controller group has to decide."""
LOOK_S = 0.5
"""Longest time between two looks at the members: a node's software may become known without a new catalog."""

_log = logging.getLogger(__name__)


class FirstLevel:
    """Proposes the level of a new cluster. ``members``: the ids of the configured members; ``software_of`` gives the
    software of a node, None while this node is not connected to it.
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
        """Propose the level until it is raised, or PATIENCE_S are over. To be run when the cluster is founded."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while loop.time() < deadline:
            come = await self._view.changed.until(self._all_have_come, LOOK_S)
            if come is None:
                continue
            if await self._raised(come):
                _log.info("the new cluster begins with feature level %d", NEWEST_LEVEL)
                return
            await asyncio.sleep(LOOK_S)  # each attempt is a commit of the controller group, and the refusal may last

    def _all_have_come(self) -> list[str] | None:
        """The registered nodes, if all configured members are among them and all of them support the level, or None."""
        registered = {entry.node_id for entry in self._view.members() if entry.incarnation is not None}
        software = [self._software_of(node_id) for node_id in registered]
        is_supported = all(each is not None and each.supports(NEWEST_LEVEL) for each in software)
        return sorted(registered) if is_supported and registered.issuperset(self._members) else None

    async def _raised(self, supporting: list[str]) -> bool:
        wall_ms = time.time_ns() // 1_000_000
        command = RaiseFeatureLevel(now_ms=0, wall_ms=wall_ms, level=NEWEST_LEVEL, supporting=supporting)
        try:
            return isinstance(await self._router.decide(self._view.controllers, command, ATTEMPT_S), Arranged)
        except StockadeError:
            return False
