"""What the HTTP interface may ask of this node (service.Service): each call goes to the part that knows."""

from collections.abc import Sequence

from ..partition.errors import InconsistentTopicId, NotEnoughReplicas, NotLeaderOrFollower, UnknownTopicOrPartition
from ..partition.version import VERSION
from ..raft.host import RaftHost
from .book import Book
from .catalog import group_id
from .config import NodeConfig
from .control import Control
from .delegating import Controlling, Delegating
from .messages import Placement
from .model import (
    ClusterInfo,
    Leader,
    NodeInfo,
    Reassignment,
    TopicConfig,
    TopicInfo,
    TopicSummary,
)
from .producer_states import ProducerStates
from .replica import Replica
from .replicas import Replicas
from .seat import Seat
from .signal import Signal
from .starting import Starting
from .topics import Observer

DECIDED_MAX_S = 1.0
"""How long an answer waits for this node to take over what it tells about."""


class NodeService(Delegating):
    """Implements service.Service."""

    def __init__(
        self,
        config: NodeConfig,
        host: RaftHost,
        book: Book,
        replicas: Replicas,
        observer: Observer,
        producers: ProducerStates,
        seat: Seat,
    ) -> None:
        self.node_id: str = config.node_id
        self.failure: BaseException | None = None
        self.leadership: Signal = Signal()
        self.starting: Starting | None = None
        self._was_loaded = False
        self._book = book
        self._seat = seat
        self._offices: Controlling | None = None
        self._config = config
        self._host = host
        self._replicas = replicas
        self._observer = observer
        self._producers = producers

    @property
    def controlling(self) -> Controlling | None:
        """The operations of the controller group; None while this node holds no replica of it."""
        control = self._seat.control
        if control is None:
            self._offices = None
        elif self._offices is None or self._offices.control is not control:
            self._offices = Controlling.of(control, self._observer, self._producers)
        return self._offices

    @property
    def leadership_news(self) -> int:
        """How often a group of this node had another leader, or none."""
        return self.leadership.count

    async def await_leadership_news(self, seen: int, timeout_s: float) -> None:
        """Return when there are more news than ``seen``, or after the time."""
        await self.leadership.until(lambda: True if self.leadership.count != seen else None, timeout_s)

    def cluster(self) -> ClusterInfo:
        """As this node sees it."""
        alive = self._host.connected | {self.node_id}
        nodes = [
            NodeInfo(m.node_id, m.url, m.raft, m.zone, m.node_id in alive, m.draining) for m in self._book.members()
        ]
        moves = [found for move in self._book.moves if (found := self._replicas.reassignment(move)) is not None]
        return ClusterInfo(self._config.cluster_id, self.node_id, VERSION, self.controller(), nodes, moves)

    def ready(self) -> str | None:
        """What is missing before this node can serve, None when nothing is."""
        if self.failure is not None:
            return f"stopped: {self.failure}"
        if self.starting is None:
            return "recovering its log"
        missing = self.starting.missing(self._book)
        if missing is not None:
            return missing
        if self.controller().node_id is None:
            return "no controller leader is known"
        # What comes here later, or is moved here, takes nothing from what this node serves already.
        loading = [] if self._was_loaded else [f"{r.topic}/{r.partition}" for r in self._replicas.all() if not r.ready]
        self._was_loaded = not loading
        return f"loading {', '.join(loading[:5])}" if loading else None

    def controller(self) -> Leader:
        """Who leads the controller group, as far as this node knows."""
        if self.controlling is not None:
            return self.controlling.control.leader()
        node_id, term = self._replicas.controller
        return Leader(node_id, self._book.url_of(node_id), term)

    def held(self, topic: str, partition: int) -> Replica | None:
        """The replica of this node."""
        return self._replicas.find(topic, partition)

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
        return NotLeaderOrFollower(self._book.url_of(likely or next(iter(alive), None)), None)

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

    async def add_node(self, node_id: str, url: str, raft_address: str, zone: str | None) -> ClusterInfo:
        """Make a node known."""
        controlling = self._controller()
        await controlling.members.add(node_id, url, raft_address, zone)
        return await self._as_decided(controlling)

    async def remove_node(self, node_id: str) -> ClusterInfo:
        """Begin to empty a node."""
        controlling = self._controller()
        await controlling.members.remove(node_id)
        return await self._as_decided(controlling)

    async def reassign(self, topic: str, partition: int, replicas: Sequence[str]) -> Reassignment:
        """Begin to move a partition."""
        controlling = self._controller()
        moved = await controlling.members.reassign(topic, partition, replicas)
        await self._as_decided(controlling)
        return moved

    async def transfer_leader(self, topic: str | None, partition: int | None, node_id: str | None) -> Leader:
        """Answers when the other replica leads."""
        office: Control | Replica
        if topic is None or partition is None:
            office = self._controller().control
        else:
            office = await self.partition(topic, partition, None)
        is_away = node_id not in {self.node_id, *self._host.connected}
        if office.group.is_leader and node_id in office.group.voters and is_away:
            raise NotEnoughReplicas(f"{node_id} is away")
        return await office.hand_over(node_id)

    async def _as_decided(self, controlling: Controlling) -> ClusterInfo:
        """The cluster once this node has taken over what was just decided."""
        index = controlling.control.machine.catalog_index
        await self._book.changed.until(lambda: True if self._book.index >= index else None, DECIDED_MAX_S)
        return self.cluster()

    def _controller(self) -> Controlling:
        if self.controlling is not None:
            return self.controlling
        # Any member of the controller group knows its leader.
        leader = self.controller()
        likely = self._book.url_of(next(iter(self._book.controllers), None))
        raise NotLeaderOrFollower(leader.url or likely, leader.term or None)
