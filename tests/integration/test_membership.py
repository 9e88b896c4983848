"""Nodes come and go, replicas move and leaders change under writers: nothing acknowledged is lost or doubled."""

import itertools
import shutil
import signal
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .api import Topic, call, eventually, expect
from .load import Load

# Each of many steps may take a minute on a busy machine.
pytestmark = pytest.mark.timeout(600)

PARTITIONS = 2


def described(node: LocalNode) -> Any:
    return expect(200, call("GET", f"{node.url}/v1/cluster"))


def placed(topic: Topic) -> list[list[str]]:
    return [partition["replicas"] for partition in expect(200, call("GET", topic.url))["partitions"]]


def move(topic: Topic, partition: int, replicas: list[str]) -> None:
    order = {"topic": topic.name, "partition": partition, "replicas": replicas}
    assert expect(202, call("POST", f"{topic.node}/v1/cluster/reassignments", order)) == order


def arrived(cluster: LocalCluster, topic: Topic, partition: int, replicas: list[str]) -> None:
    """Return when the move is over, and the files of the partition are where it moved to, and nowhere else."""
    eventually(lambda: placed(topic)[partition] == replicas, 60)
    eventually(lambda: described(cluster.nodes[0])["reassignments"] == [], 60)
    topic_id = expect(200, call("GET", topic.url))["topic_id"]
    folder = f"{topic_id << 16 | partition:016x}"
    for place in ("partitions", "groups"):
        eventually(partial(_is_on, cluster, f"{place}/{folder}", sorted(replicas)))


def _is_on(cluster: LocalCluster, path: str, names: list[str]) -> bool:
    return [node.name for node in cluster.nodes if (node.data / path).exists()] == names


def handed_over(topic: Topic, partition: int, node_id: str) -> None:
    order = {"topic": topic.name, "partition": partition, "node_id": node_id}
    eventually(lambda: is_led(topic.node, order))


def is_led(url: str, order: dict[str, Any]) -> bool:
    """Whether the node has taken the leadership; one that stands still for a moment takes none."""
    answer = call("POST", f"{url}/v1/cluster/leaders", order)
    assert answer.status != 200 or answer.json["leader_node"] == order["node_id"]
    return answer.status == 200


def leads_on(url: str, order: dict[str, Any]) -> bool:
    """Whether asking again for the same leader has changed nothing."""
    first, again = (call("POST", f"{url}/v1/cluster/leaders", order) for _ in range(2))
    return first.status == again.status == 200 and first.json == again.json and is_led(url, order)


def test_replicas_move_to_a_new_node_and_leaders_change_under_writers(data: Path) -> None:
    with LocalCluster(data, port_base=0) as cluster:
        topic = Topic(cluster.nodes[0].url, "moving")
        topic.create(partitions=PARTITIONS)
        with Load(cluster, topic, PARTITIONS) as load:
            fourth = cluster.add_node()
            cluster.wait_ready()
            assert [node["node_id"] for node in described(fourth)["nodes"]] == ["n1", "n2", "n3", "n4"]
            for partition in range(PARTITIONS):
                move(topic, partition, ["n2", "n3", "n4"])
                arrived(cluster, topic, partition, ["n2", "n3", "n4"])
                load.goes_on()
            for node_id in ("n4", "n3", "n4", "n2"):
                handed_over(topic, 0, node_id)
                load.goes_on()
            moves, handovers = load.pauses[1:3], load.pauses[3:]
            move(topic, 0, ["n1", "n3", "n4"])
            arrived(cluster, topic, 0, ["n1", "n3", "n4"])
            load.goes_on()
        load.check()
        for pauses in ([*moves, load.pauses[-1]], handovers):
            assert statistics.median_low(pauses) < 3, "no node died, so no append waits for an election timeout twice"


def test_the_controller_group_is_handed_over_as_well(cluster: LocalCluster) -> None:
    node = cluster.nodes[0]
    for node_id in ("n3", "n1", "n2"):
        order = {"topic": None, "partition": None, "node_id": node_id}
        eventually(partial(leads_on, node.url, order))


