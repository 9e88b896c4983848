"""Finds targets: leaders, the controller, running nodes. ``chance``, which the seed decides, makes every choice."""

import random
from collections.abc import Sequence

from ...partition.errors import StockadeError
from .fault import Arena, NothingToBreak

PATIENCE_MS = 1_000
"""How long the cluster may take to name its leaders; without an answer there is no target."""


async def leaders(arena: Arena) -> list[str]:
    """The running nodes that lead a partition under load, as the cluster says now."""
    try:
        topics = [await arena.client.topic(topic, patience_ms=PATIENCE_MS) for topic in arena.topics]
    except StockadeError:
        return []
    led = {state.leader_node for topic in topics for state in topic.partitions}
    return [node for node in running(arena) if node in led]


async def controller(arena: Arena) -> str:
    """The leader of the controller group. Raises NothingToBreak if none is known."""
    try:
        leader = (await arena.client.cluster()).controller.leader_node
    except StockadeError:
        leader = None
    if leader is None or leader not in running(arena):
        raise NothingToBreak("the controller has no known leader")
    return leader


def running(arena: Arena) -> list[str]:
    """The nodes whose process runs."""
    return [node for node in arena.nodes if arena.pid(node) is not None]


def one(nodes: Sequence[str], chance: random.Random) -> str:
    """A random node of ``nodes``. Raises NothingToBreak if there is none."""
    if not nodes:
        raise NothingToBreak("no node to strike")
    return chance.choice(nodes)


def minority(arena: Arena, chance: random.Random) -> list[str]:
    """Random nodes: at least one, and, of three or more, fewer than half."""
    most = max(1, (len(arena.nodes) - 1) // 2)
    return sorted(chance.sample(list(arena.nodes), chance.randint(1, most)))


def pid_of(arena: Arena, node: str) -> int:
    """The id of the node's process. Raises NothingToBreak if the node does not run."""
    pid = arena.pid(node)
    if pid is None:
        raise NothingToBreak(f"{node} does not run")
    return pid


def listed(nodes: Sequence[str]) -> str:
    """The names of the nodes, with commas between them."""
    return ", ".join(nodes)
