"""Faults of a whole process: killed, or standing still as in a pause of the garbage collector. None needs root."""

import os
import random
import signal
from contextlib import suppress

from ...partition.errors import StockadeError
from ..fault import Arena, Broken, NothingToBreak


async def leaders(arena: Arena) -> list[str]:
    """The nodes that lead a partition of a topic under load, as the cluster has it now, and run."""
    try:
        topics = [await arena.client.topic(topic, patience_ms=1_000) for topic in arena.topics]
    except StockadeError:
        return []
    led = {state.leader_node for topic in topics for state in topic.partitions}
    return [node for node in arena.nodes if node in led and arena.pid(node) is not None]


class KillLeader:
    """SIGKILL for a node that leads; it stays away until it is healed."""

    name = "kill-leader"
    about = "kill -9 of a node that leads partitions"

    def why_not(self, _: Arena) -> str | None:
        """It needs nothing."""
        return None

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Kill one of the leaders, drawn."""
        node = chance.choice(await leaders(arena) or _nobody())
        arena.kill(node)

        async def heal() -> None:
            arena.start(node)

        return Broken(f"{node} killed (it led)", heal, [node])


class StallLeader:
    """SIGSTOP for a node that leads; its clients and peers see connections that stay open and say nothing."""

    name = "stall-leader"
    about = "SIGSTOP of a node that leads partitions"

    def why_not(self, _: Arena) -> str | None:
        """It needs nothing."""
        return None

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Stop one of the leaders, drawn."""
        node = chance.choice(await leaders(arena) or _nobody())
        return stall(arena, node, "it led")


def stall(arena: Arena, node: str, why: str) -> Broken:
    """Stop a node's process; healing resumes that very process, if it is still there."""
    pid = arena.pid(node)
    if pid is None:
        raise NothingToBreak(f"{node} does not run")
    arena.kill(node, signal.SIGSTOP)

    async def heal() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return Broken(f"{node} stopped ({why})", heal, [node])


def _nobody() -> list[str]:
    raise NothingToBreak("nobody is known to lead")
