"""`stockade doctor`: checks a cluster (nodes and topics) and a machine; prints findings with advice."""

import asyncio
import os
import resource
import shutil
import ssl
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...client.errors import ClusterUnreachable, UnreadableAnswer
from ...client.transport.calls import decode
from ...client.transport.http import Request, Transport
from ...cluster.settings import ALIKE
from ...partition.api.cluster import Cluster, NodeState, NodeStates, Settings
from ...partition.api.topics import REPLICATION_FACTOR_DEFAULT, Topic
from ...partition.errors import LeaderNotAvailable, NotLeaderOrFollower, RequestTimedOut, StockadeError
from ...partition.log.modes import SECRET_MODE, open_to_others
from ..ui.connection import with_config
from ..ui.exits import CLIENT, REFUSED, UNREACHABLE
from ..ui.manual import Manual
from ..ui.output import count, output_option, rest, show_json, show_table, some
from .what_if import Finding, Verdict, judge_loss, losses

PROBE_TIMEOUT_MS = 3_000
TOPICS_TIMEOUT_MS = 10_000
LEADERLESS = "Start nodes until a majority of the controllers is back."
ELECTING = "An election takes a moment: look again. If it lasts, read the logs of the nodes."
CUT_OFF = (
    "An election takes a moment: look again. If it lasts, such a node is cut off from the others: look at the network"
    " between them, at firewalls and at certificates."
)
RENEW = (
    "Put the files of a new one in their place: the node reads them by itself. No new connection takes an expired one."
)
PASSING = frozenset({ELECTING, CUT_OFF})
"""Advice for states that pass by themselves while a majority of the nodes is up and connected."""
DAY_MS = 86_400_000
CERTIFICATE_DAYS_MIN = 14
"""A certificate with fewer days left is a warning, as in ops/alerts.yml."""
LOOKS_MAX, LOOK_AGAIN_S = 5, 1.0


@dataclass(frozen=True, slots=True)
class Probe:
    """The answer of one node about the cluster; or why the node did not answer, and the advice for that."""

    node_id: str
    cluster: Cluster | None
    is_ready: bool
    took_ms: float
    error: str = ""
    advice: str = ""
    is_reached: bool = True

    @property
    def is_itself(self) -> bool:
        """Whether the node that answered is the one that was asked."""
        return self.cluster is not None and self.cluster.node_id == self.node_id


async def look_at_cluster(config: ClientConfig) -> tuple[list[Finding], bool]:
    """The findings about the cluster, and whether any node accepted a connection.

    Repeats the checks, at most LOOKS_MAX times in all, while a leader is being elected.
    """
    for _ in range(LOOKS_MAX - 1):
        findings, is_reached = await _look(config)
        if all(finding.advice not in PASSING for finding in findings):
            return findings, is_reached
        await asyncio.sleep(LOOK_AGAIN_S)
    return await _look(config)


async def _look(config: ClientConfig) -> tuple[list[Finding], bool]:
    """Look at the cluster once. Asks every address of ``bootstrap``, so that a node that hangs does not hide the
    others.
    """
    async with Transport(config) as transport:
        asked = await asyncio.gather(*(_probe(transport, url, url) for url in config.bootstrap))
        answers = [probe.cluster for probe in asked if probe.cluster is not None]
        if not answers:
            silent = [Finding(probe.node_id, "wrong", probe.error, probe.advice) for probe in asked]
            return silent, any(probe.is_reached for probe in asked)
        nodes = answers[0].nodes
        probes = await asyncio.gather(*(_probe(transport, node.node_id, node.url) for node in nodes))
        answering = tuple(probe.node_id for probe in asked if probe.cluster is not None)
        heard = [node.url for node, probe in zip(nodes, probes, strict=True) if probe.cluster is not None]
        told = await _states(transport, [*answering, *heard], everywhere=not heard)
    seen = [*answers, *(probe.cluster for probe in probes if probe.cluster is not None)]
    is_led = any(cluster.controller.leader_node is not None for cluster in seen)
    dead = {probe.node_id for probe in probes if not probe.is_itself}
    timeout_ms = min(config.request_timeout_ms, TOPICS_TIMEOUT_MS)
    patience_ms = timeout_ms + config.linger_ms
    quick = replace(config, bootstrap=answering, request_timeout_ms=timeout_ms, delivery_timeout_ms=patience_ms)
    async with Client(quick) as client:
        settings, topics = await asyncio.gather(
            _look_at_settings(client), _look_at_topics(client, dead, len(probes), told, is_led=is_led)
        )
    return [*judge_nodes(probes), *judge_states(told, dead), *settings, *topics], True


