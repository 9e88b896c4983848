"""Three etcd nodes on this machine, as its package installs it: each entry is on the disks of a majority (fsync)
before it is answered, as with Stockade. Over its HTTP gateway one put is one record.
"""

# ruff: noqa: S603, S607  # it starts etcd

import base64
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from trees import call, processor_s

QUOTA_BYTES = 8 << 30
"""Room for its data: the default of 2 GiB would be full within a long run."""


class Etcd(NamedTuple):
    """Three nodes: their URLs and processes."""

    urls: list[str]
    pids: list[int]

    def processor_s(self) -> float:
        """Processor time that all nodes have used, in seconds."""
        return sum(map(processor_s, self.pids))

    def leader(self) -> str:
        """URL of the node that leads."""
        while True:
            for url in self.urls:
                status = call("POST", f"{url}/v3/maintenance/status", {})
                if status.get("leader") == status["header"]["member_id"]:
                    return url
            time.sleep(0.1)

    def puts(self, value: bytes) -> "Puts":
        """Requests that each put this value under a key of their own."""
        return Puts(value)


class Puts:
    """The requests of a connection, by its number."""

    def __init__(self, value: bytes) -> None:
        self._value = base64.b64encode(value).decode()
        self._runs = 0

    def __call__(self, number: int) -> Iterator[bytes]:
        """One put after the other."""
        self._runs += 1
        count, start = 0, f"{self._runs}/{number}/"
        while True:
            key = base64.b64encode(f"{start}{count}".encode()).decode()
            body = json.dumps({"key": key, "value": self._value}, separators=(",", ":")).encode()
            head = b"POST /v3/kv/put HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            yield head + b"Content-Length: %d\r\n\r\n" % len(body) + body
            count += 1


@contextmanager
def etcd() -> Iterator[Etcd]:
    """Three nodes with default settings, their data beside Stockade's. Gone at the end."""
    ports = _free_ports(6)
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    clients, peers = urls[:3], urls[3:]
    members = ",".join(f"e{number}={peer}" for number, peer in enumerate(peers))
    processes = []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for number in range(3):
                own = {
                    "name": f"e{number}",
                    "data-dir": str(Path(scratch) / f"e{number}"),
                    "listen-client-urls": clients[number],
                    "advertise-client-urls": clients[number],
                    "listen-peer-urls": peers[number],
                    "initial-advertise-peer-urls": peers[number],
                    "initial-cluster": members,
                    "quota-backend-bytes": str(QUOTA_BYTES),
                    "log-level": "error",
                    "logger": "zap",
                }
                command = ["etcd", *(f"--{name}={value}" for name, value in own.items())]
                processes.append(subprocess.Popen(command))
            for url in clients:
                _await_ready(url)
            yield Etcd(clients, [process.pid for process in processes])
        finally:
            for process in processes:
                process.terminate()
                process.wait()


def version() -> str:
    """The version that etcd prints."""
    output = subprocess.run(["etcd", "--version"], check=True, capture_output=True, text=True).stdout
    return output.splitlines()[0]


def _await_ready(url: str) -> None:
    while True:
        try:
            if str(call("GET", f"{url}/health")["health"]) == "true":
                return
        except OSError:
            pass
        time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
