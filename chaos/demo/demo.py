"""Runs the demo: a writer on every partition, two leaders killed, one writer stalled and replaced, all read back.

``run_demo`` works on any running cluster of this machine that has a ``cluster.json``; the command line starts one.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...client.producer.producer import Producer
from ...client.transport.http import Transport
from ...partition.api.topics import TopicConfig
from ..checkers.verdicts import Verdict, judge
from ..harness.readback import read_topic
from ..history.evidence import Evidence, ReplicaLog
from ..history.history import History
from ..streams.stream import DataError, Stream, load_folder, payload_of, plan_streams
from ..streams.writer import StreamWriter
from ..system.nodes import ClusterProcesses
from ..system.waiting import NotInTime
from .context import GATES, KILLS_AT, DemoContext, ProgressListener, ScenarioFailed
from .findings import Findings, findings
from .leader_kills import LeaderKill, draw_target, kill_leader
from .report import Run
from .takeover import BATCHES_AFTER, BATCHES_BEFORE, Replacement, TakeOver
from .zombie import BATCH_BYTES_MAX

SESSION_TTL_MS = 60_000
"""Time to live of the writers' sessions: longer than a failover of the controller, so that they keep their slots."""


class Options(msgspec.Struct, frozen=True):
    """The folder of text files, the number of records over all files, and the seed of the random choices."""

    folder: Path
    records: int
    seed: int
    batch_records: int = 100


def plan(options: Options) -> list[Stream]:
    """The streams to write. Raises DataError if the folder has no suitable files."""
    streams = plan_streams(load_folder(options.folder), options.records)
    _check_size(streams, options.batch_records)
    return streams


async def run_demo(
    listing: Path, options: Options, streams: Sequence[Stream], history: History, listener: ProgressListener
) -> Run:
    """Carry out the demo on the cluster of ``listing`` (its ``cluster.json``) with the streams that ``plan`` made.

    Raises ScenarioFailed, NotInTime or ClusterUnreachable when the run cannot go on. Violations are in the answer.
    """
    transport = Transport(ClientConfig())
    processes = ClusterProcesses(listing, transport)
    try:
        urls = tuple(node.http for node in processes.nodes().values())
    except msgspec.DecodeError as error:
        raise ScenarioFailed(f"{listing} is not the cluster.json of a cluster: {error}") from error
    async with transport, Client(ClientConfig(bootstrap=urls, session_ttl_ms=SESSION_TTL_MS)) as client:
        await client.connect()  # a cluster that does not run is known at once
        context = DemoContext(
            client,
            processes,
            history,
            listener,
            streams,
            topic=f"demo-{time.time_ns() // 1_000_000}",
            batch_records=options.batch_records,
            seed=options.seed,
        )
        try:
            strikes, replacement = await _write_everything(context, options.folder)
        except ScenarioFailed as error:
            raise ScenarioFailed(f"{error} {await _check_interrupted(context)}") from error
        return await _judge_everything(context, options, strikes, replacement)


async def _write_everything(context: DemoContext, folder: Path) -> tuple[list[LeaderKill], Replacement]:
    count = len(context.streams)
    context.listener.step(f"topic {context.topic} with {count} partitions")
    config = TopicConfig(require_fence=True, max_batch_bytes=BATCH_BYTES_MAX)
    await context.client.create_topic(context.topic, partitions=count, config=config)
    takeover = TakeOver(context, folder)
    try:
        async with asyncio.TaskGroup() as group:
            replacing = group.create_task(takeover.run())
            striking = group.create_task(_strike(context, takeover))
            for stream in context.streams:
                if stream is not context.stalled:
                    group.create_task(_write(context, stream))
    except ExceptionGroup as errors:
        raise ScenarioFailed(_first_of(errors)) from errors
    return striking.result(), replacing.result()


async def _strike(context: DemoContext, takeover: TakeOver) -> list[LeaderKill]:
    first = await _kill_at_work(context, GATES[0], KILLS_AT[0])
    await context.progress.level(GATES[1])
    context.open(GATES[1])
    await takeover.zombie_is_done.wait()
    return [first, await _kill_at_work(context, GATES[2], KILLS_AT[1])]


async def _kill_at_work(context: DemoContext, gate: float, part: float) -> LeaderKill:
    """Open the gate when every writer waits there; kill a leader once they have written up to ``part``."""
    await context.progress.level(gate)
    target = await draw_target(context)
    context.open(gate)
    await context.progress.reached(part)
    return await kill_leader(context, target)


async def _write(context: DemoContext, stream: Stream) -> None:
    def acknowledged(count: int) -> None:
        context.progress.add(stream.partition, count)

    async def may_send(index: int) -> bool:
        return await context.progress.may_send(stream, index)

    producer = await Producer(context.client.config, name=stream.name).start()
    try:
        writer = StreamWriter(producer, context.history, context.topic, stream.name, stream)
        async with writer.exclusive():
            await writer.run(0, context.batch_records, may_send=may_send, acknowledged=acknowledged)
    finally:
        await producer.abort()


async def _judge_everything(
    context: DemoContext, options: Options, strikes: Sequence[LeaderKill], replacement: Replacement
) -> Run:
    began = time.monotonic()
    logs = await _read_back(context)
    readback_s = time.monotonic() - began
    expected = {stream.partition: stream.records for stream in context.streams}
    evidence = Evidence.of(context.history.events, logs, payload_of(context.streams), expected)
    verdicts = await _judge(context, evidence)
    found = Findings(
        evidence=evidence,
        verdicts=verdicts,
        strikes=strikes,
        replacement=replacement,
        streams=context.streams,
        stalled=context.stalled,
        opened_ns=[event.t_mono_ns for event in context.history.events if event.f == "open"],
        readback_s=readback_s,
        nodes=len(context.processes.nodes()),
    )
    return findings(found, source=str(options.folder), seed=options.seed, batch_records=options.batch_records)


async def _judge(context: DemoContext, evidence: Evidence) -> list[Verdict]:
    context.listener.step("checking")
    return await asyncio.to_thread(judge, evidence)


async def _check_interrupted(context: DemoContext) -> str:
    """The checkers' result over an interrupted run: a violation may be the reason."""
    try:
        logs = await _read_back(context)
    except NotInTime as error:
        return f"Nor could it be read back: {error}."
    verdicts = await _judge(context, Evidence.of(context.history.events, logs, payload_of(context.streams)))
    violated = [f"{verdict.checker}: {verdict.examples[0]}" for verdict in verdicts if verdict.violations]
    return f"Violations so far: {'; '.join(violated) or 'none'}."


async def _read_back(context: DemoContext) -> list[ReplicaLog]:
    context.listener.step("reading every replica back")
    so_far = 0

    def on_log(log: ReplicaLog) -> None:
        nonlocal so_far
        so_far += len(log.names)
        context.listener.read(so_far)

    return await read_topic(context.client, context.processes, context.topic, on_log)


def _check_size(streams: Sequence[Stream], batch_records: int) -> None:
    """Raise DataError if the stalled writer or its successor would have too few batches between the gates."""
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
