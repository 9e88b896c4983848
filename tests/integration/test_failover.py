"""Leaders die under writers: nothing acknowledged is lost, nothing is stored twice, and the fence holds."""

import itertools
import signal
from collections.abc import Callable
from functools import partial

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .api import Answer, Topic, Writer, call, eventually, expect

pytestmark = pytest.mark.elections


def node_named(cluster: LocalCluster, name: str | None) -> LocalNode:
    return next(node for node in cluster.nodes if node.name == name)


def whole(cluster: LocalCluster) -> None:
    """Return when the nodes that earlier tests killed are back, and know a leader again."""
    eventually(lambda: all(node.pid for node in cluster.nodes))
    cluster.wait_ready()


def settled(writer: Writer, text: str, sequence: int, cluster: LocalCluster, partition: int = 0) -> Answer:
    """The same append again, over any node, until its outcome is known: that is what the stamp is for."""
    nodes = itertools.cycle(cluster.nodes)

    def attempt() -> Answer | None:
        answer = writer.append(text, sequence, partition, writer.topic.at(next(nodes).url))
        return None if answer.status >= 500 or answer.status in (421, 429) else answer

    found: Answer = eventually(attempt, timeout_s=60)
    return found


def _holds(read: Callable[[], list[str]], expected: list[str]) -> bool:
    return read() == expected


def on_every_replica(cluster: LocalCluster, topic: Topic, expected: list[str]) -> None:
    for node in cluster.nodes:
        here = partial(topic.at(node.url).values, query="offset=0&local=true&max_bytes=67108864")
        eventually(partial(_holds, here, expected), timeout_s=60)


def test_a_killed_leader_loses_nothing_and_stores_nothing_twice(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "failover")
    topic.create()
    writer = Writer(topic, "steady", [0])
    written = []
    for number in range(60):
        if number in (20, 40):
            leader = node_named(cluster, topic.at(alive(cluster)).led_by())
            cluster.kill(leader, signal.SIGKILL)
        expect(200, settled(writer, f"line {number}", number, cluster))
        written.append(f"line {number}")
    on_every_replica(cluster, topic, written)


def alive(cluster: LocalCluster) -> str:
    return next(node.url for node in cluster.nodes if node.pid is not None)


def test_a_zombie_is_refused_before_and_after_its_partition_fails_over(cluster: LocalCluster) -> None:
    whole(cluster)
    topic = Topic(cluster.nodes[0].url, "zombies")
    topic.create(partitions=2)
    zombie = Writer(topic, "first", [0, 1])
    expect(200, zombie.append("a", 0))
    successor = Writer(topic, "second", [0], "ExclusiveWithFencing")
    assert successor.answer.json["epoch"] == zombie.answer.json["epoch"] + 1
    leader = node_named(cluster, topic.led_by())
    for kill in (False, True):
        if kill:
            cluster.kill(leader, signal.SIGKILL)
        refused = settled(zombie, "late", 1, cluster)
        assert (refused.status, refused.json["code"]) == (403, "PRODUCER_FENCED")
        assert refused.json["outcome"]["state"] == "absent"
        stored = settled(zombie, "a", 0, cluster)
        assert stored.json["outcome"] == {"state": "committed", "base_offset": 0, "last_offset": 0}
    # The whole grant is gone, also on the partition that no client took over.
    assert settled(zombie, "late", 0, cluster, partition=1).json["reason"] == "slot_free"
    expect(200, settled(successor, "b", 0, cluster))
    on_every_replica(cluster, topic, ["a", "b"])


def test_a_grant_over_several_partitions_is_all_or_nothing(cluster: LocalCluster) -> None:
    whole(cluster)
    topic = Topic(cluster.nodes[0].url, "sets")
    topic.create(partitions=4)
    holder = Writer(topic, "holder", [1, 2])
    loser = Writer(topic, "loser", [0, 1])
    assert (loser.answer.status, loser.answer.json["code"]) == (423, "PRODUCER_BUSY")
    free = Writer(topic, "free", [0, 3])
    assert free.answer.status == 201
    expect(204, call("DELETE", f"{topic.node}/v1/session", headers={"Stockade-Session": holder.session}))
    assert settled(holder, "late", 0, cluster, partition=1).json["code"] == "PRODUCER_FENCED"
    assert loser.acquire([1, 2], "Exclusive").status == 201
