"""This node's replica of the controller group: opened when the catalog places one here, erased when it moves away."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from ...raft.core.group import Group
from ...raft.host import RaftHost
from ..access.store import PrincipalStore
from ..condition import aligned_s
from ..config import NodeConfig
from ..controller.commands import Command
from ..controller.topology.catalog import CONTROLLER_GROUP
from ..discovery.bootstrap import Bootstrap
from ..discovery.cluster_view import ClusterView
from ..features import Features
from ..groups import Router
from ..leader.balancer import Balancer
from ..leader.controller_group import ControllerGroup
from ..leader.garbage_collector import GarbageCollector
from ..leader.ledger_keeper import LedgerKeeper
from ..leader.list_service import ListService
from ..leader.member_service import MemberService
from ..leader.principal_service import PrincipalService
from ..leader.producer_service import ProducerService, ProducerStatusReader
from ..leader.reconciler import Reconciler
from ..leader.resource_service import ResourceService
from ..leader.session_service import SessionService
from ..leader.topic_service import GroupStatusReader, TopicService
from .reporting import Reporter

_log = logging.getLogger(__name__)


class ControllerServices(msgspec.Struct, frozen=True):
    """Implements api.ControllerApi over one replica of the controller group."""

    control: ControllerGroup
    sessions: SessionService
    topics: TopicService
    resources: ResourceService
    producers: ProducerService
    members: MemberService
    lists: ListService
    principals: PrincipalService


class Readers(msgspec.Struct, frozen=True):
    """The readers by which the services ask nodes: about groups, about producers, and for reports."""

    groups: GroupStatusReader
    producers: ProducerStatusReader
    reporter: Reporter


class ControllerMember:
    """Opens and erases this node's replica of the controller group. ``services`` is None while there is none."""

    def __init__(
        self,
        view: ClusterView,
        bootstrap: Bootstrap,
        host: RaftHost,
        router: Router,
        readers: Readers,
        on_role_change: Callable[[Group], None],
        config: NodeConfig,
        principals: PrincipalStore,
    ) -> None:
        """``on_role_change`` is called when the group has another leader, or none."""
        self.services: ControllerServices | None = None
        self._view = view
        self._bootstrap = bootstrap
        self._host = host
        self._router = router
        self._readers = readers
        self._on_role_change = on_role_change
        self._config = config
        self.principals: PrincipalStore = principals
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def control(self) -> ControllerGroup | None:
        """The controller group as this node runs it; None while it holds no replica."""
        return self.services.control if self.services is not None else None

    async def decide(self, command: Command, timeout_s: float) -> object:
        """``Router.decide``, whether this node is a member of the controller group or not."""
        return await self._router.decide(self._view.controllers, command, timeout_s)

    async def run(self, configured: list[str]) -> None:
        """Open and erase the replica as the catalog says; ``configured`` controllers found the group. Runs until
        cancelled.
        """
        try:
            while True:
                if self._view.is_controller:
                    await self._open(configured)
                else:
                    await self._erase()
                await self._watch()
        finally:
            self._stop_tasks()

    async def _open(self, configured: list[str]) -> None:
        if self._view.index == 0:
            node_ids = [entry.node_id for entry in self._view.members()]
            founders = await self._bootstrap.settle(configured, node_ids)
        else:
            founders = self._bootstrap.founders()
        _log.info("holding a replica of the controller group%s", "" if founders else ", which exists already")
        control = ControllerGroup(
            partial(self._host.open_group, CONTROLLER_GROUP, founders),
            Features(self._host),
            self._view.urls,
            self._config.limits.request_timeout_ms / 1000,
            self.principals,
            lambda node_id: node_id == self._config.node_id or node_id in self._host.connected,
        )
        control.group.on_role_change = self._on_role_change
        readers = self._readers
        balancer = Balancer(control, readers.reporter.ask, readers.reporter.send)
        loops = (
            balancer.run(),
            control.keep_time(),
            Reconciler(control, self._router, self._host).run(),
            GarbageCollector(control, self._router).run(),
            LedgerKeeper(control, self._router, self._config.ledger).run(),
        )
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        self.services = ControllerServices(
            control,
            SessionService(control),
            TopicService(control, readers.groups, self._config.limits.topic_retention_ms),
            ResourceService(control),
            ProducerService(control, readers.producers),
            MemberService(control, self._view, balancer, self._host.software_of),
            ListService(control),
            PrincipalService(control, readers.groups),
        )

    async def _erase(self) -> None:
        """Erase the replica for good: then this node can only join the group again, even if it was a founder.

        This is done at a start, too, where no replica is open: the node may have died while it left the group, and
        entries that no replica covers by checkpoints would pin its log for ever. A catalog is on disk before the node
        acts on it, so a catalog that does not list this node is newer than the replica. Without a catalog nothing is
        erased: the group may be about to be founded.
        """
        self._stop_tasks()
        was_open, self.services = self.services is not None, None
        if not was_open and self._view.index == 0:
            return
        if was_open or self._bootstrap.founders():
            _log.info("the controller group moved away from this node")
            await self._bootstrap.keep({})
        await self._host.erase_group(CONTROLLER_GROUP)

    async def _watch(self) -> None:
        """Return when the replica has to be opened or erased. Raises the error of a background loop, which is a bug."""
        held = self.services is not None

        def look() -> bool | None:
            return True if self._view.is_controller != held else None

        while await self._view.changed.until(look, aligned_s(1.0)) is None:
            for task in self._tasks:
                if task.done():
                    task.result()

    def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
