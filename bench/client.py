"""Throughput and processor time of a Producer and a Consumer, beside NATS's clients (P1, P2, P9).

``python bench/client.py [--repeats 3] [--peers none]``, about a minute, and half of one more for each further round:
three nodes of each, all stores on one disk; the loads take turns, each in a process of its own, and every ratio is the
median of the rounds'. Stockade answers when a majority has synced; JetStream, with three replicas, when a majority has
it in memory. A load that fails says why and is left out from then on; Ctrl-C shows what there is by then.
"""

# ruff: noqa: S603, T201  # it starts itself, and prints a table

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import uvloop
from rich.console import Console
from rich.progress import Progress
from trees import ROOT, call, clusters

sys.path.insert(0, str(ROOT / "src"))

import nats_peer

from stockade import Consumer, Producer

LARGE, SMALL = 1024, 100
IN_FLIGHT = 256
CHUNK = 1000
COST_MAX_US = 5.0
SPARE_S = 60.0
"""What a load may take beside its seconds, before it counts as failed: starting, connecting, the last answers."""


class Load(NamedTuple):
    """The result of one run; ``cpu_us``: processor time of the client's process for a record."""

    per_s: float
    cpu_us: float


async def produce(urls: str, topic: str, size: int, seconds: float) -> tuple[int, float]:
    """One record a ``send``, as fast as the producer takes them; counted when all are stored."""
    value, count = b"x" * size, 0
    async with Producer(urls) as producer:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            for _ in range(CHUNK):
                _ = await producer.send(topic, value)
            count += CHUNK
        await producer.flush()
        return count, time.perf_counter() - began


async def produce_batches(urls: str, topic: str, size: int, seconds: float) -> tuple[int, float]:
    """The same with columns: 64 records a ``send_batch``."""
    values, count = [b"x" * size] * 64, 0
    async with Producer(urls) as producer:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            _ = await producer.send_batch(topic, 0, values)
            count += len(values)
        await producer.flush()
        return count, time.perf_counter() - began


async def consume(urls: str, topic: str, records_max: int) -> tuple[int, float]:
    """Record objects of a topic, one after the other."""
    count = 0
    async with Consumer(urls) as consumer:
        began = time.perf_counter()
        async for _ in consumer.read(topic):
            count += 1
            if count == records_max:
                break
        return count, time.perf_counter() - began


async def consume_arrow(urls: str, topic: str, records_max: int) -> tuple[int, float]:
    """The same as Arrow batches."""
    count = 0
    async with Consumer(urls) as consumer:
        began = time.perf_counter()
        async with consumer.pieces(topic) as pieces:
            async for piece in pieces:
                count += piece.batch.num_rows
                if count >= records_max:
                    break
        return count, time.perf_counter() - began


WORK = {
    "send": lambda where, seconds, records: produce(where, "large", LARGE, seconds),
    "send-small": lambda where, seconds, records: produce(where, "small", SMALL, seconds),
    "send-batch": lambda where, seconds, records: produce_batches(where, "large", LARGE, seconds),
    "send-batch-small": lambda where, seconds, records: produce_batches(where, "small", SMALL, seconds),
    "read": lambda where, seconds, records: consume(where, "read", records),
    "pieces": lambda where, seconds, records: consume_arrow(where, "read", records),
    "nats-publish": lambda where, seconds, records: nats_peer.publish(where, b"x" * LARGE, IN_FLIGHT, seconds),
    "nats-consume": lambda where, seconds, records: nats_peer.consume(where, records),
}


def work(name: str, where: str, seconds: float, records: int) -> None:
    """The child process: run, and print a Load as JSON."""

    async def run() -> Load:
        before = time.process_time()
        count, took = await WORK[name](where, seconds, records)
        return Load(count / took, (time.process_time() - before) / count * 1e6)

    print(json.dumps(uvloop.run(run())))


def loaded(name: str, where: str, seconds: float, records: int) -> Load:
    """Run it in a child process."""
    command = [sys.executable, __file__, "--work", name, "--where", where]
    command += ["--seconds", str(seconds), "--records", str(records)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + SPARE_S)
    return Load(*json.loads(done.stdout))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each load in each round, default 1")
    parser.add_argument("--repeats", type=int, default=1, help="rounds after the one that warms up, default 1")
    parser.add_argument("--records", type=int, default=50_000, help="to read, default 50000")
    parser.add_argument("--peers", choices=("nats", "none"), default="nats" if shutil.which("nats-server") else "none")
    parser.add_argument("--work", choices=WORK, help=argparse.SUPPRESS)
    parser.add_argument("--where", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.work, chosen.where, chosen.seconds, chosen.records)
        return
    with ExitStack() as stack:
        nodes = stack.enter_context(clusters([""]))[""].urls
        where = ",".join(nodes)
        for topic in ("large", "small", "read"):
            call("POST", f"{nodes[0]}/v1/topics", {"name": topic})
        asyncio.run(fill(where, chosen.records))
        rows = {name: _turn(name, where, chosen) for name in WORK if not name.startswith("nats-")}
        failed: dict[str, str] = {}
        if chosen.peers == "nats":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            try:
                rows |= peers(folder, stack.enter_context(nats_peer.servers(folder / "nats")), chosen)
            except Exception as error:
                failed["nats"] = _reason(error)
        show(*measured(rows, chosen.repeats, failed))


