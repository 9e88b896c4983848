"""Stockade: the working tree, as `make bench` measures it, or a revision of it, for programs that compare two."""

# ruff: noqa: S603, S607  # it asks git for older sources

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from loads.over_http import call, leaders_of
from workloads import COUNTS, IDLE_PARTITIONS, IN_FLIGHT, SIZES

from stockade.cli.local_cluster.ports import free_ports
from systems.common import NODES, Spawned, System, python_load, spawned, until

ROOT = Path(__file__).resolve().parents[2]
_topics = count()


@dataclass
class Nodes:
    """Three nodes of a cluster: their URLs, processes, and the folders of their data; the topic that is loaded."""

    urls: list[str]
    pids: list[int]
    data: list[Path]
    topic: str = ""

    def create(self, partitions: int) -> None:
        """Make a topic, whose leaders are the nodes in turn; return when every partition is led."""
        self.topic = f"bench-{next(_topics)}"
        call("POST", f"{self.urls[0]}/v1/topics", {"name": self.topic, "partitions": partitions})
        leaders_of(self.urls[0], self.topic)

    def delete(self, partitions: int) -> None:
        """Remove the topic."""
        call("DELETE", f"{self.urls[0]}/v1/topics/{self.topic}")

    def command(self, workload: str, partitions: int, amount: float) -> list[str]:
        """The load, through Stockade's own clients, or by requests straight to the leaders."""
        where = {"urls": self.urls, "topic": self.topic}
        spread = where | {"partitions": partitions, "seconds": amount}
        match workload:
            case "producer" | "small":
                return python_load("produce", **spread, size=SIZES[workload])
            case "consumer":
                return python_load("consume", **where, count=int(amount))
            case "arrow":
                return python_load("consume_arrow", **where, count=int(amount))
            case "fenced":
                return python_load("fenced_appends", **spread, in_flight=IN_FLIGHT)
            case _:
                return python_load("appends", **spread, in_flight=1 if workload == "latency" else IN_FLIGHT)


@contextmanager
def cluster(folder: Path, revision: str = "", options: Sequence[str] = ()) -> Iterator[Nodes]:
    """Three nodes of a revision, "" for the working tree, which end with the block. ``options``: further ones of
    `stockade cluster`.
    """
    sources = _sources(revision, folder / "sources")
    data = folder / "data"
    ports = ("--port-base", str(_port_base()))
    command = [sys.executable, "-m", "stockade", "cluster", *ports, "--data", data, *options]
    with spawned({"stockade": command}, folder, {"PYTHONPATH": str(sources / "src")}) as servers:
        yield _ready(data / "cluster.json", servers)


@contextmanager
def clusters(revisions: Sequence[str]) -> Iterator[dict[str, Nodes]]:
    """Clusters of several revisions at one time, each in a folder of its own: for measurements without a peer."""
    with ExitStack() as stack:
        yield {
            revision: stack.enter_context(cluster(Path(stack.enter_context(TemporaryDirectory())), revision))
            for revision in revisions
        }


def stockade() -> System:
    """The working tree, as the runner takes it."""
    return System(
        name="stockade",
        title="Stockade",
        sync="synced by a majority before the answer",
        client="stockade.Producer, .Consumer (Python, uvloop)",
        workloads={
            "producer": COUNTS,
            "requests": COUNTS,
            "latency": [1],
            "fenced": [1],
            "small": [1],
            "arrow": [1],
            "consumer": [1],
            "idle": [IDLE_PARTITIONS],
        },
        had=_described,
        start=cluster,
    )


def _described() -> str:
    changes = ", with changes" if _git("status", "--porcelain", "--untracked-files=no") else ""
    return _git("log", "-1", "--format=%h of %cs") + changes


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _sources(revision: str, place: Path) -> Path:
    if not revision:
        return ROOT
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    place.mkdir()
    subprocess.run(["tar", "-x"], cwd=place, check=True, input=packed)
    return place


def _port_base() -> int:
    """A port base: the NODES ports from it on, for HTTP, and from 100 above it on, for Raft, are free."""
    while True:
        (base,) = free_ports(1)
        with suppress(OSError, OverflowError), ExitStack() as stack:
            for port in (*range(base, base + NODES), *range(base + 100, base + 100 + NODES)):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return base


def _ready(listing: Path, servers: Sequence[Spawned]) -> Nodes:
    def look() -> Nodes:
        listed = json.loads(listing.read_text(encoding="utf-8"))["nodes"]
        for node in listed:
            call("GET", f"{node['http']}/readyz")
        urls, pids, data = ([node[name] for node in listed] for name in ("http", "pid", "data"))
        return Nodes(urls, pids, [Path(folder) for folder in data])

    return until(servers, look, "Stockade is ready")
