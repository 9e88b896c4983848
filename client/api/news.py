"""Waiting at the ends of many logs: one request for all partitions of a topic that a node leads.

A fetch that waits takes a connection, and a client has `connections_max` of them. When all connections for waits are
taken, a further fetch would be delayed by seconds. It waits here instead, and is sent when its partition has records.

A node's answer is a hint: a partition that it does not name is fetched from after the whole wait all the same.
"""

import asyncio
import time
from collections.abc import Iterable
from contextvars import Context
from dataclasses import dataclass
from itertools import islice

import msgspec

from ...partition.api.records import NEWS_PARTITIONS_MAX
from ...partition.api.records import News as Answered
from ...partition.errors import NotFound, RequestTimedOut, StockadeError
from ..config import ClientConfig
from ..errors import ClusterUnreachable, UnreadableAnswer
from ..transport.calls import JSON, Calls, decode, present, quoted
from ..transport.http import Request
from ..transport.metadata import Metadata

ROUND_MS = 500
"""Longest wait of a request. A partition that comes meanwhile is in the next one; Kafka's fetch.max.wait.ms."""
GATHER_S, GATHER_S_PER_PARTITION = 0.005, 0.000_1
"""How long a request waits for the partitions that the last one named, and that are at their ends again soon. The more
partitions it lists, the longer: so lists take a twentieth of a processor at most, however often there are news.
"""
REQUESTS_MAX = 8
"""Requests of a client at a time, or an eighth of its connections."""
OLD_S = 60.0
"""How long a node that does not know the request is not asked again: it may be upgraded."""

_Place = tuple[str, str, int | None]
"""A node, a topic, and its id."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A fetch that waits. ``told``: whether it should go on with a fetch that does not wait."""

    partition: int
    offset: int
    told: asyncio.Future[bool]


class News:
    """The fetches of one client that wait for news of their partitions."""

    def __init__(self, calls: Calls, metadata: Metadata, config: ClientConfig) -> None:
        self._calls = calls
        self._metadata = metadata
        self._timeout_ms = ROUND_MS + config.standstill_ms
        self._turns = asyncio.Semaphore(max(1, min(REQUESTS_MAX, config.connections_max // 8)))
        self._waiting: dict[_Place, dict[_Waiting, None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._old: dict[str, float] = {}
        """Nodes that do not know the request, and when they are asked again (monotonic clock)."""
        self._named: dict[tuple[str, int], int] = {}
        """By partition, the offset at which it was named last."""

    async def wait(self, topic: str, partition: int, offset: int, topic_id: int | None, wait_ms: int) -> bool:
        """Wait until a fetch from ``offset`` may return records or a refusal, or for ``wait_ms``. Returns False, at
        once or later, if the fetch itself should wait at the node: a connection is free for it, or its leader does not
        know the request. A partition that is named repeatedly at one offset is fetched from at most once in ROUND_MS.
        """
        if self._calls.has_room_to_wait:
            return False
        if self._named.pop((topic, partition), None) == offset:
            await asyncio.sleep(ROUND_MS / 1000)
        node = self._metadata.leader(topic, partition)
        if node is None or self._old.get(node, 0.0) > time.monotonic():
            return False
        waiting = _Waiting(partition, offset, asyncio.get_running_loop().create_future())
        entries = self._at((node, topic, topic_id))
        entries[waiting] = None
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await waiting.told
        except TimeoutError:
            return True
        finally:
            entries.pop(waiting, None)

    async def close(self) -> None:
        """Ask no more. Fetches that wait go on, and find the client closed."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for entries in self._waiting.values():  # of tasks that were cancelled before their first step
            _tell(entries, go_on=True)
        self._waiting.clear()

    def _at(self, place: _Place) -> dict[_Waiting, None]:
        """The fetches that wait at a place; a task asks for them as long as there are any."""
        if place not in self._waiting:
            self._waiting[place] = {}
            # The requests are on behalf of many readers: they carry no one's trace.
            task = asyncio.get_running_loop().create_task(self._ask(place), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return self._waiting[place]

    async def _ask(self, place: _Place) -> None:
        entries = self._waiting[place]
        try:
            while True:
                await asyncio.sleep(GATHER_S + GATHER_S_PER_PARTITION * min(len(entries), NEWS_PARTITIONS_MAX))
                some = [*islice(entries, NEWS_PARTITIONS_MAX)]
                if not some:
                    return
                for each in some:  # to the end of the line
                    entries[each] = entries.pop(each)
                async with self._turns:
                    await self._round(place, some)
        finally:
            del self._waiting[place]
            _tell(entries, go_on=True)

    async def _round(self, place: _Place, some: list[_Waiting]) -> None:
        node, topic, topic_id = place
        offsets: dict[int, int] = {}
        for each in some:
            offsets[each.partition] = min(each.offset, offsets.get(each.partition, each.offset))
        positions = [{"partition": partition, "offset": offset} for partition, offset in offsets.items()]
        body = {"positions": positions, "max_wait_ms": ROUND_MS} | present(topic_id=topic_id)
        request = Request(
            method="POST",
            path=f"/v1/topics/{quoted(topic)}/news",
            headers=JSON,
            body=msgspec.json.encode(body),
            node=node,
            only_node=True,
            timeout_ms=self._timeout_ms,
        )
        try:
            named = {*decode(await self._calls.once(request), Answered).partitions}
        except StockadeError as error:
            if isinstance(error, NotFound | UnreadableAnswer):  # the latter: of a proxy that lets known paths through
                self._old[node] = time.monotonic() + OLD_S
            elif isinstance(error, RequestTimedOut | ClusterUnreachable):
                self._go_on(topic, some)  # the node may lead no more: fetches find out
            _tell(some, go_on=False)
        else:
            self._go_on(topic, [each for each in some if each.partition in named])

    def _go_on(self, topic: str, some: list[_Waiting]) -> None:
        for each in some:
            self._named[topic, each.partition] = each.offset
        _tell(some, go_on=True)


def _tell(waiting: Iterable[_Waiting], *, go_on: bool) -> None:
    for each in waiting:
        if not each.told.done():
            each.told.set_result(go_on)
