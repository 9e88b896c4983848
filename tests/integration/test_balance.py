"""Leaders go home, partitions move to new nodes and away from full disks, controllers go where an operator wants them:
under writers, and nothing acknowledged is lost or doubled.
"""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from disks import MIB, cluster_on_disks, needs_root

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.cli.main import main

from .api import Topic, call, controller_at, eventually, expect
from .load import Load
from .test_failover import node_named

# Each of many steps may take a minute on a busy machine.
pytestmark = pytest.mark.timeout(600)

PARTITIONS = 6
STABLE_MS = 1_000
"""The least: a node has to be well for so long before it is given anything."""


def order(url: str, method: str, body: Any = None, path: str = "balance", status: int = 200) -> Any:
    return expect(status, call(method, f"{url}/v1/cluster/{path}", body))


def arrange(url: str, **changes: Any) -> None:
    eventually(lambda: call("POST", f"{url}/v1/cluster/feature_level", {"level": 2}).status == 200)
    wanted = {"stable_ms": STABLE_MS, "disk_used_percent_max": 99, **changes}
    eventually(lambda: call("PATCH", f"{url}/v1/cluster/balance", wanted).status == 200)


def partitions(topic: Topic, url: str | None = None) -> Any:
    return expect(200, call("GET", topic.at(url or topic.node).url))["partitions"]


def are_home(topic: Topic, url: str | None = None) -> bool:
    return all(each["leader_node"] == each["replicas"][0] for each in partitions(topic, url))


def held(topic: Topic) -> Counter[str]:
    return Counter(node_id for each in partitions(topic) for node_id in each["replicas"])


def is_still(url: str) -> bool:
    """Nothing moves, and nothing is planned."""
    plan = order(url, "GET")
    return not plan["moves"] and not plan["moving"] and not plan["leaders"]


def is_placed(url: str) -> bool:
    """No replica moves or has to; leaders may be away from homes that have moved, which only the next plan sends."""
    plan = order(url, "GET")
    return not plan["moves"] and not plan["moving"]


def waits_for(url: str, node_id: str) -> Any:
    """The plan, when there is something to do that does not begin only because this node is away."""
    plan = order(url, "GET")
    return plan if plan["held"] == {node_id: "away"} and plan["moves"] else None


def controllers(url: str) -> list[str]:
    return sorted(expect(200, call("GET", f"{url}/v1/cluster"))["controllers"])


def is_begun(url: str) -> bool:
    """Whether the plan that was shown has begun; it is another one as soon as a node has stood still for a while."""
    plan = json.loads(run(url, "balance", "--plan", "--json"))["plan"]
    return CliRunner().invoke(main, ["cluster", "balance", "--confirm", plan, "--url", url]).exit_code == 0


def is_stored(topic: Topic, partition: int, text: str) -> bool:
    return topic.append(text, partition).status == 200


def run(url: str, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["cluster", *words, "--url", url])
    assert result.exit_code == code, result.output
    return result.output


def test_leaders_go_home_when_their_node_is_back_and_only_if_they_shall(data: Path) -> None:
    with LocalCluster(data, port_base=0, restart=False) as cluster:
        one, last = cluster.nodes[0], cluster.nodes[2]
        topic = Topic(one.url, "homes")
        topic.create(partitions=PARTITIONS)
        arrange(one.url, mode="leaders")
        with Load(cluster, topic, 2) as load:
            eventually(partial(are_home, topic))
            arrange(one.url, mode="off")
            cluster.kill(last, signal.SIGKILL)
            load.goes_on()
            cluster.start_node(last)
            cluster.wait_ready()
            planned = eventually(lambda: order(one.url, "GET")["leaders"] or None)
            assert {each["home"] for each in planned} == {"n3"}
            assert not are_home(topic), "the mode is off"
            arrange(one.url, mode="leaders")
            eventually(partial(are_home, topic))
            load.goes_on()
            other = partitions(topic)[0]["replicas"][1]
            wanted = {"topic": "homes", "partition": 0, "node_id": other}
            eventually(lambda: call("POST", f"{one.url}/v1/cluster/leaders", wanted).status == 200)
            eventually(lambda: partitions(topic)[0]["replicas"][0] == other)
            eventually(partial(are_home, topic))
            assert topic.leader() == other, "it stays where an operator wants it"
        load.check()


