"""Topics as a node serves them: changes on the controller's leader, descriptions on any node."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import structs

from ...partition.api.topics import OF_LEVEL_2, Mode, PartitionState, Topic, TopicConfig, TopicPage, TopicSummary
from ...partition.errors import RequestTimedOut, UnknownTopicOrPartition
from ...partition.internal_names import INTERNAL_TOPIC_PREFIX
from .. import rpc
from ..access.store import PrincipalStore
from ..controller.commands import (
    ChangeTopic,
    CreateTopic,
    DeleteTopic,
    FenceRef,
    ReaderRef,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
)
from ..controller.topology.catalog import group_id, topic_partition
from ..features import TIERS, WIDE_GROUPS
from ..groups import Router
from ..model import NO_PRINCIPAL, By
from ..replica.replica_manager import ReplicaManager, by_node
from ..rpc import GroupStatus, Placement
from .controller_group import ControllerGroup

ASK_AGAIN_S = 0.05
"""Between two questions whether a new topic's partitions have leaders."""
ASK_TIMEOUT_S = 1.0
"""A node that does not answer with its status within this time counts as away."""


class GroupStatusReader:
    """Asks nodes for the status of groups that this node may not hold, and answers for this node."""

    def __init__(
        self,
        node_id: str,
        router: Router,
        replicas: ReplicaManager,
        urls: Mapping[str | None, str],
        principals: PrincipalStore,
    ) -> None:
        self._principals = principals
        self._node_id = node_id
        self._router = router
        self._replicas = replicas
        self._urls = urls

    def status_here(self, group_ids: Iterable[int]) -> rpc.Status:
        """The status of those of the groups that this node holds."""
        held = [replica for key in group_ids if (replica := self._replicas.get(key)) is not None]
        return rpc.Status(self._replicas.index, [replica.status() for replica in held], self._principals.table.index)

    async def status(self, node_id: str, group_ids: list[int]) -> rpc.Status | None:
        """The status of groups on a node; None if the node is away."""
        if node_id == self._node_id:
            return self.status_here(group_ids)
        try:
            answer = await self._router.ask(node_id, rpc.DescribeGroup(group_ids), ASK_TIMEOUT_S)
        except (ConnectionError, TimeoutError):
            return None
        assert isinstance(answer, rpc.Status), answer
        return answer

    async def until_all(self, node_ids: Iterable[str], holds: Callable[[rpc.Status], bool], timeout_s: float) -> bool:
        """Whether, within ``timeout_s``, ``holds`` is true of the answer of each node that can be reached."""
        asked, loop = list(node_ids), asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while loop.time() < deadline:
            answers = await asyncio.gather(*(self.status(node_id, []) for node_id in asked))
            if all(answer is None or holds(answer) for answer in answers):
                return True
            await asyncio.sleep(ASK_AGAIN_S)
        return False

    async def statuses(self, topic: Placement, partitions: Iterable[int] | None = None) -> list[GroupStatus | None]:
        """The status of these partitions of a topic (None: of all), in their order, from the nodes that hold them; None
        for a partition of which no node answered.
        """
        wanted = range(len(topic.replicas)) if partitions is None else partitions
        keys = {group_id(topic.topic_id, partition): topic.replicas[partition] for partition in wanted}
        asked = by_node(keys.items())
        answers = await asyncio.gather(*map(self.status, asked, asked.values()))
        best = _freshest(
            (node, status)
            for node, answer in zip(asked, answers, strict=True)
            if answer is not None
            for status in answer.groups
        )
        return [best.get(key) for key in keys]

    async def describe(self, topic: Placement) -> Topic:
        """A topic with the leaders of its partitions."""
        partitions = await self._partitions(topic, range(len(topic.replicas)))
        return Topic(topic.topic, topic.topic_id, topic.replication_factor, topic.is_sealed, topic.config, partitions)

    async def page(self, topic: Placement, first: int, most: int, find: str) -> TopicPage:
        """A topic with ``most`` of its partitions from the ``first`` on, of those that ``find`` fits. Other nodes are
        asked about the partitions of the page alone; with ``find``, about all.
        """
        total = len(topic.replicas)
        if find:
            fitting = [each for each in await self._partitions(topic, range(total)) if _fits(each, find.lower())]
            total, shown = len(fitting), fitting[first : first + most]
        else:
            shown = await self._partitions(topic, range(min(first, total), min(first + most, total)))
        known = topic.topic, topic.topic_id, topic.replication_factor, topic.is_sealed, topic.config
        return TopicPage(*known, total, shown)

    async def _partitions(self, topic: Placement, numbers: range) -> list[PartitionState]:
        statuses = await self.statuses(topic, numbers)
        return [
            self._partition(number, topic.replicas[number], status)
            for number, status in zip(numbers, statuses, strict=True)
        ]

    def _partition(self, partition: int, replicas: list[str], status: GroupStatus | None) -> PartitionState:
        if status is None:
            return PartitionState(partition, None, None, 0, replicas)
        url = self._urls.get(status.leader)
        mode: Mode | None = status.slot_mode  # type: ignore[assignment]
        return PartitionState(
            *(partition, url, status.leader, status.term, replicas, status.topic_epoch, mode, status.holder),
            log_start=status.log_start,
            log_end=status.log_end,
            lags=status.lags,
        )


