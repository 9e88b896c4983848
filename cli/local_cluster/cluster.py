"""A cluster on this machine: one process for each node, supervised. For development, demonstrations and tests."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from ...cluster.config import parse_address
from ...partition.log.fsutil import make_directory, open_file, write_durably
from ..node.authority import NODE_DAYS, CannotMake, Wanted, https_section, make_certificates, node_files, tls_section
from ..node.supervisor import (
    NodeProcess,
    Stopping,
    Supervisor,
    cannot_listen,
    ending,
    is_ready,
    probing,
    why_not_ready,
    with_parent,
)
from ..service.environment import without_settings
from .ports import LOOPBACK, free_ports


@dataclass
class LocalNode(NodeProcess):
    """One node: its addresses (host:port), its data folder, and its process."""

    raft: str
    data: Path


READY_TIMEOUT_S = 60.0
"""Every node must be ready this long after the start."""
READY_POLL_S = 0.05
"""Pause between two questions whether the nodes are ready."""
CLIENT = "client"
"""Name of the files of a client's certificate and key, in the folder with those of the nodes."""


class ClusterFailed(Exception):
    """The cluster could not be started. The message says why; if a node failed, it shows the end of the node's log."""


def _ports(base: int, count: int) -> Sequence[tuple[int, int]]:
    """Ports (HTTP, Raft) for ``count`` nodes: counted up from ``base``, or free ones if ``base`` is 0."""
    if base:
        return [(base + number, base + 100 + number) for number in range(count)]
    free = free_ports(2 * count)
    return list(zip(free[::2], free[1::2], strict=True))


def _hosts(node: LocalNode) -> tuple[str, ...]:
    host, _ = parse_address(node.http)
    return tuple(dict.fromkeys((host, LOOPBACK, "localhost")))


def end_of_log(node: LocalNode, lines: int = 15) -> str:
    """The last lines that the node has logged, but for the questions whether it is ready: those are this process's."""
    text = (node.data / "node.log").read_text(encoding="utf-8", errors="replace")
    return "\n".join([line for line in text.splitlines() if " GET /readyz " not in line][-lines:])


def _why_unready(node: LocalNode) -> str:
    why = why_not_ready(node, 2.0, "/readyz") or "now it is"
    return f"{node.name} is not ready after {READY_TIMEOUT_S:g} s: {why}\n{end_of_log(node)}"


