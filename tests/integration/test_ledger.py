"""The ledger of three real nodes: every route that administers leaves its entries, a takeover is answered to the offset
while a zombie writes on, and leaders that are killed between copy and report leave the chain whole.
"""

import itertools
import json
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.cli.main import main
from stockade.cluster.access.principals import new_token
from stockade.http_api.routes import routes

from .api import Answer, Topic, Writer, call, eventually, expect
from .test_failover import alive, node_named, whole

INTERNAL = {"ledger.begin", "ledger.keep", "grant.held", "slot.installed", "node.register", "replicas.moved"}
INTERNAL |= {"replicas.balance"}
"""What the cluster records by itself; a transfer may change a partition's home, too, or find it there."""


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(module_path / "ledger", port_base=0) as running:
        url = running.nodes[0].url
        eventually(lambda: call("GET", f"{url}/v1/ledger").status == 200)
        yield running


def audit(cluster: LocalCluster, *words: str, token: str = "") -> Result:
    urls = ",".join(node.url for node in cluster.nodes)
    return CliRunner().invoke(main, ["audit", *words], env={"STOCKADE_URL": urls, "STOCKADE_TOKEN": token or None})


def entries(url: str, first: int = 1, token: str = "") -> list[dict[str, Any]]:
    """All entries from a number on that the topic has now."""
    found: list[dict[str, Any]] = []
    while True:
        page = expect(200, call("GET", f"{url}/v1/ledger?from={first}&n=1000", headers=bearer(token)))
        found += page["entries"]
        first = page["next"]
        if first >= page["end"]:
            return found


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


class Act(NamedTuple):
    """A request, and the acts of the entries that it has to leave, in order."""

    path: str
    body: Any
    leaves: list[str]
    status: int = 200


WRITES_RECORDS = "it writes records, under what the ledger tells of grants"
KEEPS_ALIVE = "it changes no right to write"
OWN_TESTS = "it leaves entries where it changes who may write: unit/cluster/controller/test_ledger.py"
TOPIC = "/v1/topics/acts"
FENCE = "topic.fence"
ACTS: dict[tuple[str, str], Act | str] = {
    ("POST", "/v1/topics"): Act("/v1/topics", {"name": "acts", "partitions": 2}, ["topic.create"], 201),
    ("PATCH", "/v1/topics/{topic}"): Act(TOPIC, {"config": {"retention_ms": 99}}, ["topic.change"]),
    ("POST", "/v1/topics/{topic}/partitions/{partition}/begin"): Act(
        f"{TOPIC}/partitions/1/begin", {"offset": 7}, ["records.begin", "records.begin"]
    ),
    ("POST", "/v1/topics/{topic}/partitions/{partition}/trim"): Act(
        f"{TOPIC}/partitions/0/trim", {"before": -1}, ["records.trim", "records.trim"]
    ),
    ("POST", "/v1/topics/{topic}/fence"): Act(f"{TOPIC}/fence", {"partitions": "all"}, [FENCE]),
    ("POST", "/v1/producers"): Act("/v1/producers", {"name": "acts"}, ["producer.init"]),
    ("POST", "/v1/cluster/producer_fences"): Act("/v1/cluster/producer_fences", {"name": "acts"}, ["producer.fence"]),
    ("POST", "/v1/cluster/session_fences"): Act(
        "/v1/cluster/session_fences", {"handle": "0" * 16}, ["session.fence"], 404
    ),
    ("POST", "/v1/cluster/members"): Act(
        "/v1/cluster/members",
        {"action": "add", "node_id": "n9", "url": "http://127.0.0.1:1", "raft_address": "127.0.0.1:2"},
        ["node.add"],
        202,
    ),
    ("POST", "/v1/cluster/feature_level"): Act("/v1/cluster/feature_level", {"level": 2}, ["cluster.feature_level"]),
    ("POST", "/v1/cluster/reassignments"): Act(
        "/v1/cluster/reassignments", {"topic": "acts", "partition": 0, "replicas": ["n1"]}, ["replicas.move"], 202
    ),
    ("POST", "/v1/cluster/leaders"): Act(
        "/v1/cluster/leaders", {"topic": "acts", "partition": 1}, ["leader.transfer", "leader.transfer"]
    ),
    ("PATCH", "/v1/cluster/balance"): Act("/v1/cluster/balance", {"moves_at_once": 3}, ["balance.change"]),
    ("POST", "/v1/cluster/balance"): Act("/v1/cluster/balance", {"if_plan": "0" * 16}, ["replicas.balance"], 412),
    ("POST", "/v1/cluster/controllers"): Act(
        "/v1/cluster/controllers", {"node_ids": None}, ["controllers.choose"], 202
    ),
    ("POST", "/v1/cluster/backups"): Act(
        "/v1/cluster/backups",
        {"place": "p", "name": "n", "cut_ms": 1, "took_ms": 1, "topics": 1, "records": 1, "bytes": 1},
        ["backup.note"],
    ),
    ("DELETE", "/v1/topics/{topic}"): Act(TOPIC, None, ["topic.delete"], 204),
    ("PUT", "/v1/principals/{principal}"): Act("/v1/principals/chief", None, ["principal.put"], 201),
    ("POST", "/v1/principals/{principal}/tokens"): Act(
        "/v1/principals/chief/tokens", {"hash": new_token().hash}, ["principal.add_token"], 201
    ),
    ("DELETE", "/v1/principals/{principal}/tokens/{token}"): Act(
        "/v1/principals/chief/tokens/{other}", None, ["principal.delete_token"], 204
    ),
    ("DELETE", "/v1/principals/{principal}"): Act("/v1/principals/other", None, ["principal.delete"], 204),
    ("POST", "/v1/topics/{topic}/grants"): OWN_TESTS,
    ("POST", "/v1/groups/{group}/own"): OWN_TESTS,
    ("DELETE", "/v1/groups/{group}/own"): OWN_TESTS,
    ("DELETE", "/v1/grants/{grant}"): OWN_TESTS,
    ("DELETE", "/v1/session"): OWN_TESTS,
    ("DELETE", "/v1/sessions/{session}"): OWN_TESTS,
    ("DELETE", "/v1/tickets/{ticket}"): OWN_TESTS,
    ("POST", "/v1/sessions"): KEEPS_ALIVE,
    ("PUT", "/v1/session"): KEEPS_ALIVE,
    ("PUT", "/v1/sessions/{session}"): KEEPS_ALIVE,
    ("PUT", "/v1/groups/{group}/positions/{topic}/{partition}"): "it moves a reader, no writer",
    ("DELETE", "/v1/groups/{group}/positions/{topic}/{partition}"): "it moves a reader, no writer",
    ("POST", "/v1/topics/{topic}/partitions/{partition}/records"): WRITES_RECORDS,
    ("POST", "/v1/topics/{topic}/records"): WRITES_RECORDS,
    ("POST", "/v1/append"): WRITES_RECORDS,
    ("POST", "/v1/topics/{topic}/news"): "it changes nothing: its body is too long for an address",
    ("PUT", "/v1/topics/{topic}/partitions/{partition}/stages/{stage}"): WRITES_RECORDS,
    ("PATCH", "/v1/topics/{topic}/partitions/{partition}/stages"): WRITES_RECORDS,
    ("POST", "/v1/topics/{topic}/partitions/{partition}/stages/{stage}/append"): WRITES_RECORDS,
}
"""What each route that changes something leaves in the ledger, in the order in which they are tried, or why nothing."""


