"""Many live sessions, each renewed at a third of its ttl: what they cost the node that leads the controller.

``python bench/sessions.py [--sessions 10000] [--ttl-ms 10000] [--every-ms 3333] [--seconds 20] [--repeats 3]`` prints
the processor time of that node, in percent of one core, idle and under the renewals, and what one renewal takes of it.
The bar: 20 %.
"""

# ruff: noqa: T201  # it prints a table

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from loads.over_http import call
from processor import processor_s
from systems.stockade import Nodes, clusters

CONNECTIONS_MAX = 256
"""Connections that renew sessions."""


class Cost(NamedTuple):
    """Renewals, and processor time of the controller's leader in percent of a core, over one stretch of time."""

    renewals_per_s: float
    core_percent: float


class Connection:
    """A connection that sends one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def call(self, method: str, path: str, body: bytes = b"", session: str | None = None) -> bytes:
        """The body of the answer to a request, which is for ``session``. AssertionError if its status is not 2xx."""
        head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        if session is not None:
            head += f"Stockade-Session: {session}\r\n"
        self._writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status, *lines = answer.lower().split(b"\r\n")
        assert status.split()[1].startswith(b"2"), answer
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
        return await self._reader.readexactly(length)

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()


async def connect(url: str, count: int) -> list[Connection]:
    """Open ``count`` connections to a node."""
    address = urlsplit(url)
    return [Connection(*await asyncio.open_connection(address.hostname, address.port)) for _ in range(count)]


def connections_for(sessions: int) -> int:
    """The number of connections, at most CONNECTIONS_MAX: each has a session to renew."""
    return min(CONNECTIONS_MAX, sessions)


def controller(nodes: Nodes) -> tuple[str, int]:
    """The URL and process id of the node that leads the controller."""
    url = call("GET", f"{nodes.urls[0]}/v1/cluster")["controller"]["leader"]
    return url, nodes.pids[nodes.urls.index(url)]


async def open_sessions(connections: list[Connection], count: int, ttl_ms: int) -> list[list[str]]:
    """Open ``count`` sessions; return, for each connection, the sessions that it is to renew."""
    body = json.dumps({"client_id": "bench", "ttl_ms": ttl_ms}).encode()

    async def some(connection: Connection, count: int) -> list[str]:
        return [json.loads(await connection.call("POST", "/v1/sessions", body))["session"] for _ in range(count)]

    share, rest = divmod(count, len(connections))
    return await asyncio.gather(*(some(c, share + (n < rest)) for n, c in enumerate(connections)))


async def renew(connection: Connection, sessions: Iterable[str], every_s: float, end: float) -> int:
    """Renew ``sessions`` in turn, evenly, each once in ``every_s``, until ``end``; return the number of renewals."""
    sessions = list(sessions)
    began, done = time.perf_counter(), 0
    while (now := time.perf_counter()) < end:
        due = began + done * every_s / len(sessions)
        if due > now:
            await asyncio.sleep(due - now)
        await connection.call("PUT", "/v1/session", session=sessions[done % len(sessions)])
        done += 1
    return done


async def measure(
    nodes: Nodes, count: int, ttl_ms: int, seconds: float, repeats: int, every_ms: int | None = None
) -> list[Cost]:
    """The cost when idle, then ``repeats`` costs of all sessions, each renewed every ``every_ms`` (None: ttl / 3)."""
    every_s = (ttl_ms / 3 if every_ms is None else every_ms) / 1000
    url, pid = controller(nodes)
    idle = await _cost(pid, asyncio.sleep(seconds / 4, 0))
    connections = await connect(url, connections_for(count))
    shares = await open_sessions(connections, count, ttl_ms)
    found = [idle]
    for _ in range(repeats):
        end = time.perf_counter() + seconds
        pairs = zip(connections, shares, strict=True)
        found.append(await _cost(pid, _all(renew(one, mine, every_s, end) for one, mine in pairs)))
    for connection in connections:
        await connection.close()
    return found


async def _all(renewing: Iterable[Awaitable[int]]) -> int:
    return sum(await asyncio.gather(*renewing))


async def _cost(pid: int, work: Awaitable[int]) -> Cost:
    before, began = processor_s([pid]), time.perf_counter()
    done = await work
    took = time.perf_counter() - began
    return Cost(done / took, (processor_s([pid]) - before) / took * 100)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000, help="at least 1")
    parser.add_argument("--ttl-ms", type=int, default=10_000)
    parser.add_argument("--every-ms", type=int, help="between two renewals of a session; ttl / 3 unless given")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.sessions < 1:
        parser.error("--sessions: at least 1")
    with clusters([""]) as nodes:
        arguments = (chosen.sessions, chosen.ttl_ms, chosen.seconds, chosen.repeats, chosen.every_ms)
        idle, *rounds = asyncio.run(measure(nodes[""], *arguments))
    print(f"{chosen.sessions} sessions, ttl {chosen.ttl_ms} ms; idle: {idle.core_percent:.1f} % of a core")
    print(f"{'':>10} {'renewals/s':>11} {'% of a core':>12} {'µs a renewal':>13}")
    rows = [
        (cost.renewals_per_s, cost.core_percent, (cost.core_percent - idle.core_percent) / cost.renewals_per_s * 1e4)
        for cost in rounds
    ]
    for number, row in enumerate(rows, start=1):
        show(f"round {number}", *row)
    show("median", *(statistics.median(column) for column in zip(*rows, strict=True)))


def show(name: str, per_s: float, percent: float, each_us: float) -> None:
    """Print one line of the table."""
    print(f"{name:>10} {per_s:11.0f} {percent:12.1f} {each_us:13.0f}")


if __name__ == "__main__":
    main()
