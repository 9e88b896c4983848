"""What the nemesis tells of a strike: that it struck, that it had no target, or that it failed."""

import asyncio
import io
import random
from types import SimpleNamespace
from typing import Any

from stockade.chaos.faults.fault import Arena, Broken, NothingToBreak
from stockade.chaos.faults.membership import RemoveAndAdd
from stockade.chaos.harness.nemesis import Nemesis
from stockade.chaos.harness.schedule import Planned
from stockade.chaos.history.history import History
from stockade.partition.errors import LeaderNotAvailable


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


class Client:
    """A client of a cluster of one node, which removes it and does not take it back."""

    async def cluster(self) -> Any:
        node = SimpleNamespace(node_id="n1", url="http://n1", raft_address="n1:1", zone=None)
        return SimpleNamespace(nodes=[node])

    async def remove_node(self, _: str) -> None:
        """It is removed."""

    async def add_node(self, *_: object) -> None:
        raise LeaderNotAvailable("no leader is known")


def test_a_removed_node_that_is_not_added_again_is_a_failure_of_the_run() -> None:
    """Otherwise it would count as a node that the cluster lost."""
    started: list[str] = []
    there: Any = SimpleNamespace(nodes=["n1"], client=Client(), pid=lambda _: 1, start=started.append)
    nemesis = Nemesis(there, {"remove-node": RemoveAndAdd()}, History(io.BytesIO()))
    asyncio.run(nemesis.run([Planned(0.0, 0.0, "remove-node", "")], 0.0))
    assert nemesis.failures == ["healing of remove-node: LeaderNotAvailable: LEADER_NOT_AVAILABLE: no leader is known"]
    assert started == ["n1"]