def _fits(partition: PartitionState, text: str) -> bool:
    """Whether a text is a part of what an operator knows a partition by: its number, its leader, or its writer."""
    holder = partition.holder
    names = [str(partition.partition), partition.leader_node or "none"]
    if holder is not None:
        names += [holder.producer_name, holder.client_id or "", holder.grant]
    elif partition.slot_mode is None:
        names.append("free")
    return any(text in name.lower() for name in names)


def _freshest(statuses: Iterable[tuple[str, GroupStatus]]) -> dict[int, GroupStatus]:
    """By group, the status from the leader of the highest term, which alone is sure to have applied every acknowledged
    command. Without that leader, the status from a node that knows a leader; of several, the one with the highest
    epoch.
    """
    best: dict[int, GroupStatus] = {}
    for _, status in sorted(statuses, key=_rank, reverse=True):
        best.setdefault(status.group_id, status)
    return best


def _rank(reported: tuple[str, GroupStatus]) -> tuple[int, bool, bool, int]:
    node, status = reported
    return status.term, status.leader == node, status.leader is not None, status.topic_epoch


NARROW_TOPICS_MAX = (1 << 16) - 4096
"""An index of the controller's log: a topic created behind it, or little later, has groups with ids of more than 32
bits, which would stop each node of level 1 that has a replica of them.
"""


