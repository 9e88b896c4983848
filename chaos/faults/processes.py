"""Faults of a whole process: killed, or standing still as in a pause of the garbage collector. None needs root."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ..fault import Arena, Broken, NothingToBreak
from ..waiting import NotInTime
from ..warden import Warden
from .targets import controller, leaders, listed, one, pid_of, running

Choice = Callable[[Arena, random.Random], Awaitable[Sequence[str]]]
"""Draws the nodes to strike."""


async def a_leader(arena: Arena, chance: random.Random) -> Sequence[str]:
    """One that leads a partition under load."""
    return [one(await leaders(arena), chance)]


async def a_follower(arena: Arena, chance: random.Random) -> Sequence[str]:
    """One that leads nothing under load or, where all lead something, the one that leads the first partition not."""
    leading = await leaders(arena)
    idle = [node for node in running(arena) if node not in leading]
    return [one(idle or leading[1:], chance)]


async def the_controller(arena: Arena, chance: random.Random) -> Sequence[str]:
    """The one that leads the controller group."""
    return [await controller(arena)]


async def any_one(arena: Arena, chance: random.Random) -> Sequence[str]:
    """Any one that runs."""
    return [one(running(arena), chance)]


async def a_majority(arena: Arena, chance: random.Random) -> Sequence[str]:
    """Just more than half of all nodes, or those of them that run."""
    there = running(arena)
    return sorted(chance.sample(there, min(len(there), len(arena.nodes) // 2 + 1)))


async def everybody(arena: Arena, chance: random.Random) -> Sequence[str]:
    """All that run."""
    return running(arena)


class _Signal:
    """A signal for nodes that are drawn."""

    def __init__(self, name: str, about: str, choose: Choice) -> None:
        self.name = name
        self.about = about
        self._choose = choose

    def why_not(self, _: Arena) -> str | None:
        """It needs nothing."""
        return None


class Kill(_Signal):
    """SIGKILL; the nodes stay away until they are healed."""

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Kill those that are drawn, one right after the other."""
        nodes = await self._choose(arena, chance)
        if not nodes:
            raise NothingToBreak("no node runs")
        for node in nodes:
            arena.kill(node)

        async def heal() -> None:
            for node in nodes:
                arena.start(node)

        return Broken(f"kill -9 {listed(nodes)}", heal, nodes)


class Stall(_Signal):
    """SIGSTOP; peers and clients see connections that stay open and say nothing."""

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Stop those that are drawn."""
        nodes = await self._choose(arena, chance)
        return stopped([pid_of(arena, node) for node in nodes], f"{listed(nodes)} stopped", nodes)


class StallProducer:
    """SIGSTOP for a client that holds slots: the process that wakes up as a zombie."""

    name = "stall-producer"
    about = "SIGSTOP of a client process that holds slots"

    def why_not(self, _: Arena) -> str | None:
        """It needs nothing; a workload without clients in processes of their own has nobody to stop."""
        return None

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Stop one client."""
        if not arena.clients:
            raise NothingToBreak("no client runs")
        pid = chance.choice(list(arena.clients))
        return stopped([pid], f"client {pid} stopped", [])


class RollingRestart:
    """One node after the other is asked to end and started again, each when the one before is ready."""

    name = "rolling-restart"
    about = "SIGTERM and start of one node after the other; healed when all are back"

    def why_not(self, _: Arena) -> str | None:
        """It needs nothing."""
        return None

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Begin with a node that is drawn; the rest goes on by itself."""
        nodes = chance.sample(list(arena.nodes), len(arena.nodes))
        rolling = asyncio.create_task(_roll(arena, nodes))

        async def heal() -> None:
            with suppress(NotInTime):  # another fault keeps a node down: whoever struck it brings it back
                await rolling
            for node in nodes:
                arena.start(node)

        return Broken(f"rolling restart of {listed(nodes)}", heal)


async def _roll(arena: Arena, nodes: Sequence[str]) -> None:
    for node in nodes:
        pid = arena.pid(node)
        if pid is None:
            continue
        arena.kill(node, signal.SIGTERM)
        while arena.pid(node) == pid:  # noqa: ASYNC110 (another process: there is no event)
            await asyncio.sleep(0.05)
        arena.start(node)
        await arena.ready(node)


def stopped(pids: Sequence[int], what: str, nodes: Sequence[str]) -> Broken:
    """Stop processes; healing resumes these very processes, as far as they are still there."""
    warden = Warden()
    for pid in pids:
        warden.promise("kill", "-CONT", str(pid))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

    async def heal() -> None:
        warden.close()

    return Broken(what, heal, nodes)


PROCESS_FAULTS = (
    Stall("stall-leader", "SIGSTOP of a node that leads partitions", a_leader),
    Stall("stall-follower", "SIGSTOP of a node that leads nothing, or little", a_follower),
    Stall("stall-controller", "SIGSTOP of the node that leads the controller", the_controller),
    StallProducer(),
    Kill("kill-leader", "kill -9 of a node that leads partitions", a_leader),
    Kill("kill-controller", "kill -9 of the node that leads the controller", the_controller),
    Kill("kill-one", "kill -9 of any node", any_one),
    Kill("kill-follower", "kill -9 of a node that leads nothing, or little", a_follower),
    Kill("kill-majority", "kill -9 of just more than half of the nodes", a_majority),
    Kill("kill-all", "kill -9 of every node", everybody),
    RollingRestart(),
)
