"""What a client remembers of the cluster's topics: their definition, and who was last seen leading each partition.

All of it is a hint that saves a detour: any node takes any request and forwards it. It must never decide whether a
write is allowed; the topic id that travels with each request does that on the server.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import ceil

from ..partition.errors import LeaderNotAvailable, StockadeError
from .breaker import Breaker
from .model import Topic
from .retry import is_momentary

TOPICS_MAX = 10_000
"""Topics remembered; past it the one learned first is forgotten."""


class Metadata:
    """Cache of topic descriptions. ``describe`` asks the cluster for one."""

    def __init__(self, describe: Callable[[str], Awaitable[Topic]]) -> None:
        self._describe = describe
        self._topics: dict[str, Topic] = {}
        self._leaders: dict[tuple[str, int], str] = {}
        self._asking = asyncio.Lock()
        self._breaker = Breaker()
        self._failure: StockadeError | None = None

    def known(self, name: str) -> Topic | None:
        """The description, if the cluster was asked already."""
        return self._topics.get(name)

    async def topic(self, name: str) -> Topic:
        """The description; asks the cluster the first time. Raises UnknownTopicOrPartition.

        After some failures in a row the cluster is left alone for a while, and this raises LeaderNotAvailable at once.
        """
        async with self._asking:
            if name not in self._topics:
                self._learn(await self._ask(name))
            return self._topics[name]

    async def now(self, name: str) -> Topic:
        """The description, asked for whatever is known: the topic may have been made anew. Raises likewise."""
        self.forget(name)
        return await self.topic(name)

    async def _ask(self, name: str) -> Topic:
        pause_s = self._breaker.closed_in_s(time.monotonic())
        if pause_s:
            why = f"; the last time: {self._failure.detail}" if self._failure else ""
            detail = f"the cluster failed to answer several times and is not asked again for {pause_s:.1f} s{why}"
            raise LeaderNotAvailable(detail, retry_after_ms=ceil(pause_s * 1000)) from self._failure
        try:
            topic = await self._describe(name)
        except StockadeError as error:
            if is_momentary(error):
                self._failure = error
                self._breaker.failed(time.monotonic())
            raise
        self._failure = None
        self._breaker.succeeded()
        return topic

    def leader(self, topic: str, partition: int) -> str | None:
        """Base URL of the node to try first."""
        return self._leaders.get((topic, partition))

    def heard(self, topic: str, partition: int, leader: str | None) -> None:
        """An answer named the leader."""
        if leader is not None:
            self._leaders[topic, partition] = leader

    def doubt(self, topic: str, partition: int, node: str | None) -> None:
        """``node`` did not answer, or says that it does not lead: try another one next, such as the leader that was
        heard of meanwhile.
        """
        if self.leader(topic, partition) == node:
            self._leaders.pop((topic, partition), None)

    def forget(self, name: str) -> None:
        """Ask again next time: the topic may have been deleted or created anew."""
        topic = self._topics.pop(name, None)
        for state in topic.partitions if topic else ():
            self._leaders.pop((name, state.partition), None)

    def _learn(self, topic: Topic) -> None:
        if len(self._topics) >= TOPICS_MAX:
            self.forget(next(iter(self._topics)))
        self._topics[topic.name] = topic
        for state in topic.partitions:
            self.heard(topic.name, state.partition, state.leader)
