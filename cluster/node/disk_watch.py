"""How full the disk of a node's data folder is: measured all the time, compared with two watermarks.

``low``, below the soft watermark: the node takes no appends. What is under way, the log up to its bound, checkpoints
and commands without records still have room down to the hard watermark. ``full``, below that: the node takes no copies
of partitions either, and its last room is the reserve, which a full disk makes it use (partition/log/space.py). Both
end when an eighth more than the watermark is free: appends do not come and go with each file.

One full disk is one lost node, not the end of writes. Heartbeats tell each node how full the disks of the others are. A
leader takes appends while its own disk and those of a majority of its voters have room, each not far behind; entries go
to a full disk only where a majority needs it, and then they are small; and a node with little room hands what it leads
over to voters that have more. Why not refuse as soon as one replica's disk is low? One disk that something else fills
would stop the writes of half a cluster, which can lose that node altogether and write on.

Free is what the file system gives to a process without privileges; a node with them stops at the same place. A file
system may have bytes and no inode for another file, which is a full disk as well: there the reserve would help nothing.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ...partition.log.fsutil import make_directory
from ...partition.log.space import Reserve
from ...raft.core.group import Group
from ...raft.host import RaftHost
from ..condition import aligned_s
from ..config import LimitsSection

DiskState = Literal["ok", "low", "full"]
STATES: tuple[DiskState, ...] = ("ok", "low", "full")
"""The states; the index of each is the number that heartbeats carry for it."""
PERIOD_S = 1.0
"""Between two measurements."""
SOFT_FREE_FILES = 1024
"""The soft watermark of files that the file system has inodes for, or a sixty-fourth of all where that is less."""
HARD_FREE_FILES = 256
"""The same for the hard watermark, or a 256th."""
MARGIN = 8
"""The part of a watermark, one over this, that has to be free beyond it before the disk counts as better again."""

_log = logging.getLogger(__name__)


def judge(free: int, soft: int, hard: int, before: DiskState) -> DiskState:
    """The state of a disk with so many bytes, or files, free, after the state ``before``. ``soft`` 0: no watermarks."""
    is_full = free < hard + (hard // MARGIN if before == "full" else 0)
    is_low = free < soft + (soft // MARGIN if before != "ok" else 0)
    if not soft or not (is_low or is_full):
        return "ok"
    return "full" if is_full else "low"


def _total_bytes(data: Path) -> int:
    found = os.statvfs(data)
    return found.f_blocks * found.f_frsize


class DiskWatch:
    """The disk of one data folder. ``free_bytes``, ``total_bytes`` and ``state`` are as of the last measurement; but
    once the reserve was used, ``state`` is full until there is room for it again.
    """

    def __init__(self, node_id: str, data: Path, limits: LimitsSection) -> None:
        """Measures, and takes the reserve if the disk has room for it. Raises OSError. Blocks."""
        make_directory(data)
        total_bytes = _total_bytes(data)
        self.soft_free_bytes: int = min(limits.disk_soft_free_bytes, total_bytes // 2)
        """The soft watermark, or half of the disk where that is less, so that a small disk takes appends, too."""
        self.hard_free_bytes: int = min(limits.disk_hard_free_bytes, total_bytes // 4)
        """The hard watermark, or a quarter of the disk where that is less."""
        self.free_bytes: int = 0
        self.total_bytes: int = 0
        self.changed: Callable[[], None] = lambda: None
        """Called when the state has changed, and each PERIOD_S while it is not ok."""
        self.host: RaftHost | None = None
        """Knows the disks of the other nodes. None: not set yet, and no other disk counts."""
        self._node_id = node_id
        self._data = data
        self._by_bytes: DiskState = "ok"
        self._by_files: DiskState = "ok"
        self._measured: DiskState = "ok"
        self._told: DiskState = "ok"
        self._reserve_bytes = limits.disk_reserve_bytes
        self._reserve = Reserve(data / "reserve", limits.disk_reserve_bytes)
        self._judge(*self._measure())

    @property
    def state(self) -> DiskState:
        """How full the disk is; ``full`` also while the reserve is spent."""
        return "full" if self._reserve.is_spent else self._measured

    def without_room(self, group: Group) -> list[str]:
        """The nodes whose disks keep a group that this node leads from taking another record; empty: it may take one.
        Called for each append.
        """
        if self._measured != "ok" or self._reserve.is_spent:
            return [self._node_id]
        if self.host is None or not self.host.disks:
            return []
        low = [voter for voter in group.voters if voter in self.host.disks]
        return low if 2 * (1 + len(self._others_with_room(group))) <= len(group.voters) else []

    def heir(self, group: Group) -> str | None:
        """The voter that shall lead a group in place of this node, whose disk has little room. None: this node has room
        itself or does not lead the group, or those that have room are no majority of the voters.
        """
        others = self._others_with_room(group)
        if self.state == "ok" or not group.is_leader or 2 * len(others) <= len(group.voters):
            return None
        return others[group.group_id % len(others)]

    def _others_with_room(self, group: Group) -> list[str]:
        """The other voters that can take entries now: connected, with room on their disks, and not far behind."""
        assert self.host is not None, "it has none yet"
        able = self.host.connected - {self._node_id, *self.host.disks, *group.out_of_sync}
        return [voter for voter in group.voters if voter in able]

    @property
    def has_reserve(self) -> bool:
        """Whether the reserve is held. It is not after it was used, or if there never was room for it."""
        return self._reserve.is_held

    async def run(self) -> None:
        """Measure until cancelled. Raises OSError."""
        while True:
            await asyncio.sleep(aligned_s(PERIOD_S))
            self._judge(*await asyncio.to_thread(self._measure))

    def close(self) -> None:
        """Close the file of the reserve, which is not given up any more."""
        self._reserve.close()

    def _measure(self) -> tuple[int, int, int, int]:
        """The free and the total bytes of the disk, the free and the total files (0: the file system has no bound).
        Takes the reserve if it is not held, and its blocks are still there or the disk has ample room for them; the
        free bytes are those beside it.
        """
        found = os.statvfs(self._data)
        free_bytes = found.f_bavail * found.f_frsize
        if not self.has_reserve:
            lacking_bytes = 0 if self._reserve.has_blocks else self._reserve_bytes
            is_ample = not lacking_bytes or free_bytes >= self.hard_free_bytes + lacking_bytes
            if is_ample and self._reserve.hold():
                free_bytes = max(0, free_bytes - lacking_bytes)
        return free_bytes, found.f_blocks * found.f_frsize, found.f_favail, found.f_files

    def _judge(self, free_bytes: int, total_bytes: int, free_files: int, total_files: int) -> None:
        self.free_bytes, self.total_bytes = free_bytes, total_bytes
        self._by_bytes = judge(free_bytes, self.soft_free_bytes, self.hard_free_bytes, self._by_bytes)
        soft_files = min(SOFT_FREE_FILES, total_files // 64) if self.soft_free_bytes else 0
        self._by_files = judge(free_files, soft_files, min(HARD_FREE_FILES, total_files // 256), self._by_files)
        self._measured = max(self._by_bytes, self._by_files, key=STATES.index)
        before, self._told = self._told, self.state
        if self._told != before:
            level = logging.INFO if self._told == "ok" else logging.WARNING
            text = "the disk of %s is %s: %d of %d bytes are free; appends are refused below %d"
            if soft_files:
                text += f", and below {soft_files} free files: {free_files} of {total_files} are"
            _log.log(level, text, self._data, self._told, free_bytes, total_bytes, self.soft_free_bytes)
        if self._told != before or self._told != "ok":
            self.changed()