async def fill(where: str, records: int) -> None:
    """The records that consumers read: of 1 KiB, in the batches of a Producer."""
    async with Producer(where) as producer:
        for _ in range(records):
            _ = await producer.send("read", b"x" * LARGE)


def peers(folder: Path, urls: list[str], chosen: argparse.Namespace) -> dict[str, Callable[[], Load]]:
    """The other system's loads; its stream is filled by what is published."""
    leader = asyncio.run(nats_peer.create(urls))
    asyncio.run(nats_peer.fill(leader, b"x" * LARGE, chosen.records))
    rows = {name: _turn(name, leader, chosen) for name in WORK if name.startswith("nats-")}
    program = nats_peer.build_c(folder)
    if program is not None:
        rows["nats-c-publish"] = lambda: Load(
            nats_peer.publish_c(program, leader, LARGE, IN_FLIGHT, chosen.seconds), float("nan")
        )
    return rows


def _turn(name: str, where: str, chosen: argparse.Namespace) -> Callable[[], Load]:
    return lambda: loaded(name, where, chosen.seconds, chosen.records)


def measured(
    rows: dict[str, Callable[[], Load]], repeats: int, failed: dict[str, str]
) -> tuple[dict[str, list[Load]], dict[str, str]]:
    """Rounds of all loads in turn, the first to warm up; and what failed, with the reason, ``failed`` included.

    Tells on standard error where it is: with a bar if that is a terminal, else by a line for each round.
    """
    found: dict[str, list[Load]] = {name: [] for name in rows}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar, suppress(KeyboardInterrupt):
        task = bar.add_task("", total=(repeats + 1) * len(rows))
        for repeat in range(repeats + 1):
            if not console.is_terminal:
                print(f"round {repeat} of {repeats}", file=sys.stderr)
            for name, run in rows.items():
                bar.update(task, description=f"{name}, round {repeat} of {repeats}")
                if name not in failed:
                    try:
                        load = run()
                    except Exception as error:
                        failed[name] = _reason(error)
                    else:
                        found[name] += [load] * (repeat > 0)
                bar.advance(task)
    return {name: loads for name, loads in found.items() if loads and name not in failed}, failed


def _reason(error: Exception) -> str:
    """One line."""
    stderr = error.stderr if isinstance(error, subprocess.CalledProcessError) else None
    return (stderr or str(error) or repr(error)).strip().splitlines()[-1]


def show(found: dict[str, list[Load]], failed: dict[str, str]) -> None:
    """Medians, what failed, and the bars."""
    print(f"{'':20} {'records/s':>10} {'client µs CPU':>14}")
    for name, loads in found.items():
        per_s, cpu_us = (statistics.median(column) for column in zip(*loads, strict=True))
        print(f"{name:20} {per_s:10.0f} {cpu_us:14.2f}")
    for name, reason in failed.items():
        print(f"{name:20} failed: {reason}")
    for label, ours, theirs, bar in (
        ("P1: send / nats-py", "send", "nats-publish", 3.0),
        ("P1: send_batch / nats-py", "send-batch", "nats-publish", 3.0),
        ("P2: send / NATS C client", "send", "nats-c-publish", 1.5),
        ("P2: send_batch / NATS C client", "send-batch", "nats-c-publish", 1.5),
        ("P9: pieces / nats-py", "pieces", "nats-consume", 2.0),
        ("P9: read / nats-py", "read", "nats-consume", 2.0),
    ):
        if theirs in found and ours in found:
            pairs = zip(found[ours], found[theirs], strict=False)
            ratio = statistics.median(one.per_s / other.per_s for one, other in pairs)
            print(f"{label:34} {ratio:6.2f}   (bar {bar})")
    if "send-small" in found:
        cost_us = statistics.median(load.cpu_us for load in found["send-small"])
        print(f"{'client cost of a record of 100 B':34} {cost_us:6.2f} µs of CPU   (bar {COST_MAX_US})")


if __name__ == "__main__":
    main()
