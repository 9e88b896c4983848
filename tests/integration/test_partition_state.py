"""What a partition remembers outlives its leader, and all its nodes at once: cases of SEMANTICS 10 and 11."""

import signal

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .api import Topic, Writer, call, eventually, expect
from .test_failover import node_named

pytestmark = pytest.mark.elections


def leader_of(cluster: LocalCluster, topic: Topic) -> LocalNode:
    return node_named(cluster, topic.at(running(cluster)).led_by())


def running(cluster: LocalCluster) -> str:
    return next(node.url for node in cluster.nodes if node.pid is not None)


def strike(cluster: LocalCluster, victims: list[LocalNode]) -> None:
    """Kill, and return when everybody is back."""
    for victim in victims:
        cluster.kill(victim, signal.SIGKILL)
    eventually(lambda: all(node.pid for node in cluster.nodes))
    cluster.wait_ready()


class Remembered:
    """A topic with everything that one partition can remember, and what it must answer from then on."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self.cluster = cluster
        self.topic = Topic(cluster.nodes[0].url, name)
        self.topic.create(partitions=1, config={"dedupe_window_ms": 600_000})
        self.position = f"/v1/groups/readers/positions/{name}/0"
        self.first = Writer(self.topic, f"{name}-first", [0])
        for sequence in range(7):
            expect(200, self.first.append(f"line {sequence}", sequence))
        expect(200, self.topic.append("named", 0, Stockade_Message_Id="m", **self.first.fence()))
        self.second = Writer(self.topic, f"{name}-second", [0], "ExclusiveWithFencing")
        for _ in range(2):
            expect(403, self.first.append("late", 7))
        body = {"before": 3}
        headers = {key.replace("_", "-"): value for key, value in self.second.fence().items()}
        expect(200, call("POST", f"{self.topic.url}/partitions/0/trim", body, headers=headers))
        expect(200, call("PUT", f"{self.topic.node}{self.position}", {"offset": 5, "metadata": "here"}))

    def check(self) -> None:
        node = running(self.cluster)
        topic = self.topic.at(node)
        eventually(lambda: call("GET", f"{topic.records()}?offset=3").status == 200, timeout_s=60)
        assert topic.values(query="offset=3")[-1] == "named"
        expect(410, call("GET", f"{topic.records()}?offset=2"))
        known = expect(200, call("GET", f"{node}{self.position}"))
        assert (known["offset"], known["metadata"]) == (5, "here")
        again = topic.append("named", 0, Stockade_Message_Id="m", **self.second.fence())
        assert (expect(200, again)["base_offset"], again.json["duplicate"]) == (7, True)
        present, past = expect(200, call("GET", f"{topic.url}/partitions/0/fences"))["fences"][:2]
        assert (present["client_id"], present["end"], past["client_id"]) == (self.second.name, None, self.first.name)
        assert past["refused"] >= 2
        zombie = self.first.append("line 6", 6, topic=topic)
        refusal = expect(403, zombie)
        assert refusal["outcome"] == {"state": "committed", "base_offset": 6, "last_offset": 6}
        assert refusal["holder"]["client_id"] == self.second.name

    def check_duplicates(self) -> None:
        """The five newest batches of the first writer are known at their offsets, under the second one's fence."""
        topic = self.topic.at(running(self.cluster))
        for sequence in range(2, 7):
            answer = topic.append(f"line {sequence}", 0, **self.second.fence(), **self.first.stamp(sequence))
            assert (expect(200, answer)["base_offset"], answer.json["duplicate"]) == (sequence, True)


def test_084_088_the_state_of_a_partition_survives_a_failover(cluster: LocalCluster) -> None:
    remembered = Remembered(cluster, "leaders")
    for _ in range(2):
        strike(cluster, [leader_of(cluster, remembered.topic)])
        remembered.check()
        remembered.check_duplicates()


def test_084_the_state_of_a_partition_survives_the_kill_of_all_its_nodes(cluster: LocalCluster) -> None:
    remembered = Remembered(cluster, "everybody")
    strike(cluster, list(cluster.nodes))
    remembered.check()
    remembered.check_duplicates()
