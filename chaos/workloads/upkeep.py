"""Steady appends while the cluster is worked on: what differs is which faults a workload brings along."""

from collections.abc import Sequence

from ...client.model import TopicConfig
from ...partition.errors import StockadeError
from .append import RETRY_PAUSE_S
from .producing import write_on
from .protocol import Actor, Stage

LARGE_BYTES = 16_384
"""Records so long that logs are shortened behind checkpoints while somebody is away."""


async def write_large(stage: Stage) -> None:
    """Large records, one producer after another."""
    await _write(stage, LARGE_BYTES)


async def write_steadily(stage: Stage) -> None:
    """Records as in the others, one producer after another."""
    await _write(stage, None)


async def _write(stage: Stage, size: int | None) -> None:
    for process in stage.lives():
        try:
            await write_on(stage, f"{stage.topic}.{process}", process, size=size)
        except StockadeError:
            await stage.pause(0, RETRY_PAUSE_S)


class _Upkeep:
    """What the three have in common."""

    partitions = 2

    def config(self, _: str) -> TopicConfig:
        """As users have it."""
        return TopicConfig()


class CatchUp(_Upkeep):
    """A replica whose tail nobody else has, and that slept through checkpoints, ends with the log of the others."""

    name = "catch-up"
    about = "long records, and a leader that wakes up with a tail of its own when the others have dropped their logs"
    brings: Sequence[str] = ("divergent-tail",)
    actors: Sequence[Actor] = (Actor("catch-up-1", write_large), Actor("catch-up-2", write_large))


class RollingRestart(_Upkeep):
    """Restarting one node after the other is no event for clients."""

    name = "rolling-restart"
    about = "appends while the nodes are stopped and started one after the other"
    brings: Sequence[str] = ("rolling-restart",)
    actors: Sequence[Actor] = (Actor("rolling-1", write_steadily),)


class Membership(_Upkeep):
    """Replicas and leadership move while clients work."""

    name = "membership"
    about = "appends while replicas and leadership are moved"
    brings: Sequence[str] = ("move-replica", "transfer-leader")
    actors: Sequence[Actor] = (Actor("member-1", write_steadily),)
