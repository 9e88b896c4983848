"""What a workload is: a topic and the actors that work on it, each until it is told to stop.

An actor records everything that it asks and is answered, and never judges. It goes on under another process name after
an unknown outcome. Which things it does is drawn from ``Stage.chance``, which the run's seed decides.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from ...client.config import ClientConfig
from ...client.model import TopicConfig
from ..history import History


class Stage:
    """What one actor works with."""

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
        """Begin nothing new, and end what is begun."""

    def lives(self) -> Iterator[str]:
        """Process names, one after the other, until the actor shall stop."""
        life = 0
        while not self.stopping.is_set():
            life += 1
            yield f"{self.actor}.{life}"

    async def pause(self, least_s: float, most_s: float) -> None:
        """Stand still for a time that is drawn, or until it is time to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.chance.uniform(least_s, most_s)):
                await self.stopping.wait()


class Actor(msgspec.Struct, frozen=True):
    """One client. ``apart``: in a process of its own, so that it can be stalled."""

    name: str
    work: Callable[[Stage], Coroutine[Any, Any, None]]
    apart: bool = False


class Workload(Protocol):
    """One entry of the catalogue of workloads."""

    @property
    def name(self) -> str:
        """As on the command line."""
        ...

    @property
    def about(self) -> str:
        """One line for people: what it does, and to show what."""
        ...

    @property
    def partitions(self) -> int:
        """Of its topic."""
        ...

    def config(self, topic: str) -> TopicConfig:
        """Configuration of its topic."""
        ...

    @property
    def brings(self) -> Sequence[str]:
        """Faults without which it shows nothing; they strike whatever other faults were asked for."""
        ...

    @property
    def actors(self) -> Sequence[Actor]:
        """Who works on the topic; names are unique in the workload."""
        ...
