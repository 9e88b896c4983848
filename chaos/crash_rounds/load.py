"""A load without an end: one exclusive, idempotent writer a partition, small batches at a steady pace.

What it writes can be told from the name alone, so that it can be compared however long it was.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ..client.config import ClientConfig
from ..client.producer import Producer
from ..partition.errors import StockadeError
from .history import History
from .progress import Progress
from .streams import Stream
from .workload import StreamWriter

RECORDS_MAX = 1 << 40
"""No stream of ours gets there."""
LINES = 251
"""Different values of a stream; a prime, so that no batch size hides a shift."""
START_TIMEOUT_S = 60.0
"""An exclusive writer must have its seat after this time."""


def steady_streams(partitions: int, record_bytes: int) -> list[Stream]:
    """One stream a partition, of records of this length."""
    numbers = range(LINES)
    return [
        Stream(f"steady-{p}", p, [_line(p, number, record_bytes) for number in numbers], RECORDS_MAX)
        for p in range(partitions)
    ]


def _line(partition: int, number: int, length: int) -> bytes:
    return (f"{partition}:{number};".encode() * length)[:length]


class SteadyLoad:
    """Writers at work. An async context manager: leaving it stops them and, unless something failed, waits for what
    is under way.

    Afterwards ``failures`` says what ended a writer before its time.
    """

    def __init__(
        self,
        config: ClientConfig,
        history: History,
        topic: str,
        streams: Sequence[Stream],
        *,
        pace_s: float,
        count: int,
    ) -> None:
        """Every writer sends ``count`` records a batch, a batch every ``pace_s``."""
        self.failures: list[StockadeError] = []
        self.progress: Progress = Progress(streams, ())
        self._config = config
        self._history = history
        self._topic = topic
        self._streams = streams
        self._pace_s = pace_s
        self._count = count
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "SteadyLoad":
        self._tasks = [asyncio.create_task(self._write(stream)) for stream in self._streams]
        async with asyncio.timeout(START_TIMEOUT_S):
            await asyncio.gather(*(self.grown(stream.partition) for stream in self._streams))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopping.set()
        if kind is not None:  # what is under way may never be answered
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=kind is not None)

    async def grown(self, partition: int) -> None:
        """Return once the partition has acknowledged more than now, or its writer has failed."""
        growth = asyncio.ensure_future(self.progress.grown(partition, self.progress.acknowledged[partition]))
        try:
            await asyncio.wait({growth, self._tasks[partition]}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            growth.cancel()

    async def _write(self, stream: Stream) -> None:
        producer = await Producer(self._config, name=stream.name).start()
        try:
            writer = StreamWriter(producer, self._history, self._topic, stream.name, stream)
            async with writer.exclusive():
                await writer.run(0, self._count, may_send=self._may_send(), acknowledged=self._adder(stream.partition))
        except StockadeError as error:
            self.failures.append(error)
        finally:
            await producer.abort()

    def _may_send(self) -> Callable[[int], Awaitable[bool]]:
        async def paced(_: int) -> bool:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._pace_s)
            return not self._stopping.is_set()

        return paced

    def _adder(self, partition: int) -> Callable[[int], None]:
        return lambda count: self.progress.add(partition, count)
