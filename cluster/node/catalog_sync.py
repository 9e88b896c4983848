"""Keeps a node's replicas in step with the catalog, and its principals with the cluster's. Both come from this node's
replica of the controller group or, without one, from another controller.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable

from ..access.store import PrincipalStore
from ..discovery.cluster_view import ClusterView
from ..groups import Router
from ..leader.controller_group import ControllerGroup
from ..replica.replica_manager import ReplicaManager
from ..rpc import Catalog, FollowCatalog
from .controller_member import ControllerMember

WAIT_S = 1.0
"""How long a controller holds back an answer that says nothing new."""
PAUSE_S = 0.2
"""Before the next controller is asked when one was away."""

_log = logging.getLogger(__name__)


class CatalogSync:
    """Follows the catalog and the principals for as long as the node runs."""

    def __init__(
        self,
        node_id: str,
        member: ControllerMember,
        router: Router,
        view: ClusterView,
        replicas: ReplicaManager,
        principals: PrincipalStore,
        raise_level: Callable[[int], Awaitable[None]],
    ) -> None:
        """``raise_level`` is awaited with a catalog's feature level, before this node acts by the catalog."""
        self._raise_level = raise_level
        self._node_id = node_id
        self._member = member
        self._router = router
        self._view = view
        self._replicas = replicas
        self._principals = principals
        self._turns = itertools.count()
        self._in_vain = 0  # questions in a row

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            control = self._member.control
            catalog = None
            if control is not None and await self.is_newer(control, self._after, self._principals.written_index):
                catalog = control.catalog()
                self._principals.take(control.machine.principals.table())
            if control is None or (catalog is None and control.group.leader is None):
                # A replica that belongs to the group no more hears nothing of it: not even that it was removed.
                catalog = await self._ask()
            if catalog is None:
                continue
            if catalog.principals is not None:
                self._principals.take(catalog.principals)
            await self._principals.write()
            self._replicas.heard_of_controller(catalog.leader, catalog.term)
            if catalog.index >= self._view.index:
                await self._raise_level(catalog.feature_level)
                await self._view.follow(catalog)
                await self._replicas.follow(catalog)

    @property
    def _after(self) -> int:
        """The index above which a catalog is news: after a restart, the last known one is, but no older one."""
        return max(self._replicas.index, self._view.index - 1)

    @staticmethod
    async def is_newer(control: ControllerGroup, after: int, principals_after: int, wait_s: float = WAIT_S) -> bool:
        """Whether this node's controller replica has news, now or within ``wait_s`` seconds."""
        # A restarted replica has no news until it is ready, which any command may make it.
        news = control.catalog_changed if control.group.ready else control.changed
        found = await news.until(lambda: True if control.has_news(after, principals_after) else None, wait_s)
        return found is not None

    async def _ask(self) -> Catalog | None:
        others = self._to_ask()
        if not others:
            await asyncio.sleep(PAUSE_S)
            return None
        node_id = others[next(self._turns) % len(others)]
        question = FollowCatalog(self._after, int(WAIT_S * 1000), self._principals.written_index)
        try:
            answer = await self._router.ask(node_id, question, 3 * WAIT_S)
        except (ConnectionError, TimeoutError):
            answer = None
        if not isinstance(answer, Catalog):  # it is away, or no controller
            self._in_vain += 1
            await asyncio.sleep(PAUSE_S)
            return None
        self._in_vain = 0
        return answer

    def _to_ask(self) -> list[str]:
        """The controllers. When each was asked in vain, all members: while this node was away, others may have become
        the controllers.
        """
        controllers = [node_id for node_id in self._view.controllers if node_id != self._node_id]
        if self._in_vain < len(controllers):
            return controllers
        return [entry.node_id for entry in self._view.members() if entry.node_id != self._node_id]
