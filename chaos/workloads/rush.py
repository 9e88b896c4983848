"""As many appends as the cluster takes: for runs of a million operations. Not among those of ``all``."""

from collections.abc import Sequence

from ...client.model import TopicConfig
from ...partition.errors import StockadeError
from .append import RETRY_PAUSE_S
from .producing import write_on
from .protocol import Actor, Stage


async def rush(stage: Stage) -> None:
    """Write without a pause, one record an append, through one producer after another."""
    for process in stage.lives():
        try:
            await write_on(stage, f"{stage.topic}.{process}", process, pause_s=0.0, most=1)
        except StockadeError:
            await stage.pause(0, RETRY_PAUSE_S)


class Rush:
    """However many appends there are, each is stored once, where it was said to be."""

    name = "rush"
    about = "appends of one record without a pause; only where it is asked for by name"
    partitions = 4
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = tuple(Actor(f"rush-{number}", rush) for number in range(1, 33))

    def config(self, _: str) -> TopicConfig:
        """As users have it."""
        return TopicConfig()
