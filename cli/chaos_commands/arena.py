"""Starts a local cluster so that faults can break it: behind proxies, in network namespaces, on disks of its own."""

import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ...chaos.faults import clock
from ...chaos.system import disks as loop_disks
from ...chaos.system.disks import DiskFailed, LoopDisk
from ...chaos.system.hosts import Hosts
from ...chaos.system.hosts import why_not as no_hosts
from ...chaos.system.proxies import Address, Proxies, ProxyServer
from ...chaos.system.proxies import why_not as no_proxies
from ...chaos.system.raw import RawNode
from ...chaos.system.waiting import NotInTime, until
from ...client.api.client import Client
from ...client.config import ClientConfig
from ...client.transport.http import Transport
from ..local_cluster.cluster import ClusterFailed, LocalCluster, LocalNode, end_of_log
from ..local_cluster.ports import LOOPBACK

SETUPS = ("processes", "toxiproxy", "namespaces", "disks", "clocks")
"""Ways to start a cluster; each allows some faults. ``disks`` and ``clocks`` can be combined with any other. With
``clocks`` nodes are several times slower.
"""
DISK_BYTES = 2 << 30
"""Size of each node's disk, a sparse file."""
READY_TIMEOUT_S = 120.0
"""How long a node may take from its start until it is ready."""
STARTS_MAX = 3
"""Starts of a node that keeps ending by itself, at most."""
OPEN_HTTP = "http_plaintext = true\nopen_to_all = true\n"
"""Settings of nodes in network namespaces: they listen beyond loopback, on a network inside this machine."""
SMALL_FILES = """
[limits]
request_timeout_ms = 5000
segment_bytes_max = 1048576
wal_file_bytes = 1048576
wal_bytes_max = 4194304
checkpoint_bytes = 1048576
"""
"""The smallest sizes allowed, so that a minute of load meets checkpoints, truncated logs and copied replicas."""
STALL = "disk_stall_ms = 3000\n"
"""A short bound for stalls of the disk, so that most strikes of a hanging disk exceed it."""


class LocalArena:
    """The running nodes of a local cluster, as faults see them (chaos/faults/fault.py)."""

    def __init__(
        self,
        local: LocalCluster,
        proxies: Proxies | None,
        hosts: Hosts | None,
        disks: Mapping[str, LoopDisk],
    ) -> None:
        self.topics: Sequence[str] = ()
        self.clients: Mapping[str, int] = {}
        self.proxies = proxies
        self.hosts = hosts
        self.disks = disks
        self._local = local
        self._by_name = {node.name: node for node in local.nodes}
        self._transport = Transport(ClientConfig())
        self.client: Client = Client(ClientConfig(bootstrap=tuple(self.bootstrap), request_timeout_ms=5_000))

    @property
    def nodes(self) -> Sequence[str]:
        return list(self._by_name)

    @property
    def bootstrap(self) -> Sequence[str]:
        """Base URLs under which clients reach the nodes."""
        return [f"http://{self._local.http_address(node)}" for node in self._local.nodes]

    def pid(self, node: str) -> int | None:
        return self._by_name[node].pid

    def raw(self, node: str) -> RawNode:
        """A client of the node itself, which bypasses all proxies."""
        return RawNode(self._transport, self.url(node))

    def url(self, node: str) -> str:
        """Base URL of the node itself, which bypasses all proxies."""
        return self._by_name[node].url

    def data(self, node: str) -> Path:
        return self._by_name[node].data

    def kill(self, node: str, number: signal.Signals = signal.SIGKILL) -> None:
        if self.pid(node) is not None:
            self._local.kill(self._by_name[node], number)

    def start(self, node: str) -> None:
        """Start the node unless it runs, or its disk takes no writes: the fault that broke the disk repairs it, and
        then starts the node.
        """
        if self.pid(node) is None and (node not in self.disks or self.disks[node].is_well):
            try:
                self._local.start_node(self._by_name[node])
            except OSError:
                if node not in self.disks:  # a fault may cut its disk off at this moment
                    raise

    async def ready(self, node: str) -> None:
        """Wait until the node is ready; start it again, up to STARTS_MAX times, if it ends. Raises NotInTime."""
        starts, why_not = 0, None

        async def is_ready() -> bool:
            nonlocal starts, why_not
            if self.pid(node) is None:
                if starts == STARTS_MAX:
                    raise NotInTime(f"{node} ends again and again")
                starts += 1
                self.start(node)
            why_not = await self.raw(node).why_not_ready()
            return why_not is None

        try:
            await until(is_ready, READY_TIMEOUT_S, f"{node} is not ready")
        except NotInTime as late:
            raise NotInTime(f"{late}; {why_not}; its log ends: {self._last_words(node)}") from None

    def _last_words(self, node: str) -> str:
        try:
            return end_of_log(self._by_name[node], 3)
        except OSError as error:  # a fault may cut its disk off at this moment
            return str(error)

    async def close(self) -> None:
        """Close the clients' connections; the nodes keep running."""
        await self._transport.close()
        await self.client.close()


