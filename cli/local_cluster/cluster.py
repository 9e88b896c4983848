"""A cluster on this machine: one process a node, supervised. For development, demonstrations and tests."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TextIO

from ..raft.durable import write_durably
from .authority import NODE_DAYS, CannotMake, make_certificates, node_files, tls_section
from .local_node import ClusterFailed, LocalNode, end_of_log, free_ports, is_ready

__all__ = ["ClusterFailed", "LocalCluster", "LocalNode"]

RESTART_AFTER_S = 2.0
"""A node that died is started again after this time."""
LOOPBACK = "127.0.0.1"
STOP_TIMEOUT_S = 25.0
"""A node that has not ended this long after SIGTERM is killed."""


@dataclass
class LocalCluster:
    """Nodes n1 to nN on loopback. HTTP ports count up from ``port_base``, Raft ports from ``port_base`` + 100; 0
    takes free ports. With ``tls`` their traffic is encrypted, with certificates made in ``data``/certs.

    To break them on purpose: ``raft_address`` may give the address under which one node reaches another (a proxy
    between them), ``host`` the address on which a node listens (in a network of its own), and ``prefix`` the words
    that its command begins with (a program that starts it so that it can be broken, and becomes it).
    """

    data: Path
    nodes_count: int = 3
    port_base: int = 7101
    restart: bool = True
    cluster_id: str = "local"
    settings: str = ""
    tls: bool = False
    raft_address: Callable[[str, "LocalNode"], str] | None = None
    http_address: Callable[["LocalNode"], str] = lambda node: node.http
    host: Callable[[str], str] = lambda _: LOOPBACK
    prefix: Callable[[str], Sequence[str]] = lambda _: ()
    nodes: list[LocalNode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._claimed: TextIO | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
        ports = free_ports(self.port_base, self.nodes_count)
        for number, (http, raft) in enumerate(ports, start=1):
            self.nodes.append(self._node(number, http, raft))

    def _node(self, number: int, http: int, raft: int) -> LocalNode:
        name = f"n{number}"
        host = self.host(name)
        return LocalNode(name, f"{host}:{http}", f"{host}:{raft}", (self.data / name).absolute())

    def start(self) -> None:
        """Write every node's configuration, start the processes and watch them. Raises ClusterFailed."""
        self._claim()
        if self.tls:
            self._make_certificates()
        self.start_all()
        self._supervisor.start()

    def start_all(self) -> None:
        """Write every node's configuration and start all of them; none may run."""
        for node in self.nodes:
            node.data.mkdir(parents=True, exist_ok=True)
            write_durably(node.data / "node.toml", self._configuration(node, self.nodes).encode())
            self.start_node(node)

    def _claim(self) -> None:
        """Make sure that nobody else runs a cluster in this folder or on these ports: its nodes would answer for
        ours.
        """
        self.data.mkdir(parents=True, exist_ok=True)
        self._claimed = (self.data / "cluster.lock").open("a")
        try:
            fcntl.flock(self._claimed, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ClusterFailed(f"another cluster runs in {self.data}: stop it, or choose another --data") from error
        for address in (address for node in self.nodes for address in (node.http, node.raft)):
            host, _, port = address.rpartition(":")
            if host != LOOPBACK:  # of a network that nobody else is in
                continue
            try:
                socket.create_server((host, int(port))).close()
            except OSError as error:
                raise ClusterFailed(f"{address} is in use: stop what listens there, or choose --port-base") from error

    def add_node(self) -> LocalNode:
        """Start one more node, which joins the running ones; it is ready when wait_ready says so."""
        joined = [node.url for node in self.nodes]
        http, raft = free_ports(self.port_base and self.port_base + len(self.nodes), 1)[0]
        node = self._node(len(self.nodes) + 1, http, raft)
        node.data.mkdir(parents=True, exist_ok=True)
        write_durably(node.data / "node.toml", self._configuration(node, [node], joined).encode())
        self.nodes.append(node)
        if self.tls:
            self._make_certificates()
        self.start_node(node)
        return node

    def start_node(self, node: LocalNode) -> None:
        """Start one node that does not run."""
        command = [
            *self.prefix(node.name),
            sys.executable,
            "-m",
            "stockade",
            "serve",
            "--with-parent",
            "--config",
            str(node.data / "node.toml"),
        ]
        with (node.data / "node.log").open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches this process only, which then stops the nodes in
            # order.
            node.process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        node.died_at = None
        self._write_listing()

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Return when every node says that it is ready. Raises ClusterFailed."""
        deadline = time.monotonic() + timeout_s
        for node in self.nodes:
            while not is_ready(node.url):
                self._check_alive(node)
                if time.monotonic() > deadline:
                    raise ClusterFailed(f"{node.name} is not ready after {timeout_s:.0f} s.\n{end_of_log(node)}")
                time.sleep(0.05)

    def kill(self, node: LocalNode, number: int = signal.SIGKILL) -> None:
        """Send a signal to a node's process."""
        if node.process is not None:
            node.process.send_signal(number)
            if number == signal.SIGKILL:
                node.process.wait()

    def kill_all(self) -> None:
        """SIGKILL for every node; returns when all are gone. Without ``restart`` they stay so."""
        running = [node.process for node in self.nodes if node.process is not None]
        for process in running:
            process.kill()
        for process in running:
            process.wait()

    def stop(self) -> None:
        """Stop all nodes in an orderly way; kill what does not end."""
        self._stopping.set()
        if self._supervisor.is_alive():
            self._supervisor.join()
        running = [node.process for node in self.nodes if node.process is not None]
        for process in running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
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

    def _supervise(self) -> None:
        while not self._stopping.wait(0.1):
            for node in self.nodes:
                self._look_after(node)

    def _look_after(self, node: LocalNode) -> None:
        if node.process is None or node.process.poll() is None:
            return
        if node.died_at is None:
            node.died_at = time.monotonic()
            self._write_listing()
        elif self.restart and time.monotonic() - node.died_at >= RESTART_AFTER_S:
            node.restarts += 1
            self.start_node(node)

    def _check_alive(self, node: LocalNode) -> None:
        if node.process is not None and node.process.poll() is not None:
            raise ClusterFailed(f"{node.name} ended with code {node.process.returncode}.\n{end_of_log(node)}")

    @property
    def _certs(self) -> Path:
        return (self.data / "certs").absolute()

    def _make_certificates(self) -> None:
        """For the nodes that have none yet: starting again finds the others."""
        new = [n.name for n in self.nodes if not all(path.exists() for path in node_files(self._certs, n.name))]
        try:
            make_certificates(self._certs, self.cluster_id, new, NODE_DAYS)
        except CannotMake as error:
            raise ClusterFailed(str(error)) from error

    def _configuration(self, node: LocalNode, members: Sequence[LocalNode], join: Sequence[str] = ()) -> str:
        lines = [
            f'node_id = "{node.name}"',
            f'cluster_id = "{self.cluster_id}"',
            f'data_dir = "{node.data}"',
            f'http = "{node.http}"',
            f'raft_listen = "{node.raft}"',
            f"join = {json.dumps([*join])}",
            self.settings,
            tls_section(self._certs, node.name) if self.tls else "",
        ]
        for other in members:
            raft = self.raft_address(node.name, other) if self.raft_address and other is not node else other.raft
            lines += [
                "[[members]]",
                f'node_id = "{other.name}"',
                f'url = "http://{self.http_address(other)}"',
                f'raft = "{raft}"',
            ]
        return "\n".join(lines) + "\n"

    def _write_listing(self) -> None:
        """``cluster.json``: for scripts that want to break something."""
        with self._lock:
            nodes = [
                {"name": n.name, "pid": n.pid, "http": n.url, "raft": n.raft, "data": str(n.data)} for n in self.nodes
            ]
            self.data.mkdir(parents=True, exist_ok=True)
            scratch = self.data / "cluster.json.new"
            scratch.write_text(json.dumps({"nodes": nodes}, indent=1) + "\n", encoding="utf-8")
            os.replace(scratch, self.data / "cluster.json")  # noqa: PTH105
