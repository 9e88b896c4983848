"""Named producers that are taken over while the old one writes: two instances of one name, each fencing the other."""

from collections.abc import Sequence

from ...partition.api.topics import TopicConfig
from ...partition.errors import StockadeError
from .producing import write_on
from .protocol import Actor, ActorContext


async def take_over(context: ActorContext) -> None:
    """Be the newest instance of the name until another one takes over; after a while, take over again."""
    rival = context.actor.rpartition("-")[0]
    for process in context.lives():
        try:
            await write_on(context, f"{context.topic}.{rival}", process, pause_s=0.03)
        except StockadeError:
            await context.pause(0.2, 2.5)


class TakeOver:
    """A batch acknowledged to the old instance is stored once; none of its batches is stored after the takeover."""

    name = "takeover"
    about = "named producers taken over while the old instance writes, or is stalled"
    partitions = 2
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (
        Actor("takeover-a-1", take_over, own_process=True),
        Actor("takeover-a-2", take_over),
        Actor("takeover-b-1", take_over),
        Actor("takeover-b-2", take_over),
    )

    def config(self, _: str) -> TopicConfig:
        return TopicConfig()
