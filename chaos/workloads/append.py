"""Append and tail: producers with retries, each partition read along by the run's readers."""

from collections.abc import Sequence

from ...client.model import TopicConfig
from ...partition.errors import StockadeError
from .producing import write_on
from .protocol import Actor, Stage

RETRY_PAUSE_S = 0.5


async def write(stage: Stage) -> None:
    """Write through one producer after another, each under a name of its own."""
    for process in stage.lives():
        try:
            await write_on(stage, f"{stage.topic}.{process}", process)
        except StockadeError:
            await stage.pause(0, RETRY_PAUSE_S)


class Append:
    """Nothing acknowledged is lost, doubled or out of order, whatever was repeated on the way."""

    name = "append"
    about = "producers that repeat what failed, and readers at the log's end"
    partitions = 3
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (Actor("append-1", write), Actor("append-2", write, apart=True))

    def config(self, _: str) -> TopicConfig:
        """As users have it."""
        return TopicConfig()
