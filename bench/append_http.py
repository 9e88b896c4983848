"""One record a request, many in flight: how fast three nodes take appends over HTTP, with fdatasync before each answer.

``python bench/append_http.py [--base REVISION] [--in-flight 256] [--records 1] [--seconds 3] [--repeats 5]`` alternates
between the working tree and a base revision (P4, before and after), and between plain appends and fenced, numbered
ones (P12). With ``--records`` a request has more than one record of 1 KiB.
"""

# ruff: noqa: T201  # it prints a table

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, cast
from urllib.parse import urlsplit

import uvloop
from trees import call, clusters, leader_of

VALUE = b"x" * 1024

Requests = Callable[[int], Iterator[bytes]]
"""The requests that the connection of a number sends, one after the other."""


class Measured(Protocol):
    """Nodes under load."""

    def processor_s(self) -> float:
        """Processor time that all nodes have used, in seconds."""
        ...


class Row(NamedTuple):
    """What is measured in turns with others: requests to one of three nodes."""

    nodes: Measured
    url: str
    requests: Requests


class Load(NamedTuple):
    """The result of one run. ``processor_us``: processor time of all nodes for one append, in µs."""

    appends: int
    per_s: float
    p50_ms: float
    p99_ms: float
    processor_us: float = 0.0


class Connection(asyncio.Protocol):
    """One request in flight at all times, once it is started."""

    def __init__(self, requests: Iterator[bytes], latencies: list[float]) -> None:
        self._requests, self._latencies = requests, latencies
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)

    def start(self, end: float) -> None:
        """Send the first request; the last one is sent before ``end``."""
        self._end = end
        self._send()

    def data_received(self, data: bytes) -> None:
        """Note the time of an answer, and send the next request."""
        assert data.startswith(b"HTTP/1.1 200"), data
        assert data.rstrip().endswith(b"}"), "an answer in two pieces"
        now = time.perf_counter()
        self._latencies.append(now - self._began)
        if now < self._end:
            self._send()
        else:
            self._transport.close()
            self.done.set_result(None)

    def _send(self) -> None:
        self._began = time.perf_counter()
        self._transport.write(next(self._requests))


async def drive(url: str, requests: Requests, in_flight: int, seconds: float) -> Load:
    """Keep ``in_flight`` requests in flight. The clock starts when all connections are there: those that have one
    already would delay the others.
    """
    loop, latencies = asyncio.get_running_loop(), list[float]()
    address = urlsplit(url)
    connections = [
        (
            await loop.create_connection(
                lambda number=number: Connection(requests(number), latencies),  # type: ignore[misc]
                address.hostname or "",
                address.port or 80,
            )
        )[1]
        for number in range(in_flight)
    ]
    began = time.perf_counter()
    for connection in connections:
        connection.start(began + seconds)
    await asyncio.gather(*(connection.done for connection in connections))
    took = time.perf_counter() - began
    latencies.sort()
    count = len(latencies)
    return Load(count, count / took, latencies[count // 2] * 1e3, latencies[count * 99 // 100] * 1e3)


def plain(topic: str, records: int = 1) -> Requests:
    """Appends without a grant or a producer."""
    request = _request(topic, b"", records)

    def requests(number: int) -> Iterator[bytes]:
        while True:
            yield request

    return requests


def fenced(nodes: list[str], topic: str, in_flight: int, records: int = 1) -> Requests:
    """Appends of one grant, with a producer of its own for each connection."""
    session = call("POST", f"{nodes[0]}/v1/sessions", {"client_id": "bench", "ttl_ms": 300_000})["session"]
    wanted = {"partitions": [0], "mode": "ExclusiveWithFencing", "producer_name": "bench"}
    grant = call("POST", f"{nodes[0]}/v1/topics/{topic}/grants", wanted, {"Stockade-Session": session})
    fence = (
        f"Stockade-Session: {session}\r\nStockade-Fence-Grant: {grant['grant']}\r\n"
        f"Stockade-Fence-Epoch: {grant['epoch']}\r\nStockade-Producer-Epoch: 0\r\n"
    ).encode()
    pids = [call("POST", f"{nodes[0]}/v1/producers", {})["producer_id"] for _ in range(in_flight)]
    sequences = [0] * in_flight

    def requests(number: int) -> Iterator[bytes]:
        # Made beforehand but for the number, so that the load is not slower than a plain one.
        producer = b"Stockade-Producer-Id: %d\r\nStockade-Producer-Seq: %%d\r\n" % pids[number]
        whole = _request(topic, fence + producer, records)
        while True:
            yield whole % sequences[number]
            sequences[number] += records

    return requests


def _request(topic: str, headers: bytes, records: int) -> bytes:
    body = b"\n".join([VALUE] * records)
    start = f"POST /v1/topics/{topic}/partitions/0/records HTTP/1.1\r\nHost: bench\r\n".encode()
    return start + b"Content-Type: text/plain\r\n" + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", help="a revision to compare with")
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--records", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    revisions = [""] if chosen.base is None else [chosen.base, ""]
    with clusters(revisions) as nodes:
        rows: dict[str, Row] = {}
        for revision in revisions:
            three, where = nodes[revision], nodes[revision].urls
            for topic in ("plain", "fenced"):
                call("POST", f"{where[0]}/v1/topics", {"name": topic})
            name = revision or "working tree"
            rows[f"{name}, plain"] = Row(three, leader_of(where, "plain"), plain("plain", chosen.records))
            made = fenced(where, "fenced", chosen.in_flight, chosen.records)
            rows[f"{name}, fence and sequence"] = Row(three, leader_of(where, "fenced"), made)
        measure(rows, chosen.in_flight, chosen.seconds, chosen.repeats)


def measure(rows: dict[str, Row], in_flight: int, seconds: float, repeats: int) -> None:
    """Alternate between the rows; print medians, and each as a ratio of the first: the median of the pairs' ratios."""
    found: dict[str, list[Load]] = {name: [] for name in rows}
    for repeat in range(repeats + 1):
        for name, (nodes, url, requests) in rows.items():
            before = nodes.processor_s()
            load = uvloop.run(drive(url, requests, in_flight, seconds if repeat else 1.0))
            if repeat:  # the first round warms up
                each_us = (nodes.processor_s() - before) / load.appends * 1e6
                found[name].append(load._replace(processor_us=each_us))
    print(f"{'':40} {'appends/s':>10} {'p50 ms':>8} {'p99 ms':>8} {'CPU µs':>8} {'rate ratio':>11} {'CPU ratio':>10}")
    first = next(iter(found.values()))
    for name, loads in found.items():
        _, per_s, p50, p99, each_us = (statistics.median(column) for column in zip(*loads, strict=True))
        rate = statistics.median(load.per_s / base.per_s for load, base in zip(loads, first, strict=True))
        cheap = statistics.median(
            base.processor_us / load.processor_us for load, base in zip(loads, first, strict=True)
        )
        print(f"{name:40} {per_s:10.0f} {p50:8.1f} {p99:8.1f} {each_us:8.0f} {rate:11.2f} {cheap:10.2f}")
    print(
        "CPU: processor time of all three nodes together for one append; ratios above 1 are better than the first row"
    )


if __name__ == "__main__":
    main()
