"""Idle connections and bodies of a byte now and then: appends of others go on, without an election."""

import http.client
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from integration.api import Topic, eventually

from stockade.cluster.config import parse_address

from .cluster import Watch, running, silent_sockets, stalls, value

SOCKETS = int(os.environ.get("ATTACK_SOCKETS", "500"))
"""Idle connections to each node."""
SLOW_BODIES = 100
"""Requests at each node whose bodies come by a byte each BYTE_EVERY_S; one that is refused is begun again."""
BYTE_EVERY_S = 0.5
APPENDS = int(os.environ.get("ATTACK_APPENDS", "200"))
"""Of each writer in each round."""
WRITERS = 3
ROUNDS = 3
DESCRIPTORS = 16_384
HEAD = b"POST /v1/topics/orders/partitions/0/records HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"


@contextmanager
def slow_bodies(addresses: list[str], count: int) -> Iterator[None]:
    """So many bodies on their way to each address until this ends."""
    over = threading.Event()
    feeding = threading.Thread(target=_feed, args=(addresses * count, over))
    feeding.start()
    try:
        yield
    finally:
        over.set()
        feeding.join()


def _feed(addresses: list[str], over: threading.Event) -> None:
    with ExitStack() as stack:
        open_ones = {number: stack.enter_context(_begun(address)) for number, address in enumerate(addresses)}
        while not over.wait(BYTE_EVERY_S):
            for number, connection in open_ones.items():
                try:
                    connection.send(b"x")
                except OSError:  # refused, and closed
                    open_ones[number] = stack.enter_context(_begun(addresses[number]))


def _begun(address: str) -> socket.socket:
    connection = socket.create_connection(parse_address(address), 60)
    connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
    return connection


def appended(url: str, partition: int, count: int) -> None:
    """Append so many records over one connection."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    for number in range(count):
        path = f"/v1/topics/orders/partitions/{partition}/records"
        connection.request("POST", path, f"{number}", {"Content-Type": "text/plain"})
        answer = connection.getresponse()
        assert answer.read()
        assert answer.status == 200
    connection.close()


def rate(topic: Topic, urls: list[str]) -> float:
    """Appends a second of all writers together, each to the leader of its partition."""
    began = time.monotonic()
    with ThreadPoolExecutor(WRITERS) as threads:
        for done in [threads.submit(appended, url, number, APPENDS) for number, url in enumerate(urls)]:
            done.result()
    return WRITERS * APPENDS / (time.monotonic() - began)


def _has_slow_bodies(url: str) -> bool:
    return value(url, "stockade_http_in_flight_requests") >= SLOW_BODIES


@pytest.mark.timeout(3600)
@pytest.mark.processes
def test_appends_go_on_beside_slow_bodies_and_idle_connections(tmp_path: Path, said: Callable[[str], None]) -> None:
    with running(tmp_path, DESCRIPTORS) as cluster:
        topic = Topic(cluster.nodes[0].url, "orders")
        topic.create(partitions=WRITERS)
        nodes = {node.name: node for node in cluster.nodes}
        urls = [nodes[topic.led_by(number)].url for number in range(WRITERS)]
        rate(topic, urls)
        watch, addresses = Watch(cluster, topic.name), [node.http for node in cluster.nodes]
        quiet, attacked = [], []
        for _ in range(ROUNDS):
            quiet.append(rate(topic, urls))
            with ExitStack() as attack:
                for address in addresses:
                    attack.enter_context(silent_sockets(address, SOCKETS))
                attack.enter_context(slow_bodies(addresses, SLOW_BODIES))
                eventually(partial(_has_slow_bodies, cluster.nodes[0].url))
                attacked.append(rate(topic, urls))
        ratio = sorted(then / before for before, then in zip(quiet, attacked, strict=True))[ROUNDS // 2]
        said(
            f"{SOCKETS} idle connections and {SLOW_BODIES} slow bodies a node: {max(attacked):.0f} appends/s,"
            f" {max(quiet):.0f} without; median ratio {ratio:.2f}; stalls {stalls(cluster)}"
        )
        watch.check()
