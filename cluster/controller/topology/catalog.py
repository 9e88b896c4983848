"""Topics, the placement of their replicas, and the ids of their Raft groups. Pure state of the controller's machine.

This part, like the machine's other parts, raises refusals before anything is changed; the machine's apply returns them.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec
from msgspec import structs

from ....partition.api.topics import TopicConfig
from ....partition.errors import (
    InconsistentTopicId,
    InvalidRequest,
    NotEnoughReplicas,
    ThrottlingQuotaExceeded,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from ...access.quotas import check_most
from ..commands import ChangeTopic, CreateTopic, GroupId, TopicCreated
from . import placement
from .nodes import Nodes

CONTROLLER_GROUP: GroupId = 0
"""The Raft group of the controller."""
TOPICS_MAX = 10_000
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_MAX = 100_000
"""Partitions of all topics together.

An exclusive grant holds at least one partition alone, so this bounds exclusive grants, too. Shared grants are bounded
by SHARERS_PER_PARTITION_MAX (ownership/acquire.py).
"""
REPLICATION_FACTOR_MAX = 7
RETRY_AFTER_MS = 1000
"""Time after which a request that met a bound of the controller may be retried."""

_PARTITION_BITS = 16
_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")


def group_id(topic_id: int, partition: int) -> GroupId:
    """The Raft group of a partition. Never 0: a topic id is a log index, and the first log index is 1."""
    assert topic_id > 0
    assert 0 <= partition < 1 << _PARTITION_BITS
    return topic_id << _PARTITION_BITS | partition


def topic_partition(group: GroupId) -> tuple[int, int]:
    """Inverse of group_id: (topic id, partition)."""
    return group >> _PARTITION_BITS, group & ((1 << _PARTITION_BITS) - 1)


class Definition(msgspec.Struct, frozen=True):
    """The values with which a topic was created. To create it with the same values again is a retry, also after the
    topic was changed.
    """

    partitions: int
    replication_factor: int
    config: TopicConfig


class Topic(msgspec.Struct):
    """A topic. Entry k is about partition k: in ``placements`` its node ids; in ``epochs`` its last fencing epoch
    issued; in ``founders`` the first configuration of its group (node id -> incarnation of its disk), empty once its
    replicas have moved. ``config_order`` is the log index of the command that last changed ``config`` or ``sealed``.
    ``replication_factor`` is the number of replicas that a new partition gets.
    """

    name: str
    topic_id: int
    config: TopicConfig
    config_order: int
    replication_factor: int
    sealed: bool
    placements: list[list[str]]
    epochs: list[int]
    founders: list[dict[str, int]]
    created: Definition | None = None
    """None: the topic was created by software that did not keep this yet."""
    principal: str = ""
    """The principal that created the topic; "": none."""

    @property
    def definition(self) -> Definition:
        """The values with which it was created, or else, if those were not kept, its present ones."""
        return self.created or Definition(self.partitions, self.replication_factor, self.config)

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.placements)

    def groups(self) -> list[GroupId]:
        """The Raft groups of the partitions, in their order."""
        return [group_id(self.topic_id, partition) for partition in range(self.partitions)]


class Holdings:
    """By node: the groups of which it has, or is to have, a replica; and the number of those of which it is the first.

    This index follows each change of a placement, so that a decision about one node, or about one partition, looks at
    no other. It is derived from the catalog: no checkpoint has it.
    """

    def __init__(self) -> None:
        self._groups: defaultdict[str, set[GroupId]] = defaultdict(set)
        self._firsts: Counter[str] = Counter()

    def replace(self, group: GroupId, before: Sequence[str], after: Sequence[str]) -> None:
        """Note that a group's replicas went from ``before`` to ``after`` (node ids, the first replica first)."""
        for node_id in before:
            self._groups[node_id].discard(group)
            if not self._groups[node_id]:
                del self._groups[node_id]
        for node_id in after:
            self._groups[node_id].add(group)
        self._firsts.subtract(before[:1])
        self._firsts.update(after[:1])

    def groups(self, node_id: str) -> Set[GroupId]:
        """The groups of one node, in no order that counts. Callers must not change the set."""
        return self._groups.get(node_id, frozenset())

    def loads(self) -> dict[str, placement.Load]:
        """The load of each node that holds a replica, by node id."""
        return {node_id: placement.Load(len(groups), self._firsts[node_id]) for node_id, groups in self._groups.items()}


