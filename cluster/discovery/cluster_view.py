"""The members of the cluster as this node knows them: by the last catalog of the controller, stored on disk, and by
this node's configuration.

So a restarted node finds nodes that were added after its configuration was written, and never acts on an older catalog
than before: it must not open a replica again that it has erased.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ...partition.api.cluster import BalanceSettings
from ...partition.log.fsutil import write_durably
from ...raft.threads import in_thread
from ...raft.wal.errors import DiskRefused
from ..condition import Condition
from ..config import Address, NodeConfig, parse_address
from ..controller.topology.moves import Move
from ..controller.topology.nodes import NodeEntry
from ..rpc import Catalog

FILE = "members.json"
"""File in a node's data folder."""

ANOTHER_CLUSTER = (
    "Nothing is damaged: give each node its own data folder. Only if the whole cluster got another cluster_id: take"
    " cluster_id out of this file, on each node while it is stopped."
)

_log = logging.getLogger(__name__)


class _Known(msgspec.Struct, frozen=True):
    index: int = 0
    nodes: list[NodeEntry] = []
    removed: list[str] = []
    controllers: list[str] = []
    cluster_id: str = ""  # empty in a file of older software, until the next catalog
    left: dict[str, str] = {}
    """By node id: a Raft address in this node's configuration from which the node has moved since."""


def is_member(data: Path) -> bool:
    """Whether the node with this data folder has received a catalog before."""
    return (data / FILE).exists()


