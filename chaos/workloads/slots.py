"""Slot contention: everybody wants the same seats, in all four modes, and insists after losing them."""

import asyncio
from collections.abc import Sequence

from ...client.admin import Client
from ...client.fencing import Fence, Session
from ...client.model import Mode, TopicConfig
from ...client.transport import Transport
from ...partition.errors import RequestTimedOut, StockadeError
from ..history import Event
from .attempts import Batch, Desk, Guard, is_unknown
from .protocol import Actor, Stage

MODES: Sequence[Mode] = ("Shared", "Exclusive", "ExclusiveWithFencing", "WaitForExclusive")
SESSION_TTL_MS = (1_500, 8_000)
"""Drawn between these, so that some stalled holders lose their session and others find their seat taken."""
WAIT_S = 6.0
"""After it a waiter leaves the line."""
STRAYS = 3
"""Appends that a holder still tries after it was refused."""


async def contend(stage: Stage) -> None:
    """Take seats, write, leave in one of several ways; again and again."""
    for process in stage.lives():
        async with Client(stage.config) as client, Transport(stage.config) as transport:
            try:
                await _live(stage, client, Desk(transport, stage), process)
            except StockadeError:
                await stage.pause(0, 0.2)


async def intrude(stage: Stage) -> None:
    """Write without any token: taken while nobody holds the slot alone, refused otherwise."""
    async with Transport(stage.config) as transport:
        desk = Desk(transport, stage)
        for process in stage.lives():
            partition = stage.chance.randrange(stage.partitions)
            await desk.append(process, partition, Batch(f"{process}@{partition}", 0, 1))
            await stage.pause(0, 0.4)


async def watch(stage: Stage) -> None:
    """Ask for the topic epoch of partitions, as whoever wants to know whether it is still the owner."""
    async with Client(stage.config) as client:
        for process in stage.lives():
            partition = stage.chance.randrange(stage.partitions)
            invoked = stage.history.invoke(process, "epoch", topic=stage.topic, partition=partition)
            try:
                tail = await client.tail(stage.topic, partition)
            except StockadeError as error:
                stage.history.settle_error(invoked, error)
            else:
                stage.history.settle(invoked, "ok", epoch=tail.topic_epoch)
            await stage.pause(0, 0.4)


async def _live(stage: Stage, client: Client, desk: Desk, process: str) -> None:
    async with Session(client, process, ttl_ms=stage.chance.randint(*SESSION_TTL_MS)) as session:
        fence = await _acquire(stage, session, process)
        await _use(stage, desk, process, fence)
        if stage.chance.random() < 0.3:
            await session.release(fence)


async def _acquire(stage: Stage, session: Session, process: str) -> Fence:
    wanted = _wanted(stage)
    mode = stage.chance.choice(MODES)
    f = "share" if mode == "Shared" else "acquire"
    asked = [stage.history.invoke(process, f, topic=stage.topic, partition=p, error=mode) for p in wanted]
    try:
        async with asyncio.timeout(WAIT_S):
            fence = await session.acquire(stage.topic, wanted, mode=mode)
    except (StockadeError, TimeoutError) as error:
        for invoked in asked:
            stage.history.settle_error(invoked, error)
        raise _refused(error) from None
    _settle(stage, asked, fence)
    return fence


def _settle(stage: Stage, asked: Sequence[Event], fence: Fence) -> None:
    for invoked in asked:
        assert invoked.partition is not None
        stage.history.settle(invoked, "ok", epoch=fence.token(invoked.partition).epoch)


def _refused(error: BaseException) -> StockadeError:
    return error if isinstance(error, StockadeError) else RequestTimedOut("not granted in time")


def _wanted(stage: Stage) -> list[int]:
    """Half of all want partition 0; the others some of the rest, overlapping."""
    if stage.chance.random() < 0.5:
        return [0]
    return sorted(stage.chance.sample(range(1, stage.partitions), stage.chance.randint(1, stage.partitions - 1)))


async def _use(stage: Stage, desk: Desk, process: str, fence: Fence) -> None:
    """Some batches, whatever becomes of the seat: who lost it must be refused, however often it tries."""
    refused, index = 0, dict.fromkeys(fence.grant.partitions, 0)
    for _ in range(stage.chance.randint(1, 15)):
        partition, count = stage.chance.choice(fence.grant.partitions), stage.chance.randint(1, 3)
        batch = Batch(f"{process}@{partition}", index[partition], count)
        index[partition] += count
        answer = await desk.append(process, partition, batch, guard=Guard(fence.token(partition)))
        refused += isinstance(answer, StockadeError)
        if refused > STRAYS or stage.stopping.is_set() or is_unknown(answer):
            return
        await stage.pause(0, 0.15)


class Slots:
    """One writer at a time; who lost its seat is refused from the moment that another one has it."""

    name = "slots"
    about = "contention for slots in all four modes, on one partition and on several, with holders that are stalled"
    partitions = 4
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (
        Actor("slots-1", contend, apart=True),
        Actor("slots-2", contend, apart=True),
        *(Actor(f"slots-{number}", contend) for number in range(3, 7)),
        Actor("intruder", intrude),
        Actor("watcher", watch),
    )

    def config(self, _: str) -> TopicConfig:
        """Without a fence it is open to everybody, as topics are."""
        return TopicConfig()
