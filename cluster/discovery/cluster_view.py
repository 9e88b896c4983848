"""Who is in the cluster, as this node knows: what the controller told last, kept on disk, and else what its
configuration says.

So a restarted node finds the others although they were added after its configuration was written, and never acts on
an older catalog than it did before: what it erased then must not come to life again.
"""

import asyncio
from pathlib import Path

import msgspec

from ..raft.durable import write_durably
from .config import Address, NodeConfig, parse_address
from .messages import Catalog
from .moves import Move
from .nodes import NodeEntry
from .signal import Signal

FILE = "members.json"
"""In a node's data folder."""


class _Known(msgspec.Struct, frozen=True):
    index: int = 0
    nodes: list[NodeEntry] = []
    removed: list[str] = []
    controllers: list[str] = []


class BookDamaged(Exception):
    """The file cannot be read; the message says what to do."""


def is_member(data: Path) -> bool:
    """Whether the node with this data folder was told of a cluster by its controller before."""
    return (data / FILE).exists()


class Book:
    """The members. ``moves`` are those under way, as far as told since the start; ``changed`` tells of any news."""

    def __init__(self, config: NodeConfig) -> None:
        """Raises BookDamaged."""
        self._config = config
        self._path = Path(config.data_dir) / FILE
        self._configured = {m.node_id: NodeEntry(m.node_id, m.url, m.raft, m.zone) for m in config.members}
        self._take(_read(self._path))
        self.moves: list[Move] = []
        self.changed: Signal = Signal()

    @property
    def index(self) -> int:
        """Of the newest catalog that this node acted on; 0: it never met a controller."""
        return self._known.index

    @property
    def is_removed(self) -> bool:
        """Whether this node was told that it belongs to the cluster no more."""
        return self._config.node_id in self._known.removed

    @property
    def controllers(self) -> list[str]:
        """Who holds the controller group; while this node does not know it, whoever may."""
        known = self._known.controllers or self._config.controllers
        return known or [node_id for node_id in self._configured if node_id != self._config.node_id]

    @property
    def is_controller(self) -> bool:
        """Whether this node is to hold a replica of the controller group."""
        return self._config.node_id in (self._known.controllers or self._config.controllers)

    def members(self) -> list[NodeEntry]:
        """Ascending by id: those that the controller knows, and those that are configured and may come yet."""
        return self._members

    def find(self, node_id: str) -> NodeEntry | None:
        """As the controller knows a node."""
        return next((entry for entry in self._known.nodes if entry.node_id == node_id), None)

    def url_of(self, node_id: str | None) -> str | None:
        """Base URL of a node."""
        return self._urls.get(node_id)

    def raft_peers(self) -> dict[str, Address]:
        """Raft addresses of the other nodes. This node's configuration may name another way to a node (a proxy)."""
        ways = {entry.node_id: entry.raft for entry in self.members() if entry.node_id != self._config.node_id}
        own = {member.node_id: member.raft for member in self._config.members if member.node_id in ways}
        return {node_id: parse_address(address) for node_id, address in (ways | own).items()}

    async def follow(self, catalog: Catalog) -> None:
        """Take over what the controller tells, durably. An older catalog than the last one is passed over."""
        if catalog.index < self.index:
            return
        self.moves = catalog.moves
        known = _Known(catalog.index, catalog.nodes, catalog.removed, catalog.controllers)
        if known != self._known:
            await asyncio.to_thread(write_durably, self._path, msgspec.json.encode(known))
            self._take(known)
        self.changed.notify()

    def _take(self, known: _Known) -> None:
        entries = self._configured | {entry.node_id: entry for entry in known.nodes}
        self._known = known
        self._members = [entries[node_id] for node_id in sorted(entries) if node_id not in known.removed]
        self._urls: dict[str | None, str] = {entry.node_id: entry.url for entry in self._members}


def _read(path: Path) -> _Known:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Known)
    except FileNotFoundError:
        return _Known()
    except msgspec.DecodeError as error:
        raise BookDamaged(f"{path} is damaged ({error}); run `stockade rebuild` and let the node join again") from error
