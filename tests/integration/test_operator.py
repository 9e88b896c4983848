"""An operator's day on the command line, against real nodes."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

from click.testing import CliRunner, Result

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.cli.main import main
from stockade.cluster.features import NEWEST_LEVEL, OLDEST_LEVEL
from stockade.partition.version import VERSION

from .api import Topic, call, eventually


def ordered(cluster: LocalCluster, *words: str) -> Result:
    urls = ",".join(node.url for node in cluster.nodes)
    return CliRunner().invoke(main, ["cluster", *words, "--url", urls])


def said(cluster: LocalCluster, *words: str) -> list[str]:
    """The lines of an order that is carried out."""
    result = ordered(cluster, *words)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_status_is_a_table_for_people_and_json_for_programs(cluster: LocalCluster) -> None:
    heading, columns, *nodes = said(cluster, "status")
    assert heading.startswith("cluster local, version ")
    assert columns.split() == ["NODE", "STATE", "URL", "RAFT", "ZONE", "VERSION", "LEVELS"]
    levels = [str(OLDEST_LEVEL), "to", str(NEWEST_LEVEL)]
    expected = [[node.name, "up", node.url, node.raft, "-", VERSION, *levels] for node in cluster.nodes]
    assert [line.split() for line in nodes] == expected
    status = json.loads(said(cluster, "status", "--output", "json")[0])
    assert [node["node_id"] for node in status["nodes"]] == ["n1", "n2", "n3"]
    assert status["reassignments"] == []


def test_settings_that_differ_from_their_defaults_or_between_nodes_are_a_table(cluster: LocalCluster) -> None:
    columns, *rows = said(cluster, "settings")
    assert columns.split() == ["SETTING", "VALUE", "DEFAULT", "ON"]
    assert ["cluster_id", "local", "-", "all"] in [row.split() for row in rows]
    assert {"n1", "n2", "n3"} == {row.split()[1] for row in rows if row.startswith("node_id")}
    assert not [row for row in rows if row.startswith("raft.heartbeat_ms")]
    assert ["raft.heartbeat_ms", "150", "150", "all"] in [row.split() for row in said(cluster, "settings", "--all")]
    found = json.loads(said(cluster, "settings", "--output", "json")[0])
    assert ([node["node_id"] for node in found["nodes"]], found["missing"]) == (["n1", "n2", "n3"], [])


def test_a_partition_moves_and_changes_its_leader(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "moved")
    topic.create(replication_factor=1)
    topic.append("before")
    assert said(cluster, "move", "moved", "0", "n2,n3,n1") == ["moved/0: on n2, n3, n1"]
    assert said(cluster, "transfer", "moved", "0", "--to", "n3")[0].startswith("n3 leads in term ")
    led = json.loads(said(cluster, "transfer", "moved", "0", "--output", "json")[0])
    assert led["leader_node"] in ("n1", "n2")
    assert said(cluster, "move", "moved", "0", "n3") == ["moved/0: on n3"]
    assert topic.values() == ["before"]
    assert (topic.leader(), ordered(cluster, "transfer", "moved", "0").exit_code) == ("n3", 1)


def test_the_controller_group_changes_its_leader(cluster: LocalCluster) -> None:
    assert said(cluster, "transfer", "--controller", "--to", "n2")[0].startswith("n2 leads in term ")


def test_a_node_is_announced_and_taken_back(cluster: LocalCluster) -> None:
    lines = said(cluster, "add", "n9", "http://127.0.0.1:9", "127.0.0.1:9", "--zone", "far")
    assert lines[-1].split() == ["n9", "away", "http://127.0.0.1:9", "127.0.0.1:9", "far", "-", "-"]
    assert ordered(cluster, "move", "moved", "0", "n9", "--no-wait").stdout == "moved/0: moving to n9\n"
    eventually(lambda: said(cluster, "status")[-2:] == ["MOVING   TO", "moved/0  n9"])
    assert said(cluster, "move", "moved", "0", "n3") == ["moved/0: on n3"], "called off"
    assert json.loads(said(cluster, "move", "moved", "0", "n3", "--output", "json")[0])["replicas"] == ["n3"]
    assert json.loads(said(cluster, "move", "moved", "0", "n3", "--output", "json")[0])["replicas"] == ["n3"]
    assert said(cluster, "remove", "n9") == ["n9: removed"]


def test_an_upgrade_is_finished_once_and_for_all(cluster: LocalCluster) -> None:
    levels = f"{OLDEST_LEVEL} to {NEWEST_LEVEL}"
    _, heading, *nodes = said(cluster, "upgrade", "--wait")
    assert heading.split() == ["NODE", "STATE", "VERSION", "LEVELS"]
    assert [line.split(maxsplit=3) for line in nodes] == [[name, "up", VERSION, levels] for name in ("n1", "n2", "n3")]
    for node in cluster.nodes:
        eventually(partial(_has_level, node.url, NEWEST_LEVEL))  # it is a new cluster, and begins with it
    for _ in range(2):
        assert said(cluster, "upgrade", "--finalize")[0] == f"feature level {NEWEST_LEVEL}"
    told = json.loads(said(cluster, "upgrade", "--output", "json")[0])
    assert told["feature_level"] == NEWEST_LEVEL
    assert told["nodes"][2]["feature_levels"] == {"oldest": OLDEST_LEVEL, "newest": NEWEST_LEVEL}
    refused = call("POST", f"{cluster.nodes[0].url}/v1/cluster/feature_level", {"level": OLDEST_LEVEL})
    assert (refused.status, refused.json["code"]) == (409, "FEATURE_UPDATE_FAILED")


def _has_level(url: str, level: int) -> bool:
    return bool(call("GET", f"{url}/v1/cluster").json["feature_level"] == level)


def test_orders_that_make_no_sense_say_why(cluster: LocalCluster) -> None:
    for words, code, text in [
        (("remove", "n8"), 1, "There is no node n8 (NOT_FOUND)"),
        (("move", "nowhere", "0", "n1"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("move", "moved", "0", "n1,n2"), 1, "must be odd (INVALID_REQUEST)"),
        (("transfer",), 2, "give TOPIC and PARTITION"),
        (("transfer", "moved", "0", "--controller"), 2, "give TOPIC and PARTITION"),
    ]:
        result = ordered(cluster, *words)
        assert (result.exit_code, text in result.stderr) == (code, True), result.output


def test_a_node_of_another_cluster_does_not_join(cluster: LocalCluster, data: Path) -> None:
    data.mkdir()
    lines = [
        'node_id = "n4"',
        'cluster_id = "other"',
        'data_dir = "."',
        'http = "127.0.0.1:1"',
        'raft_listen = "127.0.0.1:2"',
        f'join = ["{cluster.nodes[0].url}"]',
        "[[members]]",
        'node_id = "n4"',
        'url = "http://127.0.0.1:1"',
        'raft = "127.0.0.1:2"',
    ]
    (data / "node.toml").write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "stockade", "serve", "--config", str(data / "node.toml")]
    checked = subprocess.run([*command, "--check"], capture_output=True, text=True, timeout=60, check=False)
    assert f"joins through {cluster.nodes[0].url}" in checked.stdout
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert f"{cluster.nodes[0].url} belongs to the cluster local" in ended.stderr
    assert "n4" not in "".join(said(cluster, "status"))
