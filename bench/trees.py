"""Clusters of two versions of the sources at one time, to measure a change against the version before it."""

# ruff: noqa: S202, S603, S607  # it starts clusters, and asks git for older sources

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PORT_BASE = 17_101
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def call(method: str, url: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
    """The JSON of an answer. Raises HTTPError for a refusal."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} | (headers or {}), method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.loads(answer.read() or b"null")


class Nodes(NamedTuple):
    """Three nodes: their URLs, and the folders of their data."""

    urls: list[str]
    data: list[Path]

    def processor_s(self) -> float:
        """Processor time that all nodes have used, in seconds."""
        listed = json.loads((self.data[0].parent / "cluster.json").read_text(encoding="utf-8"))["nodes"]
        return sum(processor_s(node["pid"]) for node in listed)

    def data_of(self, url: str) -> Path:
        """The folder of a node."""
        return self.data[self.urls.index(url)]


def processor_s(pid: int) -> float:
    """Processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


@contextmanager
def clusters(revisions: Sequence[str]) -> Iterator[dict[str, Nodes]]:
    """Three nodes of each revision ("": the working tree), by revision. Gone at the end."""
    with tempfile.TemporaryDirectory() as scratch:
        processes = []
        found = {}
        try:
            for number, revision in enumerate(revisions):
                data = Path(scratch) / f"data{number}"
                environment = os.environ | {"PYTHONPATH": str(_sources(revision, Path(scratch) / str(number)) / "src")}
                port = str(PORT_BASE + 300 * number)
                command = [sys.executable, "-m", "stockade", "cluster", "--port-base", port, "--data", str(data)]
                processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
                found[revision] = _ready(data / "cluster.json", processes[-1])
            yield found
        finally:
            for process in processes:
                process.terminate()
                process.wait()


def leader_of(nodes: Sequence[str], topic: str) -> str:
    """URL of the leader of the topic's partition 0."""
    while True:
        url = call("GET", f"{nodes[0]}/v1/topics/{topic}")["partitions"][0]["leader"]
        if url is not None:
            return str(url)
        time.sleep(0.1)


def _sources(revision: str, place: Path) -> Path:
    if not revision:
        return ROOT
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(place, filter="fully_trusted")  # our own, with its links
    return place


def _ready(listing: Path, cluster: subprocess.Popen[bytes]) -> Nodes:
    while True:
        assert cluster.poll() is None, "the cluster has ended: are its ports taken?"
        try:
            listed = json.loads(listing.read_text(encoding="utf-8"))["nodes"]
            for node in listed:
                call("GET", f"{node['http']}/readyz")
            return Nodes([node["http"] for node in listed], [Path(node["data"]) for node in listed])
        except (OSError, ValueError):
            time.sleep(0.2)
