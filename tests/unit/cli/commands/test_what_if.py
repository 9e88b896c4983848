"""What a loss would stop, by the catalog."""

import json

import pytest

from stockade.cli.commands.what_if import SHOWN_MAX, Finding, Loss, judge_loss, losses
from stockade.partition.api.cluster import Cluster, LeaderInfo, Node
from stockade.partition.api.topics import PartitionState, SlotHolder, Topic, TopicConfig

from ...client.fake_cluster import FakeCluster
from ..conftest import Run

NODES = {"n1": "a", "n2": "a", "n3": "b", "n4": "b", "n5": "c"}


def seen_by(controllers: str = "n1 n3 n5", away: str = "", zones: dict[str, str] = NODES) -> Cluster:
    nodes = [Node(name, "http://h", "h:1", zone or None, name not in away.split()) for name, zone in zones.items()]
    return Cluster("c", "n1", "1", LeaderInfo(None, "n1", 1), nodes, controllers=controllers.split())


def topic(*replicas: str, holder: str | None = None, name: str = "orders") -> Topic:
    held = None if holder is None else SlotHolder("g-1", "Exclusive", "p", holder, 0, None, None, "acquire")
    states = [
        PartitionState(number, None, names.split()[0], 1, names.split(), 1, None, held)
        for number, names in enumerate(replicas)
    ]
    return Topic(name, 1, 3, False, TopicConfig(), states)


def judged(loss: str, seen: Cluster, *topics: Topic) -> list[Finding]:
    return [finding for each in losses(loss, seen) for finding in judge_loss(each, seen, topics)]


def wrong(findings: list[Finding]) -> list[str]:
    return [finding.found for finding in findings if finding.verdict == "wrong"]


def found(findings: list[Finding]) -> list[str]:
    return [finding.found for finding in findings]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("lose zone a", [Loss("zone", "a")]),
        ("zone b", [Loss("zone", "b")]),
        ("node n2", [Loss("node", "n2")]),
        ("lose disk n3", [Loss("disk", "n3")]),
        ("zone", [Loss("zone", "a"), Loss("zone", "b"), Loss("zone", "c")]),
        ("lose disk", [Loss("disk", name) for name in NODES]),
    ],
)
def test_a_loss_is_named_or_each_of_its_kind(text: str, meant: list[Loss]) -> None:
    assert losses(text, seen_by()) == meant


@pytest.mark.parametrize("text", ["", "lose", "zone x", "node a", "rack a", "zone a b"])
def test_a_loss_that_the_cluster_cannot_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not zone NAME|there is no"):
        losses(text, seen_by())


def test_without_zones_none_can_be_lost() -> None:
    with pytest.raises(ValueError, match="names its zone"):
        losses("zone", seen_by(zones=dict.fromkeys(NODES, "")))


def test_replicas_in_one_zone_stop_with_it_and_so_do_their_writers() -> None:
    seen = judged("zone a", seen_by(), topic("n1 n2 n3", "n1 n3 n5", holder="importer"))
    assert wrong(seen) == [
        "1 partition would stop: orders/0",
        "1 grant would be of no use: importer on orders/0",
    ]
    assert "2 of 3 controllers would be left, and none to spare" in found(seen)
    assert "1 partition would have no replica to spare: orders/1" in found(seen)


def test_a_cluster_that_is_spread_survives_each_zone() -> None:
    seen = judged("zone", seen_by(), topic("n1 n3 n5", "n2 n4 n5", holder="importer"))
    assert wrong(seen) == []
    assert found(seen).count("every holder of a grant would write on") == 3
    assert found(seen).count("all 2 partitions would go on") == 3


def test_controllers_on_one_machine_stop_sessions_and_grants_while_records_go_on() -> None:
    seen = judged("zone a", seen_by("n1 n2 n3"), topic("n1 n3 n5"))
    assert wrong(seen) == ["1 of 3 controllers would be left"]


def test_a_node_that_is_away_already_counts() -> None:
    assert wrong(judged("node n1", seen_by(), topic("n1 n3 n5"))) == []
    seen = judged("node n1", seen_by(away="n3"), topic("n1 n3 n5"))
    assert wrong(seen) == ["1 of 3 controllers would be left", "1 partition would stop: orders/0"]


def test_a_lost_disk_loses_records_only_where_no_majority_of_copies_is_left() -> None:
    lost = "1 partition would lose records for good: orders/1"
    assert wrong(judged("disk n1", seen_by(), topic("n1 n3 n5", "n1")))[0] == lost
    assert "no acknowledged record would be lost" in found(judged("disk n2", seen_by(), topic("n1 n3 n5", "n1")))
    assert not [text for text in found(judged("node n1", seen_by(), topic("n1"))) if "records" in text]


def test_many_partitions_are_named_by_the_first_few() -> None:
    (text,) = wrong(judged("node n1", seen_by(), topic(*["n1"] * (SHOWN_MAX + 2))))
    assert text.startswith(f"{SHOWN_MAX + 2} partitions would stop: orders/0, ")
    assert text.endswith(f"orders/{SHOWN_MAX - 1} and 2 more")


def test_the_command_asks_the_cluster_and_exits_by_what_it_finds(cluster: FakeCluster, run: Run) -> None:
    cluster.create("orders", 2)
    done = run("doctor", "--what-if", "lose node n1", "--output", "json")
    findings = json.loads(done.output)
    assert {finding["about"] for finding in findings} == {"without node n1"}
    assert done.exit_code == any(finding["verdict"] == "wrong" for finding in findings)
    refused = run("doctor", "--what-if", "node n99")
    assert refused.exit_code == 2
    assert "there is no node n99" in refused.output
