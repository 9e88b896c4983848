"""The nemesis: breaks a cluster as a schedule says, and heals everything afterwards."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence

from ...partition.errors import StockadeError
from ..faults.fault import Arena, Broken, Fault, NothingToBreak
from ..history.history import History
from ..system.disks import DiskFailed
from ..system.proxies import ProxyError
from ..system.waiting import NotInTime
from .schedule import Planned


class Nemesis:
    """Carries out strikes. ``broken`` has, by number, those that are not healed yet."""

    def __init__(self, arena: Arena, faults: Mapping[str, Fault], history: History) -> None:
        self.broken: dict[int, Broken] = {}
        self.failures: list[str] = []
        """Strikes and healings that failed: failures of the harness, not of the cluster."""
        self.lost: set[str] = set()
        """Nodes that did not come back."""
        self.struck: set[str] = set()
        """Faults that struck."""
        self.skipped: dict[str, str] = {}
        """Faults that had no target at some time, each with the last reason."""
        self._arena = arena
        self._faults = faults
        self._history = history
        self._number = 0

    async def run(self, plan: Sequence[Planned], seconds: float) -> None:
        """Carry out the plan; return when every strike is healed and ``seconds`` are over."""
        start_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(seconds))
            for planned in plan:
                group.create_task(self._strike(planned, start_s))

    async def mend(self) -> bool:
        """Start every node, once ``run`` has healed all strikes, and wait until each is ready or has failed to become
        so, which the history notes as ``lost``. Returns whether any node is ready.
        """
        self._history.note("nemesis", "healed")
        return any(await asyncio.gather(*(self._bring_back(node) for node in self._arena.nodes)))

    async def _bring_back(self, node: str) -> bool:
        try:
            self._arena.start(node)
            await self._arena.ready(node)
            return True
        except (NotInTime, OSError) as error:
            self._history.note("nemesis", "lost", node=node, error=f"{type(error).__name__}: {error}")
            self.lost.add(node)
            return False

    async def _strike(self, planned: Planned, start_s: float) -> None:
        await asyncio.sleep(max(0.0, start_s + planned.at_s - time.monotonic()))
        chance = random.Random(planned.seed)  # a seed replays it  # noqa: S311  # nosec B311
        try:
            broken = await self._faults[planned.fault].strike(self._arena, chance)
        except NothingToBreak as reason:
            self._history.note("nemesis", "skip", value=planned.fault, error=str(reason))
            self.skipped[planned.fault] = str(reason)
            return
        except (DiskFailed, NotInTime, OSError, ProxyError) as error:
            self._fail(planned.fault, error)
            return
        self._number += 1
        number = self._number
        self.broken[number] = broken
        self.struck.add(planned.fault)
        self._note("strike", number, planned.fault, broken)
        try:
            await asyncio.sleep(max(0.0, start_s + planned.until_s - time.monotonic()))
        finally:
            await self._heal(number, planned.fault)

    async def _heal(self, number: int, fault: str) -> None:
        broken = self.broken.pop(number)
        try:
            await broken.heal()
        except (DiskFailed, NotInTime, OSError, ProxyError, StockadeError) as error:
            self._fail(f"healing of {fault}", error)
        self._note("heal", number, fault, broken)

    def _note(self, f: str, number: int, fault: str, broken: Broken) -> None:
        """Record a strike or its healing; the event's ``count`` is the number of the strike, which pairs the two."""
        nodes = ",".join(broken.nodes) or None
        self._history.note("nemesis", f, value=fault, count=number, node=nodes, error=broken.what)

    def _fail(self, fault: str, error: Exception) -> None:
        self._history.note("nemesis", "skip", value=fault, error=f"{type(error).__name__}: {error}")
        self.failures.append(f"{fault}: {type(error).__name__}: {error}")
