"""A consumer group with fenced positions: members own partitions, read and commit under their fence_epoch, and go on
doing so after they were replaced.
"""

from collections.abc import Sequence

from ...client.api.client import Client
from ...client.session.session import Session
from ...client.transport.http import Transport
from ...partition.api.topics import TopicConfig
from ...partition.errors import StockadeError
from .attempts import AttemptRecorder, Batch
from .owning import group_of, own
from .protocol import Actor, ActorContext
from .reading import Reader

SESSION_TTL_MS = (1_500, 8_000)


async def feed(context: ActorContext) -> None:
    """Write records for the group to read."""
    async with Transport(context.config) as transport:
        recorder = AttemptRecorder(transport, context)
        for process in context.lives():
            partition = context.chance.randrange(context.partitions)
            await recorder.append(process, partition, Batch(f"{process}@{partition}", 0, context.chance.randint(1, 5)))
            await context.pause(0, 0.15)


async def consume(context: ActorContext) -> None:
    """Own a partition, read from the group's position, commit; repeat."""
    for process in context.lives():
        async with Client(context.config) as client:
            try:
                await _Member(context, client, process).live()
            except StockadeError:
                await context.pause(0, 0.2)


class _Member:
    """A member of the group at one partition, for one session."""

    def __init__(self, context: ActorContext, client: Client, process: str) -> None:
        self._context = context
        self._client = client
        self._process = process
        self._group = group_of(context.topic)
        self._partition = context.chance.randrange(context.partitions)

    async def live(self) -> None:
        context = self._context
        async with Session(self._client, self._process, ttl_ms=context.chance.randint(*SESSION_TTL_MS)) as session:
            generation = context.chance.choice([None, None, await self._next_generation()])
            owned = await own(context, self._client, self._process, session.id, self._partition, generation)
            guard = (self._group, owned.fence_epoch)
            reader = Reader(self._client, context.history, self._process, context.topic, self._partition)
            reader.offset = await self._position()
            for _ in range(context.chance.randint(3, 20)):
                await reader.poll(wait_ms=300, guard=guard)
                if context.chance.random() < 0.7:
                    await self._commit(reader.offset, owned.fence_epoch)
                if context.stopping.is_set():
                    return

    async def _next_generation(self) -> int:
        resources = await self._client.resources(self._group)
        mine = f"{self._context.topic}/{self._partition}"
        return max((entry.generation for entry in resources if entry.resource == mine), default=0) + 1

    async def _position(self) -> int:
        context = self._context
        about = {"topic": context.topic, "partition": self._partition, "resource": self._group}
        invoked = context.history.invoke(self._process, "position", **about)
        with context.history.refusals_of(invoked):
            position = await self._client.position(self._group, context.topic, self._partition)
        context.history.settle(invoked, "ok", resource=self._group, offset=position.offset or 0)
        return position.offset or 0

    async def _commit(self, offset: int, fence_epoch: int) -> None:
        context = self._context
        about = {"resource": self._group, "offset": offset, "epoch": fence_epoch}
        invoked = context.history.invoke(
            self._process, "commit", topic=context.topic, partition=self._partition, **about
        )
        with context.history.refusals_of(invoked):
            await self._client.commit_position(
                self._group, context.topic, self._partition, offset, fence_epoch=fence_epoch
            )
        context.history.settle(invoked, "ok", **about)


class Group:
    """A replaced member neither reads on nor sets a position back."""

    name = "group"
    about = "a consumer group with fenced positions, and members that are stalled"
    partitions = 2
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (
        Actor("feeder", feed),
        Actor("member-1", consume, own_process=True),
        *(Actor(f"member-{number}", consume) for number in range(2, 4)),
    )

    def config(self, _: str) -> TopicConfig:
        return TopicConfig()