async def _look_at_topics(
    client: Client, dead: set[str], nodes: int, told: NodeStates, *, is_led: bool
) -> list[Finding]:
    """The findings about the topics, of a cluster of so many nodes; if the controller does not tell them, those about
    the partitions of which nodes know no leader. ``is_led``: whether a node names a controller leader; else none is
    asked for the topics.
    """
    leaderless = _of_the_leaderless(len(dead), nodes)
    try:
        if not is_led:
            raise LeaderNotAvailable("no controller leader is known")
        topics = [await client.topic(each.name) for each in await client.topics(internal=True)]
        return [*judge_topics(topics, dead, nodes)]
    except StockadeError as error:
        is_waiting = isinstance(error, LeaderNotAvailable | NotLeaderOrFollower | RequestTimedOut)
        advice = leaderless if is_waiting else error.hint_on("cli")
        unseen = Finding("topics", "wrong", f"cannot be looked at: {_message(error)}", advice)
        return [unseen, *judge_leaderless(told, leaderless)]


async def _states(transport: Transport, urls: Sequence[str], *, everywhere: bool) -> NodeStates:
    """The counters of the nodes, asked of each one itself: nodes that do not reach each other tell theirs, too. With
    ``everywhere`` those at ``urls`` are asked for all, as no other is reached from here. Nodes that do not tell theirs
    are left out: old software, a missing right, or no answer.
    """

    async def state(url: str) -> list[NodeState]:
        ask = Request(
            method="GET",
            path="/v1/nodes",
            params={"everywhere": "true"} if everywhere else None,
            node=url,
            only_node=True,
            timeout_ms=PROBE_TIMEOUT_MS,
        )
        try:
            return decode(await transport.request(ask), NodeStates).nodes
        except StockadeError:
            return []

    answers = await asyncio.gather(*map(state, dict.fromkeys(urls)))
    found = {each.node_id: each for answer in answers for each in answer}
    return NodeStates([found[node_id] for node_id in sorted(found)])


async def _look_at_settings(client: Client) -> list[Finding]:
    """The findings about the nodes' settings; none if nodes do not tell them: old software, or a missing right."""
    try:
        found = await client.calls.call(Settings, "GET", "/v1/settings", params={"everywhere": "true"})
    except StockadeError:
        return []
    return [*judge_settings(found)]


def judge_states(found: NodeStates, dead: set[str]) -> Iterator[Finding]:
    """The findings about processes and certificates of nodes and, unless a node is dead, which says it all, about
    replicas.
    """
    yield from judge_doubles(found)
    yield from judge_certificates(found)
    yield from () if dead else judge_replicas(found)


def judge_doubles(found: NodeStates) -> Iterator[Finding]:
    """Check that no two processes run under one node id."""
    advice = "Stop the one that should not run, or give it a node_id of its own."
    for node in found.nodes:
        if node.doubled_by is not None:
            what = f"another process runs under its id, or did so within 30 s, at {node.doubled_by}"
            yield Finding(f"process of {node.node_id}", "wrong", what, advice)


