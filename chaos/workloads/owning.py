"""Clients claim the same resources with all kinds of generations, 0 included; only owners may write to the topic."""

from collections.abc import Sequence
from typing import get_args

from ...client.api.client import Client
from ...client.session.session import Session
from ...client.transport.http import Transport
from ...partition.api.ownership import OwnResult, Sever
from ...partition.api.topics import TopicConfig
from ...partition.errors import StockadeError
from .attempts import AttemptRecorder, Batch, Guard, is_unknown
from .protocol import Actor, ActorContext

SESSION_TTL_MS = (1_500, 8_000)


def group_of(topic: str) -> str:
    """The group whose owners may write to a topic, or read it."""
    return f"{topic}.owners"


async def claim(context: ActorContext) -> None:
    """Claim a partition, write as its owner, give it up or not; repeat."""
    generation = 0
    for process in context.lives():
        async with Client(context.config) as client, Transport(context.config) as transport:
            try:
                generation = await _live(context, client, AttemptRecorder(transport, context), process, generation)
            except StockadeError:
                await context.pause(0, 0.2)


async def own(
    context: ActorContext, client: Client, process: str, session: str, partition: int, generation: int | None
) -> OwnResult:
    """Claim a partition once, and record it. Raises the refusal."""
    resource = f"{context.topic}/{partition}"
    invoked = context.history.invoke(
        process, "own", topic=context.topic, partition=partition, resource=resource, generation=generation
    )
    sever = context.chance.choice(get_args(Sever))
    with context.history.refusals_of(invoked):
        [owned] = await client.own(group_of(context.topic), session, [resource], generation=generation, sever=sever)
    context.history.settle(invoked, "ok", resource=resource, generation=owned.generation, epoch=owned.fence_epoch)
    return owned


async def _live(context: ActorContext, client: Client, recorder: AttemptRecorder, process: str, known: int) -> int:
    """Claim a partition and write to it, for one session; return the generation of the claim."""
    async with Session(client, process, ttl_ms=context.chance.randint(*SESSION_TTL_MS)) as session:
        partition = context.chance.randrange(context.partitions)
        generation = context.chance.choice([None, 0, known, known + 1, known + 2, known + 2])
        owned = await own(context, client, process, session.id, partition, generation)
        guard = Guard(resource=f"{context.topic}/{partition}", fence_epoch=owned.fence_epoch)
        index = 0
        for _ in range(context.chance.randint(1, 12)):
            count = context.chance.randint(1, 3)
            answer = await recorder.append(
                process, partition, Batch(f"{process}@{partition}", index, count), guard=guard
            )
            index += count
            if context.stopping.is_set() or is_unknown(answer):
                break
            await context.pause(0, 0.15)
        if context.chance.random() < 0.3:
            await client.disown(group_of(context.topic), session.id, f"{context.topic}/{partition}")
        return owned.generation


class Owning:
    """An owner whose resource was claimed by another writes no more, also after a claim of generation 0."""

    name = "own"
    about = "clients claim the same resources, also with generation 0, and write as owners; some are stalled"
    partitions = 2
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (
        Actor("own-1", claim, own_process=True),
        *(Actor(f"own-{number}", claim) for number in range(2, 5)),
    )

    def config(self, topic: str) -> TopicConfig:
        """Only owners may write."""
        return TopicConfig(writer_group=group_of(topic))