def _opened(path: Path) -> BinaryIO:
    """The file opened for appending; it is created if it is not there, for the user and the group alone."""
    return os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Make an OSError, as of a full disk, a ClusterFailed that says what to do."""
    try:
        yield
    except OSError as error:
        why = f"{error.filename or folder}: {error.strerror}"
        raise ClusterFailed(f"{why}: choose another folder with --data (make: DATA=...)") from error


@dataclass
class LocalCluster:
    """Nodes n1 to nN on loopback. HTTP ports count up from ``port_base``, Raft ports from ``port_base + 100``; 0 takes
    free ports. With ``tls`` the nodes encrypt their traffic, with certificates made in ``data``/certs; with ``https``
    clients use TLS too, and CLIENT in that folder is a certificate for one of them.

    Tests that break nodes may set: ``raft_address``, the address at which one node reaches another (a proxy between
    them); ``http_address``, the address in the cluster's configuration at which clients reach a node; ``host``, the
    address on which a node listens (in a network namespace); ``prefix``, words before the command of a node (a program
    that prepares its process and then executes the command); ``program``, the words that run `stockade`.

    ``tell`` is called in the supervisor's thread with one line for the operator when a node has ended, starts again, or
    is ready again.
    """

    data: Path
    nodes_count: int = 3
    port_base: int = 7101
    restart: bool = True
    cluster_id: str = "local"
    settings: str = ""
    tls: bool = False
    https: bool = False
    raft_address: Callable[[str, "LocalNode"], str] | None = None
    http_address: Callable[["LocalNode"], str] = lambda node: node.http
    host: Callable[[str], str] = lambda _: LOOPBACK
    prefix: Callable[[str], Sequence[str]] = lambda _: ()
    program: Sequence[str] = (sys.executable, "-m", "stockade")
    tell: Callable[[str], None] = lambda _: None
    nodes: list[LocalNode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._claimed: BinaryIO | None = None
        self._lock = threading.Lock()
        self._supervisor = Supervisor(
            self.nodes,
            self._spawn,
            self.tell,
            restart=self.restart,
            last_words=lambda node: end_of_log(node, 1),
            changed=self._write_listing,
        )
        ports = _ports(self.port_base, self.nodes_count)
        for number, (http, raft) in enumerate(ports, start=1):
            self.nodes.append(self._node(number, http, raft))

    def _node(self, number: int, http: int, raft: int) -> LocalNode:
        name = f"n{number}"
        host = self.host(name)
        return LocalNode(name, f"{host}:{http}", f"{host}:{raft}", (self.data / name).absolute())

    @property
    def not_started(self) -> list[str]:
        """Names of further nodes with data in this folder, which do not start: partitions may need their replicas."""
        names = {node.name for node in self.nodes}
        return sorted(found for path in self.data.glob("n*/wal") if (found := path.parent.name) not in names)

    def start(self) -> None:
        """Write every node's configuration, start the processes and watch them. Raises ClusterFailed."""
        self._claim()
        self._make_certificates()
        self.start_all()
        self._supervisor.watch()

    def start_all(self) -> None:
        """Write every node's configuration and start all of them; none may run."""
        with _writing(self.data):
            for node in self.nodes:
                write_durably(node.data / "node.toml", self._configuration(node, self.nodes).encode())
                self.start_node(node)

    def _claim(self) -> None:
        """Lock the data folder. Raises ClusterFailed if another cluster runs in this folder or on these ports: its
        nodes would answer requests that are meant for ours.
        """
        with _writing(self.data):
            make_directory(self.data)
            self._claimed = _opened(self.data / "cluster.lock")
        try:
            fcntl.flock(self._claimed, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ClusterFailed(
                f"another cluster runs in {self.data}: stop it, or choose another folder with --data (make: DATA=...)"
            ) from error
        for address in (address for node in self.nodes for address in (node.http, node.raft)):
            if not address.startswith(f"{LOOPBACK}:"):  # in a network namespace of this cluster
                continue
            if cannot_listen(address) is not None:
                raise ClusterFailed(
                    f"{address} is in use: stop what listens there, or choose other ports with --port-base"
                    " (make: PORT=...)"
                )

    def add_node(self) -> LocalNode:
        """Start one more node, which joins the running ones. ``wait_ready`` returns when it is ready."""
        joined = [node.url for node in self.nodes]
        http, raft = _ports(self.port_base and self.port_base + len(self.nodes), 1)[0]
        node = self._node(len(self.nodes) + 1, http, raft)
        write_durably(node.data / "node.toml", self._configuration(node, [node], joined).encode())
        self.nodes.append(node)
        self._make_certificates()
        self.start_node(node)
        return node

    def start_node(self, node: LocalNode) -> None:
        """Start one node that does not run."""
        self._supervisor.start(node)

    def _spawn(self, node: LocalNode) -> "subprocess.Popen[bytes]":
        command = [
            *self.prefix(node.name),
            *self.program,
            "serve",
            "--with-parent",
            "--config",
            str(node.data / "node.toml"),
        ]
        with _opened(node.data / "node.log") as log:
            # A session of its own: Ctrl-C in the terminal reaches only this process, which then stops the nodes.
            return subprocess.Popen(  # a list of words, no shell  # noqa: S603  # nosec B603
                command,
                env=with_parent(without_settings(os.environ)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self, stopping: Stopping | None = None) -> bool:
        """Return True when every node is ready, or False when ``stopping`` has an order. Raises ClusterFailed, at once
        if a node that is not ready has ended: the others may wait for it.
        """
        stopping = stopping or Stopping()
        deadline = time.monotonic() + READY_TIMEOUT_S
        unready = list(self.nodes)
        while unready := [node for node in unready if not is_ready(node)]:
            for node in unready:
                if node.process is not None and node.process.poll() is not None:
                    raise ClusterFailed(f"{node.name} {ending(node.process.returncode)}.\n{end_of_log(node)}")
            if time.monotonic() > deadline:
                raise ClusterFailed("\n".join(map(_why_unready, unready)))
            if stopping.wait(READY_POLL_S):
                return False
        return True

    def kill(self, node: LocalNode, number: int = signal.SIGKILL) -> None:
        """Send a signal to a node's process. After SIGKILL the process is gone when this returns."""
        if node.process is not None:
            node.process.send_signal(number)
            if number == signal.SIGKILL:
                node.process.wait()

    def kill_all(self) -> None:
        """SIGKILL every node; return when all processes are gone. With ``restart`` the supervisor starts them again."""
        running = [node.process for node in self.nodes if node.process is not None]
        for process in running:
            process.kill()
        for process in running:
            process.wait()

    def stop(self) -> None:
        """Stop all nodes with SIGTERM; SIGKILL those that do not end in STOP_TIMEOUT_S."""
        self._supervisor.stop()
        if self._claimed is not None:
            self._claimed.close()

    def __enter__(self) -> "LocalCluster":
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def certs(self) -> Path:
        """The folder of the certificates and keys."""
        return (self.data / "certs").absolute()

    @property
    def client_files(self) -> Sequence[Path]:
        """The files of a client's certificate and key, which exist with ``https``."""
        return node_files(self.certs, CLIENT)

    def _make_certificates(self) -> None:
        """Make the certificates that are needed and missing; with ``https``, the supervisor asks the nodes by TLS."""
        if not (self.tls or self.https):
            return
        new = [Wanted(node.name, _hosts(node)) for node in self.nodes if not self._has_certificate(node.name)]
        clients = [] if self._has_certificate(CLIENT) or not self.https else [CLIENT]
        try:
            make_certificates(self.certs, self.cluster_id, new, NODE_DAYS, clients=clients)
        except CannotMake as error:
            raise ClusterFailed(str(error)) from error
        for node in self.nodes if self.https else ():
            node.tls = probing(*map(str, node_files(self.certs, node.name)))

    def _has_certificate(self, name: str) -> bool:
        return all(path.exists() for path in node_files(self.certs, name))

    def _configuration(self, node: LocalNode, members: Sequence[LocalNode], join: Sequence[str] = ()) -> str:
        lines = [
            f'node_id = "{node.name}"',
            f'cluster_id = "{self.cluster_id}"',
            f"data_dir = {json.dumps(str(node.data), ensure_ascii=False)}",
            f'http = "{node.http}"',
            f'raft_listen = "{node.raft}"',
            f"join = {json.dumps([*join])}",
            self.settings,
            tls_section(self.certs, node.name) if self.tls else "",
            https_section(self.certs, node.name) if self.https else "",
        ]
        for other in members:
            raft = self.raft_address(node.name, other) if self.raft_address and other is not node else other.raft
            lines += [
                "[[members]]",
                f'node_id = "{other.name}"',
                f'url = "{"https" if self.https else "http"}://{self.http_address(other)}"',
                f'raft = "{raft}"',
            ]
        return "\n".join(lines) + "\n"

    def _write_listing(self) -> None:
        """Write ``cluster.json``: the nodes' names, pids, addresses and folders, for scripts that break nodes."""
        with self._lock:
            nodes = [
                {"name": n.name, "pid": n.pid, "http": n.url, "raft": n.raft, "data": str(n.data)} for n in self.nodes
            ]
            try:
                write_durably(self.data / "cluster.json", f"{json.dumps({'nodes': nodes}, indent=1)}\n".encode())
            except OSError as error:
                self.tell(f"cluster.json cannot be written, and lists the processes of before: {error.strerror}")