def judge_leaderless(found: NodeStates, advice: str) -> Iterator[Finding]:
    """Name the partitions of which nodes know no leader."""
    for node in found.nodes:
        if without := node.partitions.leaderless:
            names = node.partitions.leaderless_names[:PARTITIONS_SHOWN]
            named = " ".join([", ".join(names), *rest(without - len(names))]) if names else ""
            what = f"no leader known: {without:,} of {node.partitions.replicas:,}" + (named and f": {named}")
            yield Finding(f"partitions on {node.node_id}", "wrong", what, advice)


def judge_certificates(found: NodeStates) -> Iterator[Finding]:
    """Check that every node has taken its certificate files as they are now, and that none expires soon, by the clock
    of its node.
    """
    advice = "Its log says what is wrong with them. The node goes on with those before, until they expire."
    for node in found.nodes:
        for use in node.refused_certificates:
            yield Finding(f"certificate of {node.node_id}", "wrong", f"{use}: the node refuses its files", advice)
        for use, expires_at_ms in sorted(node.certificates.items()):
            days = (expires_at_ms - node.at_ms) / DAY_MS
            if days < CERTIFICATE_DAYS_MIN:
                verdict: Verdict = "wrong" if days < 0 else "warning"
                said = f"{use}: expired" if days < 0 else f"{use}: expires in {count(int(days), 'day')}"
                yield Finding(f"certificate of {node.node_id}", verdict, said, RENEW)


def judge_replicas(found: NodeStates) -> Iterator[Finding]:
    """Check that the leaders of partitions reach all replicas, and that none lacks much."""
    advice = (
        "One more loss may stop writes: restart no node before this is over. If it lasts, look at"
        " `stockade metrics --match raft_nodes` (who misses whom) and at `--match raft_follower_lag`."
    )
    for node in found.nodes:
        if behind := node.partitions.under_replicated:
            have = f"{count(behind, 'partition')} {'has' if behind == 1 else 'have'}"
            what = f"{have} a replica that is cut off, being filled or far behind"
            yield Finding(f"replicas of what {node.node_id} leads", "warning", what, advice)


def judge_settings(found: Settings) -> Iterator[Finding]:
    """Check that the settings of ALIKE have the same value on all nodes."""
    values: dict[str, dict[str, list[str]]] = {name: {} for name in ALIKE}
    for node in found.nodes:
        for each in node.settings:
            if each.name in values:
                shown = "nothing" if each.value is None else str(each.value)
                values[each.name].setdefault(shown, []).append(node.node_id)
    for name, nodes in values.items():
        if len(nodes) > 1:
            differing = "; ".join(f"{value} on {', '.join(having)}" for value, having in nodes.items())
            yield Finding(f"setting {name}", "warning", differing, "Give every node the same, and start it again.")


async def _probe(transport: Transport, name: str, url: str) -> Probe:
    began = time.monotonic()
    ask = Request(method="GET", path="/v1/cluster", node=url, only_node=True, timeout_ms=PROBE_TIMEOUT_MS)
    try:
        cluster = decode(await transport.request(ask), Cluster)
    except StockadeError as error:
        return Probe(name, None, False, 0.0, *_silence(error), is_reached=not isinstance(error, ClusterUnreachable))
    took_ms = (time.monotonic() - began) * 1000
    try:
        await transport.request(replace(ask, path="/readyz"))
    except StockadeError as error:
        return Probe(name, cluster, False, took_ms, _message(error))
    return Probe(name, cluster, True, took_ms)


