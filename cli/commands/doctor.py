"""How a cluster looks from here, node by node and topic by topic, and what to do about what is wrong."""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.errors import ClusterUnreachable
from ..client.model import Cluster, Topic
from ..client.transport import Request, Transport
from ..partition.errors import LeaderNotAvailable, NotLeaderOrFollower, RequestTimedOut, StockadeError
from .exits import hint

PROBE_TIMEOUT_MS = 3_000
TOPICS_TIMEOUT_MS = 10_000
LEADERLESS = "Bring a majority of the controllers back."
ELECTING = "An election takes a moment: look again. If it lasts, read the logs of the nodes."
"""Of what passes by itself where a majority is there."""
LOOKS_MAX, LOOK_AGAIN_S = 5, 1.0

Verdict = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and what to do if it is not well."""

    about: str
    verdict: Verdict
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """What one node said of the cluster, or why it said nothing and what to do about that."""

    node_id: str
    cluster: Cluster | None
    is_ready: bool
    took_ms: float
    error: str = ""
    advice: str = ""
    is_reached: bool = True


async def look_at_cluster(config: ClientConfig) -> tuple[list[Finding], bool]:
    """Everything that can be seen over HTTP, and whether anything took a connection.

    Looks again, at most LOOKS_MAX times in all, while somebody is being elected: that is no illness.
    """
    for _ in range(LOOKS_MAX - 1):
        findings, is_reached = await _look(config)
        if all(finding.advice != ELECTING for finding in findings):
            return findings, is_reached
        await asyncio.sleep(LOOK_AGAIN_S)
    return await _look(config)


async def _look(config: ClientConfig) -> tuple[list[Finding], bool]:
    """Once. Every address that was given is asked, so that a node which hangs does not hide the others."""
    async with Transport(config) as transport:
        asked = await asyncio.gather(*(_probe(transport, url, url) for url in config.bootstrap))
        answers = [probe.cluster for probe in asked if probe.cluster is not None]
        if not answers:
            silent = [Finding(probe.node_id, "wrong", probe.error, probe.advice) for probe in asked]
            return silent, any(probe.is_reached for probe in asked)
        probes = await asyncio.gather(*(_probe(transport, node.node_id, node.url) for node in answers[0].nodes))
    answering = tuple(probe.node_id for probe in asked if probe.cluster is not None)
    dead = {probe.node_id for probe in probes if probe.cluster is None}
    advice = _of_the_leaderless(len(dead), len(probes))
    return [*judge_nodes(probes), *await _look_at_topics(replace(config, bootstrap=answering), dead, advice)], True


async def _look_at_topics(config: ClientConfig, dead: set[str], leaderless: str) -> list[Finding]:
    timeout_ms = min(config.request_timeout_ms, TOPICS_TIMEOUT_MS)
    quick = replace(config, request_timeout_ms=timeout_ms, delivery_timeout_ms=timeout_ms + config.linger_ms)
    try:
        async with Client(quick) as client:
            return [*judge_topics([await client.topic(each.name) for each in await client.topics()], dead)]
    except StockadeError as error:
        advice = leaderless if isinstance(error, LeaderNotAvailable | NotLeaderOrFollower) else hint(error)
        return [Finding("topics", "wrong", f"cannot be looked at: {_said(error)}", advice)]


async def _probe(transport: Transport, name: str, url: str) -> Probe:
    began = time.monotonic()
    ask = Request(method="GET", path="/v1/cluster", node=url, only_node=True, timeout_ms=PROBE_TIMEOUT_MS)
    try:
        cluster = msgspec.json.decode((await transport.request(ask)).body, type=Cluster)
    except StockadeError as error:
        return Probe(name, None, False, 0.0, *_silence(error), is_reached=not isinstance(error, ClusterUnreachable))
    except msgspec.MsgspecError:
        return Probe(name, None, False, 0.0, f"{url}: the answer is not that of a node", "Look at the address.")
    took_ms = (time.monotonic() - began) * 1000
    try:
        await transport.request(replace(ask, path="/readyz"))
    except StockadeError as error:
        return Probe(name, cluster, False, took_ms, _said(error))
    return Probe(name, cluster, True, took_ms)


def _silence(error: StockadeError) -> tuple[str, str]:
    """Why a node did not answer, and what to do."""
    if isinstance(error, ClusterUnreachable) and isinstance(error.__cause__, ssl.SSLError | ssl.CertificateError):
        return f"does not answer: {_said(error)}", "Look at the address, and at --ca and --certificate."
    if isinstance(error, ClusterUnreachable):
        advice = "Start it, after a look at the end of its log: a full disk ends a node. Or is this not its address?"
        return f"does not answer: {_said(error)}", advice
    if isinstance(error, RequestTimedOut):
        advice = (
            "It is stopped, cut off or overloaded: look at its process. Or is this the port of the nodes' own traffic,"
            " or an address that begins with https?"
        )
        return f"does not answer: {_said(error)}", advice
    return f"refuses: {_said(error)}", hint(error)


def _said(error: StockadeError) -> str:
    return error.detail.removeprefix("no node answers: ").removesuffix("; the outcome is unknown")


def judge_nodes(probes: Sequence[Probe]) -> Iterator[Finding]:
    """Nodes: there, ready, of one version, of one opinion."""
    for probe in probes:
        about = f"node {probe.node_id}"
        if probe.cluster is None:
            yield Finding(about, "wrong", probe.error, probe.advice)
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
        yield Finding(
            "controller", "wrong", "has no leader", _of_the_leaderless(len(probes) - len(answers), len(probes))
        )
    elif len(leaders) > 1:
        yield Finding("controller", "warning", "nodes name different leaders", ELECTING)
    else:
        yield Finding("controller", "ok", f"led by {leaders.pop()}")
    for move in answers[0].reassignments if answers else ():
        yield Finding(f"{move.topic}/{move.partition}", "warning", f"is moving to {', '.join(move.replicas)}", "")


def _of_the_leaderless(silent: int, nodes: int) -> str:
    """What to do about a controller group without a leader, when so many of the nodes do not answer."""
    return ELECTING if 2 * silent < nodes else LEADERLESS


def judge_topics(topics: Sequence[Topic], dead: set[str]) -> Iterator[Finding]:
    """Partitions: led, and with all their replicas on nodes that answer."""
    for topic in topics:
        orphans = [state.partition for state in topic.partitions if state.leader_node is None]
        short = [state.partition for state in topic.partitions if {*state.replicas} & dead]
        about = f"topic {topic.name}"
        if orphans:
            lost = [topic.partitions[number].replicas for number in orphans]
            is_passing = all(2 * len({*replicas} & dead) < len(replicas) for replicas in lost)
            advice = ELECTING if is_passing else "Bring a majority of its replicas back."
            yield Finding(about, "wrong", f"no leader: {_some(orphans)}", advice)
        elif short:
            advice = "One more loss may stop writes: start the missing nodes, or move the replicas."
            yield Finding(about, "warning", f"a replica is away: {_some(short)}", advice)
        else:
            yield Finding(about, "ok", f"{len(topic.partitions)} partitions led and complete")


def _some(numbers: Sequence[int], most: int = 8) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return f"partitions {shown}" + (f" and {len(numbers) - most} more" if len(numbers) > most else "")
