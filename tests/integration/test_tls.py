"""Three real nodes whose traffic is encrypted."""

import signal
import socket
from functools import partial
from pathlib import Path

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.raft.messages import Hello, Refusal
from stockade.raft.net.codec import PROTOCOL_VERSION, FrameReader, encode

from .api import Topic, eventually, expect


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


def _appends(topic: Topic, value: str) -> bool:
    return topic.append(value).status == 200


def _answer_to_plaintext(address: str) -> str:
    """What a node says to somebody who introduces himself as another one, without TLS."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as plain:
        plain.sendall(encode(0, Hello(PROTOCOL_VERSION, "local", "n2", 0)))
        answer = b"".join(iter(lambda: plain.recv(4096), b""))
    ((_, refusal),) = FrameReader().feed(answer)
    assert isinstance(refusal, Refusal)
    return refusal.reason
