import errno
import json
import os
import socket
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import structs
from rich.console import Console

from stockade.cli.commands import doctor
from stockade.cli.commands.doctor import (
    ELECTING,
    LEADERLESS,
    LOOKS_MAX,
    Probe,
    _table,
    judge_certificates,
    judge_doubles,
    judge_leaderless,
    judge_nodes,
    judge_replicas,
    judge_settings,
    judge_topics,
)
from stockade.cli.commands.what_if import Finding
from stockade.client.transport.http import Transport
from stockade.partition.api.cluster import (
    Cluster,
    DiskSpace,
    Latencies,
    LeaderInfo,
    Node,
    NodeSetting,
    NodeSettings,
    NodeState,
    NodeStates,
    PartitionCounts,
    Reassignment,
    Settings,
)
from stockade.partition.api.topics import PartitionState, Topic, TopicConfig

from ...client.fake_cluster import FakeCluster
from ...client.transport.test_http import other_port
from ..conftest import Run


def seen_by(node: str, leader: str | None = "n1", version: str = "1", moves: tuple[Reassignment, ...] = ()) -> Cluster:
    nodes = [Node(name, f"http://127.0.0.1:{k}", "127.0.0.1:9", None, True) for k, name in enumerate(("n1", "n2"), 1)]
    return Cluster("c", node, version, LeaderInfo(None, leader, 1), nodes, list(moves))


def verdicts(*probes: Probe) -> dict[str, tuple[str, str]]:
    return {finding.about: (finding.verdict, finding.found) for finding in judge_nodes(probes)}


def test_a_healthy_cluster_is_all_ok_and_exits_with_0(cluster: FakeCluster, run: Run, tmp_path: Path) -> None:
    cluster.create("orders", 2)
    done = run("doctor", "--data", str(tmp_path))
    assert done.exit_code == 0, done.output
    for text in ("disk speed", "open files", "node n1", "ready", "controller", "topic orders", "2 partitions led"):
        assert text in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_node_at_whose_address_another_one_answers_is_wrong(cluster: FakeCluster, run: Run) -> None:
    found = verdicts(Probe("n1", seen_by("n1"), True, 1.0), Probe("n4", seen_by("n1"), True, 1.0))
    assert found["node n4"] == ("wrong", "n1 answers at its address")
    assert found["node n1"][0] == "ok"
    cluster.create("orders", 1)
    cluster.nodes.append(cluster.nodes[0])
    findings = {each["about"]: each for each in json.loads(run("doctor", "--output", "json").output)}
    assert findings["node n3"]["verdict"] == "wrong"
    assert findings["node n1"]["verdict"] == findings["node n2"]["verdict"] == "ok"


def test_a_disk_that_takes_no_appends_is_wrong_by_what_its_own_node_says() -> None:
    def probe(name: str, disk: Literal["ok", "low", "full"]) -> Probe:
        seen = seen_by(name)
        nodes = [structs.replace(node, disk=disk if node.node_id == name else "full") for node in seen.nodes]
        return Probe(name, structs.replace(seen, nodes=nodes), True, 1.0)

    found = verdicts(probe("n1", "low"), probe("n2", "full"))
    assert found["disk of n1"] == ("wrong", "low: it takes no appends")
    assert found["disk of n2"] == ("wrong", "full: it takes no appends")
    assert "disk of n1" not in verdicts(probe("n1", "ok"))


def state(node_id: str, counts: PartitionCounts | None = None, **told: Any) -> NodeState:
    counts, none = counts or PartitionCounts(0, 0, 0, 0, 0, 0, 0), Latencies([], [])
    of_node = NodeState(node_id, "1", 1_000, counts, DiskSpace(1, 1, 0), 0, 0, 0, none, none, 0)
    return structs.replace(of_node, **told)


def test_two_processes_with_one_node_id_are_wrong() -> None:
    assert list(judge_doubles(NodeStates([state("n1")]))) == []
    [found] = judge_doubles(NodeStates([state("n1"), state("n3", doubled_by="http://h4:1")]))
    assert (found.about, found.verdict) == ("process of n3", "wrong")
    assert "at http://h4:1" in found.found


