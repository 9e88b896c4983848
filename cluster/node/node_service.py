"""One node as a front (HTTP today) sees it: what it answers itself, and where it sends callers otherwise."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from ...partition.api.cluster import Cluster, FeatureLevels, Node, NodeSetting, PartitionCounts, Unready
from ...partition.api.topics import Topic, TopicPage
from ...partition.errors import (
    InconsistentTopicId,
    LeaderNotAvailable,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    StockadeError,
    UnknownTopicOrPartition,
)
from ...partition.log.fsutil import why_refused
from ...partition.version import VERSION
from ...raft.host import RaftHost, Software
from ...raft.net.streams import AcceptStream
from ...raft.wal.errors import DiskRefused, WalFailed, WalStalled
from ..access.store import PrincipalTable
from ..config import NodeConfig
from ..controller.balance import PlacedMove, Rebalance
from ..controller.topology.catalog import group_id
from ..discovery.bootstrap import Bootstrap
from ..discovery.cluster_view import ClusterView
from ..discovery.registration import Registration
from ..features import BALANCE, LEDGER
from ..leader.controller_group import ControllerGroup
from ..leader.ledger_service import LedgerNotes
from ..leader.topic_service import GroupStatusReader
from ..measures import Measures
from ..model import NO_PRINCIPAL, By, Leader
from ..replica.replica import Replica
from ..replica.replica_manager import ReplicaManager
from ..rpc import Placement
from ..settings import in_force
from .controller_member import ControllerMember, ControllerServices
from .disk_watch import STATES
from .measuring import Measuring

HOME_S = 2.0
"""Time that the controller group may take to note a partition's new home."""
LEADERLESS_NAMED_MAX = 100
"""Partitions without a leader that a node names."""
LEADER_GRACE_S = 10.0
"""Time after the start from which a partition without a leader no longer keeps the node from serving the others."""

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
            is_explained = isinstance(error, (DiskRefused, WalStalled))
            self._on_failure(error)  # first: the line may have to wait for the disk that hangs
            _log.critical("this node cannot go on: %s", why_stopped(error), exc_info=None if is_explained else error)


def why_stopped(error: BaseException) -> str:
    """The error with which a node cannot go on, for its operator: the sentence of one of the disk, or else its name,
    as of a bug. Blocks.
    """
    if isinstance(error, OSError):
        return why_refused(error)
    return str(error) if isinstance(error, (DiskRefused, WalFailed)) else repr(error)


