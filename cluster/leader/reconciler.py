"""Drives partitions to what the controller's replicated state says (controller/ownership/slots.py).

Runs on every member of the controller group and acts only on the leader. It keeps no state: each round takes the due
installs from the machine, proposes them to the partitions' leaders, and reports the outcomes. So after a failover the
next leader continues from the replicated state alone. Every step may be repeated or arrive late: the machines ignore
outdated installs and reports.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from ...partition.commands import InstallFence, decode_result, encode_command
from ...partition.errors import StockadeError
from ...raft.host import RaftHost
from ..controller.commands import Command, Done
from ..controller.ownership.slots import TAKEN, SlotInstall
from ..controller.ownership.work import Work
from ..groups import Router
from .controller_group import ControllerGroup

PARTITIONS_AT_ONCE_MAX = 256
"""Partitions worked on at the same time."""
STEP_TIMEOUT_S = 5.0
"""A partition that has not answered after this time is asked again in the next round."""
PAUSE_S = 0.1
"""Before a step that failed is tried again."""

_log = logging.getLogger(__name__)


class Reconciler:
    """One task for each partition with due installs; steps of a partition never overlap."""

    def __init__(self, control: ControllerGroup, router: Router, host: RaftHost) -> None:
        self._control = control
        self._router = router
        self._host = host
        self._busy: dict[int, asyncio.Task[None]] = {}
        self._tried: set[int] = set()
        self._seen = 0  # ``changed.count`` when work was looked for last

    async def run(self) -> None:
        """Look for work whenever the state has changed. Runs until cancelled."""
        changed = self._control.changed
        try:
            while True:
                self._seen = changed.count
                self._start_due()
                await changed.until(lambda: None if changed.count == self._seen else True, 1.0)
        finally:
            for task in self._busy.values():
                task.cancel()

    def _start_due(self) -> None:
        """On the leader, start a task for each partition with work, while fewer than PARTITIONS_AT_ONCE_MAX run."""
        # Partitions take turns, so that many that cannot be reached do not keep the others waiting.
        control, before = self._control, len(self._busy)
        while control.group.is_leader:
            for work in control.machine.work():
                group = work.group_id
                if len(self._busy) >= PARTITIONS_AT_ONCE_MAX:
                    return
                if group not in self._busy and group not in self._tried:
                    self._tried.add(group)
                    self._busy[group] = asyncio.create_task(self._step(work))
            if len(self._busy) > before or not self._tried:
                return
            self._tried.clear()

    async def _step(self, work: Work) -> None:
        try:
            if not await carry_out(work, self._control, self._router):
                await asyncio.sleep(PAUSE_S)
            elif isinstance(work, SlotInstall) and work.command.ends.partition(":")[0] in TAKEN:
                self._tell(work)
        except StockadeError as refusal:
            _log.info("%r has to be tried again: %s", work, refusal)
            await asyncio.sleep(PAUSE_S)
        except Exception:
            self._host.bugs += 1
            _log.exception("a step on group %d failed by a bug", work.group_id)
            await asyncio.sleep(PAUSE_S)
        finally:
            del self._busy[work.group_id]
            # The partition may have more to do: let run() look again.
            self._control.changed.notify()

    def _tell(self, work: SlotInstall) -> None:
        self._control.takeovers += 1
        name = self._control.machine.catalog.name_of(work.group_id)
        command = work.command
        event = {"event": "takeover", "partition": name, "epoch": command.epoch, "ends": command.ends}
        if isinstance(command, InstallFence):
            event |= {"client_id": command.client_id, "producer_name": command.producer_name}
            event |= {"principal": command.principal, "mode": command.mode}
        _log.info("takeover: %s", work.told(name), extra={"event": event})


async def carry_out(work: Work, control: ControllerGroup, router: Router) -> bool:
    """Propose work to its partition, and report the answer to the controller. Returns False if there is nothing to
    report: the work is out of date, or no producer was forgotten.

    Raises LeaderNotAvailable, RequestTimedOut, NotLeaderOrFollower.
    """
    located = control.machine.catalog.locate(work.group_id)
    voters = located[0].placements[located[1]] if located is not None else ()
    command = encode_command(work.command)
    answer = decode_result(await router.propose(work.group_id, voters, command, STEP_TIMEOUT_S))
    if isinstance(answer, StockadeError):
        raise answer
    report: Callable[[int], Command | None] = partial(work.report, answer)  # type: ignore[arg-type]
    if report(0) is None:
        return False
    await control.decide(report, Done)  # type: ignore[arg-type]
    return True
