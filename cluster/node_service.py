"""What the HTTP interface may ask of this node (service.Service): each call goes to the part that knows."""

from collections.abc import Sequence

import msgspec

from ..partition.errors import InconsistentTopicId, NotLeaderOrFollower, UnknownTopicOrPartition
from ..partition.version import VERSION
from ..raft.host import RaftHost
from .catalog import group_id
from .config import NodeConfig
from .control import Control
from .exclusive import Exclusive
from .messages import Placement
from .model import (
    ClusterInfo,
    GrantInfo,
    Leader,
    Mode,
    NodeInfo,
    ProducerPair,
    SessionInfo,
    TicketInfo,
    TopicConfig,
    TopicInfo,
    TopicSummary,
)
from .producers import Producers
from .replica import Replica
from .replicas import Replicas
from .topics import Observer, Topics


class Controlling(msgspec.Struct, frozen=True):
    """The operations of the controller group, on a node that is a member of it."""

    control: Control
    topics: Topics
    exclusive: Exclusive
    producers: Producers

    @staticmethod
    def of(control: Control, observer: Observer, nodes: Sequence[tuple[str, str | None]]) -> "Controlling":
        """All of them over one controller replica; ``nodes`` are the cluster's node ids with their zones."""
        return Controlling(control, Topics(control, observer, nodes), Exclusive(control), Producers(control))


class NodeService:
    """Implements service.Service. ``controlling`` is None on a node outside the controller group."""

    def __init__(self, config: NodeConfig, host: RaftHost, replicas: Replicas, observer: Observer) -> None:
        self.node_id = config.node_id
        self.controlling: Controlling | None = None
        self.failure: BaseException | None = None
        self._config = config
        self._host = host
        self._replicas = replicas
        self._observer = observer
        self._urls: dict[str | None, str] = {member.node_id: member.url for member in config.members}

    def cluster(self) -> ClusterInfo:
        """As this node sees it."""
        alive = self._host.connected | {self.node_id}
        nodes = [
            NodeInfo(m.node_id, m.url, m.raft, m.zone, m.node_id in alive)
            for m in sorted(self._config.members, key=lambda member: member.node_id)
        ]
        return ClusterInfo(self._config.cluster_id, self.node_id, VERSION, self.controller(), nodes)

    def ready(self) -> str | None:
        """What is missing before this node can serve, None when nothing is."""
        if self.failure is not None:
            return f"stopped: {self.failure}"
        if self.controller().node_id is None:
            return "no controller leader is known"
        loading = [f"{r.topic}/{r.partition}" for r in self._replicas.all() if not r.group.ready]
        return f"loading {', '.join(loading[:5])}" if loading else None

    def controller(self) -> Leader:
        """Who leads the controller group, as far as this node knows."""
        if self.controlling is not None:
            return self.controlling.control.leader()
        node_id, term = self._replicas.controller
        return Leader(node_id, self._urls.get(node_id), term)

    async def partition(self, topic: str, partition: int, topic_id: int | None) -> Replica:
        """The replica of this node; otherwise raises where to ask, or that there is nothing to ask for."""
        replica = self._replicas.find(topic, partition)
        if replica is not None and topic_id in (None, replica.topic_id):
            return replica
        placement = self._replicas.topics.get(topic)
        if placement is None or partition >= len(placement.replicas) or topic_id not in (None, placement.topic_id):
            # This node may lag behind the controller: the controller's leader decides what there is.
            placement = await self._controller().topics.find(topic)
        if partition >= len(placement.replicas):
            raise UnknownTopicOrPartition(topic=topic, partition=partition)
        if topic_id not in (None, placement.topic_id):
            raise InconsistentTopicId(topic_id=placement.topic_id)
        raise self._ask_a_replica(placement, partition)

    def _ask_a_replica(self, placement: Placement, partition: int) -> NotLeaderOrFollower:
        """Send the caller to a node that holds the partition; it knows the leader."""
        replicas = placement.replicas[partition]
        held = self._replicas.get(group_id(placement.topic_id, partition))
        likely = held.group.leader if held is not None else None
        alive = [node_id for node_id in replicas if node_id in self._host.connected]
        return NotLeaderOrFollower(self._urls.get(likely or next(iter(alive), None)), None)

    async def list_topics(self) -> list[TopicSummary]:
        """Ascending by name; linearizable."""
        return await self._controller().topics.list_topics()

    async def get_topic(self, name: str) -> TopicInfo:
        """Definition and leaders."""
        placement = self._replicas.topics.get(name)
        if placement is None:
            placement = await self._controller().topics.find(name)
        return await self._observer.describe(placement)

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int | None, config: TopicConfig
    ) -> tuple[TopicInfo, bool]:
        """The topic, and whether it is new."""
        return await self._controller().topics.create(name, partitions, replication_factor, config)

    async def delete_topic(self, name: str, topic_id: int | None) -> None:
        """Answers when the reachable nodes have dropped their replicas."""
        await self._controller().topics.delete(name, topic_id)

    async def open_session(self, client_id: str, ttl_ms: int) -> SessionInfo:
        """A new session."""
        return await self._controller().exclusive.open_session(client_id, ttl_ms)

    async def renew_session(self, session: str) -> SessionInfo:
        """Full ttl from now."""
        return await self._controller().exclusive.renew_session(session)

    async def close_session(self, session: str) -> None:
        """Answers when its slots are cleared."""
        await self._controller().exclusive.close_session(session)

    async def acquire(
        self,
        topic: str,
        session: str,
        partitions: Sequence[int] | None,
        mode: Mode,
        producer_name: str,
        *,
        resume_epoch: int | None,
        topic_id: int | None,
    ) -> GrantInfo | TicketInfo:
        """All partitions of the set or none."""
        return await self._controller().exclusive.acquire(
            topic, session, partitions, mode, producer_name, resume_epoch=resume_epoch, topic_id=topic_id
        )

    async def get_ticket(self, ticket: str, session: str, wait_ms: int) -> TicketInfo:
        """State of a ticket."""
        return await self._controller().exclusive.get_ticket(ticket, session, wait_ms)

    async def release(self, grant: str, session: str) -> None:
        """Answers when the slots are cleared."""
        await self._controller().exclusive.release(grant, session)

    async def init_producer(
        self, name: str | None, pair: tuple[int, int] | None, timeout_ms: int, nonce: str | None
    ) -> ProducerPair:
        """InitProducerId."""
        return await self._controller().producers.init_producer(name, pair, timeout_ms, nonce)

    def _controller(self) -> Controlling:
        if self.controlling is not None:
            return self.controlling
        # Any member of the controller group knows its leader.
        leader = self.controller()
        raise NotLeaderOrFollower(leader.url or self._urls[self._config.controllers[0]], leader.term or None)
