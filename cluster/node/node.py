"""One node: composes log, groups, controller, replicas and the tasks that keep them going."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any
from weakref import ref

from ...partition.durable.stored_machine import StoredMachine
from ...partition.log.modes import close_to_others
from ...partition.log.segments import SegmentLog
from ...partition.state.machine import PartitionConfig
from ...raft.core.group import Group
from ...raft.host import RaftHost, RaftSettings, Tls, check_level, incarnation_of
from ...raft.wal.errors import DiskRefused
from .. import rpc
from ..access.store import PrincipalStore
from ..config import STORED_NAMES, NodeConfig, parse_address
from ..controller.topology.catalog import CONTROLLER_GROUP
from ..controller.topology.nodes import NodeEntry
from ..discovery.bootstrap import Bootstrap
from ..discovery.cluster_view import ClusterView
from ..discovery.first_level import FirstLevel
from ..discovery.peer_sync import PeerSync
from ..discovery.registration import Registration
from ..features import SOFTWARE, Features
from ..groups import Router, transfer_leaderships
from ..leader.producer_service import ProducerStatusReader, enrol
from ..leader.topic_service import GroupStatusReader
from ..replica.maintenance import Maintenance
from ..replica.mover import Mover
from ..replica.replica import Replica
from ..replica.replica_manager import Assignment, ReplicaManager
from ..replica.scrubber import Scrubber
from ..replica.tiering import Tiering
from ..rpc import Message
from ..tiered.debts import Debts
from ..tiered.store import TieredStore
from .catalog_sync import CatalogSync
from .controller_member import ControllerMember, Readers
from .disk_watch import DiskWatch
from .leadership import Leaderships
from .measuring import Measuring
from .memory import give_back_memory
from .node_service import NodeFailure, NodeService, Startup
from .reporting import Reporter

_log = logging.getLogger(__name__)

STANDING_TIMEOUT_S = 1.0
"""A node that has not answered with its standing by then counts as away."""


def view_of(config: NodeConfig) -> ClusterView:
    """The members as a node knows them, if its data folder is its own, and of software that fits. Blocks. Raises
    DiskRefused, OSError.
    """
    data = Path(config.data_dir)
    check_level(data, SOFTWARE)
    view = ClusterView(config)
    view.check_disk(incarnation_of(data))
    return view


class Node:
    """A running node: ``service`` is what a front talks to, ``failure`` why it had to stop by itself."""

    @classmethod
    async def start(cls, config: NodeConfig, on_failure: Callable[[BaseException], None]) -> "Node":
        """Recover, listen to the other nodes, open the groups. ``on_failure`` is called once when the node cannot go on
        (a disk error, a broken invariant). Raises OSError or what the log finds wrong with the disk.
        """
        await asyncio.to_thread(_close_to_others, Path(config.data_dir))
        failure, view = NodeFailure(on_failure), await asyncio.to_thread(view_of, config)
        principals = PrincipalStore(Path(config.data_dir), is_member=view.index > 0)
        disk = await asyncio.to_thread(DiskWatch, config.node_id, Path(config.data_dir), config.limits)
        host = RaftHost(
            config.node_id,
            config.cluster_id,
            parse_address(config.raft_listen),
            view.raft_peers(),
            Path(config.data_dir),
            _raft_settings(config),
            failure.report,
            tls=config.tls(),
            plaintext=config.raft.plaintext,
        )
        host.software = SOFTWARE
        host.room_for_copies = lambda: disk.free_bytes - disk.hard_free_bytes
        try:
            await host.start()
        except BaseException:
            disk.close()
            raise
        disk.host = host
        tiered = None if config.tiered is None else await asyncio.to_thread(_tiered_store, config, disk)
        node = cls(config, failure, view, principals, host, disk, tiered)
        host.serve(node._answer)
        await node._replicas.open_remembered()
        node._start_tasks()
        return node

    def __init__(
        self,
        config: NodeConfig,
        failure: NodeFailure,
        view: ClusterView,
        principals: PrincipalStore,
        host: RaftHost,
        disk: DiskWatch,
        tiered: TieredStore | None,
    ) -> None:
        """Compose a node over a started host: see ``start``."""
        data, node_id = Path(config.data_dir), config.node_id
        self.tls: Tls | None = host.tls
        """The TLS of the connections to other nodes; None: they are plaintext."""
        self._config, self._principals, self._disk, self._tiered = config, principals, disk, tiered
        self._failure, self._view, self._host = failure, view, host
        self._timeout_s, self._features = config.limits.request_timeout_ms / 1000, Features(host)
        self._tasks: list[asyncio.Task[None]] = []
        self._relieving: asyncio.Task[None] | None = None
        self._leaderships, self._router = Leaderships(self._name_of), Router(node_id, host)
        self._replicas = ReplicaManager(
            node_id, data / "partitions", self._open_replica, self._close_group, host.forget_tombstones
        )
        self._group_statuses = GroupStatusReader(node_id, self._router, self._replicas, view.urls, principals)
        self._producer_statuses = ProducerStatusReader(node_id, self._router, self._replicas)
        self._bootstrap = Bootstrap(
            node_id, host.incarnation, data / "founders.json", self._ask_standing, is_member=lambda: view.index > 0
        )
        self._reporter = Reporter(node_id, host, view, self._router, self._replicas, disk)
        readers = Readers(self._group_statuses, self._producer_statuses, self._reporter)
        self._member = ControllerMember(
            view, self._bootstrap, host, self._router, readers, self._leaderships.look, config, principals
        )
        self._registration = Registration(_entry(config, host), config.controllers, view, self._router, data)
        self._measuring = Measuring(
            config, host, view, self._replicas, self._member, self._leaderships, disk, self._registration
        )
        startup = Startup(self._bootstrap, self._registration)
        self.service: NodeService = NodeService(
            config, failure, host, view, startup, self._replicas, self._group_statuses, self._member, self._measuring
        )

    @property
    def failure(self) -> BaseException | None:
        """The error for which this node had to stop by itself; None: it had not."""
        return self._failure.error

    def _start_tasks(self) -> None:
        config, view, replicas = self._config, self._view, self._replicas
        self._disk.changed = self._disk_changed
        self._disk_changed()
        self._spawn(self._disk.run())
        first = FirstLevel([each.node_id for each in config.members], view, self._host.software_of, self._router)
        self._bootstrap.on_founded = lambda: self._spawn(first.run())
        self._spawn(self._member.run(config.controllers))
        follow = CatalogSync(
            config.node_id, self._member, self._router, view, replicas, self._principals, self._host.raise_level
        )
        self._spawn(follow.run())
        self._spawn(PeerSync(self._host, view).run())
        self._spawn(Maintenance(replicas).run())
        if pace := config.limits.inspection_bytes_per_s:
            self._spawn(Scrubber(replicas, pace).run())
        self._spawn(Mover(config.node_id, self._host, view, self._router).run())
        self._start_tiering()
        self._spawn(self._registration.run())
        self._spawn(self._leaderships.watch(self._host.groups))
        self._spawn(give_back_memory())

    def _start_tiering(self) -> None:
        debts = Debts(Path(self._config.data_dir), self._tiered)
        self._replicas.owe = debts.owe
        if self._tiered is not None:
            is_low = lambda: self._disk.state != "ok"  # noqa: E731
            tiering = Tiering(self._replicas, self._tiered, is_low, self._host.dropped_files)
            self._measuring.tiering = tiering
            self._spawn(tiering.run())
            self._spawn(debts.run())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of the node. A task that ends with an exception stops the node."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure.report(error)

    async def transfer_leadership(self) -> None:
        """Transfer the leaderships of this node, which is about to stop, to voters that can take over soon. From now on
        none is sent to it.
        """
        self._reporter.is_leaving = True
        led = [group for group in self._host.groups.values() if group.is_leader and len(group.voters) > 1]
        gone = await transfer_leaderships([(group, None) for group in led])
        _log.info("handed %d groups over, %d were not taken", len(gone), len(led) - len(gone))

    async def stop(self) -> None:
        """End the tasks, close groups, connections and files; groups that this node leads are without a leader."""
        for task in (*self._tasks, *filter(None, [self._relieving])):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for group in self._host.groups.values():
            group.step_down()
        await self._host.stop()
        for replica in self._replicas.all():
            replica.close()
        if self._tiered is not None:
            self._tiered.close()
        self._disk.close()

    def _disk_changed(self) -> None:
        """React to the disk's state. With little room, groups take checkpoints as soon as these would free room, and
        nodes with more room are given the leaderships.
        """
        self._host.spare_disk(is_low=self._disk.state != "ok", is_full=self._disk.state == "full")
        led = [replica.group for replica in self._replicas.all()]
        leaving = [(group, heir) for group in led if (heir := self._disk.heir(group)) is not None]
        if leaving and (self._relieving is None or self._relieving.done()):
            self._relieving = asyncio.create_task(_relieve(leaving))

    def _open_replica(self, assignment: Assignment, directory: Path) -> Replica:
        config = assignment.config
        log = SegmentLog(self._config.limits.segment_bytes_max)
        log.on_torn = self._host.fail
        stored = StoredMachine(PartitionConfig(assignment.topic_id), log)

        async def enrol_here(pid: int, group: int, timeout_s: float) -> tuple[int, int, str]:
            return await enrol(self._router, self._view.controllers, pid, group, timeout_s)

        def open_group(machine: StoredMachine) -> Group:
            is_founder = assignment.founders.get(self._config.node_id) == self._host.incarnation
            return self._open_group(assignment.group_id, assignment.founders if is_founder else {}, machine)

        replica = Replica(
            (assignment.topic, assignment.topic_id, assignment.partition),
            config,
            stored,
            open_group,
            features=self._features,
            urls=self._view.urls,
            enrol=enrol_here,
            timeout_s=self._timeout_s,
            without_room=self._disk.without_room,
        )
        replica.whole.store = self._tiered
        this = ref(replica)  # no circle: what is erased leaves the memory at once

        def damaged(error: OSError) -> None:
            present = self._replicas.get(assignment.group_id)
            if present is not None and present is this():  # the files of one that is erased go meanwhile
                self._host.fail(DiskRefused(Path(self._config.data_dir), str(error)))

        log.on_damaged = damaged
        return replica

    def _open_group(self, group: int, founders: rpc.Founders, machine: Any) -> Group:
        opened = self._host.open_group(group, founders, machine)
        opened.on_role_change = self._leaderships.look
        return opened

    def _name_of(self, group: int) -> str:
        if group == CONTROLLER_GROUP:
            return "the controller group"
        replica = self._replicas.get(group)
        return f"group {group:x}" if replica is None else f"{replica.topic}/{replica.partition}"

    async def _close_group(self, group: int) -> None:
        self._leaderships.forget(group)
        await self._host.erase_group(group)

    async def _ask_standing(self, node_id: str) -> rpc.Standing | None:
        try:
            answer = await self._router.ask(node_id, rpc.DescribeController(), STANDING_TIMEOUT_S)
        except (ConnectionError, TimeoutError):
            return None
        assert isinstance(answer, rpc.Standing), answer
        return answer

    async def _answer(self, node_id: str, payload: bytes) -> bytes:
        """Answer another node's call."""
        answer: Message
        match rpc.decode(payload):
            case rpc.Propose(group, command, timeout_ms):
                answer = await self._router.propose_here(group, command, timeout_ms / 1000)
            case rpc.DescribeGroup(group_ids):
                answer = self._group_statuses.status_here(group_ids)
            case rpc.DescribeProducer(pid, group_ids):
                answer = await self._producer_statuses.here(pid, group_ids)
            case rpc.AskNode():
                answer = await self._reporter.report()
            case rpc.TransferLeaderships(wanted):
                answer = await self._reporter.transfer(wanted)
            case rpc.DescribeController():
                answer = self._bootstrap.standing()
            case rpc.FollowCatalog(after, wait_ms, principals_after) if (control := self._member.control) is not None:
                if await CatalogSync.is_newer(control, after, principals_after, wait_ms / 1000):
                    return control.encoded_news(after, principals_after)
                answer = rpc.Catalog(0, [], control.group.leader, control.group.term)
            case rpc.FollowCatalog():
                answer = rpc.NotLeading(None)
            case request:
                raise ValueError(f"{type(request).__name__} is no question for this node")
        return rpc.encode(answer)