def test_orders_that_cannot_be_carried_out_are_refused(cluster: LocalCluster) -> None:
    base = f"{cluster.nodes[1].url}/v1/cluster"
    topic = Topic(cluster.nodes[0].url, "stays")
    topic.create()
    for path, order, status, code in [
        ("members", {"action": "remove", "node_id": "n9"}, 404, "NOT_FOUND"),
        ("members", {"action": "remove", "node_id": "n3"}, 503, "NOT_ENOUGH_REPLICAS"),
        ("reassignments", {"topic": "stays", "partition": 0, "replicas": ["n9"]}, 404, "NOT_FOUND"),
        ("reassignments", {"topic": "stays", "partition": 1, "replicas": ["n1"]}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("reassignments", {"topic": "none", "partition": 0, "replicas": ["n1"]}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("leaders", {"topic": "stays", "partition": 0, "node_id": "n9"}, 404, "NOT_FOUND"),
        ("leaders", {"topic": "none", "partition": 0}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]:
        refused = call("POST", f"{base}/{path}", order)
        assert (refused.status, refused.json["code"]) == (status, code)


def test_a_removed_node_gives_everything_away_first(data: Path) -> None:
    with LocalCluster(data, port_base=0) as cluster:
        topic = Topic(cluster.nodes[0].url, "leaving")
        topic.create(partitions=PARTITIONS)
        with Load(cluster, topic, PARTITIONS) as load:
            cluster.add_node()
            cluster.wait_ready()
            leading = {"topic": None, "partition": None, "node_id": "n3"}
            eventually(lambda: is_led(topic.node, leading))
            handed_over(topic, 0, "n3")
            order = {"action": "remove", "node_id": "n3"}
            expect(202, call("POST", f"{topic.node}/v1/cluster/members", order))
            members = ["n1", "n2", "n4"]
            eventually(lambda: [n["node_id"] for n in described(cluster.nodes[0])["nodes"]] == members, 90)
            load.goes_on()
            assert [sorted(replicas) for replicas in placed(topic)] == [members] * PARTITIONS
            left = cluster.nodes[2]
            eventually(lambda: "removed" in call("GET", f"{left.url}/readyz").body.decode())
            for place in ("partitions", "groups"):
                eventually(partial(_is_empty, left.data / place))
            # The controller group lives on without it: any of the other three may go.
            cluster.kill(cluster.nodes[0], signal.SIGKILL)
            load.goes_on()
            # And all of them find each other again, although no configuration names the fourth.
            cluster.kill_all()
            load.goes_on()
            eventually(lambda: described(cluster.nodes[3])["controller"]["leader_node"] in members)
            assert [n["node_id"] for n in described(cluster.nodes[3])["nodes"]] == members
        load.check()


def test_a_dead_node_is_removed_and_its_place_taken(data: Path) -> None:
    with LocalCluster(data, port_base=0, restart=False) as cluster:
        topic = Topic(cluster.nodes[0].url, "mourned")
        topic.create(partitions=PARTITIONS)
        with Load(cluster, topic, PARTITIONS) as load:
            cluster.add_node()
            cluster.wait_ready()
            cluster.kill(cluster.nodes[2], signal.SIGKILL)
            eventually(lambda: remove(cluster.nodes[0], "n3"))
            members = ["n1", "n2", "n4"]
            eventually(lambda: [n["node_id"] for n in described(cluster.nodes[0])["nodes"]] == members, 90)
            load.goes_on()
            assert [sorted(replicas) for replicas in placed(topic)] == [members] * PARTITIONS
            cluster.kill(cluster.nodes[1], signal.SIGKILL)
            load.goes_on()
        load.check()


def _is_empty(folder: Path) -> bool:
    return not list(folder.iterdir())


def remove(node: LocalNode, node_id: str) -> bool:
    """Whether the order was taken; right after a death there may be no leader to take it."""
    return call("POST", f"{node.url}/v1/cluster/members", {"action": "remove", "node_id": node_id}).status == 202


def test_a_cluster_grows_from_one_node_to_three(data: Path) -> None:
    with LocalCluster(data, 1, port_base=0) as cluster:
        first = cluster.nodes[0]
        topic = Topic(first.url, "grown")
        topic.create()
        expect(200, topic.append("alone"))
        for _ in range(2):
            cluster.add_node()
        cluster.wait_ready()
        move(topic, 0, ["n1", "n2", "n3"])
        arrived(cluster, topic, 0, ["n1", "n2", "n3"])
        order = {"topic": None, "partition": None, "node_id": "n3"}
        eventually(lambda: call("POST", f"{first.url}/v1/cluster/leaders", order).status == 200)
        cluster.kill(first, signal.SIGKILL)
        third = topic.at(cluster.nodes[2].url)
        eventually(lambda: third.append("together").status == 200)
        assert third.values() == ["alone", "together"]
        assert [summary["name"] for summary in expect(200, call("GET", f"{third.node}/v1/topics"))["topics"]] == [
            "grown"
        ]


SMALL = """[limits]
segment_bytes_max = 1048576
wal_file_bytes = 1048576
wal_bytes_max = 4194304
checkpoint_bytes = 1048576
"""
"""So that little data is enough to take checkpoints, and to let go of the log before them."""


def test_compacted_entries_reach_new_replicas_by_checkpoints(data: Path) -> None:
    """To a node that lost its disk, and to one that was never there; under writers."""
    with LocalCluster(data, port_base=0, restart=False, settings=SMALL) as cluster:
        topic = Topic(cluster.nodes[0].url, "long")
        topic.create(partitions=PARTITIONS + 1)
        lines = ["x" * 999] * 500
        for number in range(60):
            expect(200, topic.append("\n".join([*lines, str(number)]), PARTITIONS))
        with Load(cluster, topic, PARTITIONS) as load:
            wiped(cluster, cluster.nodes[2])
            eventually(partial(whole, cluster, topic, "n3", PARTITIONS + 1), 60)
            load.goes_on()
            cluster.add_node()
            cluster.wait_ready()
            move(topic, PARTITIONS, ["n4", "n2", "n3"])
            arrived(cluster, topic, PARTITIONS, ["n4", "n2", "n3"])
            handed_over(topic, PARTITIONS, "n4")
            load.goes_on()
            cluster.kill(cluster.nodes[0], signal.SIGKILL)
            cluster.kill(cluster.nodes[1], signal.SIGKILL)
            third = topic.at(cluster.nodes[3].url)
            for number in range(60):
                query = f"offset={number * 501}&max_bytes=1048576"
                assert eventually(partial(third.values, PARTITIONS, query))[:501] == [*lines, str(number)]
            cluster.start_node(cluster.nodes[0])
            cluster.start_node(cluster.nodes[1])
            cluster.wait_ready()
            load.goes_on()
        load.check()


def wiped(cluster: LocalCluster, node: LocalNode) -> None:
    """Kill a node, and let it come back with nothing but its configuration."""
    cluster.kill(node, signal.SIGKILL)
    for path in node.data.iterdir():
        if path.name in ("node.toml", "node.log"):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.start_node(node)


def test_a_node_that_lost_its_disk_comes_back_and_counts_again(data: Path) -> None:
    """Each in turn is wiped, and as soon as it is whole, another one is killed: what it was given has to count."""
    with LocalCluster(data, port_base=0, restart=False) as cluster:
        topic = Topic(cluster.nodes[0].url, "wiped")
        topic.create(partitions=PARTITIONS)
        with Load(cluster, topic, PARTITIONS) as load:
            for lost, killed in itertools.islice(zip((2, 0, 1), (0, 1, 2), strict=True), 3):
                wiped(cluster, cluster.nodes[lost])
                eventually(partial(whole, cluster, topic, f"n{lost + 1}"), 60)
                load.goes_on()
                cluster.kill(cluster.nodes[killed], signal.SIGKILL)
                load.goes_on()
                cluster.start_node(cluster.nodes[killed])
                cluster.wait_ready()
                load.goes_on()
        load.check()


def whole(cluster: LocalCluster, topic: Topic, name: str, partitions: int = PARTITIONS) -> bool:
    """Whether every group can be led by this node: only a voter can, and only one that has everything."""
    node = next(node.url for node in cluster.nodes if node.pid is not None)
    orders = [(topic.name, partition) for partition in range(partitions)] + [(None, None)]
    for topic_name, partition in orders:
        order = {"topic": topic_name, "partition": partition, "node_id": name}
        if call("POST", f"{node}/v1/cluster/leaders", order).status != 200:
            return False
    return True


def test_a_node_outside_the_controller_group_knows_its_leader(data: Path) -> None:
    """Also when it asked a controller that knew of no leader, and nothing else has happened since."""
    with LocalCluster(data, port_base=0, restart=False) as cluster:
        fourth = cluster.add_node()
        cluster.wait_ready()
        for node_id in ("n3", "n1", "n2"):
            handed_over_control(cluster, node_id)
            eventually(partial(_names_controller, fourth, node_id))
        for node in (cluster.nodes[0], cluster.nodes[2], fourth):
            cluster.kill(node, signal.SIGKILL)
        cluster.start_node(fourth)
        eventually(lambda: "no controller leader is known" in call("GET", f"{fourth.url}/readyz").body.decode())
        # A load balancer keeps it: records need no controller.
        eventually(lambda: call("GET", f"{fourth.url}/readyz/data").status == 200)
        (reason,) = call("GET", f"{fourth.url}/readyz/control").json["reasons"]
        assert (reason["part"], reason["reason"]) == ("control", "no_controller")
        for node in (cluster.nodes[0], cluster.nodes[2]):
            cluster.start_node(node)
        eventually(lambda: call("GET", f"{fourth.url}/readyz").status == 200)


def handed_over_control(cluster: LocalCluster, node_id: str) -> None:
    order = {"topic": None, "partition": None, "node_id": node_id}
    eventually(lambda: is_led(cluster.nodes[0].url, order))


def _names_controller(node: LocalNode, node_id: str) -> bool:
    return described(node)["controller"]["leader_node"] == node_id  # type: ignore[no-any-return]
