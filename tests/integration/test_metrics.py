"""The metrics of real nodes say what happens to a cluster."""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .api import Topic, Writer, call, eventually, expect
from .test_failover import node_named

pytestmark = pytest.mark.processes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "data", port_base=0, restart=False, tls=True) as running:
        yield running


def metric(at: LocalNode, name: str, **labels: str) -> float:
    """The sum of a node's samples of this name with these labels."""
    text = call("GET", f"{at.url}/metrics").body.decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = [each.value for each in samples if each.name == name and labels.items() <= each.labels.items()]
    return sum(found)


def total(nodes: list[LocalNode], name: str, **labels: str) -> float:
    return sum(metric(each, name, **labels) for each in nodes)


LEDGERS = 1
"""Partitions that the cluster has of its own."""


def test_a_node_that_dies_and_comes_back_shows_in_the_others_metrics(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "orders")
    topic.create(partitions=4)
    expect(200, topic.append("a"))
    nodes = cluster.nodes
    groups = partial(total, nodes, "stockade_raft_groups")
    eventually(lambda: groups(kind="partition", role="leader") == 4 + LEDGERS)
    eventually(lambda: groups(kind="partition", role="follower") == 2 * (4 + LEDGERS))
    eventually(lambda: groups(kind="controller", role="leader") == 1)
    eventually(lambda: total(nodes, "stockade_raft_under_replicated_groups") == 0)
    eventually(lambda: metric(nodes[0], "stockade_raft_nodes", state="connected") == 2)
    assert metric(nodes[0], "stockade_certificate_days_left", use="raft") > 1

    dead = node_named(cluster, topic.led_by())
    staying = [node for node in nodes if node is not dead]
    won = total(staying, "stockade_raft_leaderships_won_total")
    cluster.kill(dead, signal.SIGKILL)

    eventually(lambda: total(staying, "stockade_raft_under_replicated_groups", kind="partition") == 4 + LEDGERS)
    eventually(lambda: total(staying, "stockade_raft_under_replicated_groups", kind="controller") == 1)
    assert total(staying, "stockade_raft_leaderships_won_total") > won
    eventually(lambda: [metric(node, "stockade_raft_nodes", state="away") for node in staying] == [1, 1])
    there = topic.at(staying[0].url)
    for number in range(20):
        expect(200, there.append(str(number)))
    assert max(metric(each, "stockade_raft_follower_lag_entries", node=dead.name) for each in staying) >= 20
    log = "".join((node.data / "node.log").read_text(encoding="utf-8") for node in staying)
    assert "this node leads orders/0 in term " in log

    cluster.start_node(dead)
    eventually(lambda: total(nodes, "stockade_raft_under_replicated_groups") == 0)
    eventually(lambda: total(nodes, "stockade_raft_follower_lag_entries", node=dead.name) == 0)


def test_without_a_majority_groups_are_leaderless(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "orders")
    topic.create(partitions=2)
    eventually(lambda: total(cluster.nodes, "stockade_raft_groups", kind="partition") == 3 * (2 + LEDGERS))
    last, *others = cluster.nodes
    for node in others:
        cluster.kill(node, signal.SIGKILL)
    eventually(lambda: metric(last, "stockade_raft_leaderless_groups", kind="partition") == 2 + LEDGERS)
    # Each group finds out by timers of its own.
    eventually(lambda: metric(last, "stockade_raft_leaderless_groups", kind="controller") == 1)


def test_writes_writers_and_readers_show_in_the_metrics(cluster: LocalCluster) -> None:
    nodes = cluster.nodes
    topic = Topic(nodes[0].url, "orders")
    topic.create()
    first = Writer(topic, "first", [0])
    for sequence in range(3):
        expect(200, first.append("a", sequence))
    leader = node_named(cluster, topic.led_by())
    assert metric(leader, "stockade_log_fsync_seconds_count") >= 3
    assert metric(leader, "stockade_log_fsync_seconds_sum") > 0
    assert metric(leader, "stockade_raft_apply_seconds_count") >= 3
    assert metric(leader, "stockade_log_wal_bytes") > 0
    assert metric(leader, "stockade_log_disk_size_bytes") > metric(leader, "stockade_log_disk_free_bytes") > 0
    assert total(nodes, "stockade_log_segment_bytes") > 0
    counts = {"sessions": 1, "grants": 1, "held_partitions": 1, "waiters": 0}
    eventually(lambda: {name: total(nodes, f"stockade_fence_{name}") for name in counts} == counts)

    second = Writer(topic, "second", [0], mode="ExclusiveWithFencing")
    eventually(lambda: total(nodes, "stockade_fence_takeovers_total") == 1)
    eventually(lambda: total(nodes, "stockade_fence_sessions") == 2)
    assert first.append("late", 3).status == 403
    assert total(nodes, "stockade_refused_writes_total", code="PRODUCER_FENCED") == 1
    log = "".join((node.data / "node.log").read_text(encoding="utf-8") for node in nodes)
    assert "takeover: second as second writes to orders/0 alone, in epoch 2 (evicted)" in log
    assert second.session not in log

    position = f"{topic.node}/v1/groups/readers/positions/orders/0"
    assert call("PUT", position, {"offset": 1}).status in (200, 204)
    eventually(lambda: total(nodes, "stockade_group_lag_records", group="readers") == 2)
