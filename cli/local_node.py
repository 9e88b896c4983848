"""One node of a cluster on this machine: where it listens, its process, and what can be told of it from outside."""

import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass
class LocalNode:
    """One node: where it listens, where its data is, and its process."""

    name: str
    http: str
    raft: str
    data: Path
    process: "subprocess.Popen[bytes] | None" = None
    died_at: float | None = None
    restarts: int = 0

    @property
    def url(self) -> str:
        """Base URL of the HTTP interface."""
        return f"http://{self.http}"

    @property
    def pid(self) -> int | None:
        """Process id, None while it does not run."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None


class ClusterFailed(Exception):
    """A node could not be started; the message says which, and shows the end of its log."""


def free_ports(base: int, count: int) -> Sequence[tuple[int, int]]:
    """For so many nodes: a port for HTTP and one for Raft, counted from ``base``, or free ones where that is 0."""
    if base:
        return [(base + number, base + 100 + number) for number in range(count)]
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2 * count)]
    free = [entry.getsockname()[1] for entry in sockets]
    for entry in sockets:
        entry.close()
    return list(zip(free[::2], free[1::2], strict=True))


def is_ready(url: str) -> bool:
    """Whether the node says that it is ready."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def end_of_log(node: LocalNode, lines: int = 15) -> str:
    """What the node said last."""
    text = (node.data / "node.log").read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:])
