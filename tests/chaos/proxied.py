"""A local cluster whose nodes reach each other through toxiproxy."""

from pathlib import Path

from stockade.chaos.system.proxies import Mesh, ProxyServer
from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

REQUEST_TIMEOUT_MS = 2_000
"""A node calls the outcome of an append unknown after this time."""


class ProxiedCluster:
    """A local cluster and the mesh between its nodes. Nodes that die stay dead."""

    def __init__(self, server: ProxyServer, data: Path, nodes: int = 3) -> None:
        settings = f"[limits]\nrequest_timeout_ms = {REQUEST_TIMEOUT_MS}"
        self.local = LocalCluster(data, nodes, port_base=0, restart=False, settings=settings)
        self.mesh = Mesh(server, {node.name: _address(node.raft) for node in self.local.nodes})
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
