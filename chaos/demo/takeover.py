"""Stalls a writer in mid-stream, lets a successor go on in its place, and wakes the first one up."""

import asyncio
from pathlib import Path

import msgspec

from ..client.model import Tail
from ..client.producer import Producer
from .history import Event, record_name
from .scene import GATES, STALL_AT, ScenarioFailed, Scene
from .stalled import END_TIMEOUT_S, StalledWriter
from .workload import StreamWriter
from .writer import Order

BATCHES_BEFORE = 2
"""Batches acknowledged to the first writer after it was let go and before it is stalled."""
BATCHES_AFTER = 10
"""Batches acknowledged to its successor before it is woken up."""


class Replacement(msgspec.Struct, frozen=True):
    """What happened, when. Times as in the history."""

    stalled_ns: int
    granted_ns: int
    resumed_ns: int
    log_end: int


class TakeOver:
    """The stalled stream of a scene: its writer in another process, and its successor in this one."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        """``folder``: where the stream's file is."""
        self.zombie_is_done: asyncio.Event = asyncio.Event()
        self._scene = scene
        self._stream = scene.stalled
        self._order = Order(
            bootstrap=list(scene.client.config.bootstrap),
            topic=scene.topic,
            path=str(folder / self._stream.name),
            name=self._stream.name,
            partition=self._stream.partition,
            records=self._stream.records,
            batch_records=scene.batch_records,
            may_send=self._stream.share(GATES[1]),
        )
        self._is_replaced = False

    async def run(self) -> Replacement:
        """From the first writer's beginning to its successor's end. Raises ScenarioFailed, WriterFailed."""
        first = await StalledWriter.start(self._order, self._scene.history, self._on_event)
        try:
            async with asyncio.TaskGroup() as group:
                ended = group.create_task(first.ended())
                stalled_ns = await self._stall(first)
                return await self._replace(first, ended, stalled_ns)
        finally:
            await first.kill()

    async def _stall(self, first: StalledWriter) -> int:
        scene, stream = self._scene, self._stream
        await scene.progress.opened(GATES[1])
        await scene.progress.reached(STALL_AT)
        # Not to the end: however late this process sees the acknowledgements, the successor has lines left to write.
        first.allow(stream.share(GATES[2]))
        enough = self._order.may_send + BATCHES_BEFORE * scene.batch_records
        await scene.progress.grown(stream.partition, enough)
        await first.stall()
        scene.audience.step(f"SIGSTOP to the writer of partition {stream.partition}, {stream.name}")
        return scene.history.note("nemesis", "stall", partition=stream.partition).t_mono_ns

    async def _replace(self, first: StalledWriter, ended: "asyncio.Task[None]", stalled_ns: int) -> Replacement:
        scene, stream = self._scene, self._stream
        producer = await Producer(scene.client.config, name=stream.successor).start()
        try:
            writer = StreamWriter(producer, scene.history, scene.topic, producer.name, stream)
            async with writer.exclusive("ExclusiveWithFencing"), asyncio.TaskGroup() as group:
                granted_ns = scene.history.note("nemesis", "replaced", partition=stream.partition).t_mono_ns
                log_end = await self._find_log_end()
                scene.audience.step(f"a successor holds partition {stream.partition} and goes on at {log_end:,}")
                group.create_task(self._go_on(writer, log_end))
                await scene.progress.grown(stream.partition, log_end + BATCHES_AFTER * scene.batch_records - 1)
                resumed_ns = await self._wake(first, ended)
                return Replacement(stalled_ns, granted_ns, resumed_ns, log_end)
        finally:
            await producer.abort()

    async def _find_log_end(self) -> int:
        tail = await self._scene.client.tail(self._scene.topic, self._stream.partition)
        if tail.log_end and not _ends_as_expected(tail, self._stream.name):
            raise ScenarioFailed(f"the log of partition {tail.partition} does not end with line {tail.log_end - 1}")
        self._is_replaced = True
        self._scene.progress.found(self._stream.partition, tail.log_end)
        return tail.log_end

    async def _go_on(self, writer: StreamWriter, log_end: int) -> None:
        stream, progress, batch_records = self._stream, self._scene.progress, self._scene.batch_records

        async def may_send(index: int) -> bool:
            """Wait as all do, but not before there is enough to wake the first writer up."""
            wakes = index < log_end + (BATCHES_AFTER + 1) * batch_records
            return wakes or await progress.may_send(stream, index)

        await writer.run(
            log_end,
            batch_records,
            may_send=may_send,
            acknowledged=lambda count: progress.add(stream.partition, count),
        )

    async def _wake(self, first: StalledWriter, ended: "asyncio.Task[None]") -> int:
        resumed = self._scene.history.note("nemesis", "resume", partition=self._stream.partition)
        first.allow(self._stream.records)
        first.resume()
        self._scene.audience.step(f"SIGCONT to the replaced writer of partition {self._stream.partition}")
        async with asyncio.timeout(END_TIMEOUT_S):
            await ended
        self._scene.audience.step("every write of the zombie was refused")
        self.zombie_is_done.set()
        return resumed.t_mono_ns

    def _on_event(self, event: Event) -> None:
        if event.f == "append" and event.type == "ok" and not self._is_replaced:
            self._scene.progress.add(self._stream.partition, event.count or 0)


def _ends_as_expected(tail: Tail, writer: str) -> bool:
    return [record.key for record in tail.records] == [record_name(writer, tail.log_end - 1)]
