"""A cluster in one thread and on one clock: real groups, engines and journals over simulated time, network and disks.

Everything that happens is an event on one heap, drawn from one seed, so a run can be repeated exactly.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any

from simulation.checker import Checker
from simulation.checkpoints import NOWHERE, Checkpoints
from simulation.disk import Disk, Log
from simulation.network import Frame, Network

from stockade.raft.core.coalescing import Coalescer
from stockade.raft.core.group import Group
from stockade.raft.log.configuration import founding_configuration
from stockade.raft.log.group_log import GroupLog
from stockade.raft.log.origin import NO_TOMBSTONE, Origin
from stockade.raft.machine import FileExtent, Image, Machine
from stockade.raft.messages import AckMany, AppendMany, Ping, RaftMessage
from stockade.raft.net.codec import PROTOCOL_OLDEST, PROTOCOL_VERSION
from stockade.raft.net.liveness import Liveness, LivenessTimeouts
from stockade.raft.net.transport import NO_ROOM
from stockade.raft.settings import RaftSettings
from stockade.raft.wal.records import RecoveredGroup

Call = Callable[[], None]
MIXED = 0.5
"""Of so many worlds the nodes are of two releases."""
TURN_S = 2e-6
"""How long ``call_soon`` takes at most: long enough for a crash to fall between two turns of a loop."""


@dataclass(slots=True)
class Timer:
    callback: Call | None

    def cancel(self) -> None:
        self.callback = None

    def run(self) -> None:
        if self.callback is not None:
            self.callback()


class Remembering(Machine):
    """Remembers what was applied, and answers with its place and bytes. An image is the name of a list of those."""

    def __init__(self, process: "Process") -> None:
        self.applied: list[tuple[int, int, bytes]] = []
        self.bundles = self.may_lag = process.world.bundles
        self._process = process
        self._images = process.world.images

    def start(self, directory: Path) -> None: ...

    def inspect(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None: ...

    def capture(self) -> Image:
        self._images.append(tuple(self.applied))
        return Image(b"%d" % (len(self._images) - 1), (), lambda: None)

    def restore(self, directory: Path, state: bytes, files: Sequence[FileExtent]) -> None:
        self.applied = list(self._images[int(state)])

    def apply(self, index: int, term: int, command: bytes) -> object:
        self._process.spend_time()
        self.applied.append((index, term, command))
        return index, command


class Process:
    """One life of a node: what a host gives its groups, without asyncio."""

    def __init__(self, world: "World", node_id: str) -> None:
        self.world = world
        self.node_id = node_id
        self.incarnation = world.disks[node_id].incarnation
        self.is_alive = True
        self.is_paused = False
        self.backlog: deque[Call] = deque()
        self.failure: BaseException | None = None
        self.rng = random.Random(world.rng.random()).random
        self.rate = 1 + world.drift * (self.rng() - 0.5)
        self._spent_s = 0.0
        self._wakes: dict[Call, int] = {}
        self.log = Log(world.disks[node_id], lambda delay, call: world.at(delay, call, self))
        self.log.on_durable = self._disk_moved_on
        self.log.on_append = lambda *entry: world.checker.appended(self, *entry)
        self.machines: dict[int, Remembering] = {}
        self.groups: dict[int, Group] = {}
        self.heard: dict[str, float] = {}
        settings = world.settings
        times = LivenessTimeouts(settings.heartbeat_ms / 1000, settings.election_timeout_ms_min / 1000)
        self.liveness = Liveness(self, self.time, self.call_at, times)
        self.liveness.start()
        self._journals: dict[int, GroupLog] = {}
        self.checkpoints = Checkpoints(self)
        self.fetch_checkpoint = self.checkpoints.fetch
        self.coalescer: Coalescer = Coalescer(self.groups, self._transmit, self, self._flush_soon, alone_max=0)
        self.send = self.coalescer.post
        self.full_disks: set[str] = set()
        """The connected nodes that said last that their disks are full."""
        for group_id in world.group_ids:
            self.open_group(group_id)

    def open_group(self, group_id: int) -> None:
        """From its checkpoint, or its founding; a node that is no founder, or not with this disk, joins."""
        machine = self.machines[group_id] = self.world.new_machine(self, group_id)
        is_founder = self.world.founders.get(self.node_id) == self.incarnation
        disk = self.world.disks[self.node_id]
        left = disk.left.get(group_id, NO_TOMBSTONE)
        origin = Origin(
            configuration=founding_configuration(self.world.founders if is_founder and not left.term else {})
        )
        checkpoint = disk.checkpoints.get(group_id)
        if checkpoint is not None:
            machine.restore(NOWHERE, checkpoint.state, checkpoint.files)
            origin = checkpoint.origin
        journal = self._journals.get(group_id)
        if journal is None:
            recovered = self.log.recovered.pop(group_id, None) or RecoveredGroup()
            journal = self._journals[group_id] = GroupLog(group_id, self.log, recovered, origin, left)
        elif journal.origin.index < origin.index:
            journal.install(origin)
        group = self.groups[group_id] = Group(group_id, machine, journal, self.world.settings, self)
        self.world.checker.opened(group)
        for peer in self.world.network.peers(self.node_id):
            connection = self.world.network.link(self.node_id, peer).connection
            if connection is not None and self.node_id in connection.up:
                group.peer_up(peer, self.world.disks[peer].incarnation)

    def close_group(self, group_id: int) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.close()

    def erase_group(self, group_id: int) -> None:
        """Forget a replica, but not what it had promised; the node may join again."""
        self.close_group(group_id)
        disk = self.world.disks[self.node_id]
        disk.left[group_id] = self._journals.pop(group_id).tombstone()
        disk.erase(group_id)
        self.log.erase(group_id)
        self.open_group(group_id)

    # Surroundings of the groups.

    def time(self) -> float:
        return self.world.now * self.rate + self._spent_s

    def spend_time(self) -> None:
        """Now and then an apply takes longer than a run of applies may."""
        if self.rng() < 0.02:
            self._spent_s += 0.006

    def call_soon(self, callback: Call) -> None:
        self.world.at(TURN_S * self.rng(), callback, self)

    def call_at(self, when: float, callback: Call) -> Timer:
        timer = Timer(callback)
        self.world.at(max(0.0, (when - self.time()) / self.rate + 1e-9), timer.run, self)
        return timer

    def _flush_soon(self) -> None:
        self.call_soon(self.coalescer.flush)

    def _transmit(self, group_id: int, node_id: str, message: RaftMessage | AppendMany | AckMany) -> bool:
        assert self.failure is None
        return self.world.network.send(self.node_id, node_id, group_id, message)

    def speaks(self, node_id: str, version: int) -> bool:
        """Also of nodes that know frames of many groups, only some send them: what is sent alone is tried, too."""
        coalesces = {self.node_id, node_id} <= self.world.coalescing
        return coalesces and self.world.network.speaks(self.node_id, node_id, version)

    def log_is_full(self) -> bool:
        return self.log.pending_bytes > self.world.settings.unsynced_bytes_max

    def apply_until(self) -> float:
        return self.time() + 0.005

    @property
    def apply_began(self) -> float:
        return self.time()

    def applied(self) -> float:
        """Each group has a slice of its own here."""
        return self.time()

    def heard_at(self, node_id: str) -> float:
        return self.liveness.heard_at(node_id)

    def is_amid_frame(self, node_id: str) -> bool:
        return self.world.network.is_amid_frame(node_id, self.node_id)

    def wake_when_durable(self, wake: Call, lsn: int | None = None) -> None:
        self._wakes.setdefault(wake, self.log.lsn if lsn is None else lsn)

    def fail(self, error: BaseException) -> None:
        self.failure = error
        self.world.checker.failed(self, error)

    def _disk_moved_on(self) -> None:
        due = [wake for wake, lsn in self._wakes.items() if lsn <= self.log.durable_lsn]
        for wake in due:
            del self._wakes[wake]
        for wake in due:
            wake()

    # What the network tells.

    def on_up(self, node_id: str) -> None:
        self.heard[node_id] = self.time()
        self.liveness.up(node_id)
        self.coalescer.up(node_id)
        for group in self.groups.values():
            group.peer_up(node_id, self.world.disks[node_id].incarnation)

    def on_down(self, node_id: str) -> None:
        self.liveness.down(node_id)
        self.full_disks.discard(node_id)
        self.coalescer.down(node_id)
        for group in self.groups.values():
            group.peer_down(node_id)

    def on_frame(self, node_id: str, group_id: int, message: Frame) -> None:
        self.heard[node_id] = self.time()
        if isinstance(message, Ping):
            self._look_at_disk(node_id, is_full=message.disk == NO_ROOM)
            return
        if isinstance(message, AppendMany):
            self.coalescer.take(node_id, message)
            return
        if isinstance(message, AckMany):
            self.coalescer.acked(node_id, message)
            return
        group = self.groups.get(group_id)
        if group is not None:
            group.receive(node_id, message)
        self.world.after_receive(self, message)

    def _look_at_disk(self, node_id: str, *, is_full: bool) -> None:
        was_full = node_id in self.full_disks
        if is_full:
            self.full_disks.add(node_id)
        elif was_full:
            self.full_disks.discard(node_id)
            self.heard_again(node_id)

    # Events of liveness.

    def send_heartbeats(self, awake_at: float) -> None:
        beat = Ping(NO_ROOM if self.node_id in self.world.full else 0)
        for peer in self.world.network.peers(self.node_id):
            self.world.network.send(self.node_id, peer, 0, beat)

    def last_heard(self, node_id: str) -> float:
        if self.is_amid_frame(node_id) and not self.world.network.link(node_id, self.node_id).is_held:
            self.heard[node_id] = self.time()
        return self.heard[node_id]

    def fell_silent(self, node_id: str) -> None:
        for group in self.groups.values():
            group.peer_silent(node_id)

    def heard_again(self, node_id: str) -> None:
        for group in self.groups.values():
            group.peer_heard(node_id)


@dataclass(frozen=True, slots=True)
class Setting:
    """What does not change during a run. Latencies are ranges in seconds."""

    nodes: int = 3
    spares: int = 0
    """Nodes that found no group and may join one."""
    groups: int = 1
    network_s: tuple[float, float] = (0.0001, 0.001)
    disk_s: tuple[float, float] = (0.0002, 0.003)
    drop_rate: float = 0.0
    drift: float = 0.0
    bundles: bool = False
    """Whether commands may share an entry."""
    coalescing: int = 0
    """So many nodes, the first ones, send each other what a turn has for their groups in one frame."""
    raft: RaftSettings = field(default_factory=RaftSettings)


class World:
    def __init__(self, seed: int, setting: Setting = Setting()) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.settings = setting.raft
        self.drift = setting.drift
        self.bundles = setting.bundles
        self.nodes: Sequence[str] = tuple(f"n{number}" for number in range(1, setting.nodes + setting.spares + 1))
        self.coalescing = set(self.nodes[: setting.coalescing])
        self.images: list[tuple[tuple[int, int, bytes], ...]] = []
        self.group_ids = range(1, setting.groups + 1)
        self.disk_s = setting.disk_s
        self.full: set[str] = set()
        """The nodes whose disks have room for small writes only."""
        self.network_s = setting.network_s
        self.trap: Callable[[Process, RaftMessage], bool] = lambda *_: False
        self._heap: list[tuple[float, int, Call, Process | None]] = []
        self._numbers = count()
        self.processes: dict[str, Process] = {}
        self.disks = {node: self._new_disk() for node in self.nodes}
        self._lost: dict[tuple[str, int], Disk] = {}
        self.founders = {node: self.disks[node].incarnation for node in self.nodes[: setting.nodes]}
        self.checker = Checker(self)
        self.network = Network(
            self.nodes,
            self.rng,
            lambda: self._draw(self.network_s),
            setting.drop_rate,
            self.at,
            lambda: self.now,
            self.processes.get,
        )
        self.network.on_sent = self.checker.sent
        self._releases = random.Random(f"{seed}/releases")
        """Another stream of chance: which release a node runs changes nothing else of a run."""
        self._is_mixed = self._releases.random() < MIXED
        self.network.protocols = self.protocols = dict.fromkeys(self.nodes, PROTOCOL_VERSION)
        for node in self.nodes:
            self.restart(node)

    def _draw(self, between: tuple[float, float]) -> float:
        return between[0] + (between[1] - between[0]) * self.rng.random()

    def new_machine(self, process: Process, group_id: int) -> Remembering:
        """What a group runs."""
        return Remembering(process)

    def _new_disk(self) -> Disk:
        return Disk(self.rng, lambda: self._draw(self.disk_s))

    # Time.

    def at(self, delay: float, callback: Call, owner: Any = None) -> None:
        """Run a callback after ``delay`` seconds, unless the process that owns it has died by then."""
        heappush(self._heap, (self.now + delay, next(self._numbers), callback, owner))

    def step(self) -> None:
        """One event, and all checks after it."""
        self.now, _, callback, owner = heappop(self._heap)
        if owner is None:
            callback()
        elif owner.is_paused:
            owner.backlog.append(callback)
        elif owner.is_alive:
            callback()
            self.checker.check(owner)
        if self.checker.violation is not None:
            raise self.checker.violation

    def run(self, seconds: float) -> None:
        """Let some time pass."""
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            self.step()
        self.now = end

    def run_until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Let time pass until a condition holds; AssertionError if it never does."""
        end = self.now + seconds
        while not condition():
            assert self._heap and self._heap[0][0] <= end, f"not within {seconds} s"
            self.step()

    def after_receive(self, process: Process, message: RaftMessage) -> None:
        """A trap may crash a process right after it has handled a message of some kind."""
        if self.trap(process, message):
            self.trap = lambda *_: False
            self.crash(process.node_id)

    # Faults.

    def crash(self, node_id: str) -> None:
        process = self.processes.pop(node_id, None)
        if process is not None:
            process.is_alive = False
            self.disks[node_id].crash()
            self.checker.crashed(process)
            self.network.died(node_id)

    def wipe(self, node_id: str) -> None:
        """The node dies, and its disk is replaced by an empty one."""
        self.crash(node_id)
        lost = self.disks[node_id]
        self._lost[node_id, lost.incarnation] = lost
        self.disks[node_id] = self._new_disk()

    def disk(self, node_id: str, incarnation: int) -> Disk | None:
        """A disk that the node has or had."""
        disk = self.disks[node_id]
        return disk if disk.incarnation == incarnation else self._lost.get((node_id, incarnation))

    def restart(self, node_id: str) -> None:
        """In a mixed world, in the release before or in this one: upgraded, rolled back, or as it was."""
        if node_id not in self.processes:
            older = self._is_mixed and self._releases.random() < 0.5
            self.protocols[node_id] = PROTOCOL_OLDEST if older else PROTOCOL_VERSION
            process = self.processes[node_id] = Process(self, node_id)
            for peer in self.network.peers(node_id):
                self.network.connect(node_id, peer)
            self.checker.check(process)

    def pause(self, node_id: str) -> None:
        process = self.processes.get(node_id)
        if process is not None:
            process.is_paused = True

    def resume(self, node_id: str) -> None:
        process = self.processes.get(node_id)
        if process is not None and process.is_paused:
            process.is_paused = False
            backlog, process.backlog = process.backlog, deque()
            for callback in backlog:
                self.at(0.0, callback, process)

    def fill(self, node_id: str, *, is_full: bool) -> None:
        """A disk has no room to spare from now on, or has room again; the node says so at once."""
        if is_full != (node_id in self.full):
            self.full ^= {node_id}
            process = self.processes.get(node_id)
            if process is not None and not process.is_paused:
                process.send_heartbeats(0.0)

    def isolate(self, nodes: Sequence[str]) -> None:
        """Cut these nodes from the others."""
        for one in nodes:
            for other in self.nodes:
                if other not in nodes:
                    self.network.cut(one, other)

    def heal(self) -> None:
        """Everything is up, connected and awake; full disks stay full."""
        for node in self.nodes:
            self.resume(node)
            self.restart(node)
            for group_id in self.group_ids:
                if group_id not in self.processes[node].groups:
                    self.processes[node].open_group(group_id)
        for pair in self.network.links:
            self.network.mend(*sorted(pair))

    # Looking.

    def leaders(self, group_id: int = 1) -> list[str]:
        """Nodes that lead, as far as they know."""
        groups = {node: process.groups.get(group_id) for node, process in sorted(self.processes.items())}
        return [node for node, group in groups.items() if group is not None and group.is_leader]

    def group(self, node_id: str, group_id: int = 1) -> Group:
        return self.processes[node_id].groups[group_id]
