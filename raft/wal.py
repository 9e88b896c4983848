"""The write-ahead log of a node: all groups' records in one stream, made durable by one stream of fdatasyncs.

Its parts: wal_records (bytes), wal_tail (where they go), wal_commit (when), wal_files (disk), wal_cache (recent
payloads), wal_recovery (what is there at the start). Only the log itself says what a caller may count on.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from .durable import make_directory
from .wal_cache import RecentPayloads
from .wal_commit import GroupCommit
from .wal_files import WalReader, WalWriter, lock_directory, sync_directory
from .wal_places import Places
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
from .wal_spares import Spares
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
        the directory, WalCorrupt if records that were on disk are damaged or missing, OSError if the disk refuses.
        """
        return cls(directory, loop, on_failure, file_bytes, cache_bytes_max)

    durable_lsn: int = 0
    """Every record up to and including this one is on disk. 0 at opening: what was recovered is on disk."""

    def __init__(
        self,
        directory: Path,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[BaseException], None],
        file_bytes: int,
        cache_bytes_max: int,
    ) -> None:
        make_directory(directory)
        sync_directory(directory.parent)  # whoever made it may have died before
        with ExitStack() as undo:
            self._lock = lock_directory(directory)
            undo.callback(os.close, self._lock)
            recovery = recover(directory)
            self._spares = Spares(directory, file_bytes)
            undo.pop_all()
        self.recovered = recovery.groups
        self.on_durable = lambda: None
        self._identity = recovery.identity
        self._places = Places(recovery.groups)
        self._sizes = recovery.sizes
        self._is_closed = False
        self._recent = RecentPayloads(cache_bytes_max)
        self._reader = WalReader(directory)
        self._tail = Tail(file_bytes, recovery.number, recovery.end)
        writer = WalWriter(self._spares.begin, self._identity.grow)
        self._commit = GroupCommit(loop, self._tail, writer, self._settle, on_failure)

    @property
    def incarnation(self) -> int:
        """Tells this disk from any other: drawn when the directory became a log, from 1 to 2**63 - 1."""
        return self._identity.incarnation

    @property
    def is_new(self) -> bool:
        """Whether this directory has never held a record."""
        return self._identity.last == 0

    @property
    def lsn(self) -> int:
        """The last record appended."""
        return self._tail.lsn

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not durable yet. They are in memory: whoever appends keeps this bounded."""
        return self._tail.appended_bytes - self._commit.durable_bytes

    def append(self, group_id: int, index: int, term: int, payload: bytes) -> tuple[int, Location]:
        """Append an entry; answers its lsn and where to read it.

        ``index`` is the one after the group's last, if it has any. Raises WalFailed after a failure or close.
        """
        place = self._places.of(group_id)
        assert not place.runs or index == place.stop, (
            f"entry {index} of group {group_id} follows entry {place.stop - 1}"
        )
        lsn, location = self._add(ENTRY, group_id, index, term, payload)
        place.entry(index, self._tail.number)
        if term > place.term:
            place.term, place.voted_for, place.state_file = term, None, self._tail.number
        self._recent.add(location, lsn, payload)
        return lsn, location

    def truncate(self, group_id: int, from_index: int) -> int:
        """Forget the group's entries from ``from_index`` on; answers the lsn. If none is left, any may follow."""
        lsn, _ = self._add(TRUNCATE, group_id, from_index, 0, b"")
        self._places.of(group_id).cut(from_index)
        return lsn

    def reset(self, group_id: int, index: int, term: int) -> int:
        """Forget the group's entries, but not its vote: a checkpoint holds all up to (index, term); answers the lsn."""
        lsn, _ = self._add(RESET, group_id, index, term, b"")
        place = self._places.of(group_id)
        place.runs.clear()
        place.covered = max(place.covered, index)
        return lsn

    def save_vote(self, group_id: int, term: int, voted_for: str | None) -> int:
        """Record the group's current term and whom this node voted for in it; answers the lsn."""
        assert voted_for != "", "the id of a node is not empty"
        place = self._places.of(group_id)
        lsn, _ = self._add(VOTE, group_id, place.covered, term, (voted_for or "").encode())
        place.term, place.voted_for, place.state_file = term, voted_for, self._tail.number
        return lsn

    def erase(self, group_id: int) -> int:
        """Forget the group: its entries, its term and its vote; answers the lsn."""
        lsn, _ = self._add(ERASE, group_id, 0, 0, b"")
        self._places.groups.pop(group_id, None)
        return lsn

    def read(self, location: Location) -> bytes:
        """The payload of an entry, durable or not. Raises WalCorrupt if the disk returns something else."""
        payload = self._recent.get(location)
        return self._reader.read(location) if payload is None else payload

    async def until_durable(self, lsn: int) -> None:
        """Return when the record is on disk. Raises WalFailed when it never will be."""
        await self._commit.until_durable(lsn)

    async def all_durable(self) -> None:
        """Return when all that was appended until now is on disk. Raises WalFailed when it never will be."""
        await self.until_durable(self._tail.lsn)

    # Files that are needed no more.

    @property
    def disk_bytes(self) -> int:
        """Size of all files, those being preallocated included, but not those that are kept for their room only."""
        return sum(self._sizes.values())

    def covered(self, group_id: int, index: int) -> None:
        """A checkpoint on disk holds what the group's entries up to ``index`` did: restarts do not need them."""
        place = self._places.of(group_id)
        place.covered = max(place.covered, index)

    def pins_oldest(self) -> int | None:
        """The group that keeps the oldest file from being removed; None if only the file written to is needed."""
        oldest = self._places.oldest()
        return None if oldest is None or oldest[0] >= self._tail.number else oldest[1]

    async def release(self, forget: Callable[[int, int], None]) -> None:
        """Give up the oldest files, as far as all their entries are covered; a few of them are written over later.

        ``forget`` is called with a group and the last index of it that is about to go, and is read no more. The terms
        and votes in those files are written again first. Durable in this order, so that a crash between any two steps
        finds what was there before: those records, that the log begins later, the removal. Not to be called again
        before it has returned. Raises WalFailed or OSError.
        """
        oldest = self._places.oldest()
        first = min(self._tail.number, oldest[0]) if oldest is not None else self._tail.number
        if first <= self._identity.first:
            return
        for group_id in list(self._places.to_repeat(first)):
            place = self._places.of(group_id)
            self.save_vote(group_id, place.term, place.voted_for)
        await self.all_durable()
        await asyncio.to_thread(self._identity.shrink, first)
        for group_id, place in self._places.groups.items():
            if (index := place.drop_before(first)) is not None:
                forget(group_id, index)
        self._sizes = {number: size for number, size in self._sizes.items() if number >= first}
        self._reader.forget_before(first)
        await asyncio.to_thread(self._spares.keep_before, first)

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
        self._sizes[self._tail.number] = self._tail.file_bytes
        self._commit.request()
        return self._tail.lsn, location

    def _settle(self) -> None:
        self.durable_lsn = self._commit.durable_lsn
        self._recent.settle(self._commit.durable_lsn)
        self.on_durable()