def test_partitions_of_which_nodes_know_no_leader_are_named_and_all_are_counted() -> None:
    names = [f"orders/{number}" for number in range(100)]
    known = PartitionCounts(500, 0, 0, 0, 0, 0, 0)
    lost = structs.replace(known, leaderless=300, leaderless_names=names)
    old = structs.replace(known, leaderless=2)
    found = judge_leaderless(NodeStates([state("n1", known), state("n2", lost), state("n3", old)]), LEADERLESS)
    first = ", ".join(names[:8])
    assert {each.about: each.found for each in found} == {
        "partitions on n2": f"no leader known: 300 of 500: {first} and 292 more",
        "partitions on n3": "no leader known: 2 of 500",
    }


def test_each_node_is_asked_for_its_own_state(cluster: FakeCluster, run: Run) -> None:
    """One node was asked for those of all: it does not reach the others where certificates have expired."""
    cluster.create("orders", 1)
    assert run("doctor").exit_code == 0
    assert cluster.paths("GET").count("/v1/nodes") == len(cluster.nodes)


def test_a_certificate_whose_files_a_node_refuses_is_wrong() -> None:
    assert list(judge_certificates(NodeStates([state("n1")]))) == []
    [found] = judge_certificates(NodeStates([state("n1"), state("n2", refused_certificates=["http"])]))
    assert (found.about, found.verdict, found.found) == (
        "certificate of n2",
        "wrong",
        "http: the node refuses its files",
    )


def test_a_certificate_that_expires_within_two_weeks_is_a_warning_and_an_expired_one_is_wrong() -> None:
    def verdict(days: float) -> list[tuple[str, str]]:
        node = state("n1", certificates={"raft": 1_000 + round(days * 86_400_000)})
        return [(each.verdict, each.found) for each in judge_certificates(NodeStates([node]))]

    assert verdict(14.1) == []
    assert verdict(13.9) == [("warning", "raft: expires in 13 days")]
    assert verdict(0.5) == [("warning", "raft: expires in 0 days")]
    assert verdict(-0.1) == [("wrong", "raft: expired")]


def test_a_replica_that_its_leader_misses_is_a_warning_though_its_node_answers() -> None:
    def leads(node_id: str, under_replicated: int) -> NodeState:
        return state(node_id, PartitionCounts(9, 9, 0, under_replicated, 0, 0, 0))

    one, *others = judge_replicas(NodeStates([leads("n1", 1), leads("n2", 0), leads("n3", 4)]))
    assert (one.about, one.verdict) == ("replicas of what n1 leads", "warning")
    assert one.found == "1 partition has a replica that is cut off, being filled or far behind"
    assert [each.found.partition(" a ")[0] for each in others] == ["4 partitions have"]


def test_settings_that_have_to_be_alike_and_are_not_are_a_warning_that_names_the_nodes() -> None:
    def settings(node_id: str, place: str | None, folder: str) -> NodeSettings:
        told = [NodeSetting("data_dir", folder, None), NodeSetting("tiered.place", place, None)]
        return NodeSettings(node_id, told)

    alike = Settings([settings("n1", "s3://old", "/a"), settings("n2", "s3://old", "/b")])
    assert list(judge_settings(alike)) == []
    [found] = judge_settings(Settings([*alike.nodes, settings("n3", None, "/c")]))
    assert (found.about, found.verdict) == ("setting tiered.place", "warning")
    assert found.found == "s3://old on n1, n2; nothing on n3"


