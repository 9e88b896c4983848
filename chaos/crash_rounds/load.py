"""A steady load: one exclusive, idempotent writer for each partition sends small batches at a fixed pace.

The bytes of a record follow from its name, so that a load of any length can be compared without being stored.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ...client.config import ClientConfig
from ...client.producer.producer import Producer
from ...partition.errors import StockadeError
from ..history.history import History
from ..streams.progress import Progress
from ..streams.stream import Stream
from ..streams.writer import StreamWriter
from ..system.waiting import NotInTime

RECORDS_MAX = 1 << 40
"""More records than any load writes."""
LINES = 251
"""Different values of a stream. A prime, so that records shifted by a whole batch differ."""
START_TIMEOUT_S = 60.0
"""Every writer must hold its slot and have a first acknowledgement after this time."""


def steady_streams(partitions: int, record_bytes: int) -> list[Stream]:
    """One stream for each partition, with records of ``record_bytes``."""
    numbers = range(LINES)
    return [
        Stream(f"steady-{p}", p, [_line(p, number, record_bytes) for number in numbers], RECORDS_MAX)
        for p in range(partitions)
    ]


def _line(partition: int, number: int, length: int) -> bytes:
    return (f"{partition}:{number};".encode() * length)[:length]


class SteadyLoad:
    """The writers at work. An async context manager: leaving it stops them and waits for the batches in flight; after
    an exception it gives these up, since the nodes may never answer.

    ``failures`` are the refusals that ended a writer early.
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
        """Every writer sends a batch of ``count`` records each ``pace_s``."""
        self.failures: list[StockadeError] = []
        self.progress: Progress = Progress(streams, ())
        self._config = config
        self._history = history
        self._topic = topic
        self._streams = streams
        self._pace_s = pace_s
        self._count = count
        self._stopping = asyncio.Event()
        self._producers: list[Producer] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "SteadyLoad":
        """Raises NotInTime."""
        self._tasks = [asyncio.create_task(self._write(stream)) for stream in self._streams]
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await asyncio.gather(*(self.grown(stream.partition) for stream in self._streams))
        except BaseException as error:
            await self.__aexit__(type(error))
            if isinstance(error, TimeoutError):
                problem = f"not every partition has acknowledged a record {START_TIMEOUT_S:.0f} s after the start"
                raise NotInTime(problem) from None
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopping.set()
        if kind is not None:
            await asyncio.gather(*(producer.abort() for producer in self._producers))
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=kind is not None)

    async def grown(self, partition: int) -> None:
        """Return once the partition has acknowledged more records than now, or its writer has failed."""
        growth = asyncio.ensure_future(self.progress.grown(partition, self.progress.acknowledged[partition]))
        try:
            await asyncio.wait({growth, self._tasks[partition]}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            growth.cancel()

    async def _write(self, stream: Stream) -> None:
        producer = Producer(self._config, name=stream.name)
        self._producers.append(producer)
        await producer.start()
        try:
            acknowledged = partial(self.progress.add, stream.partition)
            writer = StreamWriter(producer, self._history, self._topic, stream.name, stream)
            async with writer.exclusive():
                await writer.run(0, self._count, may_send=self._paced, acknowledged=acknowledged)
        except StockadeError as error:
            self.failures.append(error)
        finally:
            await producer.abort()

    async def _paced(self, _: int) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), self._pace_s)
        return not self._stopping.is_set()
