"""A leader that hears no other node, because these stand still: cases of SEMANTICS 11; the number is in the name."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .api import Answer, Topic, Writer, call, controller_at, expect
from .test_failover import node_named, on_every_replica, settled, whole
from .test_failover_grants import decided

pytestmark = pytest.mark.elections

LINES = [f"line {number}" for number in range(5)]
UNDECIDED = {421, 503, 504}
"""What a leader may say that hears no other node."""


@contextmanager
def standing_still(cluster: LocalCluster, nodes: list[LocalNode]) -> Iterator[None]:
    """These nodes do nothing meanwhile."""
    for node in nodes:
        cluster.kill(node, signal.SIGSTOP)
    try:
        yield
    finally:
        for node in nodes:
            cluster.kill(node, signal.SIGCONT)


def led(cluster: LocalCluster, topic: Topic) -> tuple[LocalNode, list[LocalNode]]:
    """The leader of the topic's partition, and the others."""
    leader = node_named(cluster, topic.led_by())
    return leader, [node for node in cluster.nodes if node is not leader]


def undecided(answer: Answer) -> None:
    """It is refused surely, or its outcome is unknown: and it says which."""
    assert answer.status in UNDECIDED, (answer.status, answer.body)
    assert answer.json["no_side_effects"] is (answer.status != 504)


def test_088_089_a_pipeline_whose_leader_is_cut_off_and_dies_is_stored_once_and_in_order(
    cluster: LocalCluster,
) -> None:
    whole(cluster)
    topic = Topic(cluster.nodes[0].url, "cut-off")
    topic.create()
    writer = Writer(topic, "pipeline", [0])
    for number in range(2):
        expect(200, settled(writer, LINES[number], number, cluster))
    leader, others = led(cluster, topic)
    with standing_still(cluster, others):
        undecided(writer.append(LINES[2], 2, topic=topic.at(leader.url)))
        cluster.kill(leader, signal.SIGKILL)
    early = settled(writer, LINES[3], 3, cluster)
    if early.status != 200:  # the second one was lost with its leader
        assert early.json["code"] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert early.json["expected_seq"] == 2
    for number in (2, 3, 4):
        assert expect(200, settled(writer, LINES[number], number, cluster))["base_offset"] == number
    whole(cluster)
    on_every_replica(cluster, topic, LINES)


def test_090_a_partitioned_leader_refuses_no_batch_as_out_of_order(cluster: LocalCluster) -> None:
    whole(cluster)
    topic = Topic(cluster.nodes[0].url, "stale-leader")
    topic.create()
    writer = Writer(topic, "numbered", [0])
    expect(200, settled(writer, LINES[0], 0, cluster))
    leader, others = led(cluster, topic)
    with standing_still(cluster, others):
        undecided(writer.append("a hole", 7, topic=topic.at(leader.url)))
    assert settled(writer, "a hole", 7, cluster).json["code"] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    expect(200, settled(writer, LINES[1], 1, cluster))


def test_093_time_without_a_leader_costs_a_holder_nothing(cluster: LocalCluster) -> None:
    whole(cluster)
    topic = Topic(cluster.nodes[0].url, "leaderless")
    topic.create(partitions=2)
    writer = Writer(topic, "holder", [0])
    expect(200, settled(writer, "before", 0, cluster))
    brief = expect(201, call("POST", f"{topic.node}/v1/sessions", {"client_id": "brief", "ttl_ms": 6_000}))["session"]
    wanted = {"partitions": [1], "mode": "Exclusive", "producer_name": "brief"}
    headers = {"Stockade-Session": brief}
    held = expect(201, call("POST", f"{topic.url}/grants", wanted, headers=headers))
    leader = controller_at(topic.node)
    with standing_still(cluster, [node for node in cluster.nodes if node.name != leader]):
        began = time.monotonic()
        while time.monotonic() < began + 8:  # the case itself: there is no leader for longer than the session lives
            time.sleep(0.1)
    assert decided(lambda: call("PUT", f"{topic.node}/v1/session", headers={"Stockade-Session": brief})).status == 200
    token = {"Stockade_Fence_Grant": held["grant"], "Stockade_Fence_Epoch": "1", "Stockade_Session": brief}
    expect(200, decided(lambda: topic.append("after", 1, **token)))
    expect(200, settled(writer, "after", 1, cluster))
