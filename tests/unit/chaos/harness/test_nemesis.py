"""What the nemesis tells of a strike: that it struck, that it had no target, or that it failed."""

import asyncio
import io
import random
from typing import Any

from stockade.chaos.faults.fault import Arena, Broken, NothingToBreak
from stockade.chaos.harness.nemesis import Nemesis
from stockade.chaos.harness.schedule import Planned
from stockade.chaos.history.history import History


class Scripted:
    """A fault whose strikes end so, one after the other: a reason (no target), an error, or None (it struck)."""

    about = ""

    def __init__(self, name: str, *ends: Any) -> None:
        self.name = name
        self._ends = list(ends)

    def why_not(self, _: Arena) -> str | None:
        return None

    async def strike(self, _: Arena, __: random.Random) -> Broken:
        end = self._ends.pop(0)
        if isinstance(end, Exception):
            raise end
        if end is not None:
            raise NothingToBreak(end)

        async def heal() -> None:
            """Nothing is broken."""

        return Broken(self.name, heal)


def test_a_fault_without_a_target_is_told_with_its_reason_and_one_that_failed_is_a_failure_of_the_run() -> None:
    there: Any = object()
    faults = {
        each.name: each
        for each in (
            Scripted("never", "no node", "no leader"),
            Scripted("once", "no node", None),
            Scripted("bad", OSError("no")),
        )
    }
    nemesis = Nemesis(there, faults, History(io.BytesIO()))
    plan = [Planned(0.0, 0.0, name, "") for name in ("never", "never", "once", "once", "bad")]
    asyncio.run(nemesis.run(plan, 0.0))
    assert nemesis.struck == {"once"}
    assert nemesis.skipped == {"never": "no leader", "once": "no node"}
    assert nemesis.failures == ["bad: OSError: no"]
