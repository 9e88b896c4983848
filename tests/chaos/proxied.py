"""A local cluster whose nodes reach each other through toxiproxy."""

from collections.abc import Iterable, Mapping
from itertools import permutations
from pathlib import Path
from typing import Literal

from stockade.chaos.system.proxies import Address, Mesh, ProxyServer
from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

REQUEST_TIMEOUT_MS = 2_000
"""A node calls the outcome of an append unknown after this time."""


CutKind = Literal["refused", "silent"]
"""A cut link refuses connections, or accepts them and drops every byte, as after a lost cable."""


class CuttableMesh(Mesh):
    """A mesh of which some nodes can be cut off from the others."""

    def __init__(self, server: ProxyServer, nodes: Mapping[str, Address]) -> None:
        super().__init__(server, nodes)
        self._links = [*permutations(sorted(nodes), 2)]
        self._cuts: dict[tuple[str, str], CutKind] = {}

    def isolate(self, nodes: Iterable[str], kind: CutKind) -> None:
        """Cut every link between ``nodes`` and the others; links within either side stay."""
        side = set(nodes)
        for link in self._links:
            if len(side.intersection(link)) == 1 and link not in self._cuts:
                self._cut(link, kind)

    def heal(self) -> None:
        """Restore every link."""
        for link, kind in list(self._cuts.items()):
            proxy = self.link(*link)
            if kind == "refused":
                proxy.enable()
            else:
                for stream in ("upstream", "downstream"):
                    proxy.remove_toxic(f"silent-{stream}")
            del self._cuts[link]

    def _cut(self, link: tuple[str, str], kind: CutKind) -> None:
        proxy = self.link(*link)
        if kind == "refused":
            proxy.disable()
        else:
            for stream in ("upstream", "downstream"):
                # 0 never times out: bytes are thrown away until the toxic goes, and the connection with it.
                proxy.add_toxic(f"silent-{stream}", "timeout", stream, {"timeout": 0})
        self._cuts[link] = kind


class ProxiedCluster:
    """A local cluster and the mesh between its nodes. Nodes that die stay dead."""

    def __init__(self, server: ProxyServer, data: Path, nodes: int = 3) -> None:
        settings = f"[limits]\nrequest_timeout_ms = {REQUEST_TIMEOUT_MS}"
        self.local = LocalCluster(data, nodes, port_base=0, restart=False, settings=settings)
        self.mesh = CuttableMesh(server, {node.name: _address(node.raft) for node in self.local.nodes})
        self.local.raft_address = self._proxied

    @property
    def listing(self) -> Path:
        """The cluster's ``cluster.json``."""
        return self.local.data / "cluster.json"

    @property
    def urls(self) -> tuple[str, ...]:
        """Of every node's HTTP interface, which no fault of the mesh touches."""
        return tuple(node.url for node in self.local.nodes)

    def _proxied(self, dialer: str, target: LocalNode) -> str:
        host, port = self.mesh.address(dialer, target.name)
        return f"{host}:{port}"


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
