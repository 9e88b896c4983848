"""Registers this node with the controller: its addresses and its disk's incarnation, until the catalog has them.

Two processes with one node id, each with its own disk, would replace each other's registration for ever. So the one
that registered later stops as soon as the catalog has the other disk again, and the earlier one logs it.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from pathlib import Path

from ...partition.errors import LeaderNotAvailable, NotFound, StockadeError
from ...raft.wal.errors import DiskRefused
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
PAUSE_REPLACED_S = 1.0
"""Pause before an attempt that takes the id back, in which the other process hears that it was registered."""
SETTLED_S = 5.0
"""Time after its registration from which a process is the earlier one of two. The other one takes
its id back within PAUSE_REPLACED_S and a commit of the controller group.
"""
REMIND_S = 10.0
"""Pause between two log lines about another process with this node's id."""
DOUBLE_S = 30.0
"""Time for which a process tells of another one with its id: two that run take turns more often than that."""

_log = logging.getLogger(__name__)


class Registration:
    """Registers this node, and again when the catalog no longer has it as it is. ``entry``: this node as it is."""

    def __init__(
        self, entry: NodeEntry, configured: Sequence[str], view: ClusterView, router: Router, data: Path
    ) -> None:
        """``configured``: the controllers by this node's configuration, empty if it names none; ``data``: the node's
        data folder.
        """
        self._entry = entry
        self._configured = list(configured)
        self._view = view
        self._router = router
        self._data = data
        self._registered_s: float | None = -math.inf if self.is_done else None
        """Loop time at which the catalog first had this node as it is; None: it has not yet."""
        self._told_s = self._seen_s = -math.inf
        self._double: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether the catalog has this node's addresses, zone and incarnation as they are."""
        known = self._view.find(self._entry.node_id)
        return known is not None and _place(known) == _place(self._entry)

    @property
    def double(self) -> str | None:
        """Base URL of another process that registered with this node's id within the last DOUBLE_S; None: of none."""
        return self._double if asyncio.get_running_loop().time() - self._seen_s < DOUBLE_S else None

    async def run(self) -> None:
        """Register whenever ``is_done`` is false: a node that was removed and added again does so again. Runs until
        cancelled. Raises DiskRefused when this process is the later one of two with this id.
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
                await self._look_for_other()
                try:
                    await self._router.decide(self._view.controllers, command, ATTEMPT_S)
                except StockadeError as refusal:
                    _log.info("this node is not registered yet: %s%s", refusal.detail, self._advice(refusal))
                    await asyncio.sleep(PAUSE_REMOVED_S if isinstance(refusal, NotFound) else PAUSE_S)
                else:
                    await self._view.changed.until(lambda: True if self.is_done else None, 1.0)
            if self.is_done and self._registered_s is None:
                self._registered_s = asyncio.get_running_loop().time()
            await self._view.changed.until(lambda: None if self.is_done else True, aligned_s(1.0))

    def _advice(self, refusal: StockadeError) -> str:
        """The advice to log about a refusal. Of two nodes, the one with the larger id dials, at the address that it
        knows. So a new or moved node may be unreachable until an operator announces its address.
        """
        if not isinstance(refusal, LeaderNotAvailable) or not self._view.index:
            return ""
        entry = self._entry
        zone = "" if entry.zone is None else f" --zone {entry.zone}"
        order = f"stockade cluster add {entry.node_id} {entry.url} {entry.raft}{zone}"
        return f", as far as this node reaches. If the others do not know it here, order at one of them: `{order}`"

    async def _look_for_other(self) -> None:
        """Say so, and pause, if the catalog has another disk or address under this node's id than it had before."""
        other, now_s = self._view.find(self._entry.node_id), asyncio.get_running_loop().time()
        if self._registered_s is None or other is None or other.incarnation is None:
            return
        fault = f"another process runs as {other.node_id}, at {other.url} ({other.raft})"
        if other.incarnation != self._entry.incarnation and now_s - self._registered_s < SETTLED_S:
            advice = "Nothing is damaged: give this node a node_id of its own, or stop the other one first."
            raise DiskRefused(
                self._data,
                f"{fault}, with another disk, and this process registered less than {SETTLED_S:g} s ago",
                advice,
            )
        self._double, self._seen_s = other.url, now_s
        if now_s - self._told_s >= REMIND_S:
            self._told_s = now_s
            kind = "another disk" if other.incarnation != self._entry.incarnation else "this disk, or a copy of it"
            fields = {"event": "node_doubled", "url": other.url, "raft": other.raft}
            text = "%s, with %s, or `stockade cluster add` named that address; this node registers again"
            _log.warning(text, fault, kind, extra={"event": fields})
        await asyncio.sleep(PAUSE_REPLACED_S)


def _place(entry: NodeEntry) -> tuple[str, str, str | None, int | None]:
    return entry.url, entry.raft, entry.zone, entry.incarnation
