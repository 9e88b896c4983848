"""The log of a real node: one JSON object a line, a line for each event, and more lines after SIGUSR1."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .api import Topic, call, eventually, expect

pytestmark = pytest.mark.processes


class JsonCluster(LocalCluster):
    """Its node logs JSON."""

    def _spawn(self, node: LocalNode) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "stockade", "serve", "--with-parent", "--log-format", "json", "--config"]
        with (node.data / "node.log").open("ab") as log:
            return subprocess.Popen([*command, str(node.data / "node.toml")], stdout=log, stderr=log)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with JsonCluster(tmp_path / "data", nodes_count=1, port_base=0, restart=False) as running:
        yield running.nodes[0]


def lines(node: LocalNode) -> list[dict[str, Any]]:
    written = (node.data / "node.log").read_text(encoding="utf-8")
    return [json.loads(line) for line in written[: written.rfind("\n") + 1].splitlines()]


def events(node: LocalNode, name: str) -> list[dict[str, Any]]:
    return [line for line in lines(node) if line.get("event") == name]


def messages(node: LocalNode) -> str:
    return "\n".join(line["message"] for line in lines(node))


def test_a_node_logs_an_object_a_line_and_more_of_them_after_a_signal(node: LocalNode) -> None:
    topic = Topic(node.url, "orders")
    topic.create()
    expect(200, topic.append("a"))
    won = eventually(lambda: [line for line in events(node, "leadership_won") if line["group"] == "orders/0"])
    assert (won[0]["level"], won[0]["node"]) == ("INFO", "n1")
    assert events(node, "cluster_changed")[0]["node_added"] == "n1"
    assert not [line for line in lines(node) if line["level"] == "DEBUG"]

    assert node.pid is not None
    os.kill(node.pid, signal.SIGUSR1)
    eventually(lambda: "SIGUSR1" in messages(node))
    expect(200, topic.append("b"))
    eventually(lambda: [line for line in lines(node) if "/records 200" in line["message"]])
    os.kill(node.pid, signal.SIGUSR1)
    eventually(lambda: "lines from INFO on" in messages(node))
    assert call("GET", f"{node.url}/healthz").status == 200