class Catalog:
    """All topics, by name and by id, and the load of the nodes by their placements."""

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        """Topics by id; others must not change it. Grants and tickets end before their topic, so they find it here."""
        self.holdings: Holdings = Holdings()
        self._partitions = 0

    def topics(self) -> list[Topic]:
        """All topics, ascending by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def topic(self, name: str) -> Topic | None:
        """The topic that has this name now; None: there is none."""
        return self._by_name.get(name)

    def locate(self, group: GroupId) -> tuple[Topic, int] | None:
        """Topic and partition of a Raft group; None: it was deleted, or never existed."""
        topic_id, partition = topic_partition(group)
        topic = self.by_id.get(topic_id)
        if topic is None or partition >= topic.partitions:
            return None
        return topic, partition

    def name_of(self, group: GroupId) -> str:
        """TOPIC/PARTITION of a Raft group, for people; of a partition that is gone, the number of its group."""
        located = self.locate(group)
        return f"group {group:x}" if located is None else f"{located[0].name}/{located[1]}"

    def create(self, index: int, command: CreateTopic, nodes: Nodes, level: int) -> TopicCreated:
        """Create a topic, unless one of this name and definition exists. ``nodes`` has the incarnations of the nodes'
        disks, and tells which nodes drain or were removed, and so get no replica; ``level`` is the feature level.

        Raises InvalidRequest, TopicAlreadyExists, NotEnoughReplicas, ThrottlingQuotaExceeded.
        """
        command = structs.replace(command, nodes=nodes.left_of(command.nodes, level))
        existing = self._by_name.get(command.name)
        factor = _replication_factor(command, existing)
        _check_shape(command, factor)
        definition = Definition(command.partitions, factor, command.config)
        if existing is not None:
            if existing.definition != definition:
                detail = f"Topic {existing.name} exists with another definition"
                raise TopicAlreadyExists(detail, topic_id=existing.topic_id)
            return TopicCreated(existing.topic_id, created=False)
        if command.by.most is not None:
            mine = sum(topic.principal == command.by.principal for topic in self._by_name.values())
            check_most(command.by, mine, "topics")
        if len(self._by_name) >= TOPICS_MAX:
            raise ThrottlingQuotaExceeded(f"the cluster has {TOPICS_MAX} topics already", retry_after_ms=RETRY_AFTER_MS)
        self._check_room(command.partitions, factor, command.nodes)
        placements = placement.place(
            command.partitions, factor, command.nodes, self.holdings.loads(), scattered=command.scattered
        )
        self._add(
            Topic(
                name=command.name,
                topic_id=index,
                config=command.config,
                config_order=index,
                replication_factor=factor,
                sealed=False,
                placements=placements,
                epochs=[0] * command.partitions,
                founders=_founders(placements, nodes),
                created=definition,
                principal=command.by.principal,
            )
        )
        return TopicCreated(index, created=True)

    def change(self, index: int, command: ChangeTopic, nodes: Nodes, level: int) -> list[int]:
        """Change a topic. Returns the numbers of the added partitions. ``nodes`` and ``level`` as in ``create``."""
        topic = self.find(command.name, command.topic_id)
        wanted = topic.partitions if command.partitions is None else command.partitions
        if not topic.partitions <= wanted <= PARTITIONS_PER_TOPIC_MAX:
            raise InvalidRequest(f"partitions: not in {topic.partitions} to {PARTITIONS_PER_TOPIC_MAX}")
        config = _merged(topic.config, command.config)
        more = wanted - topic.partitions
        if more:
            self._extend(topic, more, structs.replace(command, nodes=nodes.left_of(command.nodes, level)), nodes)
        sealed = topic.sealed or command.seal
        if (config, sealed) != (topic.config, topic.sealed):
            topic.config, topic.sealed, topic.config_order = config, sealed, index
        return list(range(wanted - more, wanted))

    def delete(self, topic: Topic) -> None:
        """Remove a topic."""
        del self._by_name[topic.name]
        del self.by_id[topic.topic_id]
        self._partitions -= topic.partitions
        for group, replicas in zip(topic.groups(), topic.placements, strict=True):
            self.holdings.replace(group, replicas, ())

    def move(self, topic: Topic, partition: int, replicas: list[str]) -> None:
        """Note that the replicas of a partition are on these nodes now."""
        self.holdings.replace(group_id(topic.topic_id, partition), topic.placements[partition], replicas)
        topic.placements[partition] = replicas

    def find(self, name: str, topic_id: int | None) -> Topic:
        """The topic of this name. Raises UnknownTopicOrPartition, or InconsistentTopicId when ``topic_id`` (None: any)
        is that of another incarnation.
        """
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(topic=name, partition=None)
        if topic_id is not None and topic_id != topic.topic_id:
            raise InconsistentTopicId(topic_id=topic.topic_id)
        return topic

    def save(self) -> list[Topic]:
        """The state on which future answers depend."""
        return self.topics()

    def load(self, topics: list[Topic]) -> None:
        """Inverse of ``save``, on an empty catalog."""
        for topic in topics:
            self._add(topic)

    def _add(self, topic: Topic) -> None:
        self._by_name[topic.name] = self.by_id[topic.topic_id] = topic
        self._hold(topic, 0)

    def _extend(self, topic: Topic, more: int, command: ChangeTopic, nodes: Nodes) -> None:
        where, factor = command.nodes, topic.replication_factor
        self._check_room(more, factor, where)
        placements = placement.place(more, factor, where, self.holdings.loads(), scattered=command.scattered)
        topic.placements += placements
        topic.epochs += [0] * more
        topic.founders += _founders(placements, nodes)
        self._hold(topic, topic.partitions - more)

    def _hold(self, topic: Topic, start: int) -> None:
        """Count the partitions from ``start`` on, which are new, and add them to the holdings."""
        self._partitions += topic.partitions - start
        for partition in range(start, topic.partitions):
            self.holdings.replace(group_id(topic.topic_id, partition), (), topic.placements[partition])

    def _check_room(self, partitions: int, factor: int, nodes: list[placement.Node]) -> None:
        if factor > len(nodes):
            raise NotEnoughReplicas(f"replication factor {factor} with {len(nodes)} nodes")
        if self._partitions + partitions > PARTITIONS_MAX:
            raise ThrottlingQuotaExceeded(
                f"the cluster would have over {PARTITIONS_MAX} partitions", retry_after_ms=RETRY_AFTER_MS
            )


def _founders(placements: list[list[str]], nodes: Nodes) -> list[dict[str, int]]:
    return [{node_id: nodes.incarnation(node_id) for node_id in replicas} for replicas in placements]


RETIRED_FIELDS = frozenset({"durability"})
"""Former fields of TopicConfig: old logs and checkpoints may still have them, and they change nothing."""


def _merged(config: TopicConfig, changes: Mapping[str, Any]) -> TopicConfig:
    """The configuration with these fields changed. Raises InvalidRequest for an unknown field or a wrong value."""
    fields = structs.asdict(config)
    unknown = changes.keys() - fields.keys() - RETIRED_FIELDS
    if unknown:
        raise InvalidRequest(f"config: there is no {', '.join(sorted(unknown))}")
    try:
        return msgspec.convert({**fields, **changes}, TopicConfig)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"config: {error}") from error


def _replication_factor(command: CreateTopic, existing: Topic | None) -> int:
    if command.replication_factor is not None:
        return command.replication_factor
    if existing is not None:
        return existing.definition.replication_factor
    return placement.default_factor(len(command.nodes))


def _check_shape(command: CreateTopic, factor: int) -> None:
    if not _NAME.match(command.name):
        raise InvalidRequest("name: 1 to 249 of letters, digits, '.', '_', '-'; not '.' or '..'")
    if not 1 <= command.partitions <= PARTITIONS_PER_TOPIC_MAX:
        raise InvalidRequest(f"partitions: not in 1 to {PARTITIONS_PER_TOPIC_MAX}")
    if not 1 <= factor <= REPLICATION_FACTOR_MAX or factor % 2 == 0:
        raise InvalidRequest(f"replication_factor: not an odd number in 1 to {REPLICATION_FACTOR_MAX}")
