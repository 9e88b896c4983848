"""A cluster under attack: three real nodes with few descriptors, clients that mean well, and what the nodes say."""

import re
import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from integration.api import Answer, call, expect

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.cluster.config import parse_address

DESCRIPTORS = 1024
"""Open files that a node is allowed: what many systems give a process."""
FIVE_HUNDREDS = re.compile(r'^stockade_http_requests_total\{.*status="5.*$', re.MULTILINE)


def limited(descriptors: int) -> Sequence[str]:
    """Words before a command that gives it so many descriptors and no way to raise them."""
    return ("sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh")


@contextmanager
def running(folder: Path, descriptors: int, *, https: bool = False) -> Iterator[LocalCluster]:
    """Three nodes that are allowed so many descriptors each; a node that ends is not started again."""
    prefix = limited(descriptors)
    with LocalCluster(folder, port_base=0, restart=False, prefix=lambda _: prefix, https=https) as cluster:
        yield cluster


@contextmanager
def silent_sockets(address: str, count: int) -> Iterator[list[socket.socket]]:
    """So many connections to ``host:port`` that send nothing, opened one after the other."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as held:
        yield [held.enter_context(socket.create_connection(parse_address(address), 60)) for _ in range(count)]


class Watch:
    """What must not happen during an attack: an election, an answer 5xx, a node that ends or grows beyond a bound."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._terms = self._leaders()
        self._faults = self._answered_5xx()

    def check(self, memory_bytes_max: int = 400 << 20) -> None:
        """Assert that none of it has happened since the watch began."""
        assert [node.process.poll() for node in self._cluster.nodes if node.process is not None] == [None] * 3
        assert self._leaders() == self._terms
        assert self._answered_5xx() == self._faults
        for node in self._cluster.nodes:
            assert value(node.url, "process_resident_memory_bytes") < memory_bytes_max

    def _answered_5xx(self) -> list[list[str]]:
        return [FIVE_HUNDREDS.findall(metrics(node.url)) for node in self._cluster.nodes]

    def _leaders(self) -> list[tuple[str, int]]:
        topic = expect(200, call("GET", f"{self._cluster.nodes[0].url}/v1/topics/{self._topic}"))
        return [(each["leader_node"], each["leader_term"]) for each in topic["partitions"]]


def metrics(url: str) -> str:
    """What a node counts."""
    return expect_text(call("GET", f"{url}/metrics"))


def expect_text(answer: Answer) -> str:
    """The text of an answer 200."""
    assert answer.status == 200, answer
    return answer.body.decode()


def value(url: str, name: str) -> float:
    """The value of a metric of a node; 0 if it has none."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", metrics(url), re.MULTILINE)
    return float(found[1]) if found else 0.0


def log(cluster: LocalCluster) -> str:
    """What all nodes have logged."""
    return "".join((node.data / "node.log").read_text() for node in cluster.nodes)


def stalls(cluster: LocalCluster) -> str:
    """What held event loops of the nodes, in words: how often, and the longest."""
    listed = [expect(200, call("GET", f"{node.url}/v1/stalls"))["stalls"] for node in cluster.nodes]
    held = [each for node in listed for each in node]
    if not held:
        return "none"
    longest = max(held, key=lambda each: int(each["held_ms"]))
    return f"{len(held)}, the longest {longest['held_ms']} ms by {longest['route']}: {' < '.join(longest['stack'])}"