def test_rights_of_others_in_the_data_folder_are_a_warning_that_names_them(
    cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir(0o750)
    for name, mode in {"n1.key": 0o640, "n1.crt": 0o644, "000.wal": 0o644, "001.wal": 0o640}.items():
        (data / name).touch()
        (data / name).chmod(mode)

    def modes() -> dict[str, str]:
        findings = json.loads(run("doctor", "--data", str(data), "--output", "json").output)
        (found,) = (each for each in findings if each["about"] == "file modes")
        return dict(found)

    assert modes()["verdict"] == "warning"
    assert modes()["found"] == f"others may use {data}/000.wal 0644, {data}/n1.key 0640"
    (data / "n1.key").chmod(0o600)
    (data / "000.wal").chmod(0o640)
    assert modes()["verdict"] == "ok"


def test_a_dead_node_is_wrong_and_its_replicas_are_away(cluster: FakeCluster, run: Run) -> None:
    cluster.create("orders", 1)
    cluster.kill(cluster.nodes[1])
    done = run("doctor", "--output", "json")
    assert done.exit_code == 1
    findings = {finding["about"]: finding for finding in json.loads(done.output)}
    assert findings["node n2"]["verdict"] == "wrong"
    assert findings["node n2"]["advice"]
    assert findings["node n1"]["verdict"] == "ok"


def test_no_node_at_all_is_exit_code_4_with_a_finding_for_each_address_and_for_the_machine(
    cluster: FakeCluster, run: Run, tmp_path: Path
) -> None:
    for node in cluster.nodes:
        cluster.kill(node)
    done = run("doctor", "--data", str(tmp_path), "--output", "json")
    assert done.exit_code == 4
    findings = {finding["about"]: finding for finding in json.loads(done.output)}
    assert {"disk speed", *cluster.nodes} <= {*findings}
    assert all(findings[node]["verdict"] == "wrong" and findings[node]["advice"] for node in cluster.nodes)


def test_a_node_that_hangs_does_not_hide_the_others(cluster: FakeCluster, run: Run) -> None:
    cluster.create("orders", 1)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        cluster.nodes.insert(0, url)
        done = run("doctor", "--output", "json")
    findings = {finding["about"]: finding for finding in json.loads(done.output)}
    assert {"node n1", "topic orders"} <= {*findings}


def test_a_node_without_tls_is_told_apart_from_one_that_is_not_there(cluster: FakeCluster, run: Run) -> None:
    cluster.nodes[:] = [node.replace("http://", "https://") for node in cluster.nodes]
    done = run("doctor")
    assert done.exit_code == 4
    assert "no TLS connection: its address may begin with http://" in done.output
    assert "Check the address" in done.output


def test_a_disk_that_takes_nothing_more_is_wrong(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    done = run("doctor", "--data", str(tmp_path))
    assert done.exit_code == 1
    assert f"{tmp_path} cannot be written to: No space left on device" in done.output
    assert list(tmp_path.iterdir()) == []


def test_brackets_are_shown_as_they_are() -> None:
    console = Console(file=StringIO(), width=200)
    console.print(_table([Finding("node n1", "wrong", "does not answer: http://[::1]:7101")]))
    assert isinstance(console.file, StringIO)
    assert "http://[::1]:7101" in console.file.getvalue()


def test_nodes_of_which_none_answers_at_its_own_address_are_told() -> None:
    """Through a load balancer or a forwarded port the command ended in a traceback."""
    silent = [Probe(node, None, False, 0.0, "does not answer", "Start it.") for node in ("n1", "n2")]
    wrong = ("wrong", "does not answer")
    assert verdicts(*silent) == {"node n1": wrong, "node n2": wrong}


def test_topics_and_states_are_looked_at_through_a_forwarded_port_although_no_node_answers_at_its_own_address(
    cluster: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that no controller leader was known, while the node behind that port named one; and of the others'
    certificates it said nothing.
    """
    probe = doctor._probe

    async def forwarded(transport: Transport, name: str, url: str) -> Probe:
        return (
            await probe(transport, name, url) if name == url else Probe(name, None, False, 0.0, "silent", "Start it.")
        )

    cluster.create("orders", 1)
    monkeypatch.setattr(doctor, "_probe", forwarded)
    findings = {finding["about"]: finding for finding in json.loads(run("doctor", "--output", "json").output)}
    assert "topic orders" in findings and "topics" not in findings
    assert "/v1/nodes?everywhere=true" in cluster.paths("GET")


def test_a_node_that_is_cut_off_is_told_as_such_and_not_as_a_disagreement() -> None:
    probes = [Probe("n1", seen_by("n1"), True, 1.0), Probe("n2", seen_by("n2", leader=None), False, 1.0, "no leader")]
    [found] = [each for each in judge_nodes(probes) if each.about == "controller"]
    assert (found.verdict, found.found) == ("warning", "led by n1, and unknown to n2")
    assert "cut off" in found.advice


def test_disagreement_and_differing_versions_are_warnings() -> None:
    found = verdicts(Probe("n1", seen_by("n1"), True, 1.0), Probe("n2", seen_by("n2", "n2", "2"), True, 1.0))
    assert found["versions"] == ("warning", "1, 2")
    assert found["controller"] == ("warning", "nodes name different leaders")


def test_a_controller_without_a_leader_and_a_node_that_is_not_ready_are_wrong() -> None:
    found = verdicts(Probe("n1", seen_by("n1", None), False, 1.0, "no leader"))
    assert found["controller"][0] == "wrong"
    assert found["node n1"] == ("wrong", "not ready: no leader")


def test_a_move_under_way_is_told() -> None:
    found = verdicts(Probe("n1", seen_by("n1", moves=(Reassignment("t", 3, ["n2"]),)), True, 1.0))
    assert found["t/3"] == ("warning", "is moving to n2")


def test_a_move_that_waits_for_a_node_that_is_away_says_so() -> None:
    moves = (Reassignment("t", 3, ["n1", "n2"]), Reassignment("t", 4, ["n1"]))
    probes = [Probe("n1", seen_by("n1", moves=moves), True, 1.0), Probe("n2", None, False, 0.0, "does not answer")]
    advice = {finding.about: finding.advice for finding in judge_nodes(probes)}
    assert advice["t/3"] == "It waits for n2: start what is away, or `stockade cluster remove` it."
    assert not advice["t/4"]


def test_partitions_without_leader_or_with_replicas_on_dead_nodes_are_named() -> None:
    states = [PartitionState(p, None, "n1" if p else None, 1, ["n1", "n2"]) for p in range(12)]
    topic = Topic("t", 1, 2, False, TopicConfig(), states)
    [finding] = judge_topics([topic], set(), 2)
    assert (finding.verdict, finding.found) == ("wrong", "no leader: partition 0")
    [finding] = judge_topics([Topic("t", 1, 2, False, TopicConfig(), states[1:])], {"n2"}, 2)
    assert finding.verdict == "warning"
    assert finding.found == "a replica is away: partitions 1, 2, 3, 4, 5, 6, 7, 8 and 3 more"


def test_a_topic_with_one_replica_is_a_warning_where_there_are_nodes_for_three() -> None:
    states = [PartitionState(0, None, "n1", 1, ["n1", "n2", "n3"]), PartitionState(1, None, "n1", 1, ["n1"])]
    topic = Topic("t", 1, 1, False, TopicConfig(), states)
    [finding] = judge_topics([topic], set(), 3)
    assert (finding.verdict, finding.found) == ("warning", "one replica: partition 1")
    assert "stockade cluster move" in finding.advice
    assert [each.verdict for each in judge_topics([topic], set(), 2)] == ["ok"]


def test_an_election_is_waited_for_and_no_majority_is_asked_for_where_one_is() -> None:
    dead = Probe("n3", None, False, 0.0, "silent", "Start it.")
    alive = [Probe(node, seen_by(node, leader=None), True, 1.0) for node in ("n1", "n2")]
    assert {each.about: each.advice for each in judge_nodes([*alive, dead])}["controller"] == ELECTING
    assert {each.about: each.advice for each in judge_nodes([alive[0], dead, dead])}["controller"] == LEADERLESS
    topic = Topic("t", 1, 1, False, TopicConfig(), [PartitionState(0, None, None, 1, ["n1", "n2", "n3"])])
    assert [each.advice for each in judge_topics([topic], {"n3"}, 3)] == [ELECTING]
    assert [each.advice for each in judge_topics([topic], {"n2", "n3"}, 3)] != [ELECTING]


@pytest.mark.parametrize(("elections", "looks"), [(1, 2), (LOOKS_MAX, LOOKS_MAX)])
def test_the_doctor_looks_again_while_a_leader_is_being_elected(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, run: Run, elections: int, looks: int
) -> None:
    findings = [Finding("controller", "wrong", "has no leader", ELECTING)] * elections
    findings.append(Finding("controller", "ok", "led by n1"))
    seen = iter(findings)
    looked = []

    async def look(_: object) -> tuple[list[Finding], bool]:
        looked.append(next(seen))
        return looked[-1:], True

    monkeypatch.setattr(doctor, "_look", look)
    monkeypatch.setattr(doctor, "LOOK_AGAIN_S", 0.0)
    done = run("doctor")
    assert looked == findings[:looks]
    assert done.exit_code == (looked[-1].verdict == "wrong")


@pytest.mark.parametrize("status", ["200 OK", "502 Bad Gateway"])
def test_an_address_where_something_else_answers_is_described(cluster: FakeCluster, run: Run, status: str) -> None:
    body = "<html>It works!"
    head = [f"HTTP/1.1 {status}", "Content-Type: text/html", f"Content-Length: {len(body)}", "Connection: close"]
    with other_port("\r\n".join([*head, "", body]).encode()) as (url, _):
        cluster.nodes[:] = [url]
        done = run("doctor", "--output", "json")
    (finding,) = [finding for finding in json.loads(done.stdout) if url in finding["about"]]
    assert f"{url} gave an answer that no node gives: status {status[:3]}, text/html" in finding["found"]
    assert "It works!" in finding["found"]
    assert "captive portal" in finding["advice"]
