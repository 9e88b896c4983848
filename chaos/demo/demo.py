"""The proof on real input: writers on every partition, leaders killed, a writer replaced in its sleep, all read back.

``run_demo`` works on any running cluster of this machine that has a ``cluster.json``; the command line starts one.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..client.admin import Client
from ..client.config import ClientConfig
from ..client.model import TopicConfig
from ..client.producer import Producer
from ..client.transport import Transport
from .checkers import Verdict, judge
from .evidence import Evidence, ReplicaLog
from .findings import Findings, findings, payload_of
from .history import History
from .nemesis import Strike, draw_target, kill_leader
from .nodes import ClusterProcesses
from .readback import read_back
from .report import Run
from .scene import GATES, KILLS_AT, Audience, ScenarioFailed, Scene
from .streams import DataError, Stream, load_folder, plan_streams
from .takeover import BATCHES_AFTER, BATCHES_BEFORE, Replacement, TakeOver
from .waiting import NotInTime
from .workload import StreamWriter
from .zombie import BATCH_BYTES_MAX

SESSION_TTL_MS = 60_000
"""Of the writers: a failover of the controller must not cost them their seats."""


class Options(msgspec.Struct, frozen=True):
    """What to run."""

    folder: Path
    records: int
    seed: int
    batch_records: int = 100


def plan(options: Options) -> list[Stream]:
    """What will be written. Raises DataError when the folder cannot feed the demo."""
    streams = plan_streams(load_folder(options.folder), options.records)
    _check_size(streams, options.batch_records)
    return streams


async def run_demo(
    listing: Path, options: Options, streams: Sequence[Stream], history: History, audience: Audience
) -> Run:
    """Carry out the demo on the cluster of ``listing`` (its ``cluster.json``) with the streams that ``plan`` made.

    Raises ScenarioFailed or NotInTime when the run cannot go on. Violations are in the answer.
    """
    transport = Transport(ClientConfig())
    processes = ClusterProcesses(listing, transport)
    urls = tuple(node.http for node in processes.nodes().values())
    async with transport, Client(ClientConfig(bootstrap=urls, session_ttl_ms=SESSION_TTL_MS)) as client:
        scene = Scene(
            client,
            processes,
            history,
            audience,
            streams,
            topic=f"demo-{time.time_ns() // 1_000_000}",
            batch_records=options.batch_records,
            seed=options.seed,
        )
        try:
            strikes, replacement = await _write_everything(scene, options.folder)
        except ScenarioFailed as error:
            raise ScenarioFailed(f"{error} {await _look_at_the_rest(scene)}") from error
        return await _judge_everything(scene, options, strikes, replacement)


async def _write_everything(scene: Scene, folder: Path) -> tuple[list[Strike], Replacement]:
    count = len(scene.streams)
    scene.audience.step(f"topic {scene.topic} with {count} partitions")
    config = TopicConfig(require_fence=True, max_batch_bytes=BATCH_BYTES_MAX)
    await scene.client.create_topic(scene.topic, partitions=count, config=config)
    takeover = TakeOver(scene, folder)
    try:
        async with asyncio.TaskGroup() as group:
            replacing = group.create_task(takeover.run())
            striking = group.create_task(_strike(scene, takeover))
            for stream in scene.streams:
                if stream is not scene.stalled:
                    group.create_task(_write(scene, stream))
    except ExceptionGroup as errors:
        raise ScenarioFailed(_first_of(errors)) from errors
    return striking.result(), replacing.result()


async def _strike(scene: Scene, takeover: TakeOver) -> list[Strike]:
    first = await _kill_at_work(scene, GATES[0], KILLS_AT[0])
    await scene.progress.level(GATES[1])
    scene.open(GATES[1])
    await takeover.zombie_is_done.wait()
    return [first, await _kill_at_work(scene, GATES[2], KILLS_AT[1])]


async def _kill_at_work(scene: Scene, gate: float, part: float) -> Strike:
    """Open the gate when everybody stands there, and strike as soon as they are on their way."""
    await scene.progress.level(gate)
    target = await draw_target(scene)
    scene.open(gate)
    await scene.progress.reached(part)
    return await kill_leader(scene, target)


async def _write(scene: Scene, stream: Stream) -> None:
    def acknowledged(count: int) -> None:
        scene.progress.add(stream.partition, count)

    async def may_send(index: int) -> bool:
        return await scene.progress.may_send(stream, index)

    producer = await Producer(scene.client.config, name=stream.name).start()
    try:
        writer = StreamWriter(producer, scene.history, scene.topic, stream.name, stream)
        async with writer.exclusive():
            await writer.run(0, scene.batch_records, may_send=may_send, acknowledged=acknowledged)
    finally:
        await producer.abort()


async def _judge_everything(scene: Scene, options: Options, strikes: Sequence[Strike], replacement: Replacement) -> Run:
    began = time.monotonic()
    logs = await _read_back(scene)
    readback_s = time.monotonic() - began
    expected = {stream.partition: stream.records for stream in scene.streams}
    evidence = Evidence.of(scene.history.events, logs, payload_of(scene.streams), expected)
    verdicts = await _judge(scene, evidence)
    found = Findings(
        evidence=evidence,
        verdicts=verdicts,
        strikes=strikes,
        replacement=replacement,
        streams=scene.streams,
        stalled=scene.stalled,
        opened_ns=[event.t_mono_ns for event in scene.history.events if event.f == "open"],
        readback_s=readback_s,
        nodes=len(scene.processes.nodes()),
    )
    return findings(found, source=str(options.folder), seed=options.seed, batch_records=options.batch_records)


async def _judge(scene: Scene, evidence: Evidence) -> list[Verdict]:
    scene.audience.step("checking")
    return await asyncio.to_thread(judge, evidence)


async def _look_at_the_rest(scene: Scene) -> str:
    """What the checkers say of a run that broke off: a violation may be the reason."""
    try:
        logs = await _read_back(scene)
    except NotInTime as error:
        return f"Nor could it be read back: {error}."
    verdicts = await _judge(scene, Evidence.of(scene.history.events, logs, payload_of(scene.streams)))
    violated = [f"{verdict.checker}: {verdict.examples[0]}" for verdict in verdicts if verdict.violations]
    return f"Violations so far: {'; '.join(violated) or 'none'}."


async def _read_back(scene: Scene) -> list[ReplicaLog]:
    scene.audience.step("reading every replica back")
    described = await scene.client.topic(scene.topic)
    nodes = {name: scene.processes.raw(name) for name in scene.processes.nodes()}
    replicas = {state.partition: state.replicas for state in described.partitions}
    so_far = 0

    def on_log(log: ReplicaLog) -> None:
        nonlocal so_far
        so_far += len(log.names)
        scene.audience.read(so_far)

    return await read_back(nodes, replicas, scene.topic, on_log)


def _check_size(streams: Sequence[Stream], batch_records: int) -> None:
    """The stalled writer needs room between its gates, and its successor behind them."""
    before = (BATCHES_BEFORE + 2) / (GATES[2] - GATES[1])
    after = (BATCHES_AFTER + 2) / (1 - GATES[2])
    needed = int(max(before, after) * batch_records) + 1
    if min(stream.records for stream in streams) < needed:
        raise DataError(f"at least {needed * len(streams):,} records are needed for {len(streams)} files")


def _first_of(errors: BaseExceptionGroup[BaseException]) -> str:
    """The innermost first error of a group, in one line."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
