"""The nodes of the cluster. Pure state of the controller's machine.

A node joins by registering itself at its start, or is announced by an operator. It leaves when an operator removes it
and it has no replica any more; then its id is remembered, so that it does not come back by itself.
"""

from collections.abc import Sequence

import msgspec

from ....partition.errors import NotFound, ThrottlingQuotaExceeded
from ...features import LISTED_TARGETS
from .placement import Node

NODES_MAX = 100
"""Nodes of one cluster."""
REMOVED_MAX = 1000
"""Ids of removed nodes that are remembered; the oldest is forgotten first."""
RETRY_AFTER_MS = 1000


class NodeEntry(msgspec.Struct, frozen=True):
    """A node as the others reach it: base URL, host:port of its Raft port, zone.

    ``incarnation`` is that of its disk, None until the node registers; ``draining``: it is being removed.
    """

    node_id: str
    url: str
    raft: str
    zone: str | None = None
    incarnation: int | None = None
    draining: bool = False

    @property
    def takes_replicas(self) -> bool:
        """Whether new replicas may be placed here."""
        return self.incarnation is not None and not self.draining


class SavedNodes(msgspec.Struct, frozen=True):
    """The saved state of Nodes: the nodes, and the ids of removed ones, the oldest first."""

    rows: list[NodeEntry]
    removed: list[str]


class Nodes:
    """All nodes, by id; and the ids of those that were removed, the oldest first."""

    def __init__(self) -> None:
        self.rows: dict[str, NodeEntry] = {}
        self.removed: list[str] = []

    def register(self, entry: NodeEntry) -> None:
        """Take a node's own entry. Raises NotFound when it was removed, ThrottlingQuotaExceeded."""
        if entry.node_id in self.removed:
            raise NotFound(f"{entry.node_id} was removed from the cluster; add it again first", what="node")
        known = self.rows.get(entry.node_id)
        self._put(msgspec.structs.replace(entry, draining=known is not None and known.draining))

    def announce(self, entry: NodeEntry) -> None:
        """Take an operator's entry of a node, which is not draining afterwards. Only the node itself tells its
        disk's incarnation, so the known one stays. Raises ThrottlingQuotaExceeded.
        """
        known = self.rows.get(entry.node_id)
        self._put(msgspec.structs.replace(entry, incarnation=known.incarnation if known is not None else None))
        if entry.node_id in self.removed:
            self.removed.remove(entry.node_id)

    def find(self, node_id: str) -> NodeEntry:
        """The entry of a node. Raises NotFound."""
        entry = self.rows.get(node_id)
        if entry is None:
            raise NotFound(f"there is no node {node_id}", what="node")
        return entry

    def in_zone(self, zone: str) -> list[str]:
        """The ids of the nodes in a zone, ascending. Raises NotFound when there is none."""
        found = sorted(entry.node_id for entry in self.rows.values() if entry.zone == zone)
        if not found:
            raise NotFound(f"there is no node in zone {zone}", what="node")
        return found

    def drain(self, node_id: str) -> None:
        """Mark a node as being removed: no new replica is placed there."""
        self.rows[node_id] = msgspec.structs.replace(self.rows[node_id], draining=True)

    def drop(self, node_id: str) -> None:
        """Remove a node from the cluster, and remember its id."""
        del self.rows[node_id]
        self.removed = [*self.removed, node_id][-REMOVED_MAX:]

    def is_draining(self, node_id: str) -> bool:
        """Whether a node is being removed; False for a node that is not known."""
        entry = self.rows.get(node_id)
        return entry is not None and entry.draining

    def left_of(self, chosen: Sequence[Node], level: int) -> list[Node]:
        """The nodes that still take replicas, of those that a command has chosen: without draining nodes and, from
        feature level LISTED_TARGETS on, without nodes that were removed since the command was made.
        """
        removed = frozenset(self.removed if level >= LISTED_TARGETS else ())
        return [node for node in chosen if not self.is_draining(node[0]) and node[0] not in removed]

    def registered(self) -> set[str]:
        """The ids of the nodes that have registered, those that are being removed included."""
        return {entry.node_id for entry in self.rows.values() if entry.incarnation is not None}

    def eligible(self) -> list[NodeEntry]:
        """The nodes that new replicas may be placed on, ascending by id."""
        return [self.rows[node_id] for node_id in sorted(self.rows) if self.rows[node_id].takes_replicas]

    def incarnation(self, node_id: str) -> int:
        """The incarnation of a node's disk; 0 for a node that is not known, or has not registered."""
        entry = self.rows.get(node_id)
        return entry.incarnation or 0 if entry is not None else 0

    def save(self) -> SavedNodes:
        """The state on which future answers depend."""
        return SavedNodes(list(self.rows.values()), self.removed)

    def load(self, saved: SavedNodes) -> None:
        """Inverse of ``save``, on an empty instance."""
        self.rows, self.removed = {entry.node_id: entry for entry in saved.rows}, saved.removed

    def _put(self, entry: NodeEntry) -> None:
        if entry.node_id not in self.rows and len(self.rows) >= NODES_MAX:
            raise ThrottlingQuotaExceeded(f"the cluster has {NODES_MAX} nodes already", retry_after_ms=RETRY_AFTER_MS)
        self.rows[entry.node_id] = entry
