"""Rounds of crashes under load: nodes are killed, or all of them lose power at once, again and again.

Nobody may lose what was acknowledged. Each round strikes while every writer is at work, and the next one begins when
every partition has acknowledged something since.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import TopicConfig
from ..client.transport import Transport
from .checkers import Verdict, judge
from .evidence import Evidence
from .findings import payload_of
from .history import History
from .nodes import ClusterProcesses
from .readback import read_back
from .scene import ScenarioFailed
from .steady import SteadyLoad, steady_streams
from .timeline import NS, acknowledged_spans, longest_gap_ns

RECOVERY_TIMEOUT_S = 60.0
"""Every partition must be writable again this long after a strike."""
DELIVERY_TIMEOUT_MS = 300_000
SESSION_TTL_MS = 300_000
"""Longer than any round: writers must not lose their seats to the clock."""


class Options(msgspec.Struct, frozen=True):
    """What to run. ``pace_ms``: every partition's writer sends a batch of ``batch_records`` so often."""

    rounds: int
    seed: int
    partitions: int = 6
    batch_records: int = 2
    record_bytes: int = 100
    pace_ms: int = 20


class Strike(Protocol):
    """A fault. Called in the middle of the load; returns when whatever it broke is on its way back."""

    async def __call__(self, chance: random.Random, processes: ClusterProcesses) -> str:
        """Strike; answers in a few words what was struck."""
        ...


class Round(msgspec.Struct, frozen=True):
    """One round: what was struck, when (as in the history), and how long each partition took no write."""

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
    """What the writers were refused: nobody competes with them, so nobody may refuse them anything."""

    @property
    def violations(self) -> int:
        """Over all checkers, and the refusals."""
        return sum(verdict.violations for verdict in self.verdicts) + len(self.failures)


async def run_rounds(
    listing: Path, options: Options, strike: Strike, history: History, on_round: Callable[[int, str], None]
) -> Result:
    """Strike ``options.rounds`` times, then read every replica back and judge.

    ``on_round`` is told of each strike: its number from 1 on, and what was struck. A refused writer ends the rounds
    early. Raises ScenarioFailed when a partition does not recover, NotInTime when a node does not come back or catch
    up.
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
        described = await client.topic(topic)
        nodes = {name: processes.raw(name) for name in processes.nodes()}
        replicas = {state.partition: state.replicas for state in described.partitions}
        logs = await read_back(nodes, replicas, topic)
    evidence = Evidence.of(history.events, logs, payload_of(streams))
    rounds = _measured(struck, evidence, options.partitions)
    failures = [f"{type(error).__name__}: {error}" for error in load.failures]
    return Result(rounds, judge(evidence), load.progress.records, time.monotonic() - began, failures)


async def _strike_all(
    options: Options,
    strike: Strike,
    load: SteadyLoad,
    processes: ClusterProcesses,
    history: History,
    on_round: Callable[[int, str], None],
) -> Sequence[tuple[str, int]]:
    chance = random.Random(options.seed)  # noqa: S311
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
    """Return when every partition has acknowledged something new, or a writer was refused."""
    try:
        async with asyncio.timeout(RECOVERY_TIMEOUT_S):
            for stream in load.progress.streams:
                await load.grown(stream.partition)
    except TimeoutError:
        problem = f"round {number}: not every partition is writable {RECOVERY_TIMEOUT_S:.0f} s later"
        raise ScenarioFailed(problem) from None


def _measured(struck: Sequence[tuple[str, int]], evidence: Evidence, partitions: int) -> list[Round]:
    spans = acknowledged_spans(evidence.operations)
    ends = [at_ns for _, at_ns in struck[1:]] + [time.monotonic_ns()]
    rounds = []
    for (what, at_ns), end_ns in zip(struck, ends, strict=True):
        near = {p: [s for s in spans.get(p, []) if s[1] > at_ns - NS and s[0] < end_ns] for p in range(partitions)}
        outages = {p: longest_gap_ns(near[p], at_ns, end_ns) / NS for p in near}
        rounds.append(Round(what, at_ns, outages))
    return rounds
