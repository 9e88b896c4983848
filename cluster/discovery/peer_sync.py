"""Connects this node to the members of the cluster view, and sets the rate of copies by the cluster's settings."""

import asyncio
from collections.abc import Callable

from ...raft.host import RaftHost
from ..config import Address
from .cluster_view import ClusterView

FAREWELL_S = 3.0
"""Time that a removed node stays connected, to hear of its removal and to erase its replicas."""


class PeerSync:
    """Keeps the Raft host's peers, and its rate of copies, equal to those of the cluster view."""

    def __init__(self, host: RaftHost, view: ClusterView) -> None:
        self._host = host
        self._view = view
        self._known = view.raft_peers()

    async def run(self) -> None:
        """Apply each change of the view to the host. Runs until cancelled."""
        while True:
            peers, formers = self._view.raft_peers(), self._view.former_ways()
            for node_id, address in peers.items():
                self._host.set_peer(node_id, address, formers.get(node_id))
            for node_id in self._known.keys() - peers.keys():
                asyncio.get_running_loop().call_later(FAREWELL_S, self._part, node_id)
            self._known, pace = peers, self._view.balance.copy_bytes_per_s
            self._host.pace_copies(pace)
            await self._view.changed.until(self._has_news(peers, pace), 60.0)

    def _has_news(self, peers: dict[str, Address], pace: int) -> Callable[[], bool | None]:
        known = peers, pace
        return lambda: True if (self._view.raft_peers(), self._view.balance.copy_bytes_per_s) != known else None

    def _part(self, node_id: str) -> None:
        if node_id not in self._view.raft_peers():
            self._host.remove_peer(node_id)
