"""One node: composes log, groups, controller, replicas and the tasks that keep them going."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ..partition import commands as partition_commands
from ..partition.machine import PartitionConfig, PartitionMachine
from ..partition.segments import SegmentLog
from ..partition.stored import StoredMachine
from ..raft.group import Group
from ..raft.host import RaftHost, RaftSettings
from ..raft.refusal import DiskRefused
from . import commands as controller_commands
from . import messages
from .acquaintances import Acquaintances
from .book import Book
from .catalog import CONTROLLER_GROUP
from .catalog_follower import CatalogFollower
from .config import NodeConfig, parse_address
from .control import AppliedController, Control
from .founding import Founding
from .handover import hand_all_over
from .inspection import Inspection
from .messages import Message
from .mover import Mover
from .node_service import NodeService
from .nodes import NodeEntry
from .producer_states import ProducerStates
from .producers import enrol
from .reconciler import Reconciler
from .registrar import Registrar
from .replica import AppliedMachine, Replica
from .replicas import Assignment, Replicas
from .router import Router
from .seat import Seat
from .starting import Starting
from .sweeper import Sweeper
from .topics import Observer
from .upkeep import Upkeep

STANDING_TIMEOUT_S = 1.0
"""A node that has not told its standing by then counts as away."""

_log = logging.getLogger(__name__)


class Node:
    """A running node. ``start`` it on the event loop, ``stop`` it in the end; ``failure`` says why it had to stop by
    itself.

    ``service`` is what the HTTP interface talks to.
    """

    def __init__(self, config: NodeConfig, on_failure: Callable[[BaseException], None]) -> None:
        """``on_failure`` is called once when the node cannot go on (a disk error, a broken invariant)."""
        self.config = config
        self.failure: BaseException | None = None
        self._on_failure = on_failure
        self._timeout_s = config.limits.request_timeout_ms / 1000
        self._tasks: list[asyncio.Task[None]] = []
        self._data = Path(config.data_dir)
        self._book = Book(config)
        self._host = self._make_host()
        self._host.on_call = self._answer
        self._router = Router(config.node_id, self._host, _encode_result)
        self._replicas = Replicas(
            config.node_id,
            self._data / "partitions",
            self._open_replica,
            self._close_group,
            self._host.forget_departures,
        )
        self._observer = Observer(config.node_id, self._router, self._replicas, self._book.url_of)
        self._founding = Founding(config.node_id, self._data / "founders.json", self._ask_standing)
        self._seat = Seat(
            self._book, self._founding, self._open_controller, self._close_group, self._duties, self._timeout_s
        )
        self._producers = ProducerStates(config.node_id, self._router, self._replicas)
        self.service: NodeService = NodeService(
            config, self._host, self._book, self._replicas, self._observer, self._producers, self._seat
        )

    def _make_host(self) -> RaftHost:
        config = self.config
        settings = RaftSettings(
            election_timeout_ms_min=config.raft.election_timeout_min_ms,
            election_timeout_ms_max=config.raft.election_timeout_max_ms,
            heartbeat_ms=config.raft.heartbeat_ms,
            wal_file_bytes=config.limits.wal_file_bytes,
            wal_bytes_max=config.limits.wal_bytes_max,
            checkpoint_bytes=config.limits.checkpoint_bytes,
        )
        return RaftHost(
            config.node_id,
            config.cluster_id,
            parse_address(config.raft_listen),
            self._book.raft_peers(),
            self._data,
            settings,
            self._fail,
            tls=config.tls(),
            plaintext=config.raft.plaintext,
        )

    async def start(self) -> None:
        """Recover, listen to the other nodes, open the groups. Raises OSError or what the log finds wrong with the
        disk.
        """
        await self._host.start()
        config, incarnation = self.config, self._host.incarnation
        self._founding.recall(incarnation, is_member=self._book.index > 0)
        await self._replicas.open_remembered()
        self._spawn(self._seat.run(config.controllers))
        self._spawn(CatalogFollower(config.node_id, self._seat, self._router, self._book, self._replicas).run())
        self._spawn(Acquaintances(self._host, self._book).run())
        self._spawn(Upkeep(self._replicas).run())
        if pace := config.limits.inspection_bytes_per_s:
            self._spawn(Inspection(self._replicas, pace).run())
        self._spawn(Mover(config.node_id, self._host, self._book, self._router).run())
        me = config.me
        entry = NodeEntry(me.node_id, me.url, me.raft, me.zone, incarnation)
        registrar = Registrar(entry, config.controllers, self._book, self._router)
        self.service.starting = Starting(self._founding, registrar)
        self._spawn(registrar.run())

    async def hand_over(self) -> None:
        """Let other nodes lead what this one leads, as far as they can soon: for a node that is about to stop."""
        await hand_all_over(self._host.groups.values())

    async def stop(self) -> None:
        """End the tasks, close groups, connections and files; whatever this node still leads is without a leader."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for group in self._host.groups.values():
            group.step_down()
        await self._host.stop()
        for replica in self._replicas.all():
            replica.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of the node; one that ends with an exception is a bug and stops the node."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = self.service.failure = error
            is_explained = isinstance(error, DiskRefused)
            _log.critical("this node cannot go on: %s", error, exc_info=None if is_explained else error)
            self._on_failure(error)

    def _open_replica(self, assignment: Assignment, directory: Path) -> Replica:
        config = assignment.config
        log = SegmentLog(self.config.limits.segment_bytes_max)
        machine = PartitionMachine(PartitionConfig(assignment.topic_id), log)
        stored = StoredMachine(machine, log)

        async def enrol_here(pid: int, group: int, timeout_s: float) -> tuple[int, int]:
            return await enrol(self._router, self._book.controllers, pid, group, timeout_s)

        def open_group(applied: AppliedMachine) -> Any:
            is_founder = assignment.founders.get(self.config.node_id) == self._host.incarnation
            return self._open_group(assignment.group_id, assignment.founders if is_founder else {}, applied)

        return Replica(
            (assignment.topic, assignment.topic_id, assignment.partition),
            config,
            stored,
            open_group,
            url_of=self._book.url_of,
            enrol=enrol_here,
            timeout_s=self._timeout_s,
        )

    def _open_controller(self, founders: messages.Founders, state: AppliedController) -> Group:
        return self._open_group(CONTROLLER_GROUP, founders, state)

    def _open_group(self, group: int, founders: messages.Founders, machine: Any) -> Group:
        opened = self._host.open_group(group, founders, machine)
        opened.on_role_change = lambda _: self.service.leadership.notify()
        return opened

    def _duties(self, control: Control) -> list[Coroutine[Any, Any, None]]:
        reconciling, sweeping = Reconciler(control, self._router), Sweeper(control, self._router)
        return [control.keep_time(), reconciling.run(), sweeping.run()]

    async def _close_group(self, group: int) -> None:
        await self._host.close_group(group, erase=True)

    async def _ask_standing(self, node_id: str) -> messages.Standing | None:
        try:
            answer = await self._router.ask(node_id, messages.AskStanding(), STANDING_TIMEOUT_S)
        except (ConnectionError, TimeoutError):
            return None
        assert isinstance(answer, messages.Standing), answer
        return answer

    async def _answer(self, node_id: str, payload: bytes) -> bytes:
        """Answer another node's call."""
        return messages.encode(await self._answer_message(messages.decode(payload)))

    async def _answer_message(self, request: Message) -> Message:
        match request:
            case messages.Propose(group, command, timeout_ms):
                return await self._router.propose_here(group, command, timeout_ms / 1000)
            case messages.AskStatus(group_ids):
                return self._observer.status_here(group_ids)
            case messages.AskProducer(pid, group_ids):
                return await self._producers.here(pid, group_ids)
            case messages.AskStanding():
                return self._founding.standing()
            case messages.FollowCatalog(after, wait_ms) if (control := self._seat.control) is not None:
                newer = await CatalogFollower.newer(control, after, wait_ms / 1000)
                return newer or messages.Catalog(0, [], control.group.leader, control.group.term)
            case messages.FollowCatalog():
                return messages.NotLeading(None)
            case _:
                raise ValueError(f"{type(request).__name__} is no question for this node")


def _encode_result(group: int, result: object) -> bytes:
    """Bytes of what a group's machine answered."""
    if group == CONTROLLER_GROUP:
        return controller_commands.encode_result(result)  # type: ignore[arg-type]
    return partition_commands.encode_result(result)  # type: ignore[arg-type]