def _silence(error: StockadeError) -> tuple[str, str]:
    """(Why a node did not answer, what to do about it.)"""
    if isinstance(error, ClusterUnreachable) and isinstance(error.__cause__, ssl.SSLError | ssl.CertificateError):
        return f"does not answer: {_message(error)}", "Check the address, --ca and --certificate."
    if isinstance(error, ClusterUnreachable):
        advice = "Read the end of its log (a disk that fails ends a node), then start it. Or is this not its address?"
        return f"does not answer: {_message(error)}", advice
    if isinstance(error, UnreadableAnswer):
        return _message(error), error.hint_on("cli")
    if isinstance(error, RequestTimedOut):
        advice = (
            "It is stopped, cut off or overloaded: check its process. Or is this the port of the nodes' own traffic,"
            " or an address that begins with https?"
        )
        return f"does not answer: {_message(error)}", advice
    return f"refuses: {_message(error)}", error.hint_on("cli")


def _message(error: StockadeError) -> str:
    return error.detail.removeprefix("no node answers: ")


def judge_nodes(probes: Sequence[Probe]) -> Iterator[Finding]:
    """Check that all nodes answer, are ready, have room on their disks and run one version, that they name one
    controller leader, and that no partition is moving.
    """
    for probe in probes:
        about = f"node {probe.node_id}"
        if probe.cluster is None:
            yield Finding(about, "wrong", probe.error, probe.advice)
        elif not probe.is_itself:
            advice = "Start it, and it says what its own address is; or order `stockade cluster add` with that."
            yield Finding(about, "wrong", f"{probe.cluster.node_id} answers at its address", advice)
        elif not probe.is_ready:
            yield Finding(about, "wrong", f"not ready: {probe.error}", "Its log says what it waits for.")
        else:
            yield Finding(about, "ok", f"ready, answers in {probe.took_ms:.0f} ms")
    yield from _judge_disks(probes)
    answers = [probe.cluster for probe in probes if probe.cluster is not None]
    versions = Counter(answer.version for answer in answers)
    if len(versions) > 1:
        yield Finding("versions", "warning", ", ".join(sorted(versions)), "Upgrade every node to one version.")
    yield from _judge_controller(answers, len(probes))
    silent = {probe.node_id for probe in probes if probe.cluster is None}
    for move in answers[0].reassignments if answers else ():
        away = ", ".join(node_id for node_id in move.replicas if node_id in silent)
        advice = f"It waits for {away}: start what is away, or `stockade cluster remove` it." if away else ""
        yield Finding(f"{move.topic}/{move.partition}", "warning", f"is moving to {', '.join(move.replicas)}", advice)


def _judge_controller(answers: Sequence[Cluster], nodes: int) -> Iterator[Finding]:
    """Check that all nodes that answer name one controller leader."""
    leaders = [answer.controller.leader_node for answer in answers]
    named = sorted({leader for leader in leaders if leader is not None})
    if not named and answers:
        yield Finding("controller", "wrong", "has no leader", _of_the_leaderless(nodes - len(answers), nodes))
    elif len(named) > 1:
        yield Finding("controller", "warning", "nodes name different leaders", ELECTING)
    elif named and None in leaders:
        without = ", ".join(answer.node_id for answer in answers if answer.controller.leader_node is None)
        yield Finding("controller", "warning", f"led by {named[0]}, and unknown to {without}", CUT_OFF)
    elif named:
        yield Finding("controller", "ok", f"led by {named[0]}")


def _judge_disks(probes: Sequence[Probe]) -> Iterator[Finding]:
    """Check that every node, by its own account, has room on its disk."""
    advice = "Trim, delete topics or shorten their retention, or enlarge the disk."
    for probe in probes:
        for node in () if probe.cluster is None else probe.cluster.nodes:
            if node.node_id == probe.node_id and node.disk != "ok":
                yield Finding(f"disk of {node.node_id}", "wrong", f"{node.disk}: it takes no appends", advice)


def _of_the_leaderless(silent: int, nodes: int) -> str:
    """Advice for a controller group without a leader, when ``silent`` of ``nodes`` do not answer."""
    return ELECTING if 2 * silent < nodes else LEADERLESS


