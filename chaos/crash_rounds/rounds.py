"""Rounds of crashes under load: in each, nodes are killed, or all nodes lose power at one instant.

No acknowledged record may be lost. A round begins when every partition has acknowledged a record since the previous
crash, and crashes while every writer is at work.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...client.transport.http import Transport
from ...partition.api.topics import TopicConfig
from ..checkers.verdicts import Verdict, judge
from ..harness.readback import read_topic
from ..history.evidence import Evidence
from ..history.history import History
from ..history.timeline import NS, acknowledged_spans, longest_gap_ns
from ..streams.stream import payload_of
from ..system.nodes import ClusterProcesses
from ..system.waiting import NotInTime, until
from .load import SteadyLoad, steady_streams

BACK_TIMEOUT_S = 60.0
ALL_BACK_RATE = 0.6
"""The share of crashes that wait until every node is ready; the others hit a cluster that is still recovering."""
RECOVERY_TIMEOUT_S = 60.0
"""Every partition must be writable again this long after a crash."""
DELIVERY_TIMEOUT_MS = 300_000
SESSION_TTL_MS = 300_000
"""Longer than any round, so that no writer loses its slot to its session's end."""


class CrashFault(Protocol):
    """A crash under load. Returns when the nodes that it stopped are being started again."""

    async def __call__(self, chance: random.Random, processes: ClusterProcesses) -> str:
        """Crash nodes; return in a few words what was done."""
        ...


class KillNodes:
    """SIGKILL for one random node, two, or all. The cluster's supervisor starts them again."""

    async def __call__(self, chance: random.Random, processes: ClusterProcesses) -> str:
        """Kill nodes at a random moment, once all are ready or, in the other crashes, once any runs."""
        if chance.random() < ALL_BACK_RATE:
            await until(lambda: _all_ready(processes), BACK_TIMEOUT_S, "not every killed node is back")
        else:
            await until(lambda: _any_runs(processes), BACK_TIMEOUT_S, "no node is back")
        await asyncio.sleep(chance.random() / 2)
        running = [name for name, node in processes.nodes().items() if node.pid is not None]
        victims = chance.sample(running, min(len(running), chance.choice([1, 1, 1, 1, 2, len(running)])))
        for name in victims:
            processes.kill(name)
        return f"kill -9 {', '.join(sorted(victims))}"


class CutPower:
    """All nodes lose power at one instant, and with it all writes that no fsync has confirmed."""

    def __init__(self, cut: Callable[[], None], restore: Callable[[], None]) -> None:
        """``cut`` stops disks and processes, ``restore`` starts them. Both block."""
        self._cut = cut
        self._restore = restore

    async def __call__(self, chance: random.Random, processes: ClusterProcesses) -> str:
        """Cut the power at a random moment, and restore it."""
        await asyncio.sleep(chance.random())
        await asyncio.to_thread(self._cut)
        await asyncio.to_thread(self._restore)
        return "power of all nodes"


async def _all_ready(processes: ClusterProcesses) -> bool:
    nodes = processes.nodes()
    if any(node.pid is None for node in nodes.values()):
        return False
    return all(await asyncio.gather(*(processes.raw(name).is_ready() for name in nodes)))


async def _any_runs(processes: ClusterProcesses) -> bool:
    return any(node.pid is not None for node in processes.nodes().values())


class Options(msgspec.Struct, frozen=True):
    """``pace_ms``: time between two batches of ``batch_records`` of a partition's writer."""

    rounds: int
    seed: int
    partitions: int = 6
    batch_records: int = 2
    record_bytes: int = 100
    pace_ms: int = 20


class Round(msgspec.Struct, frozen=True):
    """One round: the crash, when it was (time of the history), and how long each partition took no write."""

    struck: str
    at_ns: int
    outage_s: dict[int, float]


class Result(msgspec.Struct, frozen=True):
    """All rounds and the verdicts over everything that was written."""

    rounds: list[Round]
    verdicts: list[Verdict]
    records: int
    seconds: float
    failures: list[str]
    """Refusals of writers. Each writer is alone on its partition, so any refusal is a violation."""

    @property
    def violations(self) -> int:
        """Violations over all checkers, and refusals of writers."""
        return sum(verdict.violations for verdict in self.verdicts) + len(self.failures)


async def run_rounds(
    listing: Path, options: Options, strike: CrashFault, history: History, on_round: Callable[[int, str], None]
) -> Result:
    """Crash the cluster ``options.rounds`` times, then read every replica back and judge.

    ``on_round`` is called with the number of each crash, from 1 on, and its description. A refused writer ends the
    rounds early. Raises NotInTime when a partition does not recover, or a node does not come back or catch up.
    """
    transport = Transport(ClientConfig())
    processes = ClusterProcesses(listing, transport)
    urls = tuple(node.http for node in processes.nodes().values())
    config = ClientConfig(bootstrap=urls, session_ttl_ms=SESSION_TTL_MS, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
    began = time.monotonic()
    async with transport, Client(config) as client:
        topic = f"rounds-{time.time_ns() // 1_000_000}"
        await client.create_topic(topic, partitions=options.partitions, config=TopicConfig(require_fence=True))
        streams = steady_streams(options.partitions, options.record_bytes)
        load = SteadyLoad(config, history, topic, streams, pace_s=options.pace_ms / 1000, count=options.batch_records)
        async with load:
            struck = await _strike_all(options, strike, load, processes, history, on_round)
        logs = await read_topic(client, processes, topic)
    evidence = Evidence.of(history.events, logs, payload_of(streams))
    rounds = _measured(struck, evidence, options.partitions)
    failures = [f"{type(error).__name__}: {error}" for error in load.failures]
    return Result(rounds, judge(evidence), load.progress.records, time.monotonic() - began, failures)


async def _strike_all(
    options: Options,
    strike: CrashFault,
    load: SteadyLoad,
    processes: ClusterProcesses,
    history: History,
    on_round: Callable[[int, str], None],
) -> Sequence[tuple[str, int]]:
    chance = random.Random(options.seed)  # a seed replays it  # noqa: S311  # nosec B311
    struck: list[tuple[str, int]] = []
    for number in range(1, options.rounds + 1):
        at_ns = history.note("nemesis", "strike").t_mono_ns
        what = await strike(chance, processes)
        struck.append((what, at_ns))
        on_round(number, what)
        await _recovered(load, number)
        if load.failures:
            break
    return struck


async def _recovered(load: SteadyLoad, number: int) -> None:
    """Return when every partition has acknowledged a new record, or a writer was refused."""
    try:
        async with asyncio.timeout(RECOVERY_TIMEOUT_S):
            for stream in load.progress.streams:
                await load.grown(stream.partition)
    except TimeoutError:
        problem = f"round {number}: not every partition is writable {RECOVERY_TIMEOUT_S:.0f} s later"
        raise NotInTime(problem) from None


def _measured(struck: Sequence[tuple[str, int]], evidence: Evidence, partitions: int) -> list[Round]:
    spans = acknowledged_spans(evidence.operations)
    ends = [at_ns for _, at_ns in struck[1:]] + [time.monotonic_ns()]
    rounds = []
    for (what, at_ns), end_ns in zip(struck, ends, strict=True):
        near = {p: [s for s in spans.get(p, []) if s[1] > at_ns - NS and s[0] < end_ns] for p in range(partitions)}
        outages = {p: longest_gap_ns(near[p], at_ns, end_ns) / NS for p in near}
        rounds.append(Round(what, at_ns, outages))
    return rounds
