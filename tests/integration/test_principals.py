"""Principals that are put while three real nodes run: in force on every node with the answer, and never forgotten."""

import json
import re
import shlex
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stockade.cli.commands.principals import principals
from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.cli.main import main
from stockade.cli.ui.manual import Manual
from stockade.cluster.access.principals import new_token

from .api import Answer, call, eventually, expect

LINES = {"Accept": "application/x-ndjson"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Closed:
    """A cluster that was open, until its first principal ``root`` came."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.urls = [node.url for node in cluster.nodes]
        self.root = self.token_of(self.stockade("principals", "put", "root", "--right", "all", "--new-token"))

    def stockade(self, *words: str, token: str = "") -> str:
        done = self.called(*words, token=token)
        assert done.exit_code == 0, done.output
        return done.stdout

    def called(self, *words: str, token: str = "") -> Result:
        environment = {"STOCKADE_URL": ",".join(self.urls), "STOCKADE_TOKEN": token or None}
        return CliRunner().invoke(main, list(words), env=environment)

    @staticmethod
    def token_of(printed: str) -> str:
        [found] = re.findall(r"stk\.[0-9a-f]{16}\.\S+", printed)
        return str(found)

    def everywhere(self, method: str, path: str, token: str, body: object = None) -> set[int]:
        """The statuses of the same request at every node."""
        headers = bearer(token) if token else {}
        return {call(method, url + path, body, headers=headers).status for url in self.urls}


@pytest.fixture(scope="module")
def closed(module_path: Path) -> Iterator[Closed]:
    with LocalCluster(module_path / "closed", port_base=0) as cluster:
        assert "open" in Closed.stockade(as_open(cluster), "principals", "whoami")
        refused = as_open(cluster).called("principals", "put", "p", "--right", "read topic:*", "--new-token")
        assert refused.exit_code != 0
        assert "everybody would be locked out" in refused.stderr
        yield Closed(cluster)


def as_open(cluster: LocalCluster) -> Closed:
    """The cluster before its first principal."""
    found = Closed.__new__(Closed)
    found.cluster, found.urls = cluster, [node.url for node in cluster.nodes]
    return found


def test_the_first_principal_ends_the_open_cluster_at_every_node_at_once(closed: Closed) -> None:
    for path in ("/v1/topics", "/v1/cluster", "/v1/caller", "/v1/principals"):
        assert closed.everywhere("GET", path, "") == {401}
        assert closed.everywhere("GET", path, "stk.0123456789abcdef." + "x" * 43) == {401}
        assert closed.everywhere("GET", path, closed.root) == {200}
    assert "principal  root" in closed.stockade("principals", "whoami", token=closed.root)


def test_rights_of_a_principal_are_in_force_as_soon_as_they_are_put(closed: Closed) -> None:
    root = closed.root
    for topic in ("invoices-1", "secrets"):
        expect(201, call("POST", f"{closed.urls[0]}/v1/topics", {"name": topic}, headers=bearer(root)))
    put = ("principals", "put", "billing", "--right", "produce topic:invoices-*")
    token = closed.token_of(closed.stockade(*put, "--new-token", token=root))
    records = "/v1/topics/{}/partitions/0/records"
    body = {"records": [{"value": "x"}]}
    assert closed.everywhere("POST", records.format("invoices-1"), token, body) == {200}
    assert closed.everywhere("POST", records.format("secrets"), token, body) == {403}
    assert closed.everywhere("GET", records.format("invoices-1"), token) == {403}
    closed.stockade(*put, "--right", "read topic:invoices-*", token=root)
    assert closed.everywhere("GET", records.format("invoices-1"), token) == {200}
    closed.stockade("principals", "put", "billing", "--right", "read topic:invoices-*", token=root)
    assert closed.everywhere("POST", records.format("invoices-1"), token, body) == {403}
    for words in (("principals", "list"), ("principals", "put", "evil", "--right", "all", "--new-token")):
        refused = closed.called(*words, token=token)
        assert refused.exit_code != 0
        assert "Principal billing lacks the right: admin cluster" in refused.stderr
    assert "billing" in closed.stockade("principals", "list", token=root)


def test_a_writer_that_is_put_as_the_help_says_can_write(closed: Closed) -> None:
    put = principals.commands["put"]
    assert isinstance(put, Manual)
    examples = [shlex.split(line)[1:] for _, line in put.examples if "produce topic:" in line]
    assert examples
    for words in examples:
        token = closed.token_of(closed.stockade(*words, "--new-token", token=closed.root))
        [pattern] = [right.removeprefix("produce topic:") for right in words if right.startswith("produce topic:")]
        topic = pattern.replace("*", "helped")
        closed.stockade("topics", "create", topic, token=closed.root)
        alone = ["--exclusive"] if f"acquire topic:{pattern}" in words else []
        written = ["produce", topic, __file__, "--name", words[2], *alone]
        assert "offsets 0.." in closed.stockade(*written, token=token)


def test_a_token_is_changed_without_a_gap_and_a_deleted_one_is_dead_at_every_node(closed: Closed) -> None:
    old = closed.token_of(closed.stockade("principals", "put", "turns", "--new-token", token=closed.root))
    added = json.loads(closed.stockade("principals", "add-token", "turns", "--json", token=closed.root))
    for token in (old, added["token"]):
        assert closed.everywhere("GET", "/v1/caller", token) == {200}
    closed.stockade("principals", "delete-token", "turns", old.split(".")[1], "--yes", token=closed.root)
    assert closed.everywhere("GET", "/v1/caller", old) == {401}
    assert closed.everywhere("GET", "/v1/caller", added["token"]) == {200}
    tokens, past = f"{closed.urls[0]}/v1/principals/turns/tokens", {"expires_ms": 978_307_200_000}
    expired = expect(201, call("POST", tokens, past, headers=bearer(closed.root)))
    assert closed.everywhere("GET", "/v1/caller", expired["token"]) == {401}
    closed.stockade("principals", "delete", "turns", "--yes", token=closed.root)
    assert closed.everywhere("GET", "/v1/caller", added["token"]) == {401}


def test_a_quota_counts_for_the_whole_cluster_as_soon_as_it_is_put(closed: Closed) -> None:
    put = ("principals", "put", "capped", "--right", "produce topic:*", "--new-token")
    token = closed.token_of(closed.stockade(*put, "--quota", "sessions=2", "--quota", "topics=0", token=closed.root))
    opened = [call("POST", f"{url}/v1/sessions", {"client_id": "c"}, headers=bearer(token)) for url in closed.urls]
    assert sorted(answer.status for answer in opened) == [201, 201, 429]
    [refused] = [answer for answer in opened if answer.status == 429]
    assert "principal capped may have 2 sessions, and has 2" in refused.json["detail"]
    assert "sessions 2" in closed.stockade("principals", "describe", "capped", token=closed.root)
    closed.stockade(*put[:-1], "--quota", "sessions=3", token=closed.root)
    assert closed.everywhere("POST", "/v1/sessions", token, {"client_id": "c"}) == {201, 429}


def test_a_token_made_by_the_cluster_is_in_one_answer_only(closed: Closed) -> None:
    url, headers = f"{closed.urls[1]}/v1/principals/told%2Fonce", bearer(closed.root)
    expect(201, call("PUT", url, {"rights": []}, headers=headers))
    made = expect(201, call("POST", f"{url}/tokens", {}, headers=headers))
    assert closed.everywhere("GET", "/v1/caller", made["token"]) == {200}
    described: Answer = call("GET", url, headers=headers)
    assert expect(200, described)["tokens"] == [{"id": made["id"], "expires_ms": None}]
    assert made["token"].split(".")[2] not in described.body.decode()


def test_a_stream_that_is_followed_ends_when_its_principal_goes(closed: Closed) -> None:
    root = bearer(closed.root)
    expect(201, call("POST", f"{closed.urls[0]}/v1/topics", {"name": "watched"}, headers=root))
    put = ("principals", "put", "watcher", "--right", "read topic:watched", "--new-token")
    token = closed.token_of(closed.stockade(*put, token=closed.root))
    records = f"{closed.urls[0]}/v1/topics/watched/partitions/0/records"
    answers: list[Answer] = []
    headers = bearer(token) | LINES
    following = threading.Thread(target=lambda: answers.append(call("GET", f"{records}?follow=true", headers=headers)))
    following.start()
    closed.stockade("principals", "delete", "watcher", "--yes", token=closed.root)
    expect(200, call("POST", records, {"records": [{"value": "secret"}]}, headers=root))
    following.join(60)
    [answer] = answers
    assert b"secret" not in answer.body
    assert b"UNAUTHENTICATED" in answer.body


def test_no_node_is_open_when_it_starts_again(closed: Closed) -> None:
    for node in closed.cluster.nodes:
        closed.cluster.kill(node, signal.SIGKILL)
    for node in closed.cluster.nodes:
        closed.cluster.start_node(node)
    seen: set[int] = set()

    def all_ready() -> bool:
        for url in closed.urls:
            seen.add(call("GET", f"{url}/v1/cluster").status)
        return all(call("GET", f"{url}/readyz").status == 200 for url in closed.urls)

    eventually(all_ready)
    assert seen == {401}
    assert closed.everywhere("GET", "/v1/topics", closed.root) == {200}


def test_a_node_with_an_empty_disk_admits_no_caller_before_it_knows_the_principals(module_path: Path) -> None:
    """It was open to every caller until a controller answered it: for good, if none knew it."""
    with LocalCluster(module_path / "wiped", port_base=0, restart=False) as cluster:
        root, last = Closed(cluster).root, cluster.nodes[-1]
        for node in cluster.nodes:
            cluster.kill(node, signal.SIGKILL)
        for path in last.data.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in ("node.toml", "node.log"):
                path.unlink()
        cluster.start_node(last)
        eventually(lambda: _answers(last.url))
        for token in ("", root, "stk.0123456789abcdef." + "x" * 43):
            for asked in ("/v1/caller", "/v1/nodes", "/v1/settings", "/v1/cluster", "/v1/topics"):
                answer = call("GET", last.url + asked, headers=bearer(token) if token else {})
                assert (answer.status, answer.json["code"]) == (503, "LEADER_NOT_AVAILABLE"), (asked, answer.body)
                assert "waiting for n1 to be sure" in answer.json["detail"], "`stockade doctor` shows that"
        for asked in ("/metrics", "/healthz", "/"):
            assert call("GET", last.url + asked, headers=bearer(root)).status == 200
        for node in cluster.nodes[:-1]:
            cluster.start_node(node)
        eventually(lambda: call("GET", last.url + "/v1/caller", headers=bearer(root)).status == 200)
        assert call("GET", last.url + "/v1/caller").status == 401


def _answers(url: str) -> bool:
    try:
        return call("GET", f"{url}/healthz").status == 200
    except OSError:
        return False


def test_no_file_of_a_node_holds_a_secret_token(closed: Closed) -> None:
    mine = new_token()
    put = ("principals", "put", "quiet", "--right", "read topic:*")
    closed.stockade(*put, token=closed.root)
    closed.stockade("principals", "add-token", "quiet", "--hash", mine.hash, token=closed.root)
    assert closed.everywhere("GET", "/v1/caller", mine.token) == {200}
    for secret in (mine.token, mine.token.split(".")[2], closed.root.split(".")[2]):
        for path in Path(closed.cluster.data).rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path