def judge_topics(topics: Sequence[Topic], dead: set[str], nodes: int) -> Iterator[Finding]:
    """Check that every partition has a leader, that all its replicas are on nodes that answer (not in ``dead``), and
    that it has more than one where the cluster has ``nodes`` enough.
    """
    for topic in topics:
        orphans = [state.partition for state in topic.partitions if state.leader_node is None]
        short = [state.partition for state in topic.partitions if {*state.replicas} & dead]
        single = [state.partition for state in topic.partitions if len(state.replicas) == 1]
        about = f"topic {topic.name}"
        if orphans:
            lost = [topic.partitions[number].replicas for number in orphans]
            is_passing = all(2 * len({*replicas} & dead) < len(replicas) for replicas in lost)
            advice = ELECTING if is_passing else "Start nodes until a majority of its replicas is back."
            yield Finding(about, "wrong", f"no leader: {_partitions(orphans)}", advice)
        elif short:
            advice = "One more loss may stop writes: start the missing nodes, or move the replicas."
            yield Finding(about, "warning", f"a replica is away: {_partitions(short)}", advice)
        elif single and nodes >= REPLICATION_FACTOR_DEFAULT:
            advice = (
                "It is lost with the disk of one node, and stops with that node. More replicas: `stockade cluster move"
                " TOPIC PARTITION NODES`, with three nodes."
            )
            yield Finding(about, "warning", f"one replica: {_partitions(single)}", advice)
        else:
            yield Finding(
                about, "ok", f"{count(len(topic.partitions), 'partition')} led, and the nodes of all replicas answer"
            )


def _partitions(numbers: Sequence[int]) -> str:
    return f"partition{'' if len(numbers) == 1 else 's'} {some(numbers, PARTITIONS_SHOWN)}"


FILES_MIN = 4_096
"""Open files that suffice for a node with some hundred partitions and clients."""
FREE_BYTES_MIN = 2 << 30
MODES_SHOWN = 3
PARTITIONS_SHOWN = 8
SYNCS = 50
SYNC_SLOW_MS = 20.0
"""A disk that syncs more slowly than this makes every append wait."""

HEADINGS = ("", "about", "found", "what to do")
_STYLES = {"ok": "green", "warning": "yellow", "wrong": "bold red"}


@click.command(
    cls=Manual,
    short_help="Check a cluster and a machine; say what to do.",
    exits=CLIENT,
    means={
        0: "No finding is wrong; there may be warnings.",
        REFUSED: "A finding is wrong.",
        UNREACHABLE: "No node could be reached.",
    },
    examples=[
        ("Is the cluster well?", "stockade doctor"),
        ("Is this machine fit for a node?", "stockade doctor --data /var/lib/stockade"),
        ("What would stop without zone a?", "stockade doctor --what-if 'lose zone a'"),
        ("Whose disk may be lost?", "stockade doctor --what-if disk"),
        ("For an alarm", "stockade doctor --output json | jq '.[] | select(.verdict == \"wrong\")'"),
    ],
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Also check this machine; the folder tells which disk to try.",
)
@click.option(
    "--what-if",
    metavar="LOSS",
    help="Only say what would stop if this were lost: 'zone NAME', 'node NAME' or 'disk NODE'; without a name, each"
    " of them in turn. Nothing is changed.",
)
@output_option
@with_config
async def doctor(config: ClientConfig, data: Path | None, what_if: str | None, output: str) -> None:
    """Check every node and every topic of a cluster; with --data also the disk and the limits of this machine.

    With --what-if, tell from the catalog which partitions, controllers and grants a loss would stop.
    """
    findings = list(look_at_machine(data)) if data is not None else []
    seen, is_reached = (await suppose(config, what_if), True) if what_if else await look_at_cluster(config)
    findings += seen
    if output == "json":
        show_json(findings)
    elif sys.stdout.isatty():
        Console(highlight=False, emoji=False).print(_table(findings))
    else:
        show_table(HEADINGS, [(each.verdict, each.about, each.found, each.advice) for each in findings])
    if not is_reached:
        sys.exit(UNREACHABLE)
    sys.exit(any(finding.verdict == "wrong" for finding in findings))


