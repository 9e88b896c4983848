"""All Raft groups of a node, with the log, the connections and the event loop that they share.

This is the asyncio shell: it hands messages, connections, time and the disk's progress to the groups, and stops all of
them together when a group or the log fails.
"""

import asyncio
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

from ..partition.log.fsutil import write_durably
from .checkpoint.group_storage import CheckpointScheduler, GroupStorage
from .checkpoint.questions import FOR_COPIES
from .checkpoint.receiver import CheckpointReceiver
from .checkpoint.sender import CheckpointSender
from .core.coalescing import Coalescer
from .core.group import Group
from .histogram import Histogram
from .machine import Machine
from .messages import Hello, RaftMessage, Software
from .net.liveness import DEFAULT_TIMES, LivenessTimeouts
from .net.peer_positions import NO_POSITION, PeerPositions
from .net.streams import AcceptStream
from .net.tls import Tls, TlsFault, TlsFiles
from .net.transport import NO_ROOM, Address, Transport
from .ports import Timer
from .settings import RaftSettings
from .threads import in_thread
from .wal.errors import DiskRefused, NewerDisk
from .wal.file_set import WalIdentity, level_of
from .wal.wal import Wal

__all__ = ["NO_ROOM", "RaftHost", "RaftSettings", "Software", "Tls", "TlsFault", "TlsFiles", "check_level"]

FOR_CLUSTER = b"\0"
"""The kind of the calls that the handler given to ``serve`` answers."""
ELECTION_S = 0.001
"""Elections that become due at once are spread over their number times this many seconds: one takes less."""
ROLLED_BACK = "rolled-back"
"""The file beside the log that says why no process may start with this log any more. Another log has another folder."""
REMEMBER_S = 60.0
"""Period in which the positions that peers reported (peer_positions.py) are written to disk."""
TURN_S = 0.02
"""Time after which a turn of the loop begins the work of no more groups: these wait for the next turn, and the loop
serves connections between.
"""
APPLY_SLICE_S = 0.005
"""Time in each turn of the loop that all groups together may spend on applies."""


