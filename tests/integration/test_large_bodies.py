"""A body that is dear to read harms no other request."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster

from .api import Topic, call, eventually
from .test_failover import node_named, whole

pytestmark = pytest.mark.elections

FLOOD = b'{"records":[' + b"{}," * 11_000_000 + b"{}]}"
JSON = {"Content-Type": "application/json"}
FORWARDED = {"Stockade-Forwarded-By": "n9"}
ROUNDS, FLOODS_MAX = 3, 5


@pytest.fixture(scope="module")
def topic(cluster: LocalCluster) -> Iterator[Topic]:
    whole(cluster)
    topic = Topic(cluster.nodes[0].url, "flooded")
    topic.create(config={"max_batch_bytes": 16_777_216})
    eventually(topic.leader)
    yield topic


def term(topic: Topic) -> str:
    return call("GET", f"{topic.url}/partitions/0/offsets").headers["stockade-leader-term"]


def test_a_flood_of_empty_records_neither_deposes_a_leader_nor_stops_its_appends(
    cluster: LocalCluster, topic: Topic
) -> None:
    """33 MB that a parser makes 11 million objects of, sent to the leader again and again while others append. A busy
    machine may depose a leader, too, but not one in each of several floods.
    """
    assert any(is_harmless(cluster, topic) for _ in range(FLOODS_MAX))


def is_harmless(cluster: LocalCluster, topic: Topic) -> bool:
    """Whether the leader refused a flood, stored all that others appended meanwhile, and led on."""
    refusals = set[tuple[int, str, str | None]]()
    leader = node_named(cluster, topic.led_by())
    there, before, answers, is_over = topic.at(leader.url), term(topic), list[int](), threading.Event()

    def append() -> None:
        while not is_over.is_set():
            answers.append(there.append("x").status)

    honest = threading.Thread(target=append)
    honest.start()
    try:
        for _ in range(ROUNDS):
            refused = call("POST", there.records(), FLOOD, headers=JSON)
            refusals.add((refused.status, refused.json["code"], refused.json.get("unit")))
    finally:
        is_over.set()
        honest.join()
    is_stored = set(answers) == {200} and len(answers) > 10 * ROUNDS
    return is_stored and refusals == {(413, "MESSAGE_TOO_LARGE", "values")} and term(topic) == before


def test_a_node_that_will_refuse_a_large_body_does_not_read_it(cluster: LocalCluster, topic: Topic) -> None:
    leader = node_named(cluster, topic.led_by())
    follower = next(node for node in cluster.nodes if node is not leader)
    assert follower.process is not None
    for name in (topic.name, "nowhere"):
        before = cpu_ticks(follower.process.pid)
        assert call("POST", Topic(follower.url, name).records(), FLOOD, headers=JSON | FORWARDED).status in (404, 421)
        assert cpu_ticks(follower.process.pid) - before < 100, "ticks of 10 ms; to parse it takes more"


def cpu_ticks(pid: int) -> int:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
