"""Faults of disks: no power, no room, no writes, no speed. Need root, and a cluster started on disks of its own.

A node that cannot write stops, and must: healing mends the disk and starts it again.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from .. import cgroups
from ..disks import DiskFailed, LoopDisk, why_not
from ..fault import Arena, Broken, NothingToBreak
from ..waiting import until
from .targets import listed, one, pid_of, running

GONE_TIMEOUT_S = 30.0
"""A process that was killed must be gone after this time."""


def _why_not(arena: Arena) -> str | None:
    if not arena.disks:
        return why_not() or "the cluster was not started on disks of its own"
    return None


class Power:
    """Disks lose what no fsync has confirmed, and the processes on them are gone at the same moment."""

    def __init__(self, name: str, about: str, *, everybody: bool) -> None:
        self.name = name
        self.about = about
        self._everybody = everybody

    def why_not(self, arena: Arena) -> str | None:
        """It needs disks."""
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Cut the power of one node, or of all at one instant."""
        nodes = list(arena.disks) if self._everybody else [one(list(arena.disks), chance)]
        await asyncio.to_thread(_cut, [arena.disks[node] for node in nodes])
        for node in nodes:
            arena.kill(node)

        async def heal() -> None:
            await _mend(arena, nodes)

        return Broken(f"power of {listed(nodes)} cut", heal, nodes)


class BadDisk:
    """A disk that takes no more writes, for one reason or another."""

    def __init__(self, name: str, about: str, what: str, damage: Callable[[LoopDisk], None]) -> None:
        self.name = name
        self.about = about
        self._what = what
        self._damage = damage

    def why_not(self, arena: Arena) -> str | None:
        """It needs disks."""
        return _why_not(arena)

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Damage the disk of one node."""
        node = one([node for node in running(arena) if arena.disks[node].is_well], chance)
        await asyncio.to_thread(self._damage, arena.disks[node])

        async def heal() -> None:
            await _mend(arena, [node])

        return Broken(f"disk of {node} {self._what}", heal, [node])


class SlowDisk:
    """A disk that takes few bytes a second."""

    name = "disk-slow"
    about = "a node's disk takes 64 to 1024 KB/s (cgroup)"

    def why_not(self, arena: Arena) -> str | None:
        """It needs disks and cgroups."""
        return _why_not(arena) or cgroups.why_not("blkio")

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Slow one down."""
        node, rate = one(running(arena), chance), chance.choice([64, 256, 1024])
        disk, pid = arena.disks[node], pid_of(arena, node)
        try:
            slow = await asyncio.to_thread(cgroups.SlowDevice, disk.mountpoint, rate * 1024, [pid])
        except cgroups.CgroupFailed as error:
            raise NothingToBreak(str(error)) from error

        async def heal() -> None:
            await asyncio.to_thread(slow.close)

        return Broken(f"disk of {node} takes {rate} KB/s", heal)


def _cut(disks: Sequence[LoopDisk]) -> None:
    for disk in disks:
        if disk.is_well:
            with suppress(DiskFailed):  # another fault is mending it: the others are cut, and all are healed
                disk.cut()


async def _mend(arena: Arena, nodes: Sequence[str]) -> None:
    """Mend the disks on which nodes cannot run, and start them; who runs on a disk that is well is left alone."""
    for node in nodes:
        disk = arena.disks[node]
        disk.make_room()
        if not disk.is_well:
            arena.kill(node)

            async def is_gone(node: str = node) -> bool:
                return arena.pid(node) is None

            await until(is_gone, GONE_TIMEOUT_S, f"{node} is not gone")
            await asyncio.to_thread(disk.repair)
        arena.start(node)


DISK_FAULTS = (
    Power("power", "the power of all nodes is cut at once; what was not synced is lost", everybody=True),
    Power("power-one", "the power of one node is cut; what it has not synced is lost", everybody=False),
    BadDisk("disk-full", "a node's disk has no room", "full", LoopDisk.fill),
    BadDisk("disk-read-only", "a node's file system becomes read-only", "read-only", LoopDisk.refuse_writes),
    SlowDisk(),
)
