"""Detects a stalled leader: its connections stay open, it answers nothing, and another node leads by now.

A long wait alone does not end a request, since a busy leader answers late. The watchdog first asks other nodes for the
leader, and ends the request, with an unknown outcome, only when they name another one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...partition.api.topics import Topic
from ...partition.errors import StockadeError
from .alarm import Alarm
from .metadata import Metadata
from .outage import on_behalf_of

Ask = Callable[[str, str], Awaitable[Topic]]
"""Takes a topic and a node; answers the topic as another node describes it. Raises a StockadeError."""


@dataclass(eq=False, slots=True)
class Watched:
    """A request in flight at ``node``, or a part of one. ``end`` ends it; at ``due_s`` (loop time) other nodes are
    asked.
    """

    topic: str
    partition: int
    node: str
    end: Callable[[], None]
    due_s: float = 0.0


class LeaderWatchdog:
    """Watches one client's requests to leaders. Other nodes are asked about a request that has no answer after
    ``patience_ms`` and the wait that it asks for.
    """

    def __init__(self, patience_ms: int, ask: Ask, metadata: Metadata, avoid: Callable[[str], None]) -> None:
        """``avoid`` is called with the base URL of a node that stands still."""
        self._patience_s = patience_ms / 1000
        self._ask = ask
        self._metadata = metadata
        self._avoid = avoid
        self._alarm: Alarm[Watched] = Alarm(self._ring)
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def over(self, parts: Sequence[Watched], wait_ms: int = 0) -> Iterator[None]:
        """Watch a request inside the block: each of its parts, until it is ``done``."""
        due_s = asyncio.get_running_loop().time() + wait_ms / 1000 + self._patience_s
        try:
            for watched in parts:
                watched.due_s = due_s
                self._alarm.add(watched)
            yield
        finally:
            for watched in parts:
                self._alarm.discard(watched)

    def done(self, watched: Watched) -> None:
        """Stop watching a part: it has its answer."""
        self._alarm.discard(watched)

    def close(self) -> None:
        """Stop watching, and cancel the question that is under way."""
        self._alarm.close()
        if self._looking is not None:
            self._looking.cancel()

    def _ring(self, due: list[Watched]) -> None:
        loop = asyncio.get_running_loop()
        for watched in due:
            watched.due_s = loop.time() + self._patience_s
        if self._looking is None or self._looking.done():
            self._looking = loop.create_task(self._look(due))

    async def _look(self, due: list[Watched]) -> None:
        for topic, node in {(watched.topic, watched.node) for watched in due}:
            try:
                with on_behalf_of(None):
                    found = await self._ask(topic, node)
            except StockadeError:
                continue  # no node knows another leader: the requests wait on
            self._compare(found, node, [each for each in due if (each.topic, each.node) == (topic, node)])

    def _compare(self, found: Topic, node: str, due: list[Watched]) -> None:
        leaders = {state.partition: state.leader for state in found.partitions}
        for watched in self._alarm.entries.intersection(due):
            leader = leaders.get(watched.partition)
            if leader is not None and leader != node:
                self._avoid(node)
                self._metadata.heard(watched.topic, watched.partition, leader)
                self._alarm.discard(watched)  # so that it ends once: a Timeout that ends cannot be rescheduled
                watched.end()


def end_now(limit: asyncio.Timeout) -> None:
    """Let the block of this limit end with TimeoutError, once."""
    limit.reschedule(asyncio.get_running_loop().time())
