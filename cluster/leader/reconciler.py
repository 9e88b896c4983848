"""Drives partitions to what the controller's replicated state says (DESIGN 2, the fence protocol).

Runs on every member of the controller group and acts only on the leader. It remembers nothing: each round asks the
machine what is left to do, proposes it to the partitions' leaders and reports back, so it starts again after a
failover from the state alone. Every step may be repeated or come late; the machines sort that out.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from ..partition.commands import decode_result, encode_command
from ..partition.errors import StockadeError
from .commands import Command, Done
from .control import Control
from .router import Router
from .work import Work

PARTITIONS_AT_ONCE_MAX = 256
"""Partitions worked on at the same time."""
STEP_TIMEOUT_S = 5.0
"""A partition that has not answered after this time is asked again in the next round."""
PAUSE_S = 0.1
"""Before a step that failed is tried again."""

_log = logging.getLogger(__name__)


class Reconciler:
    """One task for each partition that has something left to do; steps of a partition never overlap."""

    def __init__(self, control: Control, router: Router) -> None:
        self._control = control
        self._router = router
        self._busy: dict[int, asyncio.Task[None]] = {}
        self._tried: set[int] = set()

    async def run(self) -> None:
        """Look for work whenever the state has changed. Runs until cancelled."""
        try:
            while True:
                if self._control.group.is_leader:
                    self._start_due()
                await self._control.until(self._something_new(), 1.0)
        finally:
            for task in self._busy.values():
                task.cancel()

    def _something_new(self) -> Callable[[], bool | None]:
        """True once there is work for a partition that nobody works on."""

        def look() -> bool | None:
            if not self._control.group.is_leader or len(self._busy) >= PARTITIONS_AT_ONCE_MAX:
                return None
            return True if any(work.group_id not in self._busy for work in self._control.machine.work()) else None

        return look

    def _start_due(self) -> None:
        """Start what fits. Partitions take turns: many that cannot be reached do not keep the others waiting."""
        if not self._start_some():
            self._tried.clear()
            self._start_some()

    def _start_some(self) -> int:
        started = 0
        for work in self._control.machine.work():
            if len(self._busy) >= PARTITIONS_AT_ONCE_MAX:
                break
            if work.group_id not in self._busy and work.group_id not in self._tried:
                self._tried.add(work.group_id)
                self._start(work)
                started += 1
        return started

    def _start(self, work: Work) -> None:
        task = asyncio.create_task(self._step(work))
        self._busy[work.group_id] = task
        task.add_done_callback(partial(self._finished, work.group_id))

    def _finished(self, group: int, task: "asyncio.Task[None]") -> None:
        del self._busy[group]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a step on group %d broke", group, exc_info=error)
        # The partition may have more to do: let run() look again.
        self._control.state.changed.notify()

    async def _step(self, work: Work) -> None:
        try:
            done = await carry_out(work, self._control, self._router)
        except StockadeError as refusal:
            _log.info("%r has to be tried again: %s", work, refusal)
            done = False
        if not done:
            await asyncio.sleep(PAUSE_S)


async def carry_out(work: Work, control: Control, router: Router) -> bool:
    """Whether the work is done and reported; false when the partition refused it because it is out of date.

    Raises LeaderNotAvailable, RequestTimedOut, NotLeaderOrFollower.
    """
    voters = control.machine.replicas(work.group_id) or ()
    command = encode_command(work.command())
    answer = decode_result(await router.propose(work.group_id, voters, command, STEP_TIMEOUT_S))
    if isinstance(answer, StockadeError):
        raise answer
    report: Command | None = work.report(answer, control.stamp_ms())  # type: ignore[arg-type]
    if report is None:
        return False
    await control.propose(report, Done)
    return True