def test_every_route_that_changes_something_has_a_rule() -> None:
    assert set(ACTS) == {(route.method, route.path) for route in routes() if route.method != "GET"}


def test_a_takeover_is_answered_to_the_offset_while_a_zombie_writes_on(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "taken")
    topic.create()
    old = Writer(topic, "old", [0])
    stop = threading.Event()

    def go_on() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            topic.append(f"old {number}", 0, **old.fence())

    zombie = threading.Thread(target=go_on)
    zombie.start()
    try:
        eventually(lambda: len(topic.values()) > 20)
        new = Writer(topic, "new", [0], "ExclusiveWithFencing")
        for number in range(20):
            expect(200, topic.append(f"new {number}", 0, **new.fence()))
    finally:
        stop.set()
        zombie.join()
    writers = [value.split()[0] for value in topic.values()]
    border = writers.index("new")
    assert "old" not in writers[border:]
    eventually(
        lambda: any(each["act"] == "slot.installed" and each["after"]["log_end"] for each in entries(topic.node))
    )
    for offset in (0, border - 1, border, len(writers) - 1):
        asked = audit(cluster, "who-could-write", "taken", "0", str(offset), "--json")
        assert asked.exit_code == 0, asked.output
        answer = json.loads(asked.stdout)
        assert (answer["who"], answer["possible"]) == ("grants", [])
        assert [each["client_id"] for each in answer["writers"]] == [writers[offset]]
        assert (answer["from_offset"], answer["until_offset"]) == ((0, border) if offset < border else (border, None))
    told = audit(cluster, "who-could-write", "taken", "0", "0").stdout
    assert "(evicted)" in told
    fences = expect(200, call("GET", f"{topic.url}/partitions/0/fences"))["fences"]
    assert [(each["from_offset"], each["until_offset"]) for each in fences] == [(border, None), (0, border)]


def is_installed(entry: dict[str, Any]) -> bool:
    """A partition confirmed a decision, and said where its log ended."""
    return entry["act"] == "slot.installed" and bool(entry["after"]["log_end"])


