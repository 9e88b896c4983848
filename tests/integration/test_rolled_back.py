"""A copy of a node's folder, started in the place of the node, is refused; the node comes back with an empty disk."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .api import Topic, call, eventually, expect


def stopped(cluster: LocalCluster, node: LocalNode) -> None:
    cluster.kill(node, signal.SIGTERM)
    eventually(lambda: node.process is None or node.process.poll() is not None)


def test_a_restored_copy_of_a_nodes_folder_stops_itself_and_rebuilt_it_counts_again(data: Path) -> None:
    with LocalCluster(data, port_base=0, restart=False) as cluster:
        node, others = cluster.nodes[2], cluster.nodes[:2]
        topic = Topic(others[0].url, "t")
        topic.create(partitions=1)
        expect(200, topic.append("before"))
        stopped(cluster, node)
        shutil.copytree(node.data, data / "image")
        cluster.start_node(node)
        cluster.wait_ready()
        for number in range(10):
            expect(200, topic.append(f"after {number}"))
        stopped(cluster, node)
        shutil.rmtree(node.data)
        shutil.copytree(data / "image", node.data)
        cluster.start_node(node)
        process = node.process
        assert process is not None
        assert process.wait(60) == 1
        log = (node.data / "node.log").read_text(encoding="utf-8")
        assert "is older than what this node told" in log
        assert "stockade rebuild" in log
        expect(200, topic.append("without it"))
        rebuilt = [sys.executable, "-m", "stockade", "rebuild", "--data", str(node.data), "--yes"]
        subprocess.run(rebuilt, check=True, capture_output=True)
        cluster.start_node(node)
        cluster.wait_ready()
        read = f"{topic.at(node.url).records()}?offset=0&local=true"
        eventually(lambda: len(call("GET", read).json.get("records", [])) == 12)