class NodeRuntime:
    """The node as its groups see it: implements ports.NodePorts over the real log, network and clock."""

    def __init__(
        self,
        node_id: str,
        incarnation: int,
        loop: asyncio.AbstractEventLoop,
        log: Wal,
        transport: Transport,
        groups: Mapping[int, Group],
        settings: RaftSettings,
        fetch_checkpoint: Callable[[int, str, int], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        self.log = log
        self.fetch_checkpoint = fetch_checkpoint
        self.fail = fail
        self.applies: Histogram = Histogram()
        """Seconds of each run of applies."""
        self.time: Callable[[], float] = loop.time
        self.call_at: Callable[..., Timer] = loop.call_at
        self.speaks: Callable[[str, int], bool] = transport.speaks
        self.is_amid_frame: Callable[[str], bool] = transport.is_amid_frame
        self.coalescer: Coalescer = Coalescer(groups, transport.send, self, self._turn_soon)
        self.send: Callable[[int, str, RaftMessage], bool] = self.coalescer.post
        # Random numbers that spread events over time, and protect nothing.
        self.rng: Callable[[], float] = random.Random(random.SystemRandom().getrandbits(128)).random  # noqa: S311  # nosec B311
        self.wake_when_durable: Callable[..., None] = log.wake_when_durable
        self.full_disks: set[str] = transport.full_disks
        self._loop = loop
        self._soon: deque[Callable[[], None]] = deque()
        self._has_turn = False
        self._transport = transport
        self._unsynced_bytes_max = settings.unsynced_bytes_max
        self._is_sliced = False
        self._slice_left_s = 0.0
        self.apply_began: float = 0.0

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` in the next turn of the loop; later, if the callbacks before it take longer than TURN_S.
        The loop calls all callbacks of a turn in one go, at the end of which the messages that they gathered leave.
        """
        self._soon.append(callback)
        self._turn_soon()

    def _turn_soon(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        until = self.time() + TURN_S
        for left in range(len(self._soon), -1, -1):
            is_last = not left or self.time() >= until
            try:
                (self.coalescer.flush if is_last else self._soon.popleft())()
            except Exception as error:
                self.fail(error)
            if is_last:
                break
        self._has_turn = False
        if self._soon:
            self._turn_soon()

    def heard_at(self, node_id: str) -> float:
        """When a connected node gave its last sign of life, as ``time`` has it; minus infinity for others."""
        return self._transport.liveness.heard_at(node_id)

    def log_is_full(self) -> bool:
        """Whether more than ``unsynced_bytes_max`` bytes wait for the disk."""
        return self.log.pending_bytes > self._unsynced_bytes_max

    def apply_until(self) -> float:
        """Note that a group begins to apply. Returns when it has to stop: all groups share APPLY_SLICE_S of a turn, so
        that a group that catches up delays no heartbeats.

        Only applies use the slice up: other work of a turn for many groups must not cut their applies into pieces.
        """
        if not self._is_sliced:
            self._is_sliced = True
            self._slice_left_s = APPLY_SLICE_S
            self.call_soon(self._end_slice)
        self.apply_began = self.time()
        return self.apply_began + self._slice_left_s

    def applied(self) -> float:
        """Note that the group has stopped applying. Returns the time."""
        now = self.time()
        took_s = now - self.apply_began
        self._slice_left_s -= took_s
        self.applies.add(took_s)
        return now

    def _end_slice(self) -> None:
        self._is_sliced = False


class Started(NamedTuple):
    """The parts of a host that exist once its log is open."""

    runtime: NodeRuntime
    storage: GroupStorage
    receiver: CheckpointReceiver
    sender: CheckpointSender


class RaftHost:
    """Opens the node's log, connects to its peers, and runs the groups that are opened on the node.

    ``peers`` are the Raft addresses of the nodes by id (this node's own is ignored). ``on_fatal`` is called once, on
    the loop, when this node must stop: a disk error, an exception in a machine's apply, a broken invariant. From then
    on no group accepts anything and no Raft message is sent; the process should end. With ``tls`` the nodes'
    connections are encrypted and authenticated; without it, a ``listen`` address that is not loopback raises
    ValueError, unless ``plaintext`` allows it.
    """

    groups: dict[int, Group]
    """The open groups by id. Do not change it."""
    incarnation: int
    """A random number that tells this node's disk from any that it had before. Known once started."""

    def __init__(
        self,
        node_id: str,
        cluster_id: str,
        listen: Address,
        peers: Mapping[str, Address],
        data_dir: Path,
        settings: RaftSettings,
        on_fatal: Callable[[BaseException], None],
        *,
        tls: Tls | None = None,
        plaintext: bool = False,
    ) -> None:
        self.node_id = node_id
        self.tls: Tls | None = tls
        self.groups = {}
        self.incarnation = 0
        self.has_met_others: bool = False
        """Whether another node has been connected since the start."""
        self.bugs: int = 0
        """Steps of work for the groups that met a bug and are tried again. Counted by the floors above."""
        self._data_dir = data_dir
        self._settings = settings
        self._on_fatal = on_fatal
        self._began = 0
        self._remembering: asyncio.Task[None] | None = None
        silent_s = settings.election_timeout_ms_min / 1000
        dead_s = max(DEFAULT_TIMES.dead_s, 2 * silent_s)  # beyond several heartbeats, and the configured timeout
        times = LivenessTimeouts(settings.heartbeat_ms / 1000, silent_s, dead_s)
        self._transport = Transport(node_id, cluster_id, listen, peers, tls=tls, plaintext=plaintext, times=times)
        self._failure: BaseException | None = None
        self._started: Started | None = None
        self.room_for_copies: Callable[[], float] = lambda: inf
        """Returns how many bytes of disk copies of other nodes' checkpoints may take. To be set before ``start``."""
        self._checkpointer = CheckpointScheduler(self.groups, settings, self.fail, self._has_failed)

    @property
    def connected(self) -> set[str]:
        """Ids of the nodes with a live connection."""
        return self._transport.connected

    @property
    def incarnations(self) -> Mapping[str, int]:
        """The incarnation of the disk of each node with a live connection, by node id."""
        return self._transport.incarnations

    @property
    def software(self) -> Software:
        """The software of this node, as it tells the others. To be set before ``start``."""
        return self._transport.software

    @software.setter
    def software(self, software: Software) -> None:
        self._transport.software = software

    @property
    def hellos(self) -> Mapping[str, Hello]:
        """The hello of each node with a live connection, by node id."""
        return self._transport.hellos

    def software_of(self, node_id: str) -> Software | None:
        """The software of a node, perhaps this one; None if there is no live connection to it."""
        if node_id == self.node_id:
            return self.software
        hello = self.hellos.get(node_id)
        return None if hello is None else hello.software

    @property
    def level(self) -> int:
        """The cluster's feature level as this node's disk has it, which only grows. Known once started."""
        return self.log.level

    async def raise_level(self, level: int) -> None:
        """Record the cluster's new feature level. When this returns, older software refuses this node's disk, and this
        node refuses older software. Nothing that needs the level may be written before. Stops the node, and never
        returns, if its software does not support the level.
        """
        if not self.software.supports(level):
            self.fail(_unsupported(self._data_dir, self.software, level))
            await asyncio.Event().wait()
        if level > self.level:
            await self.log.raise_level(level)
            self._transport.raise_level(level)

    @property
    def log(self) -> Wal:
        """The write-ahead log of all groups. Exists once started."""
        return self._parts.runtime.log

    @property
    def applies(self) -> Histogram:
        """Seconds of each run of applies of any group. Exists once started."""
        return self._parts.runtime.applies

    @property
    def _parts(self) -> Started:
        assert self._started is not None, "not started"
        return self._started

    @property
    def disk(self) -> int:
        """How full this node's disk is, by the last ``spare_disk``: 0 it has room, 1 little, 2 none to spare."""
        return self._transport.disk

    @property
    def disks(self) -> Mapping[str, int]:
        """The connected nodes with little room on their disks (1), or none to spare (2), by node id."""
        return self._transport.disks

    def set_peer(self, node_id: str, address: Address, former: Address | None = None) -> None:
        """Add a node of the cluster, or change its address; that counts from the next dial on. ``former``: an address
        at which the node may be again.
        """
        self._transport.set_peer(node_id, address, former)

    def remove_peer(self, node_id: str) -> None:
        """Remove a node: its connection is closed, and it is refused when it dials."""
        self._transport.remove_peer(node_id)

    @property
    def address(self) -> Address:
        """Where this node listens, once started."""
        return self._transport.address

    async def start(self) -> None:
        """Recover the log, then listen and dial. Raises the errors of ``check_level``, Wal and Transport.start,
        and DiskRefused if an earlier process found the disk to be rolled back.
        """
        check_level(self._data_dir, self.software)
        wal, settings = self._data_dir / "wal", self._settings
        if (wal / ROLLED_BACK).exists():
            raise DiskRefused(self._data_dir, (wal / ROLLED_BACK).read_text())
        loop = asyncio.get_running_loop()
        log = Wal(wal, loop, self.fail, settings.wal_file_bytes, stall_s=settings.disk_stall_ms / 1000)
        self.incarnation = log.incarnation
        self._transport.raise_level(log.level)
        self._transport.on_up = self._on_up
        self._transport.on_down = self._on_down
        self._transport.on_silent = self._on_silent
        self._transport.on_heard = self._on_heard
        self._transport.on_rolled_back = self._on_rolled_back
        try:
            started = self._started = self._compose(log, loop)
            self._transport.groups, self._transport.many = self.groups, started.runtime.coalescer
            self._began = log.durable_position
            self._transport.peer_positions = PeerPositions(self._data_dir / "promises.json")
            self._transport.position = lambda: log.durable_position
            await self._transport.start(self.incarnation, secrets.randbits(64), self._began)
        except BaseException:
            await log.close()
            raise
        self._checkpointer.start(started.storage)
        self._transport.handlers[FOR_COPIES] = started.sender.answer
        log.on_durable = self._checkpointer.log_grew
        self._remembering = asyncio.create_task(self._remember())

    def _compose(self, log: Wal, loop: asyncio.AbstractEventLoop) -> Started:
        storage = GroupStorage(self._data_dir, log, self._settings.checkpoint_bytes, self._checkpointer.due)
        receiver = CheckpointReceiver(storage, self.groups, self._transport.call, self.room_for_copies, self.fail)
        runtime = NodeRuntime(
            self.node_id,
            self.incarnation,
            loop,
            log,
            self._transport,
            self.groups,
            self._settings,
            receiver.fetch,
            self.fail,
        )
        return Started(runtime, storage, receiver, CheckpointSender(storage))

    async def stop(self) -> None:
        """Close every group (proposals that wait end as Unknown), the connections and the log. Idempotent."""
        await self._checkpointer.stop()
        if self._remembering is not None:
            self._remembering.cancel()
            await asyncio.wait([self._remembering])
        if self._started is not None:
            await self._started.receiver.stop()
        for group in self.groups.values():
            group.close()
        self.groups.clear()
        await self._transport.stop()
        if self._started is not None:
            await self._started.storage.close()
            await self._started.runtime.log.close()

    def spare_disk(self, *, is_low: bool, is_full: bool) -> None:
        """Set how full the disk is, and tell the other nodes. ``is_low``: checkpoints are taken as soon as they would
        free any room. ``is_full``: moreover no checkpoint of another node is copied. May be called repeatedly.
        """
        self._transport.tell_disk(NO_ROOM if is_full else int(is_low))
        self._parts.receiver.set_full(is_full=is_full)
        self._checkpointer.frees_early = is_low
        if is_low:
            self._checkpointer.due()

    def pace_copies(self, bytes_per_s: int) -> None:
        """Bound the bytes of checkpoints that this node receives each second, and those that it sends; 0: no bound."""
        self._parts.receiver.rate_limiter.bytes_per_s = self._parts.sender.rate_limiter.bytes_per_s = bytes_per_s

    def dropped_files(self) -> None:
        """Check whether a checkpoint is due, after a machine has dropped files without a command."""
        self._checkpointer.due()

    def open_group(self, group_id: int, founders: Mapping[str, int], machine: Machine) -> Group:
        """Run a replica of a group here. Call it after ``start``.

        ``founders`` are the first voters, with the incarnations of the disks that they had then: the same map on each
        of them, whenever it opens the group. A node that joins passes ``{}``: it knows no member, and neither votes nor
        campaigns, until the group's leader has sent it more. ``machine``, a fresh one, is started or restored here;
        entries of the log beyond its checkpoint are applied once a leader shows that they are committed. Raises
        ValueError if the group is open already, DiskRefused if its files on disk are damaged.
        """
        if group_id in self.groups:
            raise ValueError(f"group {group_id} is open already on {self.node_id}")
        opened = self._parts.storage.open(group_id, founders, machine)
        group = self.groups[group_id] = Group(
            group_id, machine, opened.log, self._settings, self._parts.runtime, count_applied=opened.applied
        )
        for node_id, incarnation in self.incarnations.items():
            group.peer_up(node_id, incarnation)
        return group

    async def forget_tombstones(self, is_gone: Callable[[int], bool]) -> None:
        """Remove the tombstones of the groups for which ``is_gone`` returns True: no node ever opens them again."""
        storage = self._parts.storage
        async with storage.lock:
            await storage.forget_tombstones(is_gone)

    async def erase_group(self, group_id: int) -> None:
        """Stop the replica, and remove its entries and files, durably. A tombstone keeps its term and the end of its
        log, since a voter that forgets its vote may vote twice. Unknown groups are ignored, so the call may be
        repeated.
        """
        storage, group = self._parts.storage, self.groups.pop(group_id, None)
        if group is not None:
            group.close()
        await self._parts.receiver.cancel(group_id)
        async with storage.lock:
            await storage.erase(group_id)

    async def call(self, node_id: str, payload: bytes, timeout_s: float) -> bytes:
        """Call another node; returns the answer of the handler that it has given to ``serve``.

        Raises ConnectionError when the call was surely not sent, TimeoutError when its outcome is unknown, CallFailed
        when the other node's handler failed.
        """
        return await self._transport.call(node_id, FOR_CLUSTER, payload, timeout_s)

    def serve(self, handler: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        """Set the handler that answers other nodes' ``call``: (node id, payload) to answer. Until then they fail."""
        self._transport.handlers[FOR_CLUSTER] = handler

    async def open_stream(self, node_id: str, protocol: asyncio.Protocol) -> None:
        """Give ``protocol`` a connection to another node, as Transport.open_stream does."""
        await self._transport.open_stream(node_id, protocol)

    def accept_streams(self, accept: AcceptStream) -> None:
        """Set the factory of protocols for the streams that other nodes open. Until then they are refused."""
        self._transport.accept_stream = accept

    def _on_up(self, node_id: str, incarnation: int) -> None:
        self.has_met_others = True
        self._parts.runtime.coalescer.up(node_id)
        for group in self.groups.values():
            group.peer_up(node_id, incarnation)

    def _on_down(self, node_id: str) -> None:
        self._parts.runtime.coalescer.down(node_id)
        led = sum(group.leader == node_id for group in self.groups.values())
        for group in self.groups.values():
            group.peer_down(node_id, led * ELECTION_S)

    def _on_silent(self, node_id: str) -> None:
        for group in self.groups.values():
            group.peer_silent(node_id)

    def _on_heard(self, node_id: str) -> None:
        for group in self.groups.values():
            group.peer_heard(node_id)

    def _on_rolled_back(self, node_id: str, position: int) -> None:
        """Mark the log as rolled back, and stop the node: this node had reported ``position`` to ``node_id``, and its
        log began below it. Blocks: the next start must find the mark, since the log may have grown beyond the position
        by then.
        """
        if position <= self._began:
            return
        fault = f"it is older than what this node told {node_id} before (a restored copy or snapshot of a disk?)"
        if position == NO_POSITION:
            # The node cannot tell the copy, grown since, from the original that was put back in its place.
            fault = (
                f"it, or a copy of it, has lost what this node told {node_id} before. Only if this is the original, and"
                f" the copy was never used but for a refused start: remove wal/{ROLLED_BACK} here, and the entry of"
                f" this node from promises.json in the data folder of {node_id} while that node is stopped"
            )
        with suppress(OSError):  # the node stops in any case, and node_id has a mark, too
            write_durably(self._data_dir / "wal" / ROLLED_BACK, fault.encode())
        self.fail(DiskRefused(self._data_dir, fault))

    async def _remember(self) -> None:
        """Write the positions that peers reported to disk: every REMEMBER_S, and when this node stops."""
        positions = self._transport.peer_positions
        try:
            try:
                while True:
                    await asyncio.sleep(REMEMBER_S)
                    await in_thread(positions.save)
            finally:
                positions.save()
        except OSError as error:
            self.fail(error)

    def _has_failed(self) -> bool:
        return self._failure is not None

    def fail(self, error: BaseException) -> None:
        """Stop all groups of this node, which cannot go on, and call ``on_fatal``. Later calls have no effect."""
        if self._failure is None:
            self._failure = error
            self._transport.halt()
            for group in self.groups.values():
                group.halt()
            self._on_fatal(error)


def check_level(data_dir: Path, software: Software) -> None:
    """Raise DiskRefused if ``software`` does not support the feature level of a node's data folder. To be called before
    anything else there is read. Blocks.
    """
    level = level_of(data_dir / "wal")
    if not software.supports(level):
        raise _unsupported(data_dir, software, level)


def incarnation_of(data_dir: Path) -> int | None:
    """The incarnation of the disk of a node's data folder; None: it has no log yet. Raises DiskRefused. Blocks."""
    identity = WalIdentity.read(data_dir / "wal")
    return None if identity is None else identity.incarnation


def _unsupported(data_dir: Path, software: Software, level: int) -> DiskRefused:
    if level > software.newest:
        return NewerDisk(data_dir, level, software.newest, "feature level")
    fault = f"the cluster has feature level {level}, and this software needs {software.oldest} at least"
    return DiskRefused(data_dir, fault, "Upgrade through the releases between, one by one.")
