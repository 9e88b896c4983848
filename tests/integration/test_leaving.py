"""A node that is asked to stop leaves so that no client loses anything."""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .api import CALM, Answer, Topic, call, eventually, expect
from .test_failover import node_named

pytestmark = pytest.mark.processes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "data", port_base=0, restart=False, settings=CALM) as running:
        yield running


def test_on_sigterm_leadership_is_handed_over_and_no_write_is_refused_lost_or_doubled(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "orders")
    topic.create()
    leaving = node_named(cluster, topic.led_by())
    staying = next(node for node in cluster.nodes if node is not leaving)
    waiting = in_background(lambda: call("GET", f"{topic.at(leaving.url).records()}?offset=latest&max_wait_ms=60000"))
    answers: list[Answer] = []
    stop = threading.Event()
    writing = in_background(lambda: write(topic.at(staying.url), answers, stop))
    eventually(lambda: len(answers) > 5)
    readiness: list[int] = []
    watching = in_background(lambda: watch(leaving, readiness))

    os.kill(process_of(leaving), signal.SIGTERM)

    assert leaving.process is not None
    assert leaving.process.wait(60) == 0
    written = len(answers)
    eventually(lambda: len(answers) > written + 5)
    stop.set()
    for thread in (writing, waiting, watching):
        thread.join(60)
    assert {answer.status for answer in answers} == {200}
    assert topic.at(staying.url).leader() != leaving.name
    assert topic.at(staying.url).values() == [str(number) for number in range(len(answers))]
    log = (leaving.data / "node.log").read_text(encoding="utf-8")
    assert re.search(r"handed [123] groups over, 0 were not taken", log), (
        "it may lead the controller and the ledger, too"
    )
    assert set(readiness) <= {200, 503}


def write(topic: Topic, answers: list[Answer], stop: threading.Event) -> None:
    while not stop.is_set():
        answers.append(topic.append(str(len(answers))))


def watch(node: LocalNode, statuses: list[int]) -> None:
    """Ask for its readiness until it is gone."""
    while True:
        try:
            statuses.append(call("GET", f"{node.url}/readyz").status)
        except OSError:
            return


def in_background(work: Callable[[], object]) -> threading.Thread:
    """Do something beside; that a node went away is no fault."""

    def quietly() -> None:
        with suppress(OSError):
            work()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    return thread


def process_of(node: LocalNode) -> int:
    assert node.pid is not None
    return node.pid


def test_a_followed_read_ends_with_a_problem_when_its_node_leaves(cluster: LocalCluster) -> None:
    topic = Topic(cluster.nodes[0].url, "orders")
    topic.create()
    expect(200, topic.append("a"))
    leader = node_named(cluster, topic.led_by())
    lines: list[bytes] = []

    def follow() -> None:
        url = f"{topic.at(leader.url).records()}?follow=true"
        lines.append(call("GET", url, headers={"Accept": "application/x-ndjson"}, timeout_s=60).body)

    following = in_background(follow)
    eventually(lambda: b"stockade_http" in call("GET", f"{leader.url}/metrics").body)
    os.kill(process_of(leader), signal.SIGTERM)
    following.join(60)
    assert not following.is_alive()
    assert leader.process is not None
    assert leader.process.wait(60) == 0
    assert lines
    assert b'"code":"' in lines[0].splitlines()[-1]
