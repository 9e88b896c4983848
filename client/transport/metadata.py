"""What a client remembers of the cluster's topics: their description, and the latest known leader of each partition.

All of it is a hint that saves a hop, since any node forwards a request to the leader. The server alone decides whether
a write is allowed, by the topic id that each request carries.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Protocol

from ...partition.api.topics import Topic
from ...partition.errors import InconsistentTopicId, LeaderNotAvailable, StockadeError
from ..retry import AT_ONCE_MS, Breaker, is_momentary
from .question import Question

_log = logging.getLogger(__name__)

REFRESH_S = 300.0
"""Time after which a topic in use is asked for again: it may have more partitions, or take larger batches. Kafka's
metadata.max.age.ms.
"""
ANEW_S = 0.1
"""Least time between two questions that are asked because a topic's known description does not allow a record."""
TOPICS_MAX = 10_000
"""Topics remembered, and topics looked up without success; above it, the one that came first is forgotten."""


class Describe(Protocol):
    """How to ask the cluster for a topic."""

    def __call__(self, name: str, *, patience_ms: int | None = None) -> Awaitable[Topic]:
        """Ask again and again for ``patience_ms`` (None: ``delivery_timeout_ms``)."""
        ...


@dataclass(slots=True)
class Known:
    """A topic's latest description, and the question for a newer one."""

    topic: Topic
    again: Question


class Lookup:
    """Asking the cluster for one topic: one request at a time, behind a circuit breaker of its own."""

    def __init__(self, name: str, describe: Describe) -> None:
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
        """Note that the cluster failed to answer, or (None) that it answered, perhaps with a refusal."""
        self.failure = failure
        if failure is None:
            self._breaker.succeeded()
        else:
            self._breaker.failed(time.monotonic())


class Metadata:
    """A cache of topic descriptions and leaders. ``describe`` asks the cluster for a topic.

    One answer describes all partitions of a topic. So each topic has one look-up and one circuit breaker; in Sarama
    each partition has them, but here two partitions of a topic would ask the same question. Look-ups of different
    topics do not wait for each other.
    """

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._topics: dict[str, Known] = {}
        self._leaders: dict[tuple[str, int], str] = {}
        """The last leader heard of, also while it is doubted."""
        self._doubted: set[tuple[str, int]] = set()
        self._lookups: dict[str, Lookup] = {}

    def known(self, name: str) -> Topic | None:
        """The known description, None before the first answer. After REFRESH_S the cluster is asked again meanwhile."""
        known = self._topics.get(name)
        if known is None:
            return None
        known.again.if_due()
        return known.topic

    async def anew(self, name: str) -> Topic:
        """The description for a record that the known one does not allow: the cluster is asked now, unless it was asked
        within ANEW_S. Other calls use the known description meanwhile; so does this call if the single attempt gets no
        answer. Raises UnknownTopicOrPartition, and InconsistentTopicId for a topic that was created again.
        """
        known = self._topics.get(name)
        if known is None:
            return await self.topic(name)
        try:
            await known.again.anew(ANEW_S)
        except StockadeError as error:
            if not is_momentary(error):
                raise
        return self._topics.get(name, known).topic

    async def close(self) -> None:
        """Ask no more."""
        for known in list(self._topics.values()):
            await known.again.close()

    async def topic(self, name: str) -> Topic:
        """The description; asks the cluster the first time. Raises UnknownTopicOrPartition.

        After FAILURES_MAX failures in a row it raises LeaderNotAvailable at once for OPEN_S (a circuit breaker).
        """
        lookup = self._lookups.get(name) or self._begin(name)
        try:
            async with lookup.asking:
                if name not in self._topics:
                    self._learn(await lookup.ask())
                return self._topics[name].topic
        finally:
            if lookup.failure is None:
                self._lookups.pop(name, None)

    async def now(self, name: str) -> Topic:
        """The description, asked of the cluster now for ``delivery_timeout_ms``: the topic may have been created again.
        Raises as `topic`.
        """
        self.forget(name)
        return await self.topic(name)

    def leader(self, topic: str, partition: int) -> str | None:
        """Base URL of the node to try first; None if no leader is known, or the known one is doubted."""
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
        """Note that ``node`` did not answer, or does not lead: it is no longer used as the leader, unless another node
        was named meanwhile.
        """
        if node is not None and self._leaders.get((topic, partition)) == node:
            self._doubted.add((topic, partition))

    def forget(self, name: str) -> None:
        """Ask the cluster again next time: the topic may have been deleted or created again."""
        known = self._topics.pop(name, None)
        for state in known.topic.partitions if known else ():
            self._leaders.pop((name, state.partition), None)
            self._doubted.discard((name, state.partition))

    def _begin(self, name: str) -> Lookup:
        if len(self._lookups) >= TOPICS_MAX:
            self._lookups.pop(next(iter(self._lookups)))
        return self._lookups.setdefault(name, Lookup(name, self._describe))

    async def _ask_again(self, name: str) -> None:
        """Ask for a newer description. Raises InconsistentTopicId for a topic that was created again: the known
        description stays, since the topic's users must notice.

        It stays, too, if the answer has fewer partitions: partitions are only added, so the node that answered does not
        know all. The answer's leaders may be old as well: a leader that is known already, from an append, is kept.
        """
        topic = await self._describe(name, patience_ms=AT_ONCE_MS)
        known = self._topics.get(name)
        if known is None:
            return
        if known.topic.topic_id != topic.topic_id:
            raise InconsistentTopicId(topic_id=topic.topic_id)
        if len(topic.partitions) >= len(known.topic.partitions):
            known.topic = topic
            for state in topic.partitions:
                if (name, state.partition) not in self._leaders:
                    self.heard(name, state.partition, state.leader)

    def _learn(self, topic: Topic) -> None:
        if len(self._topics) >= TOPICS_MAX:
            self.forget(next(iter(self._topics)))
        again = Question(f"topic {topic.name}", partial(self._ask_again, topic.name), REFRESH_S)
        again.put_off()
        self._topics[topic.name] = Known(topic, again)
        for state in topic.partitions:
            self.heard(topic.name, state.partition, state.leader)
