"""One node as a front (HTTP today) sees it: what it answers itself, and where it sends callers otherwise."""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from ...partition.api.cluster import Cluster, Node
from ...partition.api.topics import Topic
from ...partition.errors import (
    InconsistentTopicId,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from ...partition.version import VERSION
from ...raft.host import RaftHost
from ...raft.net.streams import AcceptStream
from ...raft.wal.errors import DiskRefused
from ..condition import Condition
from ..config import NodeConfig
from ..controller.topology.catalog import group_id
from ..discovery.bootstrap import Bootstrap
from ..discovery.cluster_view import ClusterView
from ..discovery.registration import Registration
from ..leader.controller_group import ControllerGroup
from ..leader.topic_service import GroupStatusReader
from ..model import Leader
from ..replica.replica import Replica
from ..replica.replica_manager import ReplicaManager
from ..rpc import Placement
from .controller_member import ControllerMember, ControllerServices

_log = logging.getLogger(__name__)


class NodeFailure:
    """The first error with which this node cannot go on (a disk error, a broken invariant); None while it runs."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        """``on_failure`` is called once."""
        self.error: BaseException | None = None
        self._on_failure = on_failure

    def report(self, error: BaseException) -> None:
        """Stop for this error, unless another one came first."""
        if self.error is None:
            self.error = error
            is_explained = isinstance(error, DiskRefused)
            _log.critical("this node cannot go on: %s", error, exc_info=None if is_explained else error)
            self._on_failure(error)


class Startup(msgspec.Struct, frozen=True):
    """The steps by which a node finds its cluster."""

    bootstrap: Bootstrap
    registration: Registration

    def missing(self) -> str | None:
        """What is still to be done; None: nothing."""
        return self.bootstrap.status() or (
            None if self.registration.is_done else "not registered with the controller yet"
        )


class NodeService:
    """Implements api.Service."""

    def __init__(
        self,
        config: NodeConfig,
        failure: NodeFailure,
        host: RaftHost,
        view: ClusterView,
        startup: Startup,
        replicas: ReplicaManager,
        group_statuses: GroupStatusReader,
        member: ControllerMember,
        leadership: Condition,
    ) -> None:
        """``leadership`` is notified when a group of this node has another leader, or none."""
        self.node_id: str = config.node_id
        self._cluster_id = config.cluster_id
        self._failure = failure
        self._host = host
        self._view = view
        self._startup = startup
        self._replicas = replicas
        self._group_statuses = group_statuses
        self._member = member
        self._leadership = leadership
        self._was_loaded = False
        self.held: Callable[[str, int], Replica | None] = replicas.find
        """The replica of this node."""

    def at_controller(self) -> ControllerServices:
        """The services of the controller group. Raises NotLeaderOrFollower where this node holds no replica of it."""
        if self._member.services is not None:
            return self._member.services
        # Any member of the controller group knows its leader.
        leader = self.controller()
        likely = self._view.urls.get(next(iter(self._view.controllers), None))
        raise NotLeaderOrFollower(leader.url or likely, leader.term or None)

    def node_at(self, url: str) -> str | None:
        """The id of the other member of the cluster that has this base URL."""
        found = (entry.node_id for entry in self._view.members() if entry.url.rstrip("/") == url.rstrip("/"))
        return next((node_id for node_id in found if node_id != self.node_id), None)

    async def open_stream(self, node_id: str, protocol: asyncio.Protocol) -> None:
        """Give ``protocol`` an authenticated connection to the front of another node. Raises OSError."""
        await self._host.open_stream(node_id, protocol)

    def accept_streams(self, accept: AcceptStream) -> None:
        """Have the connections that other nodes open to this front served by these protocols."""
        self._host.accept_streams(accept)

    def controller(self) -> Leader:
        """Who leads the controller group, as far as this node knows."""
        control = self._member.control
        node_id, term = self._replicas.controller if control is None else (control.group.leader, control.group.term)
        return Leader(node_id, self._view.urls.get(node_id), term)

    @property
    def leadership_news(self) -> int:
        """How often a group of this node had another leader, or none."""
        return self._leadership.count

    async def await_leadership_news(self, seen: int, timeout_s: float) -> None:
        """Return when there are more news than ``seen``, or after the time."""
        await self._leadership.until(lambda: True if self._leadership.count != seen else None, timeout_s)

    def cluster(self) -> Cluster:
        """As this node sees it."""
        alive = self._host.connected | {self.node_id}
        nodes = [Node(m.node_id, m.url, m.raft, m.zone, m.node_id in alive, m.draining) for m in self._view.members()]
        moves = [found for move in self._view.moves if (found := self._replicas.reassignment(move)) is not None]
        leader, controllers = self.controller().info, self._view.controllers
        return Cluster(self._cluster_id, self.node_id, VERSION, leader, nodes, moves, controllers)

    def ready(self) -> str | None:
        """What is missing before this node can serve, None when nothing is."""
        if self._failure.error is not None:
            return f"stopped: {self._failure.error}"
        if self._view.is_removed:
            return "this node was removed from the cluster"
        if (missing := self._startup.missing()) is not None:
            return missing
        if self.controller().node_id is None:
            return "no controller leader is known"
        # A replica that is created or moved here later takes nothing from what this node serves already.
        loading = [] if self._was_loaded else [f"{r.topic}/{r.partition}" for r in self._replicas.all() if not r.ready]
        self._was_loaded = not loading
        return f"loading {', '.join(loading[:5])}" if loading else None

    async def partition(self, topic: str, partition: int, topic_id: int | None) -> Replica:
        """The replica of this node; otherwise raises where to ask, or that there is nothing to ask for."""
        replica = self.held(topic, partition)
        if replica is not None and topic_id in (None, replica.topic_id):
            return replica
        placement = self._replicas.topics.get(topic)
        if placement is None or partition >= len(placement.replicas) or topic_id not in (None, placement.topic_id):
            # This node may lag behind the controller: the controller's leader decides what there is.
            placement = await self.at_controller().topics.find(topic)
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
        return NotLeaderOrFollower(self._view.urls.get(likely or next(iter(alive), None)), None)

    async def get_topic(self, name: str) -> Topic:
        """Definition and leaders."""
        placement = self._replicas.topics.get(name)
        if placement is None:
            placement = await self.at_controller().topics.find(name)
        return await self._group_statuses.describe(placement)

    async def transfer_leader(self, topic: str | None, partition: int | None, node_id: str | None) -> Leader:
        """Answers when the other replica leads."""
        led: ControllerGroup | Replica
        if topic is None or partition is None:
            led = self.at_controller().control
        else:
            led = await self.partition(topic, partition, None)
        is_away = node_id not in {self.node_id, *self._host.connected}
        if led.group.is_leader and node_id in led.group.voters and is_away:
            raise NotEnoughReplicas(f"{node_id} is away")
        return await led.transfer_leadership(node_id)
