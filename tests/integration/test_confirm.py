"""An operator's orders on real nodes: what they would hit is shown, and exactly that is carried out, or nothing."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.cli.main import main
from stockade.partition.api.ownership import grants_digest

from .api import CALM, Topic, Writer, call, eventually, expect


def ordered(cluster: LocalCluster, *words: str, code: int = 0) -> Any:
    """The JSON that an order prints, which ends with ``code``."""
    urls = ",".join(node.url for node in cluster.nodes)
    done = CliRunner().invoke(main, [*words, "--output", "json", "--url", urls])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_a_node_goes_as_it_was_planned_or_not_at_all(data: Path) -> None:
    with LocalCluster(data, port_base=0, settings=CALM) as cluster:
        topic = Topic(cluster.nodes[0].url, "staying")
        topic.create(partitions=2)
        topic.append("before")
        cluster.add_node()
        cluster.wait_ready()
        plan = ordered(cluster, "cluster", "remove", "n3", "--plan")
        moved = [(move["topic"], move["partition"], move["target"]) for move in plan["about"]["moves"]]
        assert [
            moved[0],
            moved[1][:2],
            moved[2][:2],
        ] == [(None, None, ["n1", "n2", "n4"]), ("staying", 0), ("staying", 1)]
        Topic(cluster.nodes[0].url, "later").create(partitions=3)
        new = ordered(cluster, "cluster", "remove", "n3", "--confirm", plan["plan"], code=6)
        stale = {"action": "remove", "node_id": "n3", "if_plan": plan["state"]["plan"]}
        refused = expect(412, call("POST", f"{cluster.nodes[1].url}/v1/cluster/members", stale))
        assert (refused["code"], refused["plan"]) == ("PLAN_CHANGED", new["state"]["plan"])
        assert not any(node["draining"] for node in ordered(cluster, "cluster", "status")["nodes"])
        assert ordered(cluster, "cluster", "remove", "n3", "--confirm", new["plan"])["done"]
        assert "n3" not in [node["node_id"] for node in ordered(cluster, "cluster", "status")["nodes"]]
        for move in new["about"]["moves"][1:]:
            found = ordered(cluster, "topics", "describe", move["topic"])["partitions"][move["partition"]]
            assert found["replicas"] == move["target"]
        assert topic.values() == ["before"]


def test_writers_that_came_meanwhile_are_not_hit(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "held")
    topic.create(partitions=2)
    for number in range(4):
        topic.append(str(number))
    hung = Writer(topic, "hung", [0])
    fence = ordered(cluster, "fence", "held", "--partition", "0", "--plan")
    trim = ordered(cluster, "topics", "trim", "held", "--partition", "0", "--before", "2", "--plan")
    delete = ordered(cluster, "topics", "delete", "held", "--plan")
    assert [each["client_id"] for each in fence["state"]["grants"]] == ["hung"]
    healthy = Writer(topic, "healthy", [0], "ExclusiveWithFencing")
    grants = [healthy.answer.json["grant"]]
    for words, plan in (
        (("fence", "held", "--partition", "0"), fence),
        (("topics", "trim", "held", "--partition", "0", "--before", "2"), trim),
        (("topics", "delete", "held"), delete),
    ):
        new = ordered(cluster, *words, "--confirm", plan["plan"], code=6)
        assert [each["grant"] for each in new["state"]["grants"]] == grants
    # Each is refused by the cluster, too, when it comes from a program that looked before.
    old = hung.answer.json["grant"]
    body: dict[str, Any] = {"partitions": [0], "if_grants": [old]}
    assert expect(412, call("POST", f"{topic.url}/fence", body))["grants"] == grants
    expect(412, call("DELETE", f"{topic.url}?if_grants={grants_digest([old])}"))
    trimming = {"before": 2, "if_epoch": trim["state"]["epoch"]}
    headers = {name.replace("_", "-"): value for name, value in healthy.fence().items()}
    refused = expect(412, call("POST", f"{topic.url}/partitions/0/trim", trimming, headers=headers))
    assert refused["topic_epoch"] == healthy.answer.json["epoch"]
    assert healthy.append("alive", 0).status == 200
    assert topic.values() == ["0", "1", "2", "3", "alive"]
    expect(204, call("DELETE", f"{topic.url}?if_grants={grants_digest(grants)}"))
    eventually(lambda: call("GET", topic.url).status == 404)
