"""Contention through the own API: claims of every generation, among them 0, on the partitions of a guarded topic."""

from collections.abc import Sequence

from ...client.admin import Client
from ...client.fencing import Session
from ...client.model import Owned, TopicConfig
from ...client.transport import Transport
from ...partition.errors import StockadeError
from .attempts import Batch, Desk, Guard, is_unknown
from .protocol import Actor, Stage

SESSION_TTL_MS = (1_500, 8_000)


def group_of(topic: str) -> str:
    """The group whose owners may write to a topic, or read it."""
    return f"{topic}.owners"


async def claim(stage: Stage) -> None:
    """Claim a partition, write as its owner, give it up or not; again and again."""
    generation = 0
    for process in stage.lives():
        async with Client(stage.config) as client, Transport(stage.config) as transport:
            try:
                generation = await _live(stage, client, Desk(transport, stage), process, generation)
            except StockadeError:
                await stage.pause(0, 0.2)


async def own(
    stage: Stage, client: Client, process: str, session: str, partition: int, generation: int | None
) -> Owned:
    """One claim on a partition, in the history. Raises the refusal."""
    resource = f"{stage.topic}/{partition}"
    invoked = stage.history.invoke(
        process, "own", topic=stage.topic, partition=partition, resource=resource, generation=generation
    )
    sever = stage.chance.choice(["session", "resource"])
    try:
        [owned] = await client.own(group_of(stage.topic), session, [resource], generation=generation, sever=sever)
    except StockadeError as error:
        stage.history.settle_error(invoked, error)
        raise
    stage.history.settle(invoked, "ok", resource=resource, generation=owned.generation, epoch=owned.fence_epoch)
    return owned


async def _live(stage: Stage, client: Client, desk: Desk, process: str, known: int) -> int:
    """One session; returns the generation that it knew last."""
    async with Session(client, process, ttl_ms=stage.chance.randint(*SESSION_TTL_MS)) as session:
        partition = stage.chance.randrange(stage.partitions)
        generation = stage.chance.choice([None, 0, known, known + 1, known + 2, known + 2])
        owned = await own(stage, client, process, session.id, partition, generation)
        guard = Guard(resource=f"{stage.topic}/{partition}", fence_epoch=owned.fence_epoch)
        index = 0
        for _ in range(stage.chance.randint(1, 12)):
            count = stage.chance.randint(1, 3)
            answer = await desk.append(process, partition, Batch(f"{process}@{partition}", index, count), guard=guard)
            index += count
            if stage.stopping.is_set() or is_unknown(answer):
                break
            await stage.pause(0, 0.15)
        if stage.chance.random() < 0.3:
            await client.disown(group_of(stage.topic), session.id, f"{stage.topic}/{partition}")
        return owned.generation


class Owning:
    """Whoever was out-claimed writes no more, also after a claim of generation 0."""

    name = "own"
    about = "contention through the own API, generation 0 included, with owners that are stalled"
    partitions = 2
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (
        Actor("own-1", claim, apart=True),
        *(Actor(f"own-{number}", claim) for number in range(2, 5)),
    )

    def config(self, topic: str) -> TopicConfig:
        """Only owners may write."""
        return TopicConfig(writer_group=group_of(topic))