async def suppose(config: ClientConfig, what_if: str) -> list[Finding]:
    """The findings about what the loss ``what_if`` would stop. Raises click.BadParameter for a loss that this cluster
    cannot have.
    """
    async with Client(config) as client:
        cluster = await client.cluster()
        try:
            supposed = losses(what_if, cluster)
        except ValueError as fault:
            raise click.BadParameter(str(fault), param_hint="--what-if") from fault
        topics = [await client.topic(each.name) for each in await client.topics(internal=True)]
    return [finding for loss in supposed for finding in judge_loss(loss, cluster, topics)]


def look_at_machine(data: Path) -> Iterator[Finding]:
    """Check whether this machine is fit for a node: room and speed of the disk, limit of open files, file modes."""
    free = shutil.disk_usage(data).free
    verdict: Verdict = "ok" if free >= FREE_BYTES_MIN else "warning"
    yield Finding("disk space", verdict, f"{free / (1 << 30):.1f} GiB free", "" if verdict == "ok" else "Make room.")
    yield _look_at_speed(data)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = files < FILES_MIN
    advice = f"Raise it to {FILES_MIN} or more (ulimit -n, LimitNOFILE=)." if few else ""
    yield Finding("open files", "warning" if few else "ok", f"{files:,} allowed", advice)
    yield _look_at_modes(data)


def _look_at_modes(data: Path) -> Finding:
    """Check that other users cannot use files of the folder, nor its group the private keys in it."""
    try:
        found = {path: mode for path, mode in open_to_others(data) if path.suffix != ".crt"}  # those are public
        for key in data.rglob("*.key"):
            if (mode := stat.S_IMODE(key.stat().st_mode)) & ~SECRET_MODE:
                found[key] = mode
    except OSError as error:
        return Finding("file modes", "warning", f"cannot be looked at: {error}", "Run this as the user of the node.")
    if not found:
        return Finding("file modes", "ok", "no other user reads them")
    shown = some([f"{path} {mode:04o}" for path, mode in found.items()], MODES_SHOWN)
    advice = f"chmod -R g-w,o-rwx {data}; chmod 600 for keys. A node's next start mends what it wrote itself."
    return Finding("file modes", "warning", f"others may use {shown}", advice)


def _look_at_speed(data: Path) -> Finding:
    try:
        times = sorted(_sync_times_ms(data))
    except OSError as error:
        advice = "A node would stop here: make room, or allow writes to the folder."
        return Finding("disk speed", "wrong", f"{data} cannot be written to: {error.strerror}", advice)
    slowest = times[int(len(times) * 0.95)]
    slow = slowest > SYNC_SLOW_MS
    advice = "Every append waits for this: a disk with a power-safe cache is faster." if slow else ""
    found = f"fdatasync of 4 KiB: p50 {median(times):.2f} ms, p95 {slowest:.2f} ms"
    return Finding("disk speed", "warning" if slow else "ok", found, advice)


def _sync_times_ms(data: Path) -> Iterator[float]:
    path = data / f".doctor-{os.getpid()}"
    with path.open("xb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, SYNCS * 4096)
            file.write(bytes(SYNCS * 4096))  # as the write-ahead log does, which fills its files before it uses them
            file.flush()
            os.fsync(file.fileno())
            for number in range(SYNCS):
                began = time.perf_counter()
                os.pwrite(file.fileno(), b"\xa5" * 4096, number * 4096)
                os.fdatasync(file.fileno())
                yield (time.perf_counter() - began) * 1000
        finally:
            path.unlink()


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for finding in findings:
        verdict = Text(finding.verdict, style=_STYLES[finding.verdict])
        table.add_row(verdict, *map(Text, (finding.about, finding.found, finding.advice)))
    return table