def test_leaders_that_are_killed_while_entries_are_copied_leave_the_chain_whole(cluster: LocalCluster) -> None:
    """Every act that was answered is there exactly once, and the topic has every number once."""
    whole(cluster)
    done: list[str] = []
    stop = threading.Event()

    def administer() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            name = f"act-{number}"
            node = cluster.nodes[number % len(cluster.nodes)]
            try:
                answer: Answer = call("POST", f"{node.url}/v1/producers", {"name": name}, timeout_s=5)
            except OSError:
                continue
            if answer.status == 200:
                done.append(name)

    client = threading.Thread(target=administer)
    client.start()
    try:
        for what in ("controller", "ledger", "controller"):
            eventually(partial(is_longer, done, len(done) + 30))
            kill(cluster, what)
            whole(cluster)
    finally:
        stop.set()
        client.join()
    url = alive(cluster)
    eventually(lambda: done[-1] in [each["name"] for each in entries(url)])
    found = entries(url)
    assert [each["number"] for each in found] == list(range(1, len(found) + 1))
    names = [each["name"] for each in found if each["act"] == "producer.init"]
    assert len(names) == len(set(names))
    assert set(done) <= set(names)
    verified = audit(cluster, "verify", "--json")
    assert verified.exit_code == 0, verified.output
    assert json.loads(verified.stdout)["entries"] >= len(found)


def is_longer(done: list[str], count: int) -> bool:
    return len(done) > count


def kill(cluster: LocalCluster, what: str) -> None:
    """The node that leads the controller, or the ledger's topic."""
    url = alive(cluster)
    if what == "controller":
        name = expect(200, call("GET", f"{url}/v1/cluster"))["controller"]["leader_node"]
    else:
        name = Topic(url, "stockade.ledger").leader()
    if name is not None:
        cluster.kill(node_named(cluster, name), signal.SIGKILL)


def test_every_route_that_administers_leaves_exactly_the_entries_that_it_should(cluster: LocalCluster) -> None:
    """The last test: a principal ends the open cluster."""
    whole(cluster)
    url, root = cluster.nodes[0].url, new_token()
    token = ""
    other = ACTS["POST", "/v1/principals/{principal}/tokens"]
    assert isinstance(other, Act)
    for (method, path), act in ACTS.items():
        if isinstance(act, str):
            continue
        body = act.body
        if path == "/v1/principals/{principal}" and method == "PUT":
            body = {"rights": ["all"], "tokens": [{"hash": root.hash}]}
        if path == "/v1/principals/{principal}" and method == "DELETE":
            expect(201, call("PUT", f"{url}/v1/principals/other", {"rights": []}, headers=bearer(token)))
        before = settled(url, token)
        name = act.path.format(other=other.body["hash"].partition(".")[0])
        asked = call(method, url + name, body, headers=bearer(token))
        assert asked.status == act.status, (name, asked.status, asked.body)
        if method == "PUT":
            token = root.token
        settled(url, token)
        left = [each for each in entries(url, before, token) if is_asked_for(each)]
        assert [each["act"] for each in left] == act.leaves, name
        assert all(each["request"] and each["client"] == "127.0.0.1" for each in left)
        assert all(each["principal"] == ("chief" if token and method != "PUT" else "") for each in left)
    check_export(cluster, token)


def is_asked_for(entry: dict[str, Any]) -> bool:
    """Not what the cluster records by itself. An order of balance has the name, and moves of the cluster's own have
    none.
    """
    is_act = entry["act"] not in INTERNAL or entry["name"] == "balance"
    return is_act and not str(entry["name"]).startswith("mark-")


def settled(url: str, token: str) -> int:
    """The number of the next entry, once nothing waits to be copied: an act of this test has been."""
    name = f"mark-{os.urandom(4).hex()}"
    expect(200, call("POST", f"{url}/v1/producers", {"name": name}, headers=bearer(token)))
    first = 1

    def copied() -> int:
        nonlocal first
        found = entries(url, first, token)
        first = max([first, *(each["number"] for each in found)])
        return next((each["number"] + 1 for each in found if each["name"] == name), 0)

    number: int = eventually(lambda: copied() or None)
    return number


def check_export(cluster: LocalCluster, token: str) -> None:
    """What is exported is what the cluster has; and who may not read the ledger gets nothing."""
    path = Path(cluster.nodes[0].data).parent / "ledger.arrow"
    exported = audit(cluster, "export", str(path), "--json", token=token)
    assert exported.exit_code == 0, exported.output
    head = json.loads(exported.stdout)
    assert path.stat().st_size > 0
    verified = audit(cluster, "verify", "--head", f"{head['last']}:{head['head']}", token=token)
    assert verified.exit_code == 0, verified.output
    forged = audit(cluster, "verify", "--head", f"{head['last']}:{'0' * 64}", token=token)
    assert forged.exit_code == 1
    assert "not the one of that time" in forged.stderr
    shown = audit(cluster, "ledger", "--latest", "5", token=token)
    assert shown.exit_code == 0, shown.output
    assert "chief" in shown.stdout
    assert audit(cluster, "ledger").exit_code == 1
