"""A cluster is founded once: real nodes that start one by one, with disks that are new, kept or lost."""

import itertools
import shutil
import signal
from functools import partial
from pathlib import Path

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .api import Topic, call, controller_at, eventually
from .test_failover import node_named


class OneByOne(LocalCluster):
    """Its nodes are started by hand."""

    def start_all(self) -> None:
        for node in self.nodes:
            node.data.mkdir(parents=True, exist_ok=True)
            (node.data / "node.toml").write_text(self._configuration(node, self.nodes), encoding="utf-8")


def missing(node: LocalNode) -> str:
    """What a node says that it waits for."""
    answer = call("GET", f"{node.url}/readyz")
    return str(answer.json["detail"]) if answer.status == 503 else ""


def emptied(node: LocalNode) -> None:
    """Take everything from a node that does not run, but for its configuration."""
    for path in node.data.iterdir():
        if path.name != "node.toml":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_new_cluster_waits_for_all_its_controllers_and_a_known_one_for_none(data: Path) -> None:
    cluster = OneByOne(data, port_base=0, restart=False)
    try:
        cluster.start()
        first, second, third = cluster.nodes
        cluster.start_node(first)
        cluster.start_node(second)
        eventually(lambda: missing(first) == "waiting for n3 to be sure that this is a new cluster")
        eventually(lambda: missing(second) == "waiting for n1 to be sure that this is a new cluster")
        cluster.start_node(third)
        cluster.wait_ready()
        topic = Topic(first.url, "kept")
        topic.create()
        topic.append("one")
        cluster.kill_all()
        cluster.start_node(second)
        cluster.start_node(third)
        eventually(lambda: topic.at(third.url).append("two").status == 200)
        assert topic.at(second.url).values() == ["one", "two"]
    finally:
        cluster.stop()


def test_a_first_controller_that_lost_its_disk_founds_nothing(data: Path) -> None:
    cluster = OneByOne(data, port_base=0, restart=False)
    try:
        cluster.start()
        for node in cluster.nodes:
            cluster.start_node(node)
        cluster.wait_ready()
        first, second, third = cluster.nodes
        topic = Topic(first.url, "kept")
        topic.create()
        topic.append("one")
        cluster.kill_all()
        emptied(first)
        cluster.start_node(first)
        eventually(lambda: missing(first) == "waiting for n2, n3 to be sure that this is a new cluster")
        cluster.start_node(second)
        eventually(lambda: missing(first) == "not registered with the controller yet")
        assert topic.at(second.url).append("lonely").status >= 421, "an empty disk is no half of a majority"
        cluster.start_node(third)
        cluster.wait_ready()
        eventually(lambda: topic.append("two").status == 200)
        values = topic.values()
        assert (values[0], values[-1]) == ("one", "two")
    finally:
        cluster.stop()


def test_moves_go_on_when_the_leader_that_carries_them_out_dies(data: Path) -> None:
    with LocalCluster(data, port_base=0) as cluster:
        topic = Topic(cluster.nodes[0].url, "moving")
        topic.create(partitions=2)
        cluster.add_node()
        cluster.wait_ready()
        for partition in range(2):
            assert topic.append("first", partition).status == 200
        homes = itertools.cycle((["n2", "n3", "n4"], ["n1", "n2", "n3"]))
        for victim in ("controller", "leader", "controller", "leader"):
            target = next(homes)
            for partition in range(2):
                order = {"topic": "moving", "partition": partition, "replicas": target}
                eventually(partial(_ordered, cluster, order))
            _kill(cluster, topic, victim)
            eventually(partial(_is_placed, cluster, topic, target), 60)
            eventually(lambda: all(node.pid for node in cluster.nodes))
            cluster.wait_ready()
        for node in cluster.nodes:
            assert [topic.at(node.url).values(partition) for partition in range(2)] == [["first"], ["first"]]


def _ordered(cluster: LocalCluster, order: dict[str, object]) -> bool:
    node = next(node.url for node in cluster.nodes if node.pid is not None)
    return call("POST", f"{node}/v1/cluster/reassignments", order).status == 202


def _kill(cluster: LocalCluster, topic: Topic, victim: str) -> None:
    leader = controller_at(topic.node) if victim == "controller" else topic.led_by()
    cluster.kill(node_named(cluster, leader), signal.SIGKILL)


def _is_placed(cluster: LocalCluster, topic: Topic, target: list[str]) -> bool:
    node = next(node.url for node in cluster.nodes if node.pid is not None)
    answer = call("GET", topic.at(node).url)
    return answer.status == 200 and all(p["replicas"] == target for p in answer.json["partitions"])
