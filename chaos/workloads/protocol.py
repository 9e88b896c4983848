"""The interface of a workload: a topic, and actors (Jepsen's clients) that work on it until they must stop.

An actor records every request and answer, and never judges. After an unknown outcome it goes on under another process
name. ``ActorContext.chance``, which the run's seed decides, makes all its choices.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from ...client.config import ClientConfig
from ...partition.api.topics import TopicConfig
from ..history.history import History


class ActorContext:
    """The context of one actor: its configuration, topic, history and random generator."""

    def __init__(
        self, actor: str, config: ClientConfig, topic: str, partitions: int, history: History, chance: random.Random
    ) -> None:
        self.actor = actor
        self.config = config
        self.topic = topic
        self.partitions = partitions
        self.history = history
        self.chance = chance
        self.stopping: asyncio.Event = asyncio.Event()
        """Set when the actor must begin nothing new and finish what it has begun."""

    def lives(self) -> Iterator[str]:
        """Process names, one after the other, until the actor must stop."""
        life = 0
        while not self.stopping.is_set():
            life += 1
            yield f"{self.actor}.{life}"

    async def pause(self, least_s: float, most_s: float) -> None:
        """Wait for a random time, or until the actor must stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.chance.uniform(least_s, most_s)):
                await self.stopping.wait()


class Actor(msgspec.Struct, frozen=True):
    """One client. ``own_process``: it runs as a child process, so that SIGSTOP can stall it."""

    name: str
    work: Callable[[ActorContext], Coroutine[Any, Any, None]]
    own_process: bool = False


class Workload(Protocol):
    """One entry of the catalogue of workloads. Its docstring is the claim that it tests."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    @property
    def about(self) -> str:
        """What its clients do, in one line for users."""
        ...

    @property
    def partitions(self) -> int:
        """Number of partitions of its topic."""
        ...

    def config(self, topic: str) -> TopicConfig:
        """Configuration of its topic."""
        ...

    @property
    def brings(self) -> Sequence[str]:
        """Faults without which it tests nothing; they strike in addition to the faults that were asked for."""
        ...

    @property
    def actors(self) -> Sequence[Actor]:
        """The clients on the topic; names are unique in the workload."""
        ...
