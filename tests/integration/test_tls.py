"""Three real nodes whose traffic is encrypted."""

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode
from stockade.cli.node.authority import Authority, Wanted, make_certificates, tls_section
from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.producer.producer import Producer
from stockade.raft.messages import Hello, Refusal
from stockade.raft.net.codec import PROTOCOL_VERSION, FrameReader, encode

from .api import Topic, call, eventually, expect


def test_a_cluster_with_certificates_appends_reads_fails_over_and_starts_again(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, port_base=0, tls=True) as cluster:
        topic = Topic(cluster.nodes[0].url, "secret")
        topic.create()
        expect(200, topic.append("first"))
        assert [topic.at(node.url).values() for node in cluster.nodes] == [["first"]] * 3
        assert "speaks TLS only" in _answer_to_plaintext(cluster.nodes[0].raft)
        cluster.kill(cluster.nodes[2], signal.SIGKILL)
        eventually(partial(_appends, topic, "second"))
    certificates = {path: path.read_bytes() for path in (tmp_path / "certs").iterdir()}
    with LocalCluster(tmp_path, port_base=0, tls=True) as cluster:
        topic = Topic(cluster.nodes[2].url, "secret")
        eventually(lambda: topic.values() == ["first", "second"])
    assert {path: path.read_bytes() for path in (tmp_path / "certs").iterdir()} == certificates


def test_https_clients_reach_any_node_and_nodes_pass_requests_on_between_themselves(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, port_base=0, tls=True, https=True) as cluster:
        asyncio.run(_use(cluster))
        stockade = partial(_stockade, cluster)
        assert "speaks-tls" in stockade("topics", "list")
        with pytest.raises(urllib.error.URLError, match=r".+"):
            call("GET", cluster.nodes[0].url + "/healthz")  # this machine's authorities do not know the cluster's
        with pytest.raises(OSError, match=r".+"):
            call("GET", f"http://{cluster.nodes[0].http}/healthz")
        _renew(cluster)
        assert "speaks-tls" in stockade("topics", "list")


@pytest.mark.timeout(600)  # nine restarts
def test_a_running_cluster_changes_over_to_tls_between_nodes_and_loses_no_append(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", port_base=0) as cluster:
        topic = Topic(cluster.nodes[0].url, "moves")
        topic.create()
        names = [node.name for node in cluster.nodes]
        make_certificates(tmp_path / "certs", cluster.cluster_id, [Wanted(name) for name in names], 1)
        plain = {node.name: (node.data / "node.toml").read_text() for node in cluster.nodes}
        load = Load([node.url for node in cluster.nodes], "moves")
        with load:
            for mode in ("accept", "dial", "require"):
                for node in cluster.nodes:
                    section = f'{tls_section(tmp_path / "certs", node.name)}\nmode = "{mode}"\n[[members]]'
                    (node.data / "node.toml").write_text(plain[node.name].replace("[[members]]", section, 1))
                    _restart(cluster, node)
                    load.goes_on()
        assert "speaks TLS only" in _answer_to_plaintext(cluster.nodes[0].raft)
        stored = topic.values()
        assert [value for value in load.acknowledged if value not in stored] == []
        assert len(set(stored)) == len(stored)


class Load:
    """Appends numbered records, one after the other, in a thread; a client repeats each until it has its outcome."""

    def __init__(self, bootstrap: list[str], topic: str) -> None:
        self.acknowledged: list[str] = []
        self._config = ClientConfig(bootstrap=bootstrap)
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._append()))

    def goes_on(self) -> None:
        """Wait until more is acknowledged."""
        before = len(self.acknowledged)
        eventually(lambda: len(self.acknowledged) > before)

    async def _append(self) -> None:
        async with Producer(self._config) as producer:
            while not self._stopping.is_set():
                value = f"{len(self.acknowledged)}"
                await (await producer.send(self._topic, value.encode(), partition=0))
                self.acknowledged.append(value)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def _restart(cluster: LocalCluster, node: LocalNode) -> None:
    """Let a node end; its supervisor starts it with the configuration that is there now."""
    before = node.pid
    cluster.kill(node, signal.SIGTERM)
    eventually(lambda: node.pid not in {None, before})
    cluster.wait_ready()


async def _use(cluster: LocalCluster) -> None:
    certificate, key = map(str, cluster.client_files)
    config = ClientConfig(
        bootstrap=[node.url for node in cluster.nodes],
        ca=str(cluster.certs / "ca.crt"),
        certificate=certificate,
        key=key,
    )
    async with Client(config) as client:
        await client.create_topic("speaks-tls", partitions=1)
    async with Producer(config) as producer:
        await (await producer.send("speaks-tls", b"first", partition=0))
    context = config.credentials().context()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        for node in cluster.nodes:  # two of them do not lead: the request goes over their connection to the leader
            records = f"{node.url}/v1/topics/speaks-tls/partitions/0/records"
            async with session.post(records, json={"records": [{"value": node.name}]}) as stored:
                assert stored.status == 200, await stored.text()
            async with session.get(f"{records}?max_wait_ms=0") as found:
                assert node.name in [record["value"] for record in (await found.json())["records"]]


def _renew(cluster: LocalCluster) -> None:
    """Replace n1's certificate, and wait until the running node shows the new one."""
    node = cluster.nodes[0]
    host, port = node.http.split(":")
    fresh = cluster.certs / "fresh"
    fresh.mkdir()
    authority = Authority.load(cluster.certs)
    until = datetime.now(UTC) + timedelta(days=1)
    made = authority.issue(fresh, cluster.cluster_id, node.name, [node.name], until, [host])
    wanted = made[0].read_text()
    for path in made:
        path.replace(cluster.certs / path.name)
    eventually(lambda: ssl.get_server_certificate((host, int(port))) == wanted)


def _stockade(cluster: LocalCluster, *words: str) -> str:
    """What the command prints, with what `stockade cluster --tls` says that clients need."""
    given = {"STOCKADE_URL": cluster.nodes[0].url, "STOCKADE_CA": str(cluster.certs / "ca.crt")}
    command = [sys.executable, "-m", "stockade", *words]
    done = subprocess.run(command, env=os.environ | given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _appends(topic: Topic, value: str) -> bool:
    return topic.append(value).status == 200


def _answer_to_plaintext(address: str) -> str:
    """The answer of a node to a stranger that introduces itself as another node, without TLS."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as plain:
        plain.sendall(encode(0, Hello(PROTOCOL_VERSION, "local", "n2", 0)))
        answer = b"".join(iter(lambda: plain.recv(4096), b""))
    ((_, refusal),) = FrameReader().feed(answer)
    assert isinstance(refusal, Refusal)
    return refusal.reason
