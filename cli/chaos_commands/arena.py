"""A local cluster as an arena: its nodes behind proxies, in network namespaces, on disks of their own, or just so."""

import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..chaos import disks as loop_disks
from ..chaos.disks import LoopDisk
from ..chaos.fault import Fault
from ..chaos.faults import clock
from ..chaos.network.hosts import Hosts
from ..chaos.network.hosts import why_not as no_hosts
from ..chaos.proxies import Address, Proxies, ProxyError, ProxyServer, find_server
from ..chaos.raw import RawNode
from ..chaos.waiting import NotInTime, until
from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.transport import Transport
from .local_cluster import LOOPBACK, ClusterFailed, LocalCluster, LocalNode
from .local_node import end_of_log

SETUPS = ("processes", "toxiproxy", "namespaces", "disks", "clocks")
"""Ways to start a cluster: what can be broken depends on it. ``disks`` and ``clocks`` go with any of the others; nodes
whose clocks can be set are several times slower.
"""
DISK_BYTES = 2 << 30
"""Of each node's disk; taken from the folder's disk as it fills."""
READY_TIMEOUT_S = 120.0
"""A node that was started must be ready after this time."""
STARTS_MAX = 3
"""How often a node is started that ends by itself."""
SMALL_FILES = """
[limits]
request_timeout_ms = 5000
segment_bytes_max = 1048576
wal_file_bytes = 1048576
wal_bytes_max = 4194304
checkpoint_bytes = 1048576
"""
"""The least there may be, so that a minute of load meets checkpoints, shortened logs and copied replicas."""


class LocalArena:
    """The running nodes of a local cluster, as faults see them (chaos/fault.py)."""

    def __init__(
        self,
        local: LocalCluster,
        proxies: Proxies | None,
        hosts: Hosts | None,
        disks: Mapping[str, LoopDisk],
    ) -> None:
        self.topics: Sequence[str] = ()
        self.clients: Sequence[int] = ()
        self.proxies = proxies
        self.hosts = hosts
        self.disks = disks
        self._local = local
        self._by_name = {node.name: node for node in local.nodes}
        self._transport = Transport(ClientConfig())
        self.client: Client = Client(ClientConfig(bootstrap=tuple(self.bootstrap), request_timeout_ms=5_000))

    @property
    def nodes(self) -> Sequence[str]:
        """Names, in order."""
        return list(self._by_name)

    @property
    def bootstrap(self) -> Sequence[str]:
        """Where clients reach the nodes."""
        return [f"http://{self._local.http_address(node)}" for node in self._local.nodes]

    def pid(self, node: str) -> int | None:
        """None while it does not run."""
        return self._by_name[node].pid

    def raw(self, node: str) -> RawNode:
        """Requests to the node itself, past all proxies."""
        return RawNode(self._transport, self._by_name[node].url)

    def data(self, node: str) -> Path:
        """Its folder."""
        return self._by_name[node].data

    def kill(self, node: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal."""
        if self.pid(node) is not None:
            self._local.kill(self._by_name[node], number)

    def start(self, node: str) -> None:
        """Start it unless it runs, or its disk takes nothing now: then it is started when that is mended."""
        if self.pid(node) is None and (node not in self.disks or self.disks[node].is_well):
            try:
                self._local.start_node(self._by_name[node])
            except OSError:
                if node not in self.disks:  # its disk may be cut off at this moment
                    raise

    async def ready(self, node: str) -> None:
        """Return when it runs and is ready; one that ends while it starts is started again, a few times. Raises
        NotInTime.
        """
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
        except OSError as error:  # its disk may be cut off at this moment
            return str(error)

    async def close(self) -> None:
        """End its connections; the nodes go on."""
        await self._transport.close()
        await self.client.close()


def why_not(setups: Sequence[str]) -> str | None:
    """Why a cluster cannot be started so here; None if it can."""
    if {"toxiproxy", "namespaces"} <= set(setups):
        return "toxiproxy and namespaces exclude each other"
    reasons = [
        no_hosts() if "namespaces" in setups else None,
        loop_disks.why_not() if "disks" in setups else None,
        clock.why_not() if "clocks" in setups else None,
        _no_proxies() if "toxiproxy" in setups else None,
    ]
    return next(filter(None, reasons), None)


def _no_proxies() -> str | None:
    try:
        find_server()
    except ProxyError as error:
        return str(error)
    return None


@contextmanager
def local_arena(folder: Path, nodes: int, setups: Sequence[str], *, keep: bool = False) -> Iterator[LocalArena]:
    """A cluster started so, ready; with ``keep`` what is on disks of its own stays in ``folder``, too.

    Raises ClusterFailed, DiskFailed, ProxyError, NetworkFailed.
    """
    reason = why_not(setups)
    if reason is not None:
        raise ClusterFailed(reason)
    with ExitStack() as stack:
        hosts = stack.enter_context(Hosts([f"n{k + 1}" for k in range(nodes)])) if "namespaces" in setups else None
        local = _cluster(folder, nodes, hosts, clocks="clocks" in setups)
        proxies = _proxied(local, stack.enter_context(ProxyServer())) if "toxiproxy" in setups else None
        disks = _disks(stack, local) if "disks" in setups else {}
        if keep and disks:
            stack.callback(_keep, local)
        with local:
            yield LocalArena(local, proxies, hosts, disks)


def _cluster(folder: Path, nodes: int, hosts: Hosts | None, *, clocks: bool) -> LocalCluster:
    settings = SMALL_FILES + ("[raft]\nplaintext = true\n" if hosts is not None else "")

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
        host, port = proxies.doors[node.name].address
        return f"{host}:{port}"

    local.raft_address = raft_address
    local.http_address = http_address
    return proxies


def _disks(stack: ExitStack, local: LocalCluster) -> dict[str, LoopDisk]:
    images = Path(tempfile.mkdtemp(prefix="stockade-disks-", dir=local.data.parent))
    stack.callback(shutil.rmtree, images)
    made = {node.name: LoopDisk(images / f"{node.name}.ext4", node.data, DISK_BYTES) for node in local.nodes}
    for disk in made.values():
        stack.callback(disk.unmount)
        disk.make()
    return made


def _keep(local: LocalCluster) -> None:
    """Copy what is on the disks to beside them, before they go: the last state of a node that was lost says why."""
    for node in local.nodes:
        with suppress(shutil.Error, OSError):  # a disk that was broken on purpose gives what it can
            shutil.copytree(node.data, node.data.with_name(f"{node.name}-disk"))


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def needs(fault: Fault) -> str:
    """For people: the setup in which a fault can strike here, or what is missing for it."""
    if fault in clock.CLOCK_FAULTS:
        return clock.why_not() or "--setup clocks"
    reasons = {setup: why_not([setup]) or fault.why_not(_Pretended(setup)) for setup in SETUPS}
    fitting = next((setup for setup, reason in reasons.items() if reason is None), None)
    return f"--setup {fitting}" if fitting else str(next(filter(None, reversed(reasons.values()))))


class _Pretended(LocalArena):
    """A cluster without nodes that was started so: to ask a fault whether it has what it needs."""

    def __init__(self, setup: str) -> None:
        there: Any = object()
        self.proxies = there if setup == "toxiproxy" else None
        self.hosts = there if setup == "namespaces" else None
        self.disks = {"": there} if setup == "disks" else {}
        self.topics = self.clients = ()
        self._by_name = {}
