"""Steady appends during operations on the cluster. Each workload brings the faults that are its operations."""

from collections.abc import Sequence

from ...partition.api.topics import TopicConfig
from ...partition.errors import StockadeError
from .append import RETRY_PAUSE_S
from .producing import write_on
from .protocol import Actor, ActorContext

LARGE_BYTES = 16_384
"""Bytes of a record: so many that logs are truncated at checkpoints while a node is away."""


async def write_large(context: ActorContext) -> None:
    """Write records of LARGE_BYTES, through one producer after another."""
    await _write(context, LARGE_BYTES)


async def write_steadily(context: ActorContext) -> None:
    """Write records of the usual, varying lengths, through one producer after another."""
    await _write(context, None)


async def _write(context: ActorContext, size: int | None) -> None:
    for process in context.lives():
        try:
            await write_on(context, f"{context.topic}.{process}", process, size=size)
        except StockadeError:
            await context.pause(0, RETRY_PAUSE_S)


class _Upkeep:
    """The common part of these workloads."""

    partitions = 2

    def config(self, _: str) -> TopicConfig:
        return TopicConfig()


class CatchUp(_Upkeep):
    """A replica with a tail that no other has, and that missed checkpoints, ends with the log of the others."""

    name = "catch-up"
    about = (
        "long records; a leader comes back with entries that no other node has, after the others truncated their logs"
    )
    brings: Sequence[str] = ("divergent-tail",)
    actors: Sequence[Actor] = (Actor("catch-up-1", write_large), Actor("catch-up-2", write_large))


class RollingRestart(_Upkeep):
    """Clients do not notice a rolling restart."""

    name = "rolling-restart"
    about = "appends while the nodes are stopped and started one after the other"
    brings: Sequence[str] = ("rolling-restart",)
    actors: Sequence[Actor] = (Actor("rolling-1", write_steadily),)


class Membership(_Upkeep):
    """Clients work on while replicas and leadership move."""

    name = "membership"
    about = "appends while replicas and leadership are moved"
    brings: Sequence[str] = ("move-replica", "transfer-leader")
    actors: Sequence[Actor] = (Actor("member-1", write_steadily),)
