"""Finds the producers that partitions have forgotten, and unused names and resources, so that the controller can forget
them, too (producers.py, resources.py).

Runs on every member of the controller group and acts only on the leader. It decides nothing: what it proposes is judged
when it is applied.
"""

import asyncio

from ..controller.commands import Done, ForgetNames, ForgetResources
from ..controller.ownership.work import ProducerWithdrawal
from ..groups import Router
from .controller_group import ControllerGroup, quietly
from .reconciler import carry_out

PERIOD_S = 3_600.0
"""Between two rounds: each is a command to every partition that named producers write to."""
PAUSE_S = 0.05
"""Between two steps of a round, so that a round never takes much of the controller's time."""
PRODUCERS_AT_ONCE_MAX = 1_000
NAMES_AT_ONCE_MAX = 1_000
RESOURCES_AT_ONCE_MAX = 1_000


class GarbageCollector:
    """The task that runs one round after the other."""

    def __init__(self, control: ControllerGroup, router: Router) -> None:
        self._control = control
        self._router = router

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            await self.sweep()

    async def sweep(self) -> None:
        """Run one round, if this node leads. A step that fails is left to the next round."""
        if not self._control.group.is_leader:
            return
        for group in self._control.machine.registry.enrolments.partitions():
            await self._ask(group)
        names = list(self._control.machine.registry.rows)
        for start in range(0, len(names), NAMES_AT_ONCE_MAX):
            await self._forget(names[start : start + NAMES_AT_ONCE_MAX])
        keys = [(group, each) for group, rows in self._control.machine.resources.rows.items() for each in rows]
        for start in range(0, len(keys), RESOURCES_AT_ONCE_MAX):
            await self._forget_resources(keys[start : start + RESOURCES_AT_ONCE_MAX])

    async def _ask(self, group: int) -> None:
        """Ask a partition which of its producers it has forgotten, and report these to the controller."""
        pids = self._control.machine.registry.enrolments.enrolled_on(group)
        for start in range(0, len(pids), PRODUCERS_AT_ONCE_MAX):
            await asyncio.sleep(PAUSE_S)
            if not self._control.group.is_leader:
                return
            machine = self._control.machine
            # As of ``applied_index``, which the question carries.
            some = machine.registry.enrolments.settled_on(group, pids[start : start + PRODUCERS_AT_ONCE_MAX])
            if some:
                await quietly(
                    carry_out(ProducerWithdrawal(group, some, machine.applied_index), self._control, self._router)
                )

    async def _forget(self, names: list[str]) -> None:
        await asyncio.sleep(PAUSE_S)
        control = self._control
        now_ms = control.now_ms()
        idle = [name for name in names if control.machine.registry.is_idle(name, now_ms)]
        if idle and control.group.is_leader:
            await quietly(control.decide(lambda now: ForgetNames(now_ms=now, names=idle), Done))

    async def _forget_resources(self, keys: list[tuple[str, str]]) -> None:
        await asyncio.sleep(PAUSE_S)
        control = self._control
        now_ms = control.now_ms()
        idle = [key for key in keys if control.machine.resources.is_idle(*key, now_ms)]
        if idle and control.group.is_leader:
            await quietly(control.decide(lambda now: ForgetResources(now_ms=now, keys=idle), Done))