def test_partitions_move_to_a_fourth_node_by_themselves_while_writers_go_on_and_the_controller_is_killed(
    data: Path,
) -> None:
    with LocalCluster(data, port_base=0, restart=False) as cluster:
        Topic(cluster.nodes[0].url, "spreads").create(partitions=PARTITIONS)
        Topic(cluster.nodes[0].url, "alone").create(partitions=PARTITIONS, replication_factor=1)
        arrange(cluster.nodes[0].url, copy_bytes_per_s=4 * MIB, moves_at_once=1)
        cluster.add_node()
        cluster.wait_ready()
        url = cluster.nodes[3].url
        topic, alone = Topic(url, "spreads"), Topic(url, "alone")
        with Load(cluster, topic, 2) as load:
            eventually(lambda: held(topic)["n4"] + held(alone)["n4"] >= 1, 60)
            killed = node_named(cluster, leader := controller_at(url))
            cluster.kill(killed, signal.SIGKILL)
            seen = eventually(partial(waits_for, url, leader), 30)
            assert {move["topic"] for move in seen["moves"] if move["why"] == "spread"} == {"alone"}, (
                "others lack replicas"
            )
            load.goes_on()
            again = eventually(partial(waits_for, url, leader))
            assert again["moving"] <= seen["moving"], "nothing begins while a node is away"
            cluster.start_node(killed)
            cluster.wait_ready()
            eventually(lambda: held(topic)["n4"] + held(alone)["n4"] >= PARTITIONS - 1 and is_still(url), 120)
            load.goes_on()
            assert sum(held(topic).values()) == 3 * PARTITIONS
            counts = (held(topic) + held(alone)).values()
            assert max(counts) - min(counts) <= 2
            eventually(partial(are_home, topic))
        load.check()


@pytest.fixture(scope="module")
def grown(module_path: Path) -> Iterator[LocalCluster]:
    """Three nodes with a topic ``planned``, which nothing moves by itself, and a fourth one."""
    with LocalCluster(module_path / "grown", port_base=0, restart=False) as cluster:
        Topic(cluster.nodes[0].url, "planned").create(partitions=PARTITIONS)
        arrange(cluster.nodes[0].url, mode="off")
        cluster.add_node()
        cluster.wait_ready()
        yield cluster


def test_a_plan_of_moves_that_was_looked_at_is_done_whole_or_not_at_all(grown: LocalCluster) -> None:
    url = grown.nodes[0].url
    topic = Topic(url, "planned")
    eventually(lambda: order(url, "GET")["moves"] or None)
    plan = json.loads(run(url, "balance", "--plan", "--json"))
    assert all("n4" in move["target"] for move in plan["about"]["moves"] if move["why"] == "spread")
    shown = run(url, "balance", "--plan")
    assert "it holds more than others" in shown
    assert plan["plan"] in shown
    assert held(topic)["n4"] == 0
    assert plan["plan"] in run(url, "balance", "--confirm", "0" * 16, code=6)
    assert held(topic)["n4"] == 0, "another plan than the one that was agreed to"
    eventually(partial(is_begun, url))
    eventually(lambda: held(topic)["n4"] >= 3 and is_placed(url), 100)
    refused = call("POST", f"{url}/v1/cluster/balance", {"if_plan": "other"})
    assert (refused.status, refused.json["code"]) == (412, "PLAN_CHANGED")


def test_controllers_go_where_an_operator_wants_them_and_stay_there(grown: LocalCluster) -> None:
    url = grown.nodes[1].url
    eventually(lambda: controllers(url) == ["n1", "n2", "n3"])
    seen = json.loads(run(url, "controllers", "n2,n3,n4", "--plan", "--json"))
    assert seen["state"]["target"] == ["n2", "n3", "n4"]
    assert seen["about"]["outlives_a_zone"]
    run(url, "controllers", "n2,n3,n4", "--confirm", seen["plan"])
    eventually(lambda: controllers(url) == ["n2", "n3", "n4"])
    order(url, "POST", {"node_ids": ["n2", "n3"]}, "controllers", 400)
    order(url, "POST", {"node_ids": ["n9"]}, "controllers", 404)
    grown.kill(grown.nodes[0], signal.SIGKILL)
    topic = Topic(url, "afterwards")
    eventually(lambda: call("POST", f"{url}/v1/topics", {"name": topic.name}).status in (200, 201))
    eventually(partial(is_stored, topic, 0, "one"))


SETTINGS = """[limits]
segment_bytes_max = 1048576
wal_file_bytes = 1048576
wal_bytes_max = 4194304
checkpoint_bytes = 1048576
disk_soft_free_bytes = 2097152
disk_hard_free_bytes = 1048576
disk_reserve_bytes = 0
"""


@pytest.fixture
def tight(data: Path) -> Iterator[LocalCluster]:
    """Four nodes with a disk each; that of n1 is much smaller than the others."""
    with cluster_on_disks(data, [size * MIB for size in (32, 128, 128, 128)], SETTINGS) as running:
        yield running


@needs_root
def test_a_nearly_full_disk_loses_replicas_and_gets_none(tight: LocalCluster) -> None:
    url = tight.nodes[1].url
    topic = Topic(url, "fills")
    topic.create(partitions=4)
    arrange(url)
    before, lines = held(topic)["n1"], "\n".join(["x" * 999] * 500)
    assert before == 3
    with Load(tight, topic, 1) as load:
        for _ in range(8):
            for partition in range(1, 4):
                assert eventually(partial(is_stored, topic, partition, lines))
        assert held(topic)["n1"] == before
        arrange(url, disk_used_percent_max=50)
        eventually(lambda: held(topic)["n1"] < before and not order(url, "GET")["moving"], 60)
        eventually(partial(is_still, url))
        assert held(topic)["n1"] < before, "nothing comes back"
        load.goes_on()
    load.check()
