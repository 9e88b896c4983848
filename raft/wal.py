"""The write-ahead log of a node: all groups' records in one stream, made durable by one stream of fdatasyncs.

Its parts: wal_records (bytes), wal_tail (where they go), wal_commit (when), wal_files (disk), wal_cache (recent
payloads), wal_recovery (what is there at the start). Only the log itself says what a caller may count on.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from .wal_cache import RecentPayloads
from .wal_commit import GroupCommit
from .wal_files import WalReader, WalWriter, lock_directory, sync_directory
from .wal_records import (
    ENTRY,
    ERASE,
    RESET,
    TRUNCATE,
    VOTE,
    Entry,
    Location,
    RecoveredGroup,
    WalCorrupt,
    WalFailed,
    WalLocked,
)
from .wal_recovery import recover
from .wal_tail import Tail

__all__ = ["Entry", "Location", "RecoveredGroup", "Wal", "WalCorrupt", "WalFailed", "WalLocked"]

FILE_BYTES = 64 << 20
CACHE_BYTES_MAX = 64 << 20


class Wal:
    """One shared, append-only log of a node.

    Every record gets the next log sequence number (lsn). What is appended while a flush runs is made durable
    together by the next one. All methods run on the event loop; write and fdatasync run in one thread of the
    log's own.

    After any error of a write or an fdatasync the log is finished: ``on_failure`` is called once with the error,
    no fsync is repeated, ``durable_lsn`` never grows again, and every later append raises WalFailed.
    """

    recovered: dict[int, RecoveredGroup]
    """What the log held when it was opened, by group id. Groups that were erased are absent."""
    on_durable: Callable[[], None]
    """Called on the loop each time ``durable_lsn`` has grown. Does nothing until it is set."""

    @classmethod
    def open(
        cls,
        directory: Path,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[BaseException], None],
        file_bytes: int = FILE_BYTES,
        cache_bytes_max: int = CACHE_BYTES_MAX,
    ) -> "Wal":
        """Recover what ``directory`` holds (created if absent) and be ready to append. Blocks while it reads.

        ``file_bytes`` is the size files are preallocated to; a record that needs more gets a file of its own.
        ``cache_bytes_max`` bounds the durable records kept in memory. Raises WalLocked if another process uses
        the directory, WalCorrupt if records that were on disk are damaged, OSError if the disk refuses.
        """
        return cls(directory, loop, on_failure, file_bytes, cache_bytes_max)

    def __init__(
        self,
        directory: Path,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[BaseException], None],
        file_bytes: int,
        cache_bytes_max: int,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        sync_directory(directory.parent)
        with ExitStack() as undo:
            self._lock = lock_directory(directory)
            undo.callback(os.close, self._lock)
            recovery = recover(directory)
            undo.pop_all()
        self.recovered = recovery.groups
        self.on_durable = lambda: None
        self._extents = {
            group_id: range(group.entries[0].index, group.entries[-1].index + 1)
            for group_id, group in recovery.groups.items()
            if group.entries
        }
        self._is_closed = False
        self._recent = RecentPayloads(cache_bytes_max)
        self._reader = WalReader(directory)
        self._tail = Tail(file_bytes, recovery.number, recovery.end)
        self._commit = GroupCommit(loop, self._tail, WalWriter(directory), self._settle, on_failure)

    @property
    def durable_lsn(self) -> int:
        """Every record up to and including this one is on disk. 0 at opening: what was recovered is on disk."""
        return self._commit.durable_lsn

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not durable yet. They are in memory: whoever appends keeps this bounded."""
        return self._tail.appended_bytes - self._commit.durable_bytes

    def append(self, group_id: int, index: int, term: int, payload: bytes) -> tuple[int, Location]:
        """Append an entry; answers its lsn and where to read it.

        ``index`` is the one after the group's last, if it has any. Raises WalFailed after a failure or close.
        """
        extent = self._extents.get(group_id) or range(index, index)
        assert index == extent.stop, f"entry {index} of group {group_id} follows entry {extent.stop - 1}"
        lsn, location = self._add(ENTRY, group_id, index, term, payload)
        self._extents[group_id] = range(extent.start, index + 1)
        self._recent.add(location, lsn, payload)
        return lsn, location

    def truncate(self, group_id: int, from_index: int) -> int:
        """Forget the group's entries from ``from_index`` on; answers the lsn. If none is left, any may follow."""
        lsn, _ = self._add(TRUNCATE, group_id, from_index, 0, b"")
        extent = self._extents.get(group_id, range(0))
        self._extents[group_id] = range(extent.start, min(extent.stop, from_index))
        return lsn

    def reset(self, group_id: int, index: int, term: int) -> int:
        """Forget the group's entries, but not its vote: a checkpoint holds all up to (index, term); answers the lsn."""
        lsn, _ = self._add(RESET, group_id, index, term, b"")
        self._extents[group_id] = range(index + 1, index + 1)
        return lsn

    def save_vote(self, group_id: int, term: int, voted_for: str | None) -> int:
        """Record the group's current term and whom this node voted for in it; answers the lsn."""
        assert voted_for != "", "the id of a node is not empty"
        lsn, _ = self._add(VOTE, group_id, 0, term, (voted_for or "").encode())
        return lsn

    def erase(self, group_id: int) -> int:
        """Forget the group: its entries, its term and its vote; answers the lsn."""
        lsn, _ = self._add(ERASE, group_id, 0, 0, b"")
        self._extents.pop(group_id, None)
        return lsn

    def read(self, location: Location) -> bytes:
        """The payload of an entry, durable or not. Raises WalCorrupt if the disk returns something else."""
        payload = self._recent.get(location)
        return self._reader.read(location) if payload is None else payload

    async def close(self) -> None:
        """Make everything appended durable, then let go of files, thread and lock. Once is enough."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._commit.finish()
        self._reader.close()
        os.close(self._lock)

    def _add(self, kind: int, group_id: int, index: int, term: int, payload: bytes) -> tuple[int, Location]:
        if self._commit.failure is not None:
            raise WalFailed("the log takes no more records after a failed write") from self._commit.failure
        if self._is_closed:
            raise WalFailed("the log is closed")
        location = self._tail.add(kind, group_id, index, term, payload)
        self._commit.request()
        return self._tail.lsn, location

    def _settle(self) -> None:
        self._recent.settle(self._commit.durable_lsn)
        self.on_durable()
