"""Reads a partition while it is written, piece by piece, and records every answer."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from ...client.api.client import Client
from ...client.api.fetched import Fetched
from ...partition.errors import StockadeError
from ..history.history import History, split_name
from ..system.waiting import until

FETCH_BYTES = 1 << 20
WAIT_MS = 500
"""How long a read at the log's end waits for records."""
PAUSE_S = 0.2
"""Pause after a refusal, or a request without an answer."""


class Reader:
    """Reads one partition from ``offset`` on, linearizably."""

    def __init__(self, client: Client, history: History, process: str, topic: str, partition: int) -> None:
        self.offset: int = 0
        self._client = client
        self._history = history
        self._process = process
        self.topic = topic
        self.partition = partition

    async def poll(self, *, wait_ms: int = WAIT_MS, guard: tuple[str, int] | None = None) -> None:
        """Read once from ``offset`` on, record the answer, and advance ``offset``. ``guard``: a member's group and
        fence_epoch. Raises the refusal.
        """
        epoch = guard[1] if guard else None
        invoked = self._history.invoke(
            self._process, "poll", topic=self.topic, partition=self.partition, offset=self.offset, epoch=epoch
        )
        with self._history.refusals_of(invoked):
            answer = await self._client.fetch(
                self.topic, self.partition, self.offset, max_bytes=FETCH_BYTES, max_wait_ms=wait_ms, guard=guard
            )
        records = list(_runs(_names(answer, self.offset)))
        self._history.settle(
            invoked,
            "ok",
            offset=answer.next_offset,
            log_end=answer.log_end,
            records=records,
            count=sum(count for _, count in records),
            epoch=epoch,
        )
        self.offset = answer.next_offset

    async def follow(self, on_failure: Callable[[str], None]) -> None:
        """Read until cancelled; ``on_failure`` is told of an exception that is no refusal, and ends the reader."""
        while True:
            try:
                await self.poll()
            except StockadeError:
                await asyncio.sleep(PAUSE_S)
            except Exception as error:  # a bug must not look like a reader that has nothing to read
                on_failure(f"{self._process} ended with {type(error).__name__}: {error}")
                raise

    async def reached(self, end: int, timeout_s: float) -> None:
        """Return once every offset below ``end`` was read. Raises NotInTime."""

        async def is_there() -> bool:
            return self.offset >= end

        await until(is_there, timeout_s, f"{self._process} has not read partition {self.partition} to {end}")


def _names(answer: Fetched, offset: int) -> Iterator[str]:
    for _, batch in answer.after(offset):
        for key in batch.column("key").to_pylist():
            yield key.decode()


def _runs(names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Groups consecutive names into runs: (first, count)."""

    def run(numbered: tuple[int, str]) -> tuple[str, int]:
        writer, index = split_name(numbered[1])
        return writer, index - numbered[0]

    for _, same in groupby(enumerate(names), run):
        found = [name for _, name in same]
        yield found[0], len(found)
