"""What a stranger sends to the HTTP port: no answer is 5xx, no node ends, grows or loses a leadership, others go on."""

import os
import random
import re
import selectors
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from integration.api import Topic, expect

from stockade.cluster.config import parse_address

from .cluster import Watch, log, running, stalls, value

REQUESTS = int(os.environ.get("ATTACK_REQUESTS", "10000"))
"""Hostile requests to all nodes together."""
TOPIC = "/v1/topics/orders"
RECORDS = f"{TOPIC}/partitions/0/records"
AT_ONCE = 300
"""Of them, so many are sent at a time."""
QUIET_S = 1.0
DESCRIPTORS = 4096
ANSWER = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
FAULT = re.compile(rb"HTTP/1\.[01] 5")
PATHS = (
    *(RECORDS, "/v1/topics", TOPIC, "/v1/topics/nowhere", "/v1/append", "/v1/sessions", "/v1/stalls"),
    *("/v1/topics/orders/grants", "/v1/groups/g/own", "/v1/cluster/members", "/v1/producers", "/v1/sessions/s-1"),
    "/v1/session",
    *(
        "/v1/topics/%00/partitions/9/records",
        "/v1/topics/../../etc/passwd",
        "//",
        "/%",
        "/v1/topics/orders/partitions/-1",
    ),
)
QUERIES = (
    *(
        "",
        "?offset=-2",
        "?offset=9223372036854775808",
        "?max_bytes=0",
        "?topic_id=x",
        "?n=1&n=2",
        "?%00=%FF",
        "?follow=maybe",
    ),
    *("?max_wait_ms=1&min_bytes=67108864", "?" + "a=b&" * 500, "?offset=99999999999999999999&local=true"),
)
HEADERS = (
    *("Stockade-Producer-Seq: -1", "Stockade-Producer-Id: 99999999999999999999", "Stockade-Session: ' or 1=1"),
    *("Stockade-Forwarded-By: n1", "Stockade-Forwarded-By: n1\r\nStockade-Client-Certificate: {}", "Range: bytes=0-"),
    *(
        "Authorization: Bearer " + "x" * 5000,
        "Content-Encoding: gzip",
        "Origin: https://evil.example",
        "Cookie: " + "c" * 9000,
    ),
    *(
        "Accept: */*;q=NaN",
        "Upgrade: h2c",
        "Connection: close, keep-alive",
        "Expect: 200-maybe",
        "Stockade-If-Log-End: x",
    ),
    *(
        "X: \x00",
        "X : y",
        " folded: yes",
        "X:" + "\t" * 300,
        "Last-Event-ID: -1",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
    ),
)
KINDS = (
    "application/json",
    "application/x-ndjson",
    "text/plain",
    "application/vnd.apache.arrow.stream",
    "x",
    "multipart/mixed",
)


def body_of(chance: random.Random) -> bytes:
    """What parsers have been killed with."""
    return chance.choice(
        [
            b"",
            b"{}",
            b"[" * chance.randrange(1, 5000),
            b'{"records":[' + b"{}," * chance.randrange(2000) + b"{}]}",
            b'{"name":"' + b"\\ud800" * 10 + b'","partitions":1e999}',
            b'{"records":[{"value":"a","value":"b"}]}',
            b'{"partitions":[' + b"0," * 1000 + b'0],"mode":"Exclusive"}',
            b"-" + b"9" * chance.randrange(1, 5000),
            b"\xff\xff\xff\xff" + chance.randbytes(chance.randrange(200)),
            b"\xff\xff\xff\xff\x10\x00\x00\x7f" + chance.randbytes(100),
            chance.randbytes(chance.randrange(1, 3000)),
            b"\x28\xb5\x2f\xfd" + chance.randbytes(50),
        ]
    )


