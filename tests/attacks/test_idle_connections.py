"""Connections that ask nothing: clients of theirs are served on, by nodes that are allowed 1,024 open files."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from integration.api import Topic, call, expect

from .cluster import DESCRIPTORS, Watch, running, silent_sockets, value

SOCKETS = int(os.environ.get("ATTACK_SOCKETS", "1500"))
"""Idle connections to each node."""
APPENDS = 50


@pytest.mark.timeout(600)
@pytest.mark.processes
@pytest.mark.parametrize("https", [False, True], ids=["http", "https"])
def test_appends_go_through_nodes_that_idle_connections_fill(
    tmp_path: Path, https: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With HTTPS none of the idle connections begins its handshake."""
    with running(tmp_path, DESCRIPTORS, https=https) as cluster, ExitStack() as attack:
        if https:
            monkeypatch.setenv("SSL_CERT_FILE", str(cluster.certs / "ca.crt"))
        urls = [node.url for node in cluster.nodes]
        topic = Topic(urls[0], "orders")
        topic.create(partitions=3)
        for partition in range(3):
            expect(200, topic.append("first", partition))
        watch = Watch(cluster, topic.name)
        for node in cluster.nodes:
            attack.enter_context(silent_sockets(node.http, SOCKETS))
        for number in range(APPENDS):
            expect(200, topic.at(urls[number % 3]).append(f"{number}", number % 3))
        assert sum(len(topic.values(partition)) for partition in range(3)) == APPENDS + 3
        for url in urls:
            assert value(url, "process_open_fds") < value(url, "process_max_fds") == DESCRIPTORS
            assert call("GET", f"{url}/readyz").status == 200
        watch.check()
