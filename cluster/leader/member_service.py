"""Operators' requests to the controller's leader: to change nodes, placements and balance, and to note backups."""

import time
from collections.abc import Callable, Mapping, Sequence

from ...partition.api.cluster import (
    BalancePlan,
    BalanceSettings,
    ControllersPlan,
    NotedBackup,
    Reassignment,
    RemovalPlan,
)
from ...partition.errors import FeatureUpdateFailed, InvalidRequest
from ...partition.version import VERSION
from ...raft.host import Software
from ..controller.acts import check_name_is_free
from ..controller.backups import AHEAD_MS_MAX, NoteBackup
from ..controller.balance import ChooseControllers
from ..controller.commands import (
    AddNode,
    Arranged,
    Command,
    Done,
    RaiseFeatureLevel,
    Reassign,
    RemoveNode,
    RemoveZone,
)
from ..discovery.cluster_view import ClusterView
from ..features import BACKUPS, BALANCE, LEDGER, NEWEST_LEVEL, PRESENT_TARGETS
from ..model import NO_PRINCIPAL, By
from .balancer import Balancer
from .controller_group import ControllerGroup

CATCH_UP_MAX_S = 1.0
"""Time that an answer waits for this node's view of the cluster to contain the decision."""


class MemberService:
    """Changes nodes and replica placements for operators. A call answers when its decision is committed, not when it
    is carried out.
    """

    def __init__(
        self,
        control: ControllerGroup,
        view: ClusterView,
        balancer: Balancer,
        software_of: Callable[[str], Software | None],
    ) -> None:
        """``software_of``: the software of a node; None: this node is not connected to it."""
        self.balancer: Balancer = balancer
        self._control = control
        self._view = view
        self._software_of = software_of

    async def add_node(
        self, node_id: str, url: str, raft_address: str, zone: str | None, by: By = NO_PRINCIPAL
    ) -> None:
        """Make a node known. Raises InvalidRequest if another member has an address of it, ThrottlingQuotaExceeded."""
        await self._control.barrier()
        others = [each for each in self._control.machine.assignment.nodes.rows.values() if each.node_id != node_id]
        owners = {address: each.node_id for each in others for address in (_place(each.url), each.raft)}
        given = {"url": _place(url), "raft_address": raft_address}
        if taken := [f"{name}: {owners[at]} has {at}" for name, at in given.items() if at in owners]:
            raise InvalidRequest("; ".join(taken))
        await self._arrange(
            lambda now: AddNode(now_ms=now, by=by, node_id=node_id, url=url, raft=raft_address, zone=zone)
        )

    async def remove_node(self, node_id: str, if_plan: str | None = None, by: By = NO_PRINCIPAL) -> None:
        """Begin to remove a node. Raises NotFound, NotEnoughReplicas, PlanChanged."""
        away = self._away()
        await self._arrange(lambda now: RemoveNode(now_ms=now, by=by, node_id=node_id, if_plan=if_plan, away=away))

    async def remove_zone(self, zone: str, if_plan: str | None = None, by: By = NO_PRINCIPAL) -> None:
        """Begin to remove all nodes of a zone. Raises NotFound, NotEnoughReplicas, PlanChanged."""
        away = self._away()
        await self._arrange(lambda now: RemoveZone(now_ms=now, by=by, zone=zone, if_plan=if_plan, away=away))

    def _away(self) -> list[str]:
        """The nodes that are away: a removal moves replicas to them only if no other can take these. Empty below the
        feature level at which commands name them.
        """
        return self._control.away if self._control.features.at_least(PRESENT_TARGETS) else []

    async def removal(self, node_id: str | None, zone: str | None) -> RemovalPlan:
        """The plan of the removal of a node, or else of a zone. Raises NotFound, NotEnoughReplicas."""
        await self._control.barrier()
        assignment = self._control.machine.assignment
        order = RemoveZone(now_ms=0, zone=zone or "") if node_id is None else RemoveNode(now_ms=0, node_id=node_id)
        return assignment.removal(assignment.leaving(order), self._away())

    async def reassign(
        self, topic: str, partition: int, replicas: Sequence[str], by: By = NO_PRINCIPAL
    ) -> Reassignment:
        """Begin to move a partition. Raises UnknownTopicOrPartition, NotFound, InvalidRequest."""
        wanted = list(replicas)
        await self._arrange(lambda now: Reassign(now_ms=now, by=by, topic=topic, partition=partition, replicas=wanted))
        return Reassignment(topic, partition, wanted)

    async def raise_feature_level(self, level: int, by: By = NO_PRINCIPAL) -> None:
        """Raise the feature level, if all registered nodes are connected and support it. Where the level would stay,
        and there is no ledger yet to record the order, the service proposes nothing: older software, to which nodes may
        still go back, stops at the command. Raises InvalidRequest, FeatureUpdateFailed.
        """
        if level > NEWEST_LEVEL:
            raise InvalidRequest(f"level: the newest that this node's software ({VERSION}) supports is {NEWEST_LEVEL}")
        group, assignment = self._control.group, self._control.machine.assignment
        if group.is_leader:
            await self._control.barrier()
        elif (leader := group.leader) is None or self._lacks(leader, level) is None:
            raise self._control.not_leading()
        else:
            raise _not_yet(level, assignment.feature_level, {leader: str(self._lacks(leader, level))})
        if level < assignment.feature_level:
            detail = f"the cluster has feature level {assignment.feature_level}, and a level never goes down"
            raise FeatureUpdateFailed(detail, nodes=[], feature_level=assignment.feature_level)
        is_new = level > assignment.feature_level
        if not is_new and level < LEDGER:
            await self._until_seen()
            return
        registered = sorted(assignment.nodes.registered())
        lacking = {node_id: why for node_id in registered if (why := self._lacks(node_id, level)) is not None}
        if is_new and lacking:
            raise _not_yet(level, assignment.feature_level, lacking)
        check_name_is_free(self._control.machine.catalog, self._control.machine.ledger, assignment.feature_level)
        await self._arrange(lambda now: RaiseFeatureLevel(now_ms=now, by=by, level=level, supporting=registered))

    def _lacks(self, node_id: str, level: int) -> str | None:
        """The reason why a node keeps the cluster from having this level; None if it does not."""
        software = self._software_of(node_id)
        if software is None:
            return "it is away"
        if software.supports(level):
            return None
        return f"its software ({software.version or 'unknown'}) supports level {software.newest} at most"

    async def controllers_plan(self, node_ids: Sequence[str] | None) -> ControllersPlan:
        """The changes that the choice of these controllers (None: the cluster's own choice) would make. Raises
        FeatureLevelTooLow, NotFound, InvalidRequest.
        """
        await self._control.barrier()
        self._control.features.require(BALANCE)
        return self._control.machine.assignment.choice(node_ids)

    async def choose_controllers(
        self, node_ids: Sequence[str] | None, if_plan: str | None = None, by: By = NO_PRINCIPAL
    ) -> None:
        """Begin to move the controller group. Raises FeatureLevelTooLow, NotFound, InvalidRequest, PlanChanged."""
        await self._control.barrier()
        self._control.features.require(BALANCE)
        wanted = None if node_ids is None else list(node_ids)
        await self._arrange(lambda now: ChooseControllers(now_ms=now, by=by, node_ids=wanted, if_plan=if_plan))

    async def note_backup(self, made: NotedBackup, by: By = NO_PRINCIPAL) -> list[NotedBackup]:
        """Note a backup; returns all that are noted, the newest first. Raises FeatureLevelTooLow, InvalidRequest."""
        self._control.features.require(BACKUPS)
        ahead_ms = made.cut_ms - time.time_ns() // 1_000_000
        if ahead_ms > AHEAD_MS_MAX:
            raise InvalidRequest(f"cut_ms: {ahead_ms // 1000} s ahead of this cluster's clock")
        await self._control.decide(lambda now: NoteBackup(now_ms=now, by=by, made=made), Done)
        return self._backups()  # without a barrier: a refusal of it would say that nothing was changed

    async def backups(self) -> list[NotedBackup]:
        """The last backup of each place, the newest first; linearizable."""
        await self._control.barrier()
        return self._backups()

    def _backups(self) -> list[NotedBackup]:
        return sorted(self._control.machine.backups.rows.values(), key=lambda each: -each.cut_ms)

    async def balance_plan(self) -> BalancePlan:
        """The plan that would be carried out now. Raises FeatureLevelTooLow."""
        return await self.balancer.plan()

    async def balance(self, if_plan: str, by: By = NO_PRINCIPAL) -> BalancePlan:
        """Begin the whole plan with this digest. Raises FeatureLevelTooLow, PlanChanged."""
        plan = await self.balancer.carry_out(if_plan, by)
        await self._until_seen()
        return plan

    async def change_balance(self, changes: Mapping[str, object], by: By = NO_PRINCIPAL) -> BalanceSettings:
        """Change the settings that are named; returns all of them. Raises FeatureLevelTooLow, InvalidRequest."""
        settings = await self.balancer.change(dict(changes), by)
        await self._until_seen()
        return settings

    async def _arrange(self, make: Callable[[int], Command]) -> None:
        await self._control.decide(make, Arranged)
        await self._until_seen()

    async def _until_seen(self) -> None:
        index, view = self._control.machine.catalog_index, self._view
        await view.changed.until(lambda: True if view.index >= index else None, CATCH_UP_MAX_S)


def _place(url: str) -> str:
    """The host and port of a base URL, without its scheme."""
    return url.partition("://")[2].rstrip("/")


def _not_yet(level: int, present: int, lacking: Mapping[str, str]) -> FeatureUpdateFailed:
    why = "; ".join(f"{node_id}: {fault}" for node_id, fault in lacking.items())
    detail = f"not every member supports feature level {level}: {why}"
    return FeatureUpdateFailed(detail, nodes=[*lacking], feature_level=present)
