"""Faults of a process: killed, or stopped as by a pause of the garbage collector. None needs root."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ..system.undo import UndoShell, is_gone
from ..system.waiting import NotInTime
from .fault import Arena, Broken, NothingToBreak
from .targets import controller, leaders, listed, one, pid_of, running

Choice = Callable[[Arena, random.Random], Awaitable[Sequence[str]]]
"""Draws the nodes to strike."""


async def a_leader(arena: Arena, chance: random.Random) -> Sequence[str]:
    """A random leader of a partition under load."""
    return [one(await leaders(arena), chance)]


async def a_follower(arena: Arena, chance: random.Random) -> Sequence[str]:
    """A node that leads no partition under load; if all lead one, any but the first leader."""
    leading = await leaders(arena)
    idle = [node for node in running(arena) if node not in leading]
    return [one(idle or leading[1:], chance)]


async def the_controller(arena: Arena, chance: random.Random) -> Sequence[str]:
    """The leader of the controller group."""
    return [await controller(arena)]


async def any_one(arena: Arena, chance: random.Random) -> Sequence[str]:
    """A random running node."""
    return [one(running(arena), chance)]


async def a_majority(arena: Arena, chance: random.Random) -> Sequence[str]:
    """As many random running nodes as make a smallest majority of all nodes; all that run, if they are fewer."""
    there = running(arena)
    return sorted(chance.sample(there, min(len(there), len(arena.nodes) // 2 + 1)))


async def every_node(arena: Arena, chance: random.Random) -> Sequence[str]:
    """All running nodes."""
    return running(arena)


class _Signal:
    """The common part of the faults that send a signal to the nodes that ``choose`` returns."""

    def __init__(self, name: str, about: str, choose: Choice) -> None:
        self.name = name
        self.about = about
        self._choose = choose

    def why_not(self, _: Arena) -> str | None:
        return None


class Kill(_Signal):
    """SIGKILL; healing starts the nodes again."""

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
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
    """SIGSTOP: connections stay open, and peers and clients get no answer."""

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        nodes = await self._choose(arena, chance)
        return stopped([pid_of(arena, node) for node in nodes], f"{listed(nodes)} stopped", nodes)


class StallProducer:
    """SIGSTOP of a client process; if it was replaced meanwhile, it wakes up as a zombie."""

    name = "stall-producer"
    about = "SIGSTOP of a client process, which may hold slots"

    def why_not(self, _: Arena) -> str | None:
        return None

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        if not arena.clients:
            raise NothingToBreak("no client runs")
        client = chance.choice(list(arena.clients))
        return stopped([arena.clients[client]], f"client {client} stopped", [client])


class RollingRestart:
    """SIGTERM and start of each node in turn, once the previous one is ready."""

    name = "rolling-restart"
    about = "every node in turn is ended by SIGTERM and started again"

    def why_not(self, _: Arena) -> str | None:
        return None

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Begin the restarts, in a random order; a task carries them out."""
        nodes = chance.sample(list(arena.nodes), len(arena.nodes))
        rolling = asyncio.create_task(_roll(arena, nodes))

        async def heal() -> None:
            with suppress(NotInTime):  # another fault keeps a node down, and will start it again
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
    """Send SIGSTOP to processes; healing resumes those that still run. Raises NothingToBreak if none of them runs."""
    undo = UndoShell()
    for pid in pids:
        undo.register("kill", "-CONT", str(pid))
    there = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            there += not is_gone(pid)
    if not there:
        undo.close()
        raise NothingToBreak("what was to be stopped has just ended")

    async def heal() -> None:
        undo.close()

    return Broken(what, heal, nodes)


PROCESS_FAULTS = (
    Stall("stall-leader", "SIGSTOP of a node that leads partitions", a_leader),
    Stall("stall-follower", "SIGSTOP of a node that leads no partition, if there is one", a_follower),
    Stall("stall-controller", "SIGSTOP of the node that leads the controller", the_controller),
    StallProducer(),
    Kill("kill-leader", "kill -9 of a node that leads partitions", a_leader),
    Kill("kill-controller", "kill -9 of the node that leads the controller", the_controller),
    Kill("kill-one", "kill -9 of any node", any_one),
    Kill("kill-follower", "kill -9 of a node that leads no partition, if there is one", a_follower),
    Kill("kill-majority", "kill -9 of the smallest majority of the nodes", a_majority),
    Kill("kill-all", "kill -9 of every node", every_node),
    RollingRestart(),
)
