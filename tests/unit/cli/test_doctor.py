import json
from pathlib import Path

from stockade.cli.doctor import Probe, judge_nodes, judge_topics
from stockade.client.model import Cluster, Controller, Move, Node, PartitionState, Topic, TopicConfig

from ..client.fake_cluster import FakeCluster
from .conftest import Run


def seen_by(node: str, leader: str | None = "n1", version: str = "1", moves: tuple[Move, ...] = ()) -> Cluster:
    nodes = [Node("n1", "http://127.0.0.1:1", None, True), Node("n2", "http://127.0.0.1:2", None, True)]
    return Cluster("c", node, version, Controller(None, leader, 1), nodes, list(moves))


def verdicts(*probes: Probe) -> dict[str, tuple[str, str]]:
    return {finding.about: (finding.verdict, finding.found) for finding in judge_nodes(probes)}


def test_a_healthy_cluster_is_all_ok_and_exits_with_0(cluster: FakeCluster, run: Run, tmp_path: Path) -> None:
    cluster.create("orders", 2)
    done = run("doctor", "--data", str(tmp_path))
    assert done.exit_code == 0, done.output
    for text in ("disk speed", "open files", "node n1", "ready", "controller", "topic orders", "2 partitions led"):
        assert text in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_dead_node_is_wrong_and_its_replicas_are_away(cluster: FakeCluster, run: Run) -> None:
    cluster.create("orders", 1)
    cluster.kill(cluster.nodes[1])
    done = run("doctor", "--output", "json")
    assert done.exit_code == 1
    findings = {finding["about"]: finding for finding in json.loads(done.output)}
    assert findings["node n2"]["verdict"] == "wrong"
    assert findings["node n2"]["advice"]
    assert findings["node n1"]["verdict"] == "ok"


def test_no_node_at_all_is_exit_code_4(cluster: FakeCluster, run: Run) -> None:
    for node in cluster.nodes:
        cluster.kill(node)
    assert run("doctor").exit_code == 4


def test_disagreement_and_differing_versions_are_warnings() -> None:
    found = verdicts(Probe("n1", seen_by("n1"), True, 1.0), Probe("n2", seen_by("n2", "n2", "2"), True, 1.0))
    assert found["versions"] == ("warning", "1, 2")
    assert found["controller"] == ("warning", "nodes name different leaders")


def test_a_controller_without_a_leader_and_a_node_that_is_not_ready_are_wrong() -> None:
    found = verdicts(Probe("n1", seen_by("n1", None), False, 1.0, "no leader"))
    assert found["controller"][0] == "wrong"
    assert found["node n1"] == ("wrong", "not ready: no leader")


def test_a_move_under_way_is_told() -> None:
    found = verdicts(Probe("n1", seen_by("n1", moves=(Move("t", 3, ["n2"]),)), True, 1.0))
    assert found["t/3"] == ("warning", "is moving to n2")


def test_partitions_without_leader_or_with_replicas_on_dead_nodes_are_named() -> None:
    states = [PartitionState(p, None, "n1" if p else None, 1, ["n1", "n2"]) for p in range(12)]
    topic = Topic("t", 1, 2, False, TopicConfig(), states)
    [finding] = judge_topics([topic], set())
    assert (finding.verdict, finding.found) == ("wrong", "no leader: partitions 0")
    [finding] = judge_topics([Topic("t", 1, 2, False, TopicConfig(), states[1:])], {"n2"})
    assert finding.verdict == "warning"
    assert finding.found == "a replica is away: partitions 1, 2, 3, 4, 5, 6, 7, 8 and 3 more"