class TopicService:
    """Topics, as the controller's leader serves them: creates, changes, deletes and lists them."""

    def __init__(self, control: ControllerGroup, group_statuses: GroupStatusReader, retention_ms: int) -> None:
        """``retention_ms``: the retention of new topics whose creators leave it to the cluster."""
        self._control = control
        self._group_statuses = group_statuses
        self._retention_ms = retention_ms

    async def list_topics(self) -> list[TopicSummary]:
        """All topics, ascending by name; linearizable."""
        await self._control.barrier()
        machine = self._control.machine
        held = Counter(topic_partition(group)[0] for group in machine.slots.grants.holders)
        away = {each for each in machine.assignment.nodes.registered() if not self._control.is_present(each)}
        return [
            TopicSummary(
                *(each.name, each.topic_id, each.partitions, each.replication_factor, each.sealed),
                require_fence=each.config.require_fence,
                held=held[each.topic_id],
                single=[*map(len, each.placements)].count(1),
                no_majority=sum(2 * len(away & {*replicas}) >= len(replicas) for replicas in each.placements if away),
            )
            for each in machine.catalog.topics()
        ]

    async def find(self, name: str) -> Placement:
        """A topic by name; linearizable. Raises UnknownTopicOrPartition."""
        await self._control.barrier()
        return self._placement(name)

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None,
        config: TopicConfig,
        by: By = NO_PRINCIPAL,
        *,
        leaves_retention: bool = False,
    ) -> tuple[Topic, bool]:
        """Create a topic, unless it exists; returns it, and whether it is new, when every partition has a leader and
        the fences of its readers. Raises FeatureLevelTooLow, and NotEnoughReplicas if so many nodes are away that a
        partition would have no leader.
        """
        self._check_level(structs.asdict(config))
        if self._control.machine.applied_index >= NARROW_TOPICS_MAX:
            self._control.features.require(WIDE_GROUPS)
        await self._control.barrier()
        if leaves_retention:
            config = self._with_retention(name, config)
        nodes = self._control.eligible
        if self._control.machine.catalog.topic(name) is None:
            replication_factor = replication_factor or self._control.default_factor()
            nodes = self._control.nodes_for(replication_factor)
        created = await self._control.decide(
            lambda now: CreateTopic(
                now_ms=now,
                by=by,
                name=name,
                partitions=partitions,
                replication_factor=replication_factor,
                config=config,
                nodes=nodes,
                scattered=True,
            ),
            TopicCreated,
        )
        await self._until_fenced(created.topic_id)
        return await self._described_with_leaders(name, created.topic_id), created.created

    def _with_retention(self, name: str, config: TopicConfig) -> TopicConfig:
        """The configuration with the retention that the existing topic was created with, since the creator left it
        open, or else with the cluster's own. Topics that Stockade made for itself drop only what it tells them to.
        """
        existing = self._control.machine.catalog.topic(name)
        if existing is not None:
            known = existing.definition.config
            return structs.replace(config, retention_ms=known.retention_ms, retention_bytes=known.retention_bytes)
        is_internal = name.startswith(INTERNAL_TOPIC_PREFIX)
        return config if is_internal else structs.replace(config, retention_ms=self._retention_ms)

    async def change_topic(
        self,
        name: str,
        topic_id: int | None,
        *,
        partitions: int | None,
        seal: bool,
        config: Mapping[str, Any],
        by: By = NO_PRINCIPAL,
    ) -> Topic:
        """Change a topic; returns it when every partition has a leader and acts by the configuration, and new ones have
        the fences of their writers and readers (SEMANTICS 7.4). Raises FeatureLevelTooLow.
        """
        self._check_level(config)
        config = self._known_to_all(config)
        nodes = self._control.eligible
        if partitions is not None:
            await self._control.barrier()
            topic = self._control.machine.catalog.topic(name)
            if topic is not None and partitions > topic.partitions:
                nodes = self._control.nodes_for(topic.replication_factor)
        changed = await self._control.decide(
            lambda now: ChangeTopic(
                now_ms=now,
                by=by,
                name=name,
                topic_id=topic_id,
                partitions=partitions,
                seal=seal,
                config=dict(config),
                nodes=nodes,
                scattered=True,
            ),
            TopicChanged,
        )
        await self._until_configured(name, changed)
        if partitions is not None or "writer_group" in config:
            await self._until_fenced(changed.topic_id)
        return await self._described_with_leaders(name, changed.topic_id)

    def _check_level(self, config: Mapping[str, Any]) -> None:
        """Raises FeatureLevelTooLow for a local retention or a quota, unless all members know these: older software
        would lose the setting, upload nothing, or take all appends.
        """
        if any(config.get(name, -1) >= 0 for name in OF_LEVEL_2):
            self._control.features.require(TIERS)

    def _known_to_all(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The change without fields that older software does not know: it refuses the whole command for such a name,
        whatever its value, and a replica of this release would carry it out. Below their level all of them are -1.
        """
        if self._control.features.at_least(TIERS):
            return config
        return {name: value for name, value in config.items() if name not in OF_LEVEL_2}

    async def _until_fenced(self, topic_id: int) -> None:
        """Return when the topic's partitions have committed the fences that they lack now. Raises RequestTimedOut."""
        machine = self._control.machine
        topic = machine.catalog.by_id.get(topic_id)
        groups = topic.groups() if topic is not None else []
        due, owed = machine.slots.fences.due, machine.reader_fences.owed
        fences = [FenceRef(group, due[group].order) for group in groups if group in due]
        readers = [
            ReaderRef(group, name, fence.fence_epoch) for group in groups for name, fence in owed.get(group, {}).items()
        ]
        await self._control.installed(fences, readers)

    async def _until_configured(self, name: str, changed: TopicChanged) -> None:
        deadline = asyncio.get_running_loop().time() + self._control.timeout_s
        while asyncio.get_running_loop().time() < deadline:
            placement = self._control.placement(name)
            if placement is None or placement.topic_id != changed.topic_id:
                return
            statuses = await self._group_statuses.statuses(placement)
            orders = [status.config_order if status is not None else -1 for status in statuses]
            if min(orders) >= changed.config_order:
                return
            await asyncio.sleep(ASK_AGAIN_S)
        raise RequestTimedOut("changed, but not every partition acts by it yet")

    async def delete_topic(
        self, name: str, topic_id: int | None, if_grants: str | None = None, by: By = NO_PRINCIPAL
    ) -> None:
        """Delete a topic; answers when every node that can be reached has dropped its replicas. Raises PlanChanged."""
        await self._control.decide(
            lambda now: DeleteTopic(now_ms=now, by=by, name=name, topic_id=topic_id, if_grants=if_grants), TopicDeleted
        )
        index = self._control.machine.catalog_index
        nodes, timeout_s = self._control.machine.assignment.nodes.rows, self._control.timeout_s
        if not await self._group_statuses.until_all(nodes, lambda each: each.catalog_index >= index, timeout_s):
            raise RequestTimedOut("deleted, but not every node has dropped its replicas yet")

    async def _described_with_leaders(self, name: str, topic_id: int) -> Topic:
        deadline = asyncio.get_running_loop().time() + self._control.timeout_s
        while asyncio.get_running_loop().time() < deadline:
            placement = self._control.placement(name)
            if placement is None or placement.topic_id != topic_id:
                raise RequestTimedOut("created, but deleted again before every partition had a leader")
            info = await self._group_statuses.describe(placement)
            if all(partition.leader for partition in info.partitions):
                return info
            await asyncio.sleep(ASK_AGAIN_S)
        raise RequestTimedOut("created, but not every partition has a leader yet")

    def _placement(self, name: str) -> Placement:
        placement = self._control.placement(name)
        if placement is None:
            raise UnknownTopicOrPartition(topic=name, partition=None)
        return placement