def plain(chance: random.Random) -> bytes:
    """A request whose framing is right, and little else."""
    method = chance.choice(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"])
    path = chance.choice(PATHS)
    if (method, path) == ("DELETE", TOPIC):  # not hostile: an append meanwhile is rightly 504
        method = "GET"
    body = b"" if method in ("GET", "HEAD") else body_of(chance)
    lines = [f"{method} {path}{chance.choice(QUERIES)} HTTP/1.1", "Host: x"]
    lines += chance.sample(HEADERS, chance.randrange(3))
    lines += [f"Content-Type: {chance.choice(KINDS)}", f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def misframed(chance: random.Random) -> bytes:
    """A request that two parsers may end in different places, or that is none."""
    start = f"POST {RECORDS} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n".encode()
    return chance.choice(
        [
            start
            + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
            start + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            start + b"Content-Length: +3\r\n\r\nabc",
            start + b"Content-Length: 18446744073709551617\r\n\r\nabc",
            start + b"Content-Length: 99999999999999999999999999\r\nExpect: 100-continue\r\n\r\n",
            start + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc",
            start + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n",
            start + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            start + b"Transfer-Encoding: chunked\r\n\r\n3;" + b"e" * 9000 + b"\r\nabc\r\n0\r\nTrailer: x\r\n\r\n",
            start.replace(b"\r\n", b"\n") + b"Content-Length: 3\n\nabc",
            start.replace(b"Host: x\r\n", b"") + b"\r\n",
            start.replace(b"1.1", chance.choice([b"1.0", b"0.9", b"2.0", b"9.9", b"1.1 "]))
            + b"Content-Length: 0\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + chance.randbytes(50),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(100),
            b"GET /" + b"a" * chance.randrange(20_000) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * chance.randrange(400, 700) + b"\r\n",
            b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
            b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n" + chance.randbytes(100),
            chance.randbytes(chance.randrange(1, 2000)) + b"\r\n\r\n",
        ]
    )


def burst(addresses: Sequence[str], requests: Sequence[bytes]) -> Counter[int | None]:
    """The statuses of the answers to requests that are sent at the same time, a connection each. None: the connection
    was closed without one, or the node waits for more of the request when nothing has come for QUIET_S.
    """
    found: Counter[int | None] = Counter()
    with ExitStack() as stack, selectors.DefaultSelector() as waiting:
        for number, request in enumerate(requests):
            address = parse_address(addresses[number % len(addresses)])
            connection = stack.enter_context(socket.create_connection(address, 60))
            with suppress(ConnectionError):
                connection.sendall(request)
            waiting.register(connection, selectors.EVENT_READ, request)
        while waiting.get_map() and (ready := waiting.select(QUIET_S)):
            for key, _ in ready:
                answer = answer_on(key.fileobj)
                assert FAULT.match(answer) is None, (key.data, answer)
                status = ANSWER.match(answer)
                found[None if status is None else int(status[1])] += 1
                waiting.unregister(key.fileobj)
        found[None] += len(waiting.get_map())
    return found


def answer_on(connection: Any) -> bytes:
    """What has come of the answer: its head, which comes in one piece."""
    try:
        came: bytes = connection.recv(4096)
    except ConnectionError:
        return b""
    return came


@pytest.mark.timeout(7200)
@pytest.mark.processes
def test_hostile_requests_change_nothing(tmp_path: Path, said: Callable[[str], None]) -> None:
    chance = random.Random(20)
    answers: Counter[int | None] = Counter()
    with running(tmp_path, DESCRIPTORS) as cluster:
        Topic(cluster.nodes[0].url, "orders").create(partitions=1)
        topic = Topic(cluster.nodes[0].url, "marks")
        topic.create(partitions=1)
        addresses = [node.http for node in cluster.nodes]
        burst(addresses, [plain(chance) for _ in range(AT_ONCE)])  # what a node keeps for good is there then
        watch = Watch(cluster, topic.name)
        before = [value(node.url, "process_resident_memory_bytes") for node in cluster.nodes]
        for number in range(0, REQUESTS, AT_ONCE):
            answers += burst(addresses, [chance.choice((misframed, plain, plain))(chance) for _ in range(AT_ONCE)])
            expect(200, topic.append(f"mark {number}"))
        after = [value(node.url, "process_resident_memory_bytes") for node in cluster.nodes]
        grown = ", ".join(f"{(now - then) / (1 << 20):+.0f} MiB" for then, now in zip(before, after, strict=True))
        said(f"{answers.total()} hostile requests: answers {dict(answers)}; memory {grown}; stalls {stalls(cluster)}")
        watch.check()
        assert "Traceback" not in log(cluster)
