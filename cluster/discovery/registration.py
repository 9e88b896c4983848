"""Registers this node with the controller: its addresses and its disk's incarnation, until the catalog has them."""

import asyncio
import logging
from collections.abc import Sequence

from ...partition.errors import NotFound, StockadeError
from ..condition import aligned_s
from ..controller.commands import RegisterNode
from ..controller.topology.nodes import NodeEntry
from ..groups import Router
from .cluster_view import ClusterView

ATTEMPT_S = 5.0
"""Time that the controller group has to decide."""
PAUSE_S = 0.1
"""Pause after an attempt that failed."""
PAUSE_REMOVED_S = 5.0
"""Pause after an attempt that failed because this node was removed: only an operator changes that."""

_log = logging.getLogger(__name__)


class Registration:
    """Registers this node, and again when the catalog no longer has it as it is. ``entry``: this node as it is."""

    def __init__(self, entry: NodeEntry, configured: Sequence[str], view: ClusterView, router: Router) -> None:
        """``configured``: the controllers by this node's configuration, empty if it names none."""
        self._entry = entry
        self._configured = list(configured)
        self._view = view
        self._router = router

    @property
    def is_done(self) -> bool:
        """Whether the catalog has this node's addresses, zone and incarnation as they are."""
        known = self._view.find(self._entry.node_id)
        return known is not None and _place(known) == _place(self._entry)

    async def run(self) -> None:
        """Register whenever ``is_done`` is false: a node that was removed and added again does so again. Runs until
        cancelled.
        """
        entry = self._entry
        command = RegisterNode(
            now_ms=0,
            node_id=entry.node_id,
            url=entry.url,
            raft=entry.raft,
            zone=entry.zone,
            incarnation=entry.incarnation or 0,
            controllers=self._configured,
        )
        while True:
            if not self.is_done:
                try:
                    await self._router.decide(self._view.controllers, command, ATTEMPT_S)
                except StockadeError as refusal:
                    _log.info("this node is not registered yet: %s", refusal.detail)
                    await asyncio.sleep(PAUSE_REMOVED_S if isinstance(refusal, NotFound) else PAUSE_S)
                else:
                    await self._view.changed.until(lambda: True if self.is_done else None, 1.0)
            await self._view.changed.until(lambda: None if self.is_done else True, aligned_s(1.0))


def _place(entry: NodeEntry) -> tuple[str, str, str | None, int | None]:
    return entry.url, entry.raft, entry.zone, entry.incarnation
