"""What a client remembers of the cluster's topics: their description, and the latest known leader of each partition.

All of it is a hint that saves a detour, since any node forwards a request to the leader. It never decides whether a
write is allowed: the server does, with the topic id that each request carries.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from math import ceil

from ...partition.api.topics import Topic
from ...partition.errors import LeaderNotAvailable, StockadeError
from ..retry import Breaker, is_momentary

_log = logging.getLogger(__name__)

REFRESH_S = 300.0
"""Time after which the topics in use are asked for again: they may have more partitions, or take larger batches.
Kafka's metadata.max.age.ms.
"""
TOPICS_MAX = 10_000
"""Topics remembered, and topics looked up without success; above it, the one that came first is forgotten."""


class Lookup:
    """Asking the cluster for one topic: one request at a time, behind a circuit breaker of its own."""

    def __init__(self, name: str, describe: Callable[[str], Awaitable[Topic]]) -> None:
        self._name = name
        self._describe = describe
        self._breaker = Breaker()
        self.failure: StockadeError | None = None
        self.asking: asyncio.Lock = asyncio.Lock()

    async def ask(self) -> Topic:
        """The description. Raises the refusal, and LeaderNotAvailable without asking while the breaker is open."""
        pause_s = self._breaker.closed_in_s(time.monotonic())
        if pause_s:
            why = f"; the last time: {self.failure.detail}" if self.failure else ""
            detail = (
                f"{self._name!r}: the cluster failed to answer several times and is not asked again for "
                f"{pause_s:.1f} s{why}"
            )
            raise LeaderNotAvailable(detail, retry_after_ms=ceil(pause_s * 1000)) from self.failure
        try:
            topic = await self._describe(self._name)
        except StockadeError as error:
            self._heard(error if is_momentary(error) else None)
            raise
        self._heard(None)
        return topic

    def _heard(self, failure: StockadeError | None) -> None:
        """The cluster failed to answer, or (None) it answered, be it with a refusal."""
        self.failure = failure
        if failure is None:
            self._breaker.succeeded()
        else:
            self._breaker.failed(time.monotonic())


class Metadata:
    """A cache of topic descriptions and leaders. ``describe`` asks the cluster for a topic.

    One answer describes all partitions of a topic. So look-ups, and the circuit breakers that end them, are one a topic
    and not one a partition as in Sarama: two partitions of a topic would ask the same question. Look-ups of different
    topics do not wait for each other.
    """

    def __init__(self, describe: Callable[[str], Awaitable[Topic]]) -> None:
        self._describe = describe
        self._topics: dict[str, Topic] = {}
        self._leaders: dict[tuple[str, int], str] = {}
        """The last leader heard of, also while it is doubted."""
        self._doubted: set[tuple[str, int]] = set()
        self._lookups: dict[str, Lookup] = {}
        self._refresh_at_s = time.monotonic() + REFRESH_S
        self._refreshing: asyncio.Task[None] | None = None

    def known(self, name: str) -> Topic | None:
        """The description, None if the cluster was not asked yet. After REFRESH_S it is asked again meanwhile."""
        if time.monotonic() >= self._refresh_at_s:
            self._refresh_at_s = time.monotonic() + REFRESH_S
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.get_running_loop().create_task(self._refresh(), context=Context())
        return self._topics.get(name)

    async def close(self) -> None:
        """Ask no more."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    async def _refresh(self) -> None:
        """A topic that was created again is left as it is: a refusal tells its users, who must know."""
        for name in list(self._topics):
            try:
                topic = await self._describe(name)
            except StockadeError as error:
                _log.info("topic %s is not known anew: %s", name, error)
                continue
            before = self._topics.get(name)
            if before is not None and before.topic_id == topic.topic_id:
                self._learn(topic)

    async def topic(self, name: str) -> Topic:
        """The description; asks the cluster the first time. Raises UnknownTopicOrPartition.

        After FAILURES_MAX failures in a row it raises LeaderNotAvailable at once for OPEN_S (a circuit breaker).
        """
        lookup = self._lookups.get(name) or self._begin(name)
        try:
            async with lookup.asking:
                if name not in self._topics:
                    self._learn(await lookup.ask())
                return self._topics[name]
        finally:
            if lookup.failure is None:
                self._lookups.pop(name, None)

    async def now(self, name: str) -> Topic:
        """The description, asked of the cluster now: the topic may have been created again. Raises likewise."""
        self.forget(name)
        return await self.topic(name)

    def leader(self, topic: str, partition: int) -> str | None:
        """Base URL of the node to try first, None if no leader is known."""
        place = topic, partition
        return None if place in self._doubted else self._leaders.get(place)

    def heard(self, topic: str, partition: int, leader: str | None) -> None:
        """Remember the leader that an answer named."""
        if leader is None:
            return
        place = topic, partition
        before = self._leaders.get(place, leader)
        self._leaders[place] = leader
        self._doubted.discard(place)
        if before != leader:
            _log.info("%s/%d is led by %s, no longer by %s", topic, partition, leader, before)

    def doubt(self, topic: str, partition: int, node: str | None) -> None:
        """``node`` did not answer, or does not lead: forget it as leader, unless another one was named meanwhile."""
        if node is not None and self._leaders.get((topic, partition)) == node:
            self._doubted.add((topic, partition))

    def forget(self, name: str) -> None:
        """Ask the cluster again next time: the topic may have been deleted or created again."""
        topic = self._topics.pop(name, None)
        for state in topic.partitions if topic else ():
            self._leaders.pop((name, state.partition), None)
            self._doubted.discard((name, state.partition))

    def _begin(self, name: str) -> Lookup:
        if len(self._lookups) >= TOPICS_MAX:
            self._lookups.pop(next(iter(self._lookups)))
        return self._lookups.setdefault(name, Lookup(name, self._describe))

    def _learn(self, topic: Topic) -> None:
        if len(self._topics) >= TOPICS_MAX:
            self.forget(next(iter(self._topics)))
        self._topics[topic.name] = topic
        for state in topic.partitions:
            self.heard(topic.name, state.partition, state.leader)
