"""Stalls one writer of the demo by SIGSTOP, lets a successor take its place, and wakes the first one up: a zombie."""

import asyncio
from pathlib import Path

import msgspec

from ...client.api.tail import Tail
from ...client.producer.producer import Producer
from ..harness.child import ChildProcess
from ..history.history import Event, record_name
from ..streams.writer import StreamWriter
from . import stalled_writer
from .context import GATES, STALL_AT, DemoContext, ScenarioFailed
from .stalled_writer import Order

END_TIMEOUT_S = 120.0
"""A resumed writer must have tried everything, and ended, this long after SIGCONT."""

BATCHES_BEFORE = 2
"""Batches acknowledged to the first writer between its permission to go on and its stall."""
BATCHES_AFTER = 10
"""Batches acknowledged to the successor before the first writer is woken up."""


class Replacement(msgspec.Struct, frozen=True):
    """When the writer was stalled, replaced and resumed (times of the history), and where its successor went on."""

    stalled_ns: int
    granted_ns: int
    resumed_ns: int
    log_end: int


class TakeOver:
    """The stream whose writer is stalled: that writer in a child process, and its successor in this one."""

    def __init__(self, context: DemoContext, folder: Path) -> None:
        """``folder``: where the stream's file is."""
        self.zombie_is_done: asyncio.Event = asyncio.Event()
        self._context = context
        self._stream = context.stalled
        self._order = Order(
            bootstrap=list(context.client.config.bootstrap),
            topic=context.topic,
            path=str(folder / self._stream.name),
            name=self._stream.name,
            partition=self._stream.partition,
            records=self._stream.records,
            batch_records=context.batch_records,
            may_send=self._stream.share(GATES[1]),
        )
        self._is_replaced = False

    async def run(self) -> Replacement:
        """Run both writers, from the first one's start to the successor's end. Raises ScenarioFailed, ChildFailed."""
        name = f"the writer of {self._stream.name}"
        first = await ChildProcess.start(stalled_writer, name, self._order, self._context.history, self._on_event)
        try:
            async with asyncio.TaskGroup() as group:
                ended = group.create_task(first.ended())
                stalled_ns = await self._stall(first)
                return await self._replace(first, ended, stalled_ns)
        finally:
            await first.kill()

    async def _stall(self, first: ChildProcess) -> int:
        context, stream = self._context, self._stream
        await context.progress.opened(GATES[1])
        await context.progress.reached(STALL_AT)
        # Up to a gate: however late this process sees the acknowledgements, the successor has lines left to write.
        first.send(str(stream.share(GATES[2])))
        enough = self._order.may_send + BATCHES_BEFORE * context.batch_records
        await context.progress.grown(stream.partition, enough)
        await first.stall()
        context.listener.step(f"SIGSTOP to the writer of partition {stream.partition}, {stream.name}")
        return context.history.note("nemesis", "stall", partition=stream.partition).t_mono_ns

    async def _replace(self, first: ChildProcess, ended: "asyncio.Task[None]", stalled_ns: int) -> Replacement:
        context, stream = self._context, self._stream
        producer = await Producer(context.client.config, name=stream.successor).start()
        try:
            writer = StreamWriter(producer, context.history, context.topic, producer.name, stream)
            async with writer.exclusive("ExclusiveWithFencing"), asyncio.TaskGroup() as group:
                granted_ns = context.history.note("nemesis", "replaced", partition=stream.partition).t_mono_ns
                log_end = await self._find_log_end()
                context.listener.step(f"a successor holds partition {stream.partition} and goes on at {log_end:,}")
                group.create_task(self._go_on(writer, log_end))
                await context.progress.grown(stream.partition, log_end + BATCHES_AFTER * context.batch_records - 1)
                resumed_ns = await self._wake(first, ended)
                return Replacement(stalled_ns, granted_ns, resumed_ns, log_end)
        finally:
            await producer.abort()

    async def _find_log_end(self) -> int:
        tail = await self._context.client.tail(self._context.topic, self._stream.partition)
        if tail.log_end and not _ends_as_expected(tail, self._stream.name):
            raise ScenarioFailed(f"the log of partition {tail.partition} does not end with line {tail.log_end - 1}")
        self._is_replaced = True
        self._context.progress.found(self._stream.partition, tail.log_end)
        return tail.log_end

    async def _go_on(self, writer: StreamWriter, log_end: int) -> None:
        stream, progress, batch_records = self._stream, self._context.progress, self._context.batch_records

        async def may_send(index: int) -> bool:
            """Wait at the gates as all writers do, once there are enough batches to wake the first writer up."""
            wakes = index < log_end + (BATCHES_AFTER + 1) * batch_records
            return wakes or await progress.may_send(stream, index)

        await writer.run(
            log_end,
            batch_records,
            may_send=may_send,
            acknowledged=lambda count: progress.add(stream.partition, count),
        )

    async def _wake(self, first: ChildProcess, ended: "asyncio.Task[None]") -> int:
        resumed = self._context.history.note("nemesis", "resume", partition=self._stream.partition)
        first.send(str(self._stream.records))
        first.resume()
        self._context.listener.step(f"SIGCONT to the replaced writer of partition {self._stream.partition}")
        async with asyncio.timeout(END_TIMEOUT_S):
            await ended
        self._context.listener.step("every write of the zombie was refused")
        self.zombie_is_done.set()
        return resumed.t_mono_ns

    def _on_event(self, event: Event) -> None:
        if event.f == "append" and event.type == "ok" and not self._is_replaced:
            self._context.progress.add(self._stream.partition, event.count or 0)


def _ends_as_expected(tail: Tail, writer: str) -> bool:
    return [record.key for record in tail.records] == [record_name(writer, tail.log_end - 1).encode()]
