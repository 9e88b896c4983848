"""Requests that open files, or connections to other nodes, and are not taken: the log keeps its descriptors."""

import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from integration.api import Topic, expect

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.cluster.config import parse_address
from stockade.http_api.codec import media
from stockade.partition.log.fsutil import DESCRIPTORS_KEPT

from .cluster import DESCRIPTORS, running

READERS = 650
"""Connections of one client: below the bound of all connections, with what nodes have open besides."""
RECORDS = "/v1/topics/orders/partitions/0/records"
ARROW = f"GET {RECORDS}?max_bytes=67108864 HTTP/1.1\r\nHost: n\r\nAccept: {media.ARROW}\r\n\r\n"
WAIT = f"GET {RECORDS}?offset=latest&max_wait_ms=30000 HTTP/1.1\r\nHost: n\r\n\r\n"


def ask(address: str, asked: str, attack: ExitStack, after_each: Callable[[], None]) -> None:
    """Open the connections first, so that none is refused, and then ask on each of them. No answer is read."""
    readers = []
    for _ in range(READERS):
        reader = attack.enter_context(closing(socket.socket()))
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        reader.connect(parse_address(address))
        reader.sendall(b"GET /v1/caller HTTP/1.1\r\nHost: n\r\n\r\n")
        assert reader.recv(1000).startswith(b"HTTP/1.1 200")
        readers.append(reader)
    for reader in readers:
        reader.sendall(asked.encode())
        after_each()


def files_of(cluster: LocalCluster) -> list[int]:
    """The open files of each node."""
    return [
        len(list(Path(f"/proc/{node.process.pid}/fd").iterdir())) for node in cluster.nodes if node.process is not None
    ]


@pytest.mark.timeout(600)
@pytest.mark.processes
@pytest.mark.parametrize(("asked", "is_leader"), [(ARROW, True), (WAIT, False)], ids=["files", "forwarding"])
def test_the_log_keeps_its_descriptors_beside_those_of_requests(tmp_path: Path, asked: str, is_leader: bool) -> None:
    with running(tmp_path, DESCRIPTORS) as cluster, ExitStack() as attack:
        topic = Topic(cluster.nodes[0].url, "orders")
        topic.create(partitions=1)
        for _ in range(30):
            expect(200, topic.append("x" * 1_000_000, 0))
        leader = topic.led_by()
        attacked = next(node for node in cluster.nodes if (node.name == leader) == is_leader)
        other = next(node for node in cluster.nodes if node.name != leader and node is not attacked)
        most = [0, 0, 0]

        def look() -> None:
            most[:] = map(max, most, files_of(cluster))

        ask(attacked.http, asked, attack, look)
        for number in range(30):
            expect(200, topic.at(other.url).append(f"{number}", 0))
            look()
        assert max(most) < DESCRIPTORS - DESCRIPTORS_KEPT
        assert topic.at(other.url).leader() == leader
