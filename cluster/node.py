"""One node: composes log, groups, controller, replicas and the tasks that keep them going."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ..partition import commands as partition_commands
from ..partition.machine import PartitionConfig, PartitionMachine
from ..partition.segments import SegmentLog
from ..partition.stored import StoredMachine
from ..raft.host import RaftHost, RaftSettings
from . import commands as controller_commands
from . import messages
from .catalog import CONTROLLER_GROUP
from .catalog_follower import CatalogFollower
from .config import NodeConfig, parse_address
from .control import AppliedController, Control
from .controller import ControllerMachine
from .messages import Message
from .node_service import Controlling, NodeService
from .producers import enrol
from .reconciler import Reconciler
from .replica import AppliedMachine, Replica
from .replicas import Assignment, Replicas
from .router import Router
from .topics import Observer

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
        self._urls: dict[str | None, str] = {member.node_id: member.url for member in config.members}
        self._timeout_s = config.limits.request_timeout_ms / 1000
        self._tasks: list[asyncio.Task[None]] = []
        self._data = Path(config.data_dir)
        self._host = self._make_host()
        self._host.on_call = self._answer
        self._router = Router(config.node_id, self._host, _encode_result)
        self._replicas = Replicas(config.node_id, self._data / "partitions", self._open_replica, self._close_group)
        self._observer = Observer(config.node_id, self._router, self._replicas, self._urls.get)
        self._control: Control | None = None
        self.service = NodeService(config, self._host, self._replicas, self._observer)

    def _make_host(self) -> RaftHost:
        config = self.config
        settings = RaftSettings(
            election_timeout_ms_min=config.raft.election_timeout_min_ms,
            election_timeout_ms_max=config.raft.election_timeout_max_ms,
            heartbeat_ms=config.raft.heartbeat_ms,
        )
        return RaftHost(
            config.node_id,
            config.cluster_id,
            parse_address(config.raft_listen),
            config.raft_peers(),
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
        if self.config.node_id in self.config.controllers:
            state = AppliedController(ControllerMachine())
            group = self._host.open_group(CONTROLLER_GROUP, self.config.controllers, state)
            self._control = Control(state, group, self._urls.get, self._timeout_s)
            nodes = [(member.node_id, member.zone) for member in self.config.members]
            self.service.controlling = Controlling.of(self._control, self._observer, nodes)
            self._spawn(self._control.keep_time())
            self._spawn(Reconciler(self._control, self._router).run())
        self._replicas.open_remembered()
        self._spawn(CatalogFollower(self._control, self._router, self.config.controllers, self._replicas).run())

    async def stop(self) -> None:
        """End the tasks, hand leadership over, close groups, connections and files."""
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
            _log.critical("this node cannot go on", exc_info=error)
            self._on_failure(error)

    def _open_replica(self, assignment: Assignment, directory: Path) -> Replica:
        config = assignment.config
        log = SegmentLog(self.config.limits.segment_bytes_max)
        machine = PartitionMachine(
            PartitionConfig(assignment.topic_id, config.require_fence, config.strict_sequence, config.max_producers),
            log,
        )
        stored = StoredMachine(machine, log)
        # As long as groups do not restore checkpoints, they apply their whole log to an empty machine.
        shutil.rmtree(directory / "log", ignore_errors=True)
        (directory / "log").mkdir(parents=True)
        stored.start(directory / "log")

        async def enrol_here(pid: int, group: int, timeout_s: float) -> int:
            return await enrol(self._router, self.config.controllers, pid, group, timeout_s)

        def open_group(applied: AppliedMachine) -> Any:
            return self._host.open_group(assignment.group_id, assignment.replicas, applied)

        return Replica(
            (assignment.topic, assignment.topic_id, assignment.partition),
            config,
            stored,
            open_group,
            url_of=self._urls.get,
            enrol=enrol_here,
            timeout_s=self._timeout_s,
        )

    async def _close_group(self, group: int) -> None:
        await self._host.close_group(group, erase=True)

    async def _answer(self, node_id: str, payload: bytes) -> bytes:
        """Answer another node's call."""
        return messages.encode(await self._answer_message(messages.decode(payload)))

    async def _answer_message(self, request: Message) -> Message:
        match request:
            case messages.Propose(group, command, timeout_ms):
                return await self._router.propose_here(group, command, timeout_ms / 1000)
            case messages.AskStatus(group_ids):
                return self._observer.status_here(group_ids)
            case messages.FollowCatalog(after, wait_ms) if self._control is not None:
                newer = await CatalogFollower.newer(self._control, after, wait_ms / 1000)
                return newer or messages.Catalog(0, [], self._control.group.leader, self._control.group.term)
            case _:
                raise ValueError(f"{type(request).__name__} is no question for this node")


def _encode_result(group: int, result: object) -> bytes:
    """Bytes of what a group's machine answered."""
    if group == CONTROLLER_GROUP:
        return controller_commands.encode_result(result)  # type: ignore[arg-type]
    return partition_commands.encode_result(result)  # type: ignore[arg-type]
