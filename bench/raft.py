"""How fast one Raft group commits: three node processes on this machine, fdatasync before every ack.

``python bench/raft.py [--seconds 3]`` prints commits a second and latencies for some sizes and numbers in flight.
``--profile FILE`` saves a profile of the leader in the last row.
"""

# ruff: noqa: S603, T201  # it starts itself, and prints a table

import argparse
import asyncio
import cProfile
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from stockade.raft.group import Committed, Group
from stockade.raft.host import RaftHost, RaftSettings

ROWS = [(100, 1), (100, 256), (16 << 10, 64)]
NODES = ("n1", "n2", "n3")


class Nothing:
    """A machine that does nothing, so that only replication is measured."""

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Answer the place."""
        return index


async def load(group: Group, size: int, in_flight: int, seconds: float) -> dict[str, float]:
    """Keep so many proposals in flight for some time."""
    command, latencies = os.urandom(size), list[float]()
    end = time.perf_counter() + seconds

    async def propose() -> None:
        while (began := time.perf_counter()) < end:
            outcome = await group.propose(command, 10.0)
            assert isinstance(outcome, Committed), outcome
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*[propose() for _ in range(in_flight)])
    took = time.perf_counter() - began
    latencies.sort()
    count = len(latencies)
    return {
        "commits_per_s": count / took,
        "mb_per_s": count * size / took / 1e6,
        "p50_ms": latencies[count // 2] * 1e3,
        "p99_ms": latencies[count * 99 // 100] * 1e3,
    }


async def node(node_id: str, ports: list[int], directory: Path) -> None:
    """One node: answers {"size", "in_flight", "seconds"} lines on stdin with results, or null if it does not lead."""
    addresses = {name: ("127.0.0.1", port) for name, port in zip(NODES, ports, strict=True)}
    failed = asyncio.get_running_loop().create_future()
    host = RaftHost(
        node_id, "bench", addresses[node_id], addresses, directory / node_id, RaftSettings(), failed.set_exception
    )
    await host.start()
    group = host.open_group(1, NODES, Nothing())
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = json.loads(line)
        profile = cProfile.Profile()
        if request.get("profile"):
            profile.enable()
        answer = await load(group, *request["load"]) if group.is_leader else None
        if request.get("profile") and answer:
            profile.disable()
            profile.dump_stats(request["profile"])
        print(json.dumps(answer), flush=True)
    await host.stop()


def ask(processes: list[subprocess.Popen[str]], request: dict[str, Any]) -> dict[str, float]:
    """Let the leader, whoever it is, do something."""
    while True:
        for process in processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer: dict[str, float] | None = json.loads(process.stdout.readline())
            if answer is not None:
                return answer
        time.sleep(0.1)


def drive(directory: Path, seconds: float, profile: str | None) -> None:
    """Start the nodes, run the rows, print the table."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in NODES]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    command = [sys.executable, __file__, "--ports", *map(str, ports), "--directory", str(directory), "--node"]
    processes = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in NODES
    ]
    try:
        ask(processes, {"load": [100, 64, 0.5]})  # warm up
        print(f"{'bytes':>7} {'in flight':>9} {'commits/s':>10} {'MB/s':>7} {'p50 ms':>7} {'p99 ms':>7}")
        for size, in_flight in ROWS:
            is_last = (size, in_flight) == ROWS[-1]
            row = ask(processes, {"load": [size, in_flight, seconds], "profile": profile if is_last else None})
            figures = (
                f"{row['commits_per_s']:>10.0f} {row['mb_per_s']:>7.1f} {row['p50_ms']:>7.2f} {row['p99_ms']:>7.2f}"
            )
            print(f"{size:>7} {in_flight:>9} {figures}", flush=True)
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def main() -> None:
    """Drive, or be one of the nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each row runs (3)")
    parser.add_argument("--profile", help="file for a profile of the leader in the last row")
    parser.add_argument("--rows", help="rows as SIZExINFLIGHT, comma separated")
    parser.add_argument("--node", help=argparse.SUPPRESS)
    parser.add_argument("--ports", type=int, nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.node:
        uvloop.run(node(arguments.node, arguments.ports, arguments.directory))
        return
    if arguments.rows:
        ROWS[:] = [(int(size), int(flight)) for size, flight in (row.split("x") for row in arguments.rows.split(","))]
    with tempfile.TemporaryDirectory(prefix="stockade-bench-", dir=".") as directory:
        drive(Path(directory), arguments.seconds, arguments.profile)


if __name__ == "__main__":
    main()
