"""Finds, kills and awaits the processes of a running cluster, which its ``cluster.json`` lists."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from ...client.transport.http import Transport
from .raw import RawNode
from .waiting import NotInTime, until

BACK_TIMEOUT_S = 120.0
"""A killed node must be ready again after this time."""


class NodeEntry(msgspec.Struct, frozen=True):
    """One node. ``pid`` is None while its process does not run."""

    name: str
    pid: int | None
    http: str
    raft: str
    data: str


class _Listing(msgspec.Struct, frozen=True):
    nodes: Annotated[list[NodeEntry], msgspec.Meta(min_length=1)]


class ClusterProcesses:
    """The nodes of one cluster on this machine. Kills only processes that the cluster's own supervisor started."""

    def __init__(self, listing: Path, transport: Transport) -> None:
        """``listing``: the ``cluster.json`` that the supervisor keeps up to date."""
        self._listing = listing
        self._transport = transport

    def nodes(self) -> Mapping[str, NodeEntry]:
        """Every node by name, as listed now."""
        listing = msgspec.json.decode(self._listing.read_bytes(), type=_Listing)
        return {node.name: node for node in listing.nodes}

    def raw(self, name: str) -> RawNode:
        """A client of one node alone."""
        return RawNode(self._transport, self.nodes()[name].http)

    def kill(self, name: str) -> int:
        """SIGKILL a node; return its pid. Raises NotInTime if the node does not run."""
        pid = self.nodes()[name].pid
        if pid is None:
            raise NotInTime(f"{name} does not run, so it cannot be killed")
        os.kill(pid, signal.SIGKILL)
        return pid

    async def back(self, name: str, killed: int) -> None:
        """Return once the node runs with another pid than ``killed`` and is ready. Raises NotInTime."""

        async def is_back() -> bool:
            return self.nodes()[name].pid not in {None, killed} and await self.raw(name).is_ready()

        await until(is_back, BACK_TIMEOUT_S, f"{name} is not back")
