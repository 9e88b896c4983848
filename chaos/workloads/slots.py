"""Slot contention: all clients want the same slots, in all four modes, and go on writing after they lost them."""

import asyncio
from collections.abc import Sequence

from ...client.api.client import Client
from ...client.errors import ClientClosed
from ...client.session.session import Fence, Session
from ...client.transport.http import Transport
from ...partition.api.topics import Mode, TopicConfig
from ...partition.errors import RequestTimedOut, StockadeError
from ..history.history import Event
from .attempts import AttemptRecorder, Batch, Guard, is_unknown
from .protocol import Actor, ActorContext

MODES: Sequence[Mode] = ("Shared", "Exclusive", "ExclusiveWithFencing", "WaitForExclusive")
SESSION_TTL_MS = (1_500, 8_000)
"""Drawn between these, so that some stalled holders lose their session and others only their slot."""
WAIT_S = 6.0
"""How long a waiter stays in the wait queue."""
STRAYS = 3
"""Appends that a holder still tries after its first refusal."""


async def contend(context: ActorContext) -> None:
    """Acquire slots, write, leave in one of several ways; repeat."""
    for process in context.lives():
        async with Client(context.config) as client, Transport(context.config) as transport:
            try:
                await _live(context, client, AttemptRecorder(transport, context), process)
            except StockadeError:
                await context.pause(0, 0.2)


async def intrude(context: ActorContext) -> None:
    """Write without a token: accepted while no client holds the slot exclusively, refused otherwise."""
    async with Transport(context.config) as transport:
        recorder = AttemptRecorder(transport, context)
        for process in context.lives():
            partition = context.chance.randrange(context.partitions)
            await recorder.append(process, partition, Batch(f"{process}@{partition}", 0, 1))
            await context.pause(0, 0.4)


async def watch(context: ActorContext) -> None:
    """Ask for the topic epoch of partitions, as an owner does that wants to know whether it still is one."""
    async with Client(context.config) as client:
        for process in context.lives():
            partition = context.chance.randrange(context.partitions)
            invoked = context.history.invoke(process, "epoch", topic=context.topic, partition=partition)
            try:
                tail = await client.tail(context.topic, partition)
            except StockadeError as error:
                context.history.settle_error(invoked, error)
            else:
                context.history.settle(invoked, "ok", epoch=tail.topic_epoch)
            await context.pause(0, 0.4)


async def _live(context: ActorContext, client: Client, recorder: AttemptRecorder, process: str) -> None:
    async with Session(client, process, ttl_ms=context.chance.randint(*SESSION_TTL_MS)) as session:
        fence = await _acquire(context, session, process)
        await _use(context, recorder, process, fence)
        end = context.chance.random()
        if end < 0.6:
            await _leave(context, session, process, fence, closes=end < 0.3)
            partition = context.chance.choice(fence.grant.partitions)  # what it writes now must be refused
            late = Batch(f"{process}+late@{partition}", 0, 1)
            await recorder.append(process, partition, late, guard=Guard(fence.token(partition)))


async def _acquire(context: ActorContext, session: Session, process: str) -> Fence:
    wanted = _wanted(context)
    mode = context.chance.choice(MODES)
    f = "share" if mode == "Shared" else "acquire"
    asked = [context.history.invoke(process, f, topic=context.topic, partition=p, error=mode) for p in wanted]
    try:
        async with asyncio.timeout(WAIT_S):
            fence = await session.acquire(context.topic, wanted, mode=mode)
    except (StockadeError, TimeoutError) as error:
        for invoked in asked:
            context.history.settle_error(invoked, error)
        raise _refused(error) from None
    _settle(context, asked, fence)
    return fence


async def _leave(context: ActorContext, session: Session, process: str, fence: Fence, *, closes: bool) -> None:
    """Give the slots back, alone or with the session. Raises the refusal, and why a session to close was lost before:
    of such a one the cluster is told nothing, and its grant may be good until the session's end there.
    """
    invoked = [
        context.history.invoke(
            process, "release", topic=context.topic, partition=partition, epoch=fence.token(partition).epoch
        )
        for partition in fence.grant.partitions
    ]
    try:
        await (session.close() if closes else session.release(fence))
        if closes and session.error is not None and not isinstance(session.error, ClientClosed):
            raise session.error
    except StockadeError as error:
        for each in invoked:
            context.history.settle_error(each, error)
        raise
    for each in invoked:
        context.history.settle(each, "ok", epoch=each.epoch)


def _settle(context: ActorContext, asked: Sequence[Event], fence: Fence) -> None:
    for invoked in asked:
        assert invoked.partition is not None
        context.history.settle(invoked, "ok", epoch=fence.token(invoked.partition).epoch)


def _refused(error: BaseException) -> StockadeError:
    return error if isinstance(error, StockadeError) else RequestTimedOut("not granted in time")


def _wanted(context: ActorContext) -> list[int]:
    """Half of the time partition 0; otherwise some of the other partitions, so that clients overlap."""
    if context.chance.random() < 0.5:
        return [0]
    return sorted(
        context.chance.sample(range(1, context.partitions), context.chance.randint(1, context.partitions - 1))
    )


async def _use(context: ActorContext, recorder: AttemptRecorder, process: str, fence: Fence) -> None:
    """Append some batches, also after the slot is lost: then every one must be refused."""
    refused, index = 0, dict.fromkeys(fence.grant.partitions, 0)
    for _ in range(context.chance.randint(1, 15)):
        partition, count = context.chance.choice(fence.grant.partitions), context.chance.randint(1, 3)
        batch = Batch(f"{process}@{partition}", index[partition], count)
        index[partition] += count
        answer = await recorder.append(process, partition, batch, guard=Guard(fence.token(partition)))
        refused += isinstance(answer, StockadeError)
        if refused > STRAYS or context.stopping.is_set() or is_unknown(answer):
            return
        await context.pause(0, 0.15)


class Slots:
    """One writer at a time: a former holder is refused from the moment that another client holds the slot."""

    name = "slots"
    about = "clients compete for the slots of one partition and of several, in all four modes; holders are stalled"
    partitions = 4
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (
        Actor("slots-1", contend, own_process=True),
        Actor("slots-2", contend, own_process=True),
        *(Actor(f"slots-{number}", contend) for number in range(3, 7)),
        Actor("intruder", intrude),
        Actor("watcher", watch),
    )

    def config(self, _: str) -> TopicConfig:
        """Any client may write, as is the default."""
        return TopicConfig()
