"""The operator's part of a fake node: remembers what it was asked, and refuses as a node would."""

from collections.abc import Mapping, Sequence
from typing import Any

from stockade.cluster.model import NO_PRINCIPAL, By, Leader
from stockade.partition.api.cluster import (
    BalancePlan,
    BalanceSettings,
    ControllersPlan,
    NotedBackup,
    PlannedMove,
    PlannedTransfer,
    Reassignment,
    Relocation,
    RemovalPlan,
)
from stockade.partition.errors import (
    FeatureLevelTooLow,
    FeatureUpdateFailed,
    NotFound,
    NotLeaderOrFollower,
    PlanChanged,
    UnknownTopicOrPartition,
)


class FakeOperating:
    """A base of FakeService. Node ids that begin with "x" are unknown."""

    node_id: str
    shared: Any
    bug: Exception | None

    async def add_node(
        self, node_id: str, url: str, raft_address: str, zone: str | None, by: By = NO_PRINCIPAL
    ) -> None:
        self._decided("add", node_id, url, raft_address, zone)

    async def remove_node(self, node_id: str, if_plan: str | None = None, by: By = NO_PRINCIPAL) -> None:
        self._decided("remove", node_id)
        self._check_plan(if_plan)

    async def remove_zone(self, zone: str, if_plan: str | None = None, by: By = NO_PRINCIPAL) -> None:
        self._decided("remove_zone", zone)
        self._check_plan(if_plan)

    async def removal(self, node_id: str | None, zone: str | None) -> RemovalPlan:
        self._decided("removal", node_id, zone)
        moves = [Relocation(None, None, ["n1"], ["n2"]), Relocation("orders", 0, ["n1"], ["n2"])]
        return RemovalPlan("planned", ["n1"], moves)

    def _check_plan(self, if_plan: str | None) -> None:
        if if_plan not in (None, "planned"):
            raise PlanChanged(plan="planned")

    async def raise_feature_level(self, level: int, by: By = NO_PRINCIPAL) -> None:
        self._decided("raise_feature_level", level)
        if level > 2:
            raise FeatureUpdateFailed("not every member supports it", nodes=["n2"], feature_level=1)

    async def reassign(
        self, topic: str, partition: int, replicas: Sequence[str], by: By = NO_PRINCIPAL
    ) -> Reassignment:
        self._decided("reassign", *replicas)
        if topic not in self.shared.topics:
            raise UnknownTopicOrPartition(topic=topic, partition=None)
        return Reassignment(topic, partition, list(replicas))

    async def balance_plan(self) -> BalancePlan:
        self._decided("balance_plan")
        moves = [PlannedMove("orders", 0, ["n1", "n2", "n3"], ["n1", "n2", "n4"], 7, "spread")]
        leaders = [PlannedTransfer("orders", 1, "n1", "n2")]
        return BalancePlan("planned", BalanceSettings(), moves, leaders, 7, 0, 0, {"n5": "away"})

    async def balance(self, if_plan: str, by: By = NO_PRINCIPAL) -> BalancePlan:
        self._decided("balance", if_plan)
        self._check_plan(if_plan)
        return await self.balance_plan()

    async def change_balance(self, changes: Mapping[str, object], by: By = NO_PRINCIPAL) -> BalanceSettings:
        self._decided("change_balance", dict(changes))
        return BalanceSettings(**changes)  # type: ignore[arg-type]

    async def note_backup(self, made: NotedBackup, by: By = NO_PRINCIPAL) -> list[NotedBackup]:
        self._decided("note_backup", made.place)
        if made.place == "level 1":
            raise FeatureLevelTooLow(feature_level=1, needed=2)
        return [made]

    async def backups(self) -> list[NotedBackup]:
        self._decided("backups")
        return [NotedBackup("s3://b", "one", 1, 2, 3, 4, 5, "backup")]

    async def controllers_plan(self, node_ids: Sequence[str] | None) -> ControllersPlan:
        self._decided("controllers_plan", *(node_ids or ()))
        target = ["n1", "n2", "n3"] if node_ids is None else list(node_ids)
        return ControllersPlan("planned", ["n1"], target, outlives_a_zone=True, is_chosen=node_ids is not None)

    async def choose_controllers(
        self, node_ids: Sequence[str] | None, if_plan: str | None = None, by: By = NO_PRINCIPAL
    ) -> None:
        self._decided("choose_controllers", *(node_ids or ()))
        self._check_plan(if_plan)

    async def transfer_leader(
        self, topic: str | None, partition: int | None, node_id: str | None, by: By = NO_PRINCIPAL
    ) -> Leader:
        self._decided("transfer", topic, partition, node_id)
        if topic is not None and topic not in self.shared.topics:
            raise UnknownTopicOrPartition(topic=topic, partition=None)
        return Leader(node_id or "n1", "http://127.0.0.1:1", 9)

    def _decided(self, *order: Any) -> None:
        if self.bug is not None:
            raise self.bug
        if self.node_id != self.shared.controller:
            raise NotLeaderOrFollower(self.shared.urls[self.shared.controller], 1)
        if any(isinstance(word, str) and word.startswith("x") for word in order):
            raise NotFound("there is no such node", what="node")
        self.shared.orders.append(order)
