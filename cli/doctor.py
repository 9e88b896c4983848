"""`stockade doctor`: looks at a cluster and at a disk, says what is wrong, and what to do about it."""

import asyncio
import os
import resource
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import click
import msgspec
from rich.console import Console
from rich.table import Table

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import Cluster, Topic
from ..client.transport import Request, Transport
from ..partition.errors import StockadeError
from .connection import connected
from .exits import CLIENT, REFUSED
from .manual import Manual
from .output import output_option, show_json

PROBE_TIMEOUT_MS = 3_000
FILES_MIN = 4_096
"""Open files that a node with some hundred partitions and clients may need."""
FREE_BYTES_MIN = 2 << 30
SYNCS = 50
SYNC_SLOW_MS = 20.0
"""A disk that syncs more slowly than this makes every append wait."""

Verdict = Literal["ok", "warning", "wrong"]
_STYLES = {"ok": "green", "warning": "yellow", "wrong": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and what to do if it is not well."""

    about: str
    verdict: Verdict
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """What one node said of the cluster, or why it said nothing."""

    node_id: str
    cluster: Cluster | None
    is_ready: bool
    took_ms: float
    error: str = ""


@click.command(
    cls=Manual,
    short_help="Say what is wrong with a cluster or a machine.",
    exits=CLIENT,
    means={0: "All is well, or there are only warnings.", REFUSED: "Something is wrong."},
    examples=[
        ("Is the cluster well?", "stockade doctor"),
        ("Is this machine fit for a node?", "stockade doctor --data /var/lib/stockade"),
        ("For an alarm", "stockade doctor --output json | jq '.[] | select(.verdict == \"wrong\")'"),
    ],
)
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder to try the disk of."
)
@output_option
@connected
async def doctor(config: ClientConfig, data: Path | None, output: str) -> None:
    """Look at every node and every topic of a cluster; with --data also at the disk and the limits of this machine."""
    findings = [*(look_at_machine(data) if data is not None else ()), *await look_at_cluster(config)]
    if output == "json":
        show_json(findings)
    else:
        Console(highlight=False).print(_table(findings))
    sys.exit(any(finding.verdict == "wrong" for finding in findings))


async def look_at_cluster(config: ClientConfig) -> list[Finding]:
    """Everything that can be seen over HTTP. Raises ClusterUnreachable when no node answers."""
    async with Client(config) as client, Transport(config) as transport:
        known = await client.connect()
        probes = await asyncio.gather(*(_probe(transport, node.node_id, node.url) for node in known.nodes))
        topics = [await client.topic(summary.name) for summary in await client.topics()]
    return [*judge_nodes(probes), *judge_topics(topics, {probe.node_id for probe in probes if probe.cluster is None})]


async def _probe(transport: Transport, node_id: str, url: str) -> Probe:
    began = time.monotonic()
    ask = {"node": url, "only_node": True, "timeout_ms": PROBE_TIMEOUT_MS, "method": "GET"}
    try:
        answer = await transport.request(Request(path="/v1/cluster", **ask))  # type: ignore[arg-type]
        cluster = msgspec.json.decode(answer.body, type=Cluster)
    except StockadeError as error:
        return Probe(node_id, None, False, 0.0, str(error))
    took_ms = (time.monotonic() - began) * 1000
    try:
        await transport.request(Request(path="/readyz", **ask))  # type: ignore[arg-type]
    except StockadeError as error:
        return Probe(node_id, cluster, False, took_ms, str(error))
    return Probe(node_id, cluster, True, took_ms)


def judge_nodes(probes: Sequence[Probe]) -> Iterator[Finding]:
    """Nodes: there, ready, of one version, of one opinion."""
    for probe in probes:
        about = f"node {probe.node_id}"
        if probe.cluster is None:
            yield Finding(
                about, "wrong", f"does not answer: {probe.error}", "Start it, or see why it cannot be reached."
            )
        elif not probe.is_ready:
            yield Finding(about, "wrong", f"not ready: {probe.error}", "Look at its log; it says what it waits for.")
        else:
            yield Finding(about, "ok", f"ready, answers in {probe.took_ms:.0f} ms")
    answers = [probe.cluster for probe in probes if probe.cluster is not None]
    versions = Counter(answer.version for answer in answers)
    if len(versions) > 1:
        yield Finding("versions", "warning", ", ".join(sorted(versions)), "Bring every node to one version.")
    leaders = {answer.controller.leader_node for answer in answers}
    if leaders == {None}:
        yield Finding("controller", "wrong", "has no leader", "Bring a majority of the controllers back.")
    elif len(leaders) > 1:
        yield Finding("controller", "warning", "nodes name different leaders", "Wait a moment and look again.")
    else:
        yield Finding("controller", "ok", f"led by {leaders.pop()}")
    for move in answers[0].reassignments if answers else ():
        yield Finding(f"{move.topic}/{move.partition}", "warning", f"is moving to {', '.join(move.replicas)}", "")


def judge_topics(topics: Sequence[Topic], dead: set[str]) -> Iterator[Finding]:
    """Partitions: led, and with all their replicas on nodes that answer."""
    for topic in topics:
        orphans = [state.partition for state in topic.partitions if state.leader_node is None]
        short = [state.partition for state in topic.partitions if {*state.replicas} & dead]
        about = f"topic {topic.name}"
        if orphans:
            yield Finding(about, "wrong", f"no leader: {_some(orphans)}", "Bring a majority of its replicas back.")
        elif short:
            advice = "One more loss may stop writes: start the missing nodes, or move the replicas."
            yield Finding(about, "warning", f"a replica is away: {_some(short)}", advice)
        else:
            yield Finding(about, "ok", f"{len(topic.partitions)} partitions led and complete")


def look_at_machine(data: Path) -> Iterator[Finding]:
    """This machine as a home for a node: its disk, and how many files may be open."""
    free = shutil.disk_usage(data).free
    verdict: Verdict = "ok" if free >= FREE_BYTES_MIN else "warning"
    yield Finding("disk space", verdict, f"{free / (1 << 30):.1f} GiB free", "" if verdict == "ok" else "Make room.")
    times = sorted(_sync_times_ms(data))
    slow = times[int(len(times) * 0.95)] > SYNC_SLOW_MS
    advice = "Appends wait for this: a disk with a power-safe cache makes them faster." if slow else ""
    found = f"fdatasync of 4 KiB: p50 {median(times):.2f} ms, p95 {times[int(len(times) * 0.95)]:.2f} ms"
    yield Finding("disk speed", "warning" if slow else "ok", found, advice)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = files < FILES_MIN
    advice = f"Raise it to {FILES_MIN} or more (ulimit -n, LimitNOFILE=)." if few else ""
    yield Finding("open files", "warning" if few else "ok", f"{files:,} allowed", advice)


def _sync_times_ms(data: Path) -> Iterator[float]:
    path = data / f".doctor-{os.getpid()}"
    with path.open("xb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, SYNCS * 4096)
            os.fsync(file.fileno())
            for number in range(SYNCS):
                began = time.perf_counter()
                os.pwrite(file.fileno(), b"\xa5" * 4096, number * 4096)
                os.fdatasync(file.fileno())
                yield (time.perf_counter() - began) * 1000
        finally:
            path.unlink()


def _some(numbers: Sequence[int], most: int = 8) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return f"partitions {shown}" + (f" and {len(numbers) - most} more" if len(numbers) > most else "")


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "about", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        style = _STYLES[finding.verdict]
        table.add_row(f"[{style}]{finding.verdict}[/]", finding.about, finding.found, finding.advice)
    return table
