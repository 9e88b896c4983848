"""Named producers that are taken over while the old one writes: two instances of one name, each fencing the other."""

from collections.abc import Sequence

from ...client.model import TopicConfig
from ...partition.errors import StockadeError
from .producing import write_on
from .protocol import Actor, Stage


async def take_over(stage: Stage) -> None:
    """Be the newest instance of the name until another one is; after a while, be it again."""
    rival = stage.actor.rpartition("-")[0]
    for process in stage.lives():
        try:
            await write_on(stage, f"{stage.topic}.{rival}", process, pause_s=0.03)
        except StockadeError:
            await stage.pause(0.2, 2.5)


class TakeOver:
    """What the old instance was told to be stored is stored once, and nothing of it after the new one came."""

    name = "takeover"
    about = "named producers taken over while the old instance writes, or is stalled"
    partitions = 2
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (
        Actor("takeover-a-1", take_over, apart=True),
        Actor("takeover-a-2", take_over),
        Actor("takeover-b-1", take_over),
        Actor("takeover-b-2", take_over),
    )

    def config(self, _: str) -> TopicConfig:
        """As users have it."""
        return TopicConfig()
