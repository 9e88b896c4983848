"""A consumer group with fenced positions: members own partitions, read and commit under their fence_epoch, and insist
when they were replaced.
"""

from collections.abc import Sequence

from ...client.admin import Client
from ...client.fencing import Session
from ...client.model import TopicConfig
from ...client.transport import Transport
from ...partition.errors import StockadeError
from ..reading import Reader
from .attempts import Batch, Desk
from .owning import group_of, own
from .protocol import Actor, Stage

SESSION_TTL_MS = (1_500, 8_000)


async def feed(stage: Stage) -> None:
    """Write what the group reads."""
    async with Transport(stage.config) as transport:
        desk = Desk(transport, stage)
        for process in stage.lives():
            partition = stage.chance.randrange(stage.partitions)
            await desk.append(process, partition, Batch(f"{process}@{partition}", 0, stage.chance.randint(1, 5)))
            await stage.pause(0, 0.15)


async def consume(stage: Stage) -> None:
    """Own a partition, go on where the group is, read, commit; again and again."""
    for process in stage.lives():
        async with Client(stage.config) as client:
            try:
                await _Member(stage, client, process).live()
            except StockadeError:
                await stage.pause(0, 0.2)


class _Member:
    """One life of a member at one partition."""

    def __init__(self, stage: Stage, client: Client, process: str) -> None:
        self._stage = stage
        self._client = client
        self._process = process
        self._group = group_of(stage.topic)
        self._partition = stage.chance.randrange(stage.partitions)

    async def live(self) -> None:
        stage = self._stage
        async with Session(self._client, self._process, ttl_ms=stage.chance.randint(*SESSION_TTL_MS)) as session:
            generation = stage.chance.choice([None, None, await self._next_generation()])
            owned = await own(stage, self._client, self._process, session.id, self._partition, generation)
            guard = (self._group, owned.fence_epoch)
            reader = Reader(self._client, stage.history, self._process, stage.topic, self._partition)
            reader.offset = await self._position()
            for _ in range(stage.chance.randint(3, 20)):
                await reader.poll(wait_ms=300, guard=guard)
                if stage.chance.random() < 0.7:
                    await self._commit(reader.offset, owned.fence_epoch)
                if stage.stopping.is_set():
                    return

    async def _next_generation(self) -> int:
        resources = await self._client.resources(self._group)
        mine = f"{self._stage.topic}/{self._partition}"
        return max((entry.generation for entry in resources if entry.resource == mine), default=0) + 1

    async def _position(self) -> int:
        stage = self._stage
        about = {"topic": stage.topic, "partition": self._partition, "resource": self._group}
        invoked = stage.history.invoke(self._process, "position", **about)
        try:
            position = await self._client.position(self._group, stage.topic, self._partition)
        except StockadeError as error:
            stage.history.settle_error(invoked, error)
            raise
        stage.history.settle(invoked, "ok", resource=self._group, offset=position.offset or 0)
        return position.offset or 0

    async def _commit(self, offset: int, fence_epoch: int) -> None:
        stage = self._stage
        about = {"resource": self._group, "offset": offset, "epoch": fence_epoch}
        invoked = stage.history.invoke(self._process, "commit", topic=stage.topic, partition=self._partition, **about)
        try:
            await self._client.commit_position(
                self._group, stage.topic, self._partition, offset, fence_epoch=fence_epoch
            )
        except StockadeError as error:
            stage.history.settle_error(invoked, error)
            raise
        stage.history.settle(invoked, "ok", **about)


class Group:
    """A member that was replaced neither reads on nor sets a position back."""

    name = "group"
    about = "a consumer group with fenced positions, and members that are stalled"
    partitions = 2
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (
        Actor("feeder", feed),
        Actor("member-1", consume, apart=True),
        *(Actor(f"member-{number}", consume) for number in range(2, 4)),
    )

    def config(self, _: str) -> TopicConfig:
        """As users have it."""
        return TopicConfig()
