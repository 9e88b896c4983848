"""A leader that holds a tail which nobody else has: the others stood still while it wrote, and it died alone."""

import asyncio
import random

from ..fault import Arena, Broken
from .processes import stopped
from .targets import leaders, listed, one, pid_of, running

ALONE_S = (0.3, 0.55)
"""How long it takes appends that nobody else hears of, drawn; then it would step down by itself."""


class DivergentTail:
    """The followers stop, the leader takes appends that cannot commit and is killed; then the followers go on.

    What it wrote alone lies where the others write something else meanwhile. Healing starts it again.
    """

    name = "divergent-tail"
    about = "a leader writes alone, dies, and comes back when the others have gone on"

    def why_not(self, _: Arena) -> str | None:
        """It needs nothing."""
        return None

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Do it to one of the leaders, drawn."""
        node = one(await leaders(arena), chance)
        others = [name for name in running(arena) if name != node]
        halt = stopped([pid_of(arena, name) for name in others], f"{listed(others)} stopped", others)
        try:
            await asyncio.sleep(chance.uniform(*ALONE_S))
            arena.kill(node)
        finally:
            await halt.heal()

        async def heal() -> None:
            arena.start(node)

        return Broken(f"{node} wrote alone, and was killed", heal, [node])
