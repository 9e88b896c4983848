"""A leader with a log tail that no other replica has: it appended while its followers were stopped; all were killed."""

import asyncio
import random

from .fault import Arena, Broken
from .processes import stopped
from .targets import leaders, listed, one, pid_of, running

ALONE_S = (0.3, 0.55)
"""Seconds in which the leader appends alone, drawn between these; after a longer time it would step down by itself."""


class DivergentTail:
    """Stops the followers, lets the leader take appends that cannot commit, kills all, and starts the followers again.

    The followers are not resumed: what the leader had sent would wait in their sockets, and they would take it, so that
    there would be no tail of its own. They commit different entries at the indexes of that tail. Healing starts the
    killed leader again: it must truncate its tail.
    """

    name = "divergent-tail"
    about = (
        "a leader appends while the others are stopped; all are killed, and it comes back when the others have gone on"
    )

    def why_not(self, _: Arena) -> str | None:
        return None

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Strike one of the leaders at random."""
        node = one(await leaders(arena), chance)
        others = [name for name in running(arena) if name != node]
        halt = stopped([pid_of(arena, name) for name in others], f"{listed(others)} stopped", others)
        try:
            await asyncio.sleep(chance.uniform(*ALONE_S))
            for name in (node, *others):
                arena.kill(name)
        finally:
            await halt.heal()
        for name in others:
            arena.start(name)

        async def heal() -> None:
            arena.start(node)

        return Broken(f"{node} wrote alone; all were killed", heal, [node])