def why_not(setups: Sequence[str]) -> str | None:
    """Why a cluster cannot be started with these setups here; None if it can."""
    if {"toxiproxy", "namespaces"} <= set(setups):
        return "toxiproxy and namespaces exclude each other"
    reasons = [
        no_hosts() if "namespaces" in setups else None,
        loop_disks.why_not() if "disks" in setups else None,
        clock.why_not() if "clocks" in setups else None,
        no_proxies() if "toxiproxy" in setups else None,
    ]
    return next(filter(None, reasons), None)


@contextmanager
def local_arena(folder: Path, nodes: int, setups: Sequence[str], *, keep: bool = False) -> Iterator[LocalArena]:
    """A ready cluster with these setups, stopped at the end of the block. With ``keep`` the data on disks of its own
    (setup ``disks``) is copied to ``folder`` then.

    Raises ClusterFailed, DiskFailed, ProxyError, NetworkFailed.
    """
    reason = why_not(setups)
    if reason is not None:
        raise ClusterFailed(reason)
    with ExitStack() as stack:
        hosts = stack.enter_context(Hosts([f"n{k + 1}" for k in range(nodes)])) if "namespaces" in setups else None
        settings = SMALL_FILES + STALL if "disks" in setups else SMALL_FILES
        local = _cluster(folder, nodes, hosts, settings, clocks="clocks" in setups)
        proxies = _proxied(local, stack.enter_context(ProxyServer())) if "toxiproxy" in setups else None
        disks = mounted_disks(stack, local) if "disks" in setups else {}
        if keep and disks:
            stack.callback(_keep, local)
        with local:
            yield LocalArena(local, proxies, hosts, disks)


def _cluster(folder: Path, nodes: int, hosts: Hosts | None, settings: str, *, clocks: bool) -> LocalCluster:
    if hosts is not None:
        settings = f"{OPEN_HTTP}{settings}[raft]\nplaintext = true\n"

    def prefix(name: str) -> list[str]:
        words = [] if hosts is None else [*hosts.prefix(name)]
        return [*words, *clock.prefix(folder / name)] if clocks else words

    def host(name: str) -> str:
        return LOOPBACK if hosts is None else hosts.addresses[name]

    return LocalCluster(folder, nodes, port_base=0, restart=False, settings=settings, host=host, prefix=prefix)


def _proxied(local: LocalCluster, server: ProxyServer) -> Proxies:
    proxies = Proxies(
        server,
        {node.name: _address(node.raft) for node in local.nodes},
        {node.name: _address(node.http) for node in local.nodes},
    )

    def raft_address(dialer: str, target: LocalNode) -> str:
        host, port = proxies.mesh.address(dialer, target.name)
        return f"{host}:{port}"

    def http_address(node: LocalNode) -> str:
        host, port = proxies.client_proxies[node.name].address
        return f"{host}:{port}"

    local.raft_address = raft_address
    local.http_address = http_address
    return proxies


def mounted_disks(stack: ExitStack, local: LocalCluster) -> dict[str, LoopDisk]:
    """Mount a disk for the data of each node, by node name; they are unmounted when ``stack`` closes. Raises
    DiskFailed.
    """
    reason = loop_disks.why_not()
    if reason is not None:
        raise DiskFailed(reason)
    images = Path(tempfile.mkdtemp(prefix="stockade-disks-", dir=local.data.parent))
    stack.callback(shutil.rmtree, images)
    made = {node.name: LoopDisk(images / f"{node.name}.ext4", node.data, DISK_BYTES) for node in local.nodes}
    for disk in made.values():
        stack.callback(disk.unmount)
        disk.make()
    return made


def _keep(local: LocalCluster) -> None:
    """Copy the data from the disks before they are removed: the last state of a lost node shows the reason."""
    for node in local.nodes:
        with suppress(shutil.Error, OSError):  # a disk that was broken on purpose gives what it can
            shutil.copytree(node.data, node.data.with_name(f"{node.name}-disk"))


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)
