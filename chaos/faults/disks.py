"""Faults of disks: power loss, full, read-only, slow, hung. They need root, and a cluster started on disks of its own.

A node that cannot write must stop. Healing repairs the disk and starts the node again.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from ..system import cgroups
from ..system.disks import LoopDisk, NotMounted, why_not
from ..system.undo import is_gone
from ..system.waiting import NotInTime, until
from .fault import Arena, Broken, NothingToBreak
from .targets import listed, one, pid_of, running

GONE_TIMEOUT_S = 30.0
"""A process that was killed must be gone after this time."""
END_S = 5.0
"""Seconds: more than a node that gives its disk up needs to end itself."""


def _why_not(arena: Arena) -> str | None:
    if not arena.disks:
        return why_not() or "the cluster was not started on disks of its own"
    return None


class Power:
    """Disks lose all writes that no fsync has confirmed; the processes on them are killed at the same moment."""

    def __init__(self, name: str, about: str, *, all_nodes: bool) -> None:
        self.name = name
        self.about = about
        self._all_nodes = all_nodes

    def why_not(self, arena: Arena) -> str | None:
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Cut the power of one random node, or of all at one instant."""
        wanted = list(arena.disks) if self._all_nodes else [one(list(arena.disks), chance)]
        nodes = await asyncio.to_thread(_cut, {node: arena.disks[node] for node in wanted})
        if not nodes:
            raise NothingToBreak(f"another fault is repairing the disks of {listed(wanted)}")
        for node in nodes:
            arena.kill(node)

        async def heal() -> None:
            await _mend(arena, nodes)

        return Broken(f"power of {listed(nodes)} cut", heal, nodes)


class BadDisk:
    """A disk that refuses writes, because of ``damage``."""

    def __init__(self, name: str, about: str, what: str, damage: Callable[[LoopDisk], None]) -> None:
        self.name = name
        self.about = about
        self._what = what
        self._damage = damage

    def why_not(self, arena: Arena) -> str | None:
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        node = one([node for node in running(arena) if arena.disks[node].is_well], chance)
        try:
            await asyncio.to_thread(self._damage, arena.disks[node])
        except NotMounted as error:
            raise NothingToBreak(f"another fault is repairing the disk of {node}") from error

        async def heal() -> None:
            await _mend(arena, [node])

        return Broken(f"disk of {node} {self._what}", heal, [node])


class SlowDisk:
    """A disk that accepts few bytes a second. ``rates``: bytes a second, each with its effect in words; a strike draws
    one. At one byte a second a write neither ends nor fails, and the node gives the disk up.
    """

    def __init__(self, name: str, about: str, rates: Mapping[int, str]) -> None:
        self.name = name
        self.about = about
        self._rates = rates

    def why_not(self, arena: Arena) -> str | None:
        return _why_not(arena) or cgroups.why_not("blkio")

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        node, rate = one(running(arena), chance), chance.choice([*self._rates])
        disk, pid = arena.disks[node], pid_of(arena, node)
        try:
            slow = await asyncio.to_thread(lambda: cgroups.SlowDevice(disk.device, rate, [pid]))
        except NotMounted as error:
            raise NothingToBreak(f"another fault is repairing the disk of {node}") from error
        except cgroups.CgroupFailed as error:
            if not is_gone(pid):
                raise
            raise NothingToBreak(f"{node} has just ended") from error

        async def heal() -> None:
            await _given_back(arena, node, slow)

        return Broken(f"disk of {node} {self._rates[rate]}", heal, [node])


async def _given_back(arena: Arena, node: str, slow: cgroups.SlowDevice) -> None:
    """Remove the limit. A node that has given its disk up ends within END_S, and is started again."""
    await asyncio.to_thread(slow.close)
    with suppress(NotInTime):
        await until(partial(_is_gone, arena, node), END_S, f"{node} goes on")
    arena.start(node)


async def _is_gone(arena: Arena, node: str) -> bool:
    return arena.pid(node) is None


def _cut(disks: Mapping[str, LoopDisk]) -> list[str]:
    """Cut the power of these nodes' disks, except those that are not mounted, because another fault is repairing them;
    return the nodes whose disks were cut. Raises DiskFailed: a power cut that loses nothing tests nothing.
    """
    cut: list[str] = []
    for node, disk in disks.items():
        with suppress(NotMounted):
            disk.cut()
            cut.append(node)
    return cut


async def _mend(arena: Arena, nodes: Sequence[str]) -> None:
    """Repair the disks that refuse writes, and start their nodes. Nodes on healthy disks go on."""
    for node in nodes:
        disk = arena.disks[node]
        disk.make_room()
        if not disk.is_well:
            arena.kill(node)
            await until(partial(_is_gone, arena, node), GONE_TIMEOUT_S, f"{node} is not gone")
            await asyncio.to_thread(disk.repair)
        arena.start(node)


SLOW = {rate * 1024: f"takes {rate} KB/s" for rate in (64, 256, 1024)}
DISK_FAULTS = (
    Power("power", "the power of all nodes is cut at once; what was not synced is lost", all_nodes=True),
    Power("power-one", "the power of one node is cut; what it has not synced is lost", all_nodes=False),
    BadDisk("disk-full", "a node's disk has no room", "full", LoopDisk.fill),
    BadDisk("disk-read-only", "a node's file system becomes read-only", "read-only", LoopDisk.refuse_writes),
    SlowDisk("disk-slow", "a node's disk takes 64 to 1024 KB/s (cgroup)", SLOW),
    SlowDisk("disk-hangs", "writes to a node's disk neither end nor fail (cgroup)", {1: "hangs"}),
)
