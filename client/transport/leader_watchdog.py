"""Notices that a leader stands still: its connections stay open and nobody answers, while others lead in its place.

A request that has waited for long is no reason to repeat it, for a busy leader answers late. So other nodes are asked
first, and the request is given up, with an unknown outcome, only when they name another leader.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..partition.errors import StockadeError
from .metadata import Metadata
from .model import Topic

Ask = Callable[[str, str], Awaitable[Topic]]
"""Describes a topic, asking any node but the one named second. Raises a StockadeError."""


@dataclass(eq=False, slots=True)
class Waiting:
    """A request under way at ``node``; ``limit`` ends it, and ``due_s`` is when others are asked about the node."""

    topic: str
    partition: int
    node: str
    limit: asyncio.Timeout
    due_s: float


class Standstill:
    """Looks after the requests to leaders of one client: ``patience_ms`` each, beside what it asked to wait."""

    def __init__(self, patience_ms: int, ask: Ask, metadata: Metadata, avoid: Callable[[str], None]) -> None:
        """``avoid`` is told of a node that stands still."""
        self._patience_s = patience_ms / 1000
        self._ask = ask
        self._metadata = metadata
        self._avoid = avoid
        self._waiting: set[Waiting] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def over(self, topic: str, partition: int, node: str, limit: asyncio.Timeout, wait_ms: int) -> Iterator[None]:
        """While a request is under way."""
        now_s = asyncio.get_running_loop().time()
        waiting = Waiting(topic, partition, node, limit, now_s + wait_ms / 1000 + self._patience_s)
        self._waiting.add(waiting)
        if self._timer is None or waiting.due_s < self._timer.when():
            self._wake_at(waiting.due_s)
        try:
            yield
        finally:
            self._waiting.discard(waiting)

    def close(self) -> None:
        """Ask nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _wake_at(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        due = [waiting for waiting in self._waiting if waiting.due_s <= loop.time()]
        for waiting in due:
            waiting.due_s = loop.time() + self._patience_s
        if due and (self._looking is None or self._looking.done()):
            self._looking = loop.create_task(self._look(due))
        if self._waiting:
            self._wake_at(min(waiting.due_s for waiting in self._waiting))

    async def _look(self, due: list[Waiting]) -> None:
        for topic, node in {(waiting.topic, waiting.node) for waiting in due}:
            try:
                found = await self._ask(topic, node)
            except StockadeError:
                continue  # nobody knows better: whoever waits waits on
            self._compare(found, node, [each for each in due if (each.topic, each.node) == (topic, node)])

    def _compare(self, found: Topic, node: str, due: list[Waiting]) -> None:
        leaders = {state.partition: state.leader for state in found.partitions}
        for waiting in self._waiting.intersection(due):
            leader = leaders.get(waiting.partition)
            if leader is not None and leader != node:
                self._avoid(node)
                self._metadata.heard(waiting.topic, waiting.partition, leader)
                waiting.limit.reschedule(asyncio.get_running_loop().time())