async def _relieve(leaving: Sequence[tuple[Group, str]]) -> None:
    """Let nodes with more room lead these groups. A group that stays is tried again while this disk has little room."""
    gone = await transfer_leaderships(leaving)
    _log.info("handed %d groups over to nodes with more room", len(gone))


def _close_to_others(data: Path) -> None:
    """Close the node's files to other users: before version 0.1.0, every user of the machine could read them."""
    try:
        mended = close_to_others(data / name for name in STORED_NAMES)
    except OSError as error:
        _log.warning("others may read what is in %s, and this node cannot change that: %s", data, error)
        return
    if mended:
        _log.warning("took the rights of others from %d files and folders in %s", mended, data)


def _tiered_store(config: NodeConfig, disk: DiskWatch) -> TieredStore:
    section = config.tiered
    assert section is not None
    data, timeout_s = Path(config.data_dir), section.timeout_ms / 1000
    store = TieredStore(section.place, config.cluster_id, data, section.cache_bytes, timeout_s)
    store.has_room = lambda: disk.state != "full"
    return store


def _entry(config: NodeConfig, host: RaftHost) -> NodeEntry:
    """The entry with which this node registers, and by which the others know it."""
    me = config.me
    return NodeEntry(me.node_id, me.url, me.raft, me.zone, host.incarnation)


def _raft_settings(config: NodeConfig) -> RaftSettings:
    return RaftSettings(
        election_timeout_ms_min=config.raft.election_timeout_min_ms,
        election_timeout_ms_max=config.raft.election_timeout_max_ms,
        heartbeat_ms=config.raft.heartbeat_ms,
        wal_file_bytes=config.limits.wal_file_bytes,
        wal_bytes_max=config.limits.wal_bytes_max,
        checkpoint_bytes=config.limits.checkpoint_bytes,
        disk_stall_ms=config.limits.disk_stall_ms,
    )