class Startup(msgspec.Struct, frozen=True):
    """The steps by which a node finds its cluster."""

    bootstrap: Bootstrap
    registration: Registration

    def missing(self) -> str | None:
        """The step that is still to be done, for people; None: all are done."""
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
        measuring: Measuring,
    ) -> None:
        self.node_id: str = config.node_id
        self._cluster_id = config.cluster_id
        self._settings = in_force(config)
        self._failure = failure
        self._host = host
        self._view = view
        self._startup = startup
        self._replicas = replicas
        self._group_statuses = group_statuses
        self._member = member
        self._leadership = measuring.leaderships.changed
        timeout_s = config.limits.request_timeout_ms / 1000
        self.ledger: LedgerNotes = LedgerNotes(member.decide, timeout_s, lambda: host.level >= LEDGER)
        self.measuring: Measuring = measuring
        self.measures: Callable[..., Coroutine[Any, Any, Measures]] = measuring.look
        """The node's own numbers as they are now."""
        self._was_loaded = False
        self._started_s = time.monotonic()
        self.held: Callable[[str, int], Replica | None] = replicas.find
        """This node's replica of a partition, by topic and number; None: it holds none."""
        self.follow_principals: Callable[[Callable[[PrincipalTable], None]], None] = member.principals.tell
        """Registers a function to call with the controller's principals: now, and whenever newer ones are known."""

    def at_controller(self) -> ControllerServices:
        """The services of the controller group. Raises NotLeaderOrFollower where this node holds no replica of it, and
        LeaderNotAvailable if it was removed.
        """
        if self._member.services is not None:
            return self._member.services
        self._check_member()
        # Any member of the controller group knows its leader.
        leader = self.controller()
        likely = self._view.urls.get(next(iter(self._view.controllers), None))
        raise NotLeaderOrFollower(leader.url or likely, leader.term or None)

    def _check_member(self) -> None:
        """Raises LeaderNotAvailable if this node was removed: no other takes its connections, so none can answer."""
        if self._view.is_removed:
            raise LeaderNotAvailable("this node was removed from the cluster")

    def settings(self) -> list[NodeSetting]:
        """The settings that this node runs with, ascending by name."""
        return self._settings

    def node_at(self, url: str) -> str | None:
        """The id of the other member of the cluster that has this base URL."""
        found = (entry.node_id for entry in self._view.members() if entry.url.rstrip("/") == url.rstrip("/"))
        return next((node_id for node_id in found if node_id != self.node_id), None)

    async def open_stream(self, node_id: str, protocol: asyncio.Protocol) -> None:
        """Give ``protocol`` an authenticated connection to the front of another node. Raises OSError."""
        await self._host.open_stream(node_id, protocol)

    def accept_streams(self, accept: AcceptStream) -> None:
        """Serve the connections that other nodes open to this front: ``accept`` makes a protocol for a node id."""
        self._host.accept_streams(accept)

    def controller(self) -> Leader:
        """The leader of the controller group, as far as this node knows."""
        control = self._member.control
        node_id, term = self._replicas.controller if control is None else (control.group.leader, control.group.term)
        return Leader(node_id, self._view.urls.get(node_id), term)

    @property
    def leadership_news(self) -> int:
        """The number of times that a group of this node had another leader, or none."""
        return self._leadership.count

    async def await_leadership_news(self, seen: int, timeout_s: float) -> None:
        """Return when ``leadership_news`` is no longer ``seen``, or after ``timeout_s`` seconds."""
        await self._leadership.until(lambda: True if self._leadership.count != seen else None, timeout_s)

    def cluster(self) -> Cluster:
        """The cluster as this node sees it."""
        alive = self._host.connected | {self.node_id}
        disks = {**self._host.disks, self.node_id: self._host.disk}
        states = {node_id: STATES[min(level, len(STATES) - 1)] for node_id, level in disks.items()}
        nodes = [
            Node(
                m.node_id,
                m.url,
                m.raft,
                m.zone,
                m.node_id in alive,
                m.draining,
                states.get(m.node_id, "ok"),
                *_software(self._host.software_of(m.node_id)),
            )
            for m in self._view.members()
        ]
        moves = [found for move in self._view.moves if (found := self._replicas.reassignment(move)) is not None]
        leader, controllers = self.controller().info, self._view.controllers
        level = self._host.level
        return Cluster(self._cluster_id, self.node_id, VERSION, leader, nodes, moves, controllers, level)

    def counts(self) -> PartitionCounts:
        """Counts of the partitions that this node holds."""
        held = list(self._replicas.all())
        led = [replica.machine.fence for replica in held if replica.group.is_leader]
        leaderless = [replica for replica in held if replica.group.leader is None]
        return PartitionCounts(
            replicas=len(held),
            led=len(led),
            held=sum(fence.slot is not None for fence in led),
            under_replicated=sum(bool(r.group.out_of_sync) for r in held if r.group.is_leader),
            leaderless=len(leaderless),
            epochs=sum(replica.machine.fence.topic_epoch for replica in held),
            catalog_index=self._replicas.index,
            leaderless_names=[f"{each.topic}/{each.partition}" for each in leaderless[:LEADERLESS_NAMED_MAX]],
        )

    def unready(self) -> list[Unready]:
        """What this node is not ready for, with the reasons, the weightiest first.

        Partitions need no controller: a node that was a member before serves those that it holds even if it finds none.
        """
        if self._failure.error is not None:
            return [Unready("node", "stopped", f"stopped: {self._failure.error}")]
        if self._view.is_removed:
            return [Unready("node", "removed", "this node was removed from the cluster")]
        missing, found = self._startup.missing(), []
        if missing is not None and not self._view.index:
            return [Unready("node", "starting", missing)]
        if missing is not None:
            found.append(Unready("control", "starting", missing))
        if self.controller().node_id is None:
            found.append(Unready("control", "no_controller", "no controller leader is known"))
        return found + self._loading()

    def _loading(self) -> list[Unready]:
        """Why the partitions of this node are not ready: no other node was met, replicas are loading, or lack a leader.
        Once all were loaded, replicas that are created or moved here do not count: they take nothing from the others.

        A node that has met no other one since its start (its certificate is refused, say) is not ready, however late it
        is, and even if it leads partitions without other replicas: restarts of one node after the other wait for it. A
        node that leads the controllers is in the cluster, even if it is the only one left.
        """
        found = []
        is_alone = not self._host.has_met_others and self.controller().node_id != self.node_id
        if is_alone and len(self._view.urls) > 1:
            found.append(Unready("data", "loading", "no other node has been connected since this node started"))
        loading = [] if self._was_loaded else [replica.group for replica in self._replicas.all() if not replica.ready]
        self._was_loaded = not loading
        behind = [group for group in loading if group.leader is not None]
        is_late = time.monotonic() > self._started_s + LEADER_GRACE_S
        if behind or (loading and not is_late):
            found.append(Unready("data", "loading", f"loading {len(loading)} partitions"))
        if is_late and len(loading) > len(behind):
            what = f"{len(loading) - len(behind)} partitions have had no leader since this node started"
            found.append(Unready("partition", "no_leader", what))
        return found

    async def partition(self, topic: str, partition: int, topic_id: int | None) -> Replica:
        """This node's replica of the partition. Raises NotLeaderOrFollower with the node to ask, if there is none here;
        LeaderNotAvailable, if this node was removed; UnknownTopicOrPartition, InconsistentTopicId.
        """
        replica = self.held(topic, partition)
        if replica is not None and topic_id in (None, replica.topic_id):
            return replica
        placement = self._replicas.topics.get(topic)
        if placement is None or partition >= len(placement.replicas) or topic_id not in (None, placement.topic_id):
            # This node may lag behind the controller: the controller's leader knows which partitions exist.
            placement = await self.at_controller().topics.find(topic)
        # The id first: "no such partition" would promise a later one, and no topic ever gets its former id again.
        if topic_id not in (None, placement.topic_id):
            raise InconsistentTopicId(topic_id=placement.topic_id)
        if partition >= len(placement.replicas):
            raise UnknownTopicOrPartition(topic=topic, partition=partition)
        raise self._ask_a_replica(placement, partition)

    def _ask_a_replica(self, placement: Placement, partition: int) -> NotLeaderOrFollower:
        """The refusal that sends the caller to a node that holds the partition: that node knows the leader. Raises
        LeaderNotAvailable if this node was removed.
        """
        self._check_member()
        replicas = placement.replicas[partition]
        held = self._replicas.get(group_id(placement.topic_id, partition))
        likely = held.group.leader if held is not None else None
        alive = [node_id for node_id in replicas if node_id in self._host.connected]
        return NotLeaderOrFollower(self._view.urls.get(likely or next(iter(alive), None)), None)

    async def get_topic(self, name: str, topic_id: int | None = None) -> Topic:
        """A topic with its leaders; asks the controller if this node knows no such topic, or none with ``topic_id``."""
        return await self._group_statuses.describe(await self._placement(name, topic_id))

    async def get_topic_page(self, name: str, first: int, most: int, find: str) -> TopicPage:
        """A topic with some of its partitions. Raises UnknownTopicOrPartition."""
        return await self._group_statuses.page(await self._placement(name), first, most, find)

    async def _placement(self, name: str, topic_id: int | None = None) -> Placement:
        """A topic as this node knows it, or else as the controller's leader does: this node may lag behind."""
        known = self._replicas.topics.get(name)
        if known is None or topic_id not in (None, known.topic_id):
            return await self.at_controller().topics.find(name)
        return known

    async def transfer_leader(
        self, topic: str | None, partition: int | None, node_id: str | None, by: By = NO_PRINCIPAL
    ) -> Leader:
        """Transfer a leadership; answers when the other replica leads. A partition has its home there from then on, so
        that balance does not take the leader back.
        """
        led: ControllerGroup | Replica
        if topic is None or partition is None:
            led = self.at_controller().control
        else:
            led = await self.partition(topic, partition, None)
        if not led.group.is_leader:
            return await led.transfer_leadership(node_id)
        async with self.ledger.act("leader.transfer", topic, partition, {"node_id": node_id}, by) as result:
            is_away = node_id not in {self.node_id, *self._host.connected}
            if led.group.is_leader and node_id in led.group.voters and is_away:
                raise NotEnoughReplicas(f"{node_id} is away")
            leader = await led.transfer_leadership(node_id)
            result["node_id"] = leader.node_id
        if isinstance(led, Replica):
            await self._make_home(led, leader.node_id, by)
        return leader

    async def _make_home(self, replica: Replica, home: str | None, by: By) -> None:
        """Make a node the first of the partition's replicas. If that fails, balance may take the leader back."""
        placement = self._replicas.topics.get(replica.topic)
        if self._host.level < BALANCE or placement is None or placement.topic_id != replica.topic_id:
            return
        replicas = placement.replicas[replica.partition]
        if home not in replicas[1:]:
            return
        target = sorted(replicas, key=lambda node_id: node_id != home)
        move = PlacedMove(group_id(replica.topic_id, replica.partition), list(replicas), target)
        try:
            await self._member.decide(Rebalance(now_ms=0, by=by, moves=[move]), HOME_S)
        except StockadeError as error:
            text = "%s leads %s/%d now, and another node stays its home: %s"
            _log.warning(text, home, replica.topic, replica.partition, error)


def _software(software: Software | None) -> tuple[str | None, FeatureLevels | None]:
    if software is None:
        return None, None
    return software.version or None, FeatureLevels(software.oldest, software.newest)
