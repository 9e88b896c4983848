"""Appends by producers with retries, at a steady pace (append) or as fast as possible (rush).

The run's readers read each partition at the same time. ``rush`` is for runs of a million operations; ``all`` leaves it
out.
"""

from collections.abc import Sequence

from ...partition.api.topics import TopicConfig
from ...partition.errors import StockadeError
from .producing import write_on
from .protocol import Actor, ActorContext

RETRY_PAUSE_S = 0.5


async def write(context: ActorContext) -> None:
    """Write through one producer after another, each with a name of its own."""
    for process in context.lives():
        try:
            await write_on(context, f"{context.topic}.{process}", process)
        except StockadeError:
            await context.pause(0, RETRY_PAUSE_S)


class Append:
    """No acknowledged record is lost, doubled or out of order, although producers repeat requests."""

    name = "append"
    about = "producers that repeat failed requests, and readers at the log's end"
    partitions = 3
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = (Actor("append-1", write), Actor("append-2", write, own_process=True))

    def config(self, _: str) -> TopicConfig:
        return TopicConfig()


async def rush(context: ActorContext) -> None:
    """Write without a pause, one record an append, through one producer after another."""
    for process in context.lives():
        try:
            await write_on(context, f"{context.topic}.{process}", process, pause_s=0.0, most=1)
        except StockadeError:
            await context.pause(0, RETRY_PAUSE_S)


class Rush:
    """Each of many appends is stored once, at the offset of its answer."""

    name = "rush"
    about = "32 clients append one record at a time, without a pause; it runs only if it is named"
    partitions = 4
    brings: Sequence[str] = ()
    actors: Sequence[Actor] = tuple(Actor(f"rush-{number}", rush) for number in range(1, 33))

    def config(self, _: str) -> TopicConfig:
        return TopicConfig()
