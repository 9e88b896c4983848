"""The controller's leader dies under those who hold, wait, own and number: everybody finds what was decided."""

import signal
from functools import partial
from typing import Any

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster

from .api import Answer, Topic, Writer, call, controller_at, eventually, expect
from .test_failover import alive, node_named, settled, whole

pytestmark = pytest.mark.elections

EXCLUSIVE_MODES = ["Exclusive", "ExclusiveWithFencing", "WaitForExclusive"]


def kill_controller(cluster: LocalCluster) -> str:
    """URL of a node that lives."""
    cluster.kill(node_named(cluster, controller_at(cluster.nodes[0].url)), signal.SIGKILL)
    return alive(cluster)


def lead_controller_and(cluster: LocalCluster, topic: Topic, partition: int) -> None:
    """Let the node that leads the controller lead this partition, too: both move when it dies."""
    order = {"topic": topic.name, "partition": partition, "node_id": controller_at(cluster.nodes[0].url)}
    eventually(lambda: call("POST", f"{topic.node}/v1/cluster/leaders", order).status == 200)


def decided(ask: Any) -> Answer:
    """The answer of the controller's leader, once there is one."""

    def attempt() -> Answer | None:
        answer: Answer = ask()
        return None if answer.status >= 500 or answer.status in (421, 429) else answer

    found: Answer = eventually(attempt, timeout_s=60)
    return found


@pytest.mark.parametrize("mode", EXCLUSIVE_MODES)
def test_009_010_after_a_failover_the_holder_resumes_its_epoch_and_a_superseded_writer_is_fenced(
    cluster: LocalCluster, mode: str
) -> None:
    whole(cluster)
    topic = Topic(cluster.nodes[0].url, f"resumed-{mode}")
    topic.create(partitions=4)
    sets = {"set": [0, 1, 2], "single": [3]}
    writers = {name: Writer(topic, f"{name}-{mode}", partitions, mode) for name, partitions in sets.items()}
    for writer in writers.values():
        expect(201, writer.answer)
    for partition in (1, 3):
        lead_controller_and(cluster, topic, partition)
    node = kill_controller(cluster)
    for name, writer in writers.items():
        writer.topic, held = topic.at(node), writer.answer.json
        again = expect(201, decided(partial(writer.acquire, sets[name], mode, resume_epoch=held["epoch"])))
        assert (again["grant"], again["epoch"]) == (held["grant"], held["epoch"])
        for partition in sets[name]:
            expect(200, settled(writer, "still here", 0, cluster, partition))
    for partition in (1, 3):
        expect(201, Writer(topic.at(node), f"usurper-{partition}-{mode}", [partition], "ExclusiveWithFencing").answer)
    whole(cluster)
    node = kill_controller(cluster)
    for (name, writer), partition in zip(writers.items(), (1, 3), strict=True):
        writer.topic = topic.at(node)
        late = decided(partial(writer.acquire, sets[name], mode, resume_epoch=writer.answer.json["epoch"]))
        assert (late.status, late.json["code"]) == (403, "PRODUCER_FENCED")
        assert settled(writer, "too late", 1, cluster, partition).json["code"] == "PRODUCER_FENCED"


def test_056_the_retry_of_an_init_at_the_next_leader_gets_the_same_answer(cluster: LocalCluster) -> None:
    whole(cluster)
    node = cluster.nodes[0].url
    body: dict[str, Any] = {"name": "survivor", "nonce": "n1"}
    first = expect(200, call("POST", f"{node}/v1/producers", body))
    other = kill_controller(cluster)
    assert expect(200, decided(lambda: call("POST", f"{other}/v1/producers", body))) == first
    body = {"name": "survivor", "producer_id": first["producer_id"], "producer_epoch": first["producer_epoch"]}
    bumped = expect(200, decided(lambda: call("POST", f"{other}/v1/producers", body)))
    assert bumped["producer_epoch"] == first["producer_epoch"] + 1
    whole(cluster)
    other = kill_controller(cluster)
    assert expect(200, decided(lambda: call("POST", f"{other}/v1/producers", body))) == bumped


def test_012_tickets_and_ownerships_survive_a_controller_failover(cluster: LocalCluster) -> None:
    whole(cluster)
    topic = Topic(cluster.nodes[0].url, "lined-up")
    topic.create()
    modes = {"l1": "Exclusive", "l2": "WaitForExclusive", "l3": "WaitForExclusive"}
    first, second, third = (Writer(topic, name, [0], mode) for name, mode in modes.items())
    own = {"claims": [{"resource": "lined-up/0"}]}
    headers = {"Stockade-Session": second.session}
    owned = expect(200, call("POST", f"{topic.node}/v1/groups/survivors/own", own, headers=headers))
    other = kill_controller(cluster)
    assert expect(200, decided(lambda: call("POST", f"{other}/v1/groups/survivors/own", own, headers=headers))) == owned

    def ask(writer: Writer) -> Answer:
        path = f"{other}/v1/tickets/{writer.answer.json['ticket']}"
        return call("GET", path, headers={"Stockade-Session": writer.session})

    assert [decided(lambda w=w: ask(w)).json["position"] for w in (second, third)] == [0, 1]
    assert (
        decided(lambda: call("DELETE", f"{other}/v1/session", headers={"Stockade-Session": first.session})).status
        == 204
    )
    eventually(lambda: ask(second).json["state"] == "granted")
    assert ask(third).json["position"] == 0
