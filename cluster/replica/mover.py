"""Moves the replicas of the groups that this node leads, step by step, to where the controller wants them.

The mover remembers nothing: the target of a move is in the catalog, and its progress in the group's configuration, so
the next leader goes on. The catalog of this node may be out of date. So before each step the controller is asked,
through its log, whether the move is still wanted, and the step is taken only in the term in which the question was
asked. Suppose that another leader has finished a later move meanwhile, after which nodes erased the group. That leader
was elected in a later term than ours, so no entry that we append now can be committed. For the same reason, the report
that a move has ended needs a proof of leadership after the question.
"""

import asyncio
import logging
from functools import partial

from ...partition.errors import NotFound, StockadeError
from ...raft.core.group import Committed, Group, NotLeader
from ...raft.host import NO_ROOM, RaftHost
from ...raft.log.configuration import AddLearner, ChangeRefused, RemoveMember
from ..controller.commands import CheckMove, MoveDone
from ..controller.topology.moves import Add, Arrived, Move, Remove, Step, TransferLeadership, Wait, next_step
from ..discovery.cluster_view import ClusterView
from ..groups import Router

LOOK_S = 0.1
"""Between two looks at a group that moves."""
STEP_TIMEOUT_S = 10.0
"""Time for the decision of a step; after it, the group is looked at again."""

_log = logging.getLogger(__name__)


class Mover:
    """One task for each group that is being moved."""

    def __init__(self, node_id: str, host: RaftHost, view: ClusterView, router: Router) -> None:
        self._node_id = node_id
        self._host = host
        self._view = view
        self._router = router
        self._busy: dict[int, asyncio.Task[None]] = {}
        self._held_up: dict[int, tuple[str, ...]] = {}
        """By group: the nodes with full disks for which a removal waits, as they are in the log."""

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            while True:
                # Copying is work for disks and network: an operator says how much of it there is at a time.
                most, moves = self._view.balance.moves_at_once, self._view.moves
                wanted = {move.group_id for move in moves}
                self._held_up = {group: full for group, full in self._held_up.items() if group in wanted}
                for move in moves:
                    if len(self._busy) < most and move.group_id not in self._busy and self._can_go_on(move):
                        self._start(move)
                await self._view.changed.until(lambda: True if self._view.moves else None, 60.0)
                await asyncio.sleep(LOOK_S)
        finally:
            for task in self._busy.values():
                task.cancel()

    def _can_go_on(self, move: Move) -> bool:
        """Whether this node leads the group, and the move does not only wait for nodes that are away or whose disks are
        full. Such a wait copies nothing and may last for ever, so it takes no place among the moves at once.
        """
        group = self._host.groups.get(move.group_id)
        if group is None or not group.is_leader:
            return False
        match self._next(group, move):
            case Wait(node_ids) if node_ids:
                full = {node_id for node_id, room in self._host.disks.items() if room == NO_ROOM}
                return not (self._host.connected - full).isdisjoint(node_ids)
            case _:
                return True

    def _start(self, move: Move) -> None:
        task = asyncio.create_task(self._carry_out(move))
        self._busy[move.group_id] = task
        task.add_done_callback(partial(self._finished, move))

    def _finished(self, move: Move, task: "asyncio.Task[None]") -> None:
        del self._busy[move.group_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._host.bugs += 1
            _log.error("moving group %d failed by a bug", move.group_id, exc_info=error)

    async def _carry_out(self, move: Move) -> None:
        """Take step after step, for as long as the move is wanted and can go on."""
        while move in self._view.moves and self._can_go_on(move):
            try:
                await self._step(move)
            except NotFound:
                return
            except (StockadeError, NotLeader, TimeoutError, ConnectionError) as error:
                _log.info("a step of group %d has to be tried again: %s", move.group_id, error)
            await asyncio.sleep(LOOK_S)

    async def _step(self, move: Move) -> None:
        group = self._host.groups[move.group_id]
        term = group.term
        if isinstance(self._next(group, move), Wait):
            return
        check = CheckMove(now_ms=0, group_id=move.group_id, version=move.version)
        await self._router.decide(self._view.controllers, check, STEP_TIMEOUT_S)  # NotFound: it is wanted no longer
        if not group.is_leader or group.term != term:
            return
        # From here to the group's own proposal there is no await: the term is still that of the question.
        match self._next(group, move):
            case Add(node_id) if node_id in self._host.incarnations:
                await self._change(group, AddLearner(node_id, self._host.incarnations[node_id]))
            case Remove(node_id):
                await self._change(group, RemoveMember(node_id))
            case TransferLeadership(node_id):
                _log.info("group %d: handing over to %s", move.group_id, node_id)
                await group.transfer(node_id, STEP_TIMEOUT_S)
            case Arrived():
                await self._arrive(group, move, term)
            case Add() | Wait():
                pass

    def _next(self, group: Group, move: Move) -> Step:
        if group.changing:
            return Wait(())
        step = next_step(group.configuration, self._node_id, move.target, self._host.connected | {self._node_id})
        if not isinstance(step, Remove) or step.node_id not in group.configuration.voters:
            return step  # no commit waits for a learner
        full = tuple(group.needs_room_without(step.node_id))
        if leaving := [each for each in full if each not in move.target and self._goes_on_without(group, each)]:
            return Remove(leaving[0])
        if full and full != self._held_up.get(group.group_id):
            text = (
                "group %d: %s stays a voter until %s has room on its disk: it lacks much that every commit would need"
            )
            _log.info(text, group.group_id, step.node_id, ", ".join(full))
        self._held_up[group.group_id] = full
        return Wait(full) if full else step

    def _goes_on_without(self, group: Group, node_id: str) -> bool:
        """Whether a majority of the other voters is reached and waits for no full disk. If a removal that no majority
        can commit is in the log, the group waits for the voters that are away, perhaps for ever.
        """
        others = group.configuration.voters.keys() - {node_id}
        reached = others & (self._host.connected | {self._node_id})
        return 2 * len(reached) > len(others) and not group.needs_room_without(node_id)

    async def _change(self, group: Group, change: AddLearner | RemoveMember) -> None:
        _log.info("group %d: %r", group.group_id, change)
        outcome = await group.change(change, STEP_TIMEOUT_S)
        if isinstance(outcome, ChangeRefused):
            _log.info("group %d: not now: %s", group.group_id, outcome.reason)
        elif not isinstance(outcome, Committed):
            _log.info("group %d: %r", group.group_id, outcome)

    async def _arrive(self, group: Group, move: Move, term: int) -> None:
        await group.read_barrier(STEP_TIMEOUT_S)
        if group.term == term and isinstance(self._next(group, move), Arrived):
            done = MoveDone(now_ms=0, group_id=move.group_id, version=move.version)
            await self._router.decide(self._view.controllers, done, STEP_TIMEOUT_S)
            _log.info("group %d is on %s now", move.group_id, ", ".join(move.target))
