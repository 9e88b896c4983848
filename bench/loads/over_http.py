"""One record a request over HTTP/1.1, on one connection for each request in flight: appends, and etcd's puts."""

import asyncio
import base64
import json
import os
import ssl
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast
from urllib.parse import urlsplit

from figures import Load
from processor import Watch

from stockade.raft.net.tls import TlsSession

VALUE = b"x" * 1024
TTL_MS = 300_000
TOKEN = "BENCH_TOKEN"  # noqa: S105  # its name
"""Environment variable of a load generator: the bearer token of its requests. SSL_CERT_FILE names the file of the
authority for https:// URLs.
"""

Requests = Iterator[bytes]
"""The requests that a connection sends, one after the other."""


def call(method: str, url: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
    """Send a request; return the answer's JSON. Raises HTTPError for a refusal."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | _credentials() | (headers or {})
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.loads(answer.read() or b"null")


class Connection(asyncio.Protocol):
    """A connection that has one request in flight at all times while it runs."""

    def __init__(self, requests: Requests, tls: TlsSession | None = None) -> None:
        self._requests = requests
        self._tls = tls
        self._latencies: list[float] = []
        self._end: float | None = None
        self._began = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the TLS handshake, if there is one."""
        self._transport = cast(asyncio.Transport, transport)
        if self._tls is not None:
            self._transport.write(self._tls.outgoing())

    async def run(self, end: float, latencies: list[float]) -> None:
        """Send a request and note the time of its answer, again until ``end``; at least one."""
        self.done = asyncio.get_running_loop().create_future()
        self._end, self._latencies = end, latencies
        self._go_on()
        await self.done

    def _go_on(self) -> None:
        """Send the first request, once it can be encrypted."""
        if self._end is not None and (self._tls is None or self._tls.established):
            self._send()

    def data_received(self, data: bytes) -> None:
        """Note the time of an answer, and send the next request."""
        if self._tls is not None:
            was_established = self._tls.established
            data = self._tls.receive(data)
            if not was_established:
                self._transport.write(self._tls.outgoing())
                self._go_on()
            if not data:
                return
        now = time.perf_counter()
        if not (data.startswith(b"HTTP/1.1 200") and data.rstrip().endswith(b"}")):
            self.done.set_exception(RuntimeError(f"no good answer in one piece: {data[:300]!r}"))
            return
        self._latencies.append(now - self._began)
        if self._end is not None and now < self._end:
            self._send()
        else:
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail a run that is not done."""
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server has closed a connection"))

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def _send(self) -> None:
        self._began = time.perf_counter()
        request = next(self._requests)
        self._transport.write(request if self._tls is None else self._tls.seal(request))


async def drive(targets: Sequence[tuple[str, Requests]], seconds: float) -> Load:
    """Keep a request in flight on a connection to each URL. The clock starts when each connection has had its first
    answer: connections under load would delay the others' first requests, and a producer's first append makes it known
    to the partition.
    """
    loop, latencies = asyncio.get_running_loop(), list[float]()
    connections, tls = [], ssl.create_default_context()  # for TlsSession: as a client in C, past the loop's slow TLS
    tls.check_hostname = False  # a load of this machine's loopback; the authority is checked
    for url, requests in targets:
        address = urlsplit(url)
        host, port = address.hostname or "", address.port or 80
        connection = Connection(requests, TlsSession(tls, dialled=True) if address.scheme == "https" else None)
        await loop.create_connection(lambda connection=connection: connection, host, port)  # type: ignore[misc]
        connections.append(connection)
    await asyncio.gather(*(connection.run(0.0, []) for connection in connections))
    watch = Watch()
    await asyncio.gather(*(connection.run(watch.began + seconds, latencies) for connection in connections))
    load = watch.load(len(latencies))
    for connection in connections:
        connection.close()
    latencies.sort()
    p50, p99 = (latencies[load.count * percent // 100] * 1e3 for percent in (50, 99))
    return replace(load, p50_ms=p50, p99_ms=p99)


async def appends(urls: list[str], topic: str, partitions: int, in_flight: int, seconds: float) -> Load:
    """Appends straight to the leaders: connection k to partition k modulo their number."""
    leaders = leaders_of(urls[0], topic)
    assert len(leaders) == partitions, leaders
    return await drive([(leaders[k % partitions], _appends(topic, k % partitions)) for k in range(in_flight)], seconds)


async def fenced_appends(urls: list[str], topic: str, partitions: int, in_flight: int, seconds: float) -> Load:
    """Appends as ``appends`` sends them, under a grant of all partitions; each connection is a producer of its own,
    with sequence numbers.
    """
    session = call("POST", f"{urls[0]}/v1/sessions", {"client_id": "bench", "ttl_ms": TTL_MS})["session"]
    wanted = {"partitions": "all", "mode": "ExclusiveWithFencing", "producer_name": "bench"}
    grant = call("POST", f"{urls[0]}/v1/topics/{topic}/grants", wanted, {"Stockade-Session": session})
    fence = (
        f"Stockade-Session: {session}\r\nStockade-Fence-Grant: {grant['grant']}\r\n"
        f"Stockade-Fence-Epoch: {grant['epoch']}\r\nStockade-Producer-Epoch: 0\r\n"
    ).encode()
    leaders = leaders_of(urls[0], topic)
    targets = []
    for k in range(in_flight):
        producer_id = call("POST", f"{urls[0]}/v1/producers", {})["producer_id"]
        producer = b"Stockade-Producer-Id: %d\r\nStockade-Producer-Seq: %%d\r\n" % producer_id
        targets.append((leaders[k % partitions], _numbered(topic, k % partitions, fence + producer)))
    try:
        return await drive(targets, seconds)
    finally:
        call("DELETE", f"{urls[0]}/v1/sessions/{session}")  # the route that older releases have, too


async def puts(urls: list[str], run: str, in_flight: int, seconds: float) -> Load:
    """etcd: each put has a new key, and goes to the node that leads."""
    return await drive([(urls[0], _puts(f"{run}/{k}/")) for k in range(in_flight)], seconds)


def leaders_of(url: str, topic: str) -> list[str]:
    """URLs of the leaders of all partitions, once all are led."""
    while True:
        leaders = [each["leader"] for each in call("GET", f"{url}/v1/topics/{topic}")["partitions"]]
        if all(leaders):
            return leaders
        time.sleep(0.1)


def _credentials() -> dict[str, str]:
    token = os.environ.get(TOKEN)
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _append(topic: str, partition: int, headers: bytes = b"") -> bytes:
    start = f"POST /v1/topics/{topic}/partitions/{partition}/records HTTP/1.1\r\nHost: bench\r\n".encode()
    headers += "".join(f"{name}: {value}\r\n" for name, value in _credentials().items()).encode()
    return start + b"Content-Type: text/plain\r\n" + headers + b"Content-Length: %d\r\n\r\n" % len(VALUE) + VALUE


def _appends(topic: str, partition: int) -> Requests:
    request = _append(topic, partition)
    while True:
        yield request


def _numbered(topic: str, partition: int, headers: bytes) -> Requests:
    """Numbered appends. All but the number is made beforehand, so that this load is not slower than a plain one."""
    whole, sequence = _append(topic, partition, headers), 0
    while True:
        yield whole % sequence
        sequence += 1


def _puts(start: str) -> Requests:
    value, count = base64.b64encode(VALUE).decode(), 0
    head = b"POST /v3/kv/put HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    while True:
        key = base64.b64encode(f"{start}{count}".encode()).decode()
        body = json.dumps({"key": key, "value": value}, separators=(",", ":")).encode()
        yield head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        count += 1
