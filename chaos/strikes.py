"""What strikes a cluster in rounds: SIGKILL for some nodes, or the power of all of them at one instant."""

import asyncio
import random
from collections.abc import Callable

from .nodes import ClusterProcesses
from .waiting import until

BACK_TIMEOUT_S = 60.0
ALL_BACK_RATE = 0.6
"""How often a strike waits until every node is back; otherwise it meets a cluster that is still recovering."""


class KillNodes:
    """SIGKILL for one node, two, or all, drawn by lot. The cluster's supervisor starts them again."""

    async def __call__(self, chance: random.Random, processes: ClusterProcesses) -> str:
        """Kill, at a moment that is drawn, too."""
        if chance.random() < ALL_BACK_RATE:
            await until(lambda: _all_ready(processes), BACK_TIMEOUT_S, "not every killed node is back")
        else:
            await until(lambda: _any_runs(processes), BACK_TIMEOUT_S, "no node is back")
        await asyncio.sleep(chance.random() / 2)
        running = [name for name, node in processes.nodes().items() if node.pid is not None]
        victims = chance.sample(running, min(len(running), chance.choice([1, 1, 1, 1, 2, len(running)])))
        for name in victims:
            processes.kill(name)
        return f"kill -9 {', '.join(sorted(victims))}"


class CutPower:
    """All nodes lose power at one instant, with everything that no fsync has confirmed."""

    def __init__(self, cut: Callable[[], None], restore: Callable[[], None]) -> None:
        """``cut`` stops disks and processes, ``restore`` brings them back. Both block."""
        self._cut = cut
        self._restore = restore

    async def __call__(self, chance: random.Random, processes: ClusterProcesses) -> str:
        """Cut at a moment that is drawn, and let the power come back."""
        await asyncio.sleep(chance.random())
        await asyncio.to_thread(self._cut)
        await asyncio.to_thread(self._restore)
        return "power of all nodes"


async def _all_ready(processes: ClusterProcesses) -> bool:
    nodes = processes.nodes()
    if any(node.pid is None for node in nodes.values()):
        return False
    return all(await asyncio.gather(*(processes.raw(name).is_ready() for name in nodes)))


async def _any_runs(processes: ClusterProcesses) -> bool:
    return any(node.pid is not None for node in processes.nodes().values())