class ClusterView:
    """The members of the cluster. ``moves`` and ``balance`` are those of the last catalog since the start; ``changed``
    is notified of each catalog.
    """

    def __init__(self, config: NodeConfig) -> None:
        """Read the file, if there is one. Raises DiskRefused when it is damaged."""
        self._config = config
        self._path = Path(config.data_dir) / FILE
        self._configured = {m.node_id: NodeEntry(m.node_id, m.url, m.raft, m.zone) for m in config.members}
        self.urls: dict[str | None, str] = {}
        """Base URLs by node id. The dict is changed in place, since groups keep it to look up their leader's URL."""
        self.controllers: list[str] = []
        """The members of the controller group; until a catalog names them, the configured ones, or else all others."""
        self.is_removed: bool = False
        """Whether the last catalog lists this node as removed."""
        self._take(_read(self._path))
        # What a node has learned as it joined stands among its members, too (serve.joined), until its next start.
        is_joining = bool(config.join) and not self.index
        self._own_ways = {} if is_joining else {member.node_id: member.raft for member in config.members}
        self.moves: list[Move] = []
        self.balance: BalanceSettings = BalanceSettings()
        self.changed: Condition = Condition()

    @property
    def index(self) -> int:
        """Index of the newest catalog on which this node acted; 0: it never met a controller."""
        return self._known.index

    @property
    def is_controller(self) -> bool:
        """Whether this node is to hold a replica of the controller group."""
        return self._config.node_id in (self._known.controllers or self._config.controllers)

    def members(self) -> list[NodeEntry]:
        """The nodes that the controller knows, and those that are configured and may still come; ascending by id."""
        return self._members

    def find(self, node_id: str) -> NodeEntry | None:
        """The controller's entry of a node; None: the controller does not know the node."""
        return next((entry for entry in self._known.nodes if entry.node_id == node_id), None)

    def check_disk(self, incarnation: int | None) -> None:
        """Raise DiskRefused if the disk of this incarnation is that of another node, as when two nodes got each other's
        folder: each would count as one that lost its disk. Or that of a node of another cluster: its logs may have the
        indexes and terms of this cluster's with other entries, and would pass for copies.
        """
        known_id, cluster_id = self._known.cluster_id, self._config.cluster_id
        if known_id not in ("", cluster_id):
            fault = f"it is of the cluster {known_id!r}, and this node is of {cluster_id!r}"
            raise DiskRefused(self._path, fault, ANOTHER_CLUSTER)
        if incarnation is None:
            return
        node_id = self._config.node_id
        owners = [entry.node_id for entry in self._known.nodes if entry.incarnation == incarnation]
        if owners and node_id not in owners:
            fault = f"it is the data folder of {owners[-1]}, and this node is {node_id}"
            raise DiskRefused(Path(self._config.data_dir), fault, "Nothing is damaged: give each node its own folder.")

    def raft_peers(self) -> dict[str, Address]:
        """Raft addresses of the other nodes, by id. An address in this node's configuration (perhaps of a proxy) has
        precedence over the controller's, unless the node itself was there and has moved.
        """
        ways = {entry.node_id: entry.raft for entry in self.members() if entry.node_id != self._config.node_id}
        ways |= {
            node_id: way
            for node_id, way in self._own_ways.items()
            if node_id in ways and self._known.left.get(node_id) != way
        }
        return {node_id: parse_address(way) for node_id, way in ways.items()}

    def former_ways(self) -> dict[str, Address]:
        """By id: the address in this node's configuration, of nodes that were there, and of which the controller has
        another one now. A node that is back there can tell no controller before it is reached.
        """
        return {
            entry.node_id: parse_address(way)
            for entry in self._known.nodes
            if (way := self._own_ways.get(entry.node_id)) is not None
            and way == self._known.left.get(entry.node_id)
            and way != entry.raft
        }

    async def follow(self, catalog: Catalog) -> None:
        """Take over a catalog of the controller, durably. One older than the last is ignored."""
        if catalog.index < self.index:
            return
        self.moves, self.balance = catalog.moves, catalog.balance
        told = catalog.index, catalog.nodes, catalog.removed, catalog.controllers
        known = _Known(*told, self._config.cluster_id, self._left(catalog))
        if known != self._known:
            await in_thread(write_durably, self._path, msgspec.json.encode(known))
            for text, event in _changes(self._known, known):
                _log.info("cluster: %s", text, extra={"event": {"event": "cluster_changed", **event}})
            self._take(known)
        self.changed.notify()

    def _left(self, catalog: Catalog) -> dict[str, str]:
        """The configured addresses that nodes have left, by this catalog or by one before."""
        now = {entry.node_id: entry.raft for entry in catalog.nodes}
        before = {entry.node_id: entry.raft for entry in self._known.nodes}
        moved = {node_id for node_id in before.keys() & now.keys() if before[node_id] != now[node_id]}
        left = self._known.left | {
            node_id: way for node_id, way in self._own_ways.items() if node_id in moved and before[node_id] == way
        }
        return {node_id: way for node_id, way in left.items() if node_id in now}

    def _take(self, known: _Known) -> None:
        entries = self._configured | {entry.node_id: entry for entry in known.nodes}
        others = [node_id for node_id in self._configured if node_id != self._config.node_id]
        self._known, self.controllers = known, known.controllers or self._config.controllers or others
        self.is_removed = self._config.node_id in known.removed
        self._members = [entries[node_id] for node_id in sorted(entries) if node_id not in known.removed]
        self.urls.clear()
        self.urls.update((entry.node_id, entry.url) for entry in self._members)


def _changes(before: _Known, after: _Known) -> Iterator[tuple[str, dict[str, object]]]:
    """The changes between two catalogs: for each a text for people, and fields for programs that read the log."""
    there = {entry.node_id: entry for entry in before.nodes}
    for entry in after.nodes:
        known = there.get(entry.node_id)
        if known is None:
            yield f"{entry.node_id} is a member, at {entry.raft}", {"node_added": entry.node_id}
        elif entry.draining and not known.draining:
            yield f"{entry.node_id} is being removed", {"node_leaving": entry.node_id}
        elif None not in (known.incarnation, entry.incarnation) and entry.incarnation != known.incarnation:
            yield f"{entry.node_id} came back with another disk", {"node_wiped": entry.node_id}
        if known is not None and entry.raft != known.raft:
            yield f"{entry.node_id} is at {entry.raft} now, and was at {known.raft}", {"node_moved": entry.node_id}
    for node_id in sorted(there.keys() - {entry.node_id for entry in after.nodes}):
        yield f"{node_id} is no member any more", {"node_removed": node_id}
    if after.controllers != before.controllers:
        yield f"the controllers are {', '.join(after.controllers)}", {"controllers": after.controllers}


def _read(path: Path) -> _Known:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Known)
    except FileNotFoundError:
        return _Known()
    except msgspec.DecodeError as error:
        raise DiskRefused(path, f"damaged ({error})") from error
