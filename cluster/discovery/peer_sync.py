"""Keeps the connections between nodes in step with who is in the cluster."""

import asyncio

from ..raft.host import RaftHost
from .book import Book

FAREWELL_S = 3.0
"""A node that was removed stays connected for so long, to hear of it and to erase what it held."""


class Acquaintances:
    """The Raft host's peers: those of the book."""

    def __init__(self, host: RaftHost, book: Book) -> None:
        self._host = host
        self._book = book
        self._known = book.raft_peers()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            peers = self._book.raft_peers()
            for node_id, address in peers.items():
                self._host.set_peer(node_id, address)
            for node_id in self._known.keys() - peers.keys():
                asyncio.get_running_loop().call_later(FAREWELL_S, self._part, node_id)
            self._known = peers
            await self._book.changed.until(lambda: True if self._book.raft_peers() != self._known else None, 60.0)

    def _part(self, node_id: str) -> None:
        if node_id not in self._book.raft_peers():
            self._host.remove_peer(node_id)
