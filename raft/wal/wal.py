"""The write-ahead log of a node: the records of all its groups in one stream, made durable by one stream of fdatasyncs.

``Wal`` is the interface; only ``Wal`` promises anything to callers. It does group commit: records gather in memory
while one flush runs, and the next flush makes all of them durable together. The other modules here: records.py (the
bytes, and their place in files), writer.py (the thread that writes), files.py and file_set.py (the files), recovery.py
(the state at the start). Here are also the two things that a log keeps in memory: recent payloads, and the file that
each group still needs.
"""

import asyncio
import os
from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType

import msgspec

from ...partition.log.fsutil import make_directory, sync_directory
from ..histogram import Histogram
from ..threads import in_thread
from .errors import WalFailed, WalStalled
from .file_set import SpareFiles
from .files import WalReader, lock_directory
from .records import (
    ENTRY,
    ERASE,
    RESET,
    TRUNCATE,
    VOTE,
    Location,
    RecoveredGroup,
    Tail,
    parts_of,
)
from .recovery import recover
from .writer import FlushThread, WalWriter

FILE_BYTES = 64 << 20
CACHE_BYTES_MAX = 64 << 20
"""More bytes than are durable and not committed yet while Producers load a node to its limit. So entries are applied
from memory: to read one from the disk, the event loop would wait behind the log's own writes.
"""
OVERHEAD_BYTES = 256
"""Approximate memory that a cached payload takes besides its bytes."""
STALL_S = 30.0
STALL_LOOKS = 30
"""How often the loop looks at the writer within ``stall_s``."""
NONE_KEPT: Mapping[int, int] = MappingProxyType({})
STALL_BYTES_PER_S = 64 << 10
"""A sync may take ``stall_s`` and the time that its bytes need at this rate: a slow disk does not count as one that
hangs.
"""


class RecentPayloads:
    """The payloads appended last: all that are not durable yet, and at most ``bytes_max`` bytes of durable ones.

    A payload is read soon after its append: to be sent, and to be applied once it is committed. So within the bound the
    disk is read only for a follower that lags.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._payloads: OrderedDict[Location, tuple[int, bytes]] = OrderedDict()
        self.get: Callable[[Location], tuple[int, bytes] | None] = self._payloads.get
        """Returns (LSN, payload) of a location; None if it is not cached."""

    def add(self, location: Location, lsn: int, payload: bytes) -> None:
        """Cache the payload of record ``lsn``, the highest so far."""
        self._payloads[location] = lsn, payload
        self._bytes += OVERHEAD_BYTES + len(payload)

    def settle(self, durable_lsn: int) -> None:
        """Records up to ``durable_lsn`` are on disk: drop the oldest of their payloads until the bound holds."""
        while self._bytes > self._bytes_max and self._payloads:
            location, (lsn, payload) = next(iter(self._payloads.items()))
            if lsn > durable_lsn:
                return
            del self._payloads[location]
            self._bytes -= OVERHEAD_BYTES + len(payload)


class GroupFiles(msgspec.Struct):
    """The files that hold one group's records, and its term and vote: two numbers for each file with entries, however
    many entries there are.
    """

    term: int = 0
    voted_for: str | None = None
    state_file: int = 0
    """The number of the file with the last record that states the term."""
    covered: int = 0
    """A checkpoint on disk covers all entries up to this index."""
    stop: int = 0
    """The index after the last entry."""
    runs: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(index of the first entry, number of the file), for each file that holds entries of the group; ascending."""

    def append(self, index: int, term: int, number: int) -> None:
        """Note that the next entry, of this index and term, is in file ``number``."""
        if not self.runs or self.runs[-1][1] != number:
            self.runs.append((index, number))
        self.stop = index + 1
        if term > self.term:
            self.term, self.voted_for, self.state_file = term, None, number

    def truncate(self, from_index: int) -> None:
        """Note that the entries from ``from_index`` on are dropped."""
        while self.runs and self.runs[-1][0] >= from_index:
            self.runs.pop()
        self.stop = min(self.stop, from_index)

    def file_of(self, index: int) -> int | None:
        """The file of the entry at ``index``, or the first one if that is gone; None if there is no such entry yet."""
        if not self.runs or index >= self.stop:
            return None
        at = bisect_right(self.runs, (index, 1 << 62))
        return self.runs[max(0, at - 1)][1]

    def drop_before(self, number: int) -> int | None:
        """Forget the files before ``number``. Returns the last index in them; None if they hold no entry."""
        kept = [run for run in self.runs if run[1] >= number]
        if len(kept) == len(self.runs):
            return None
        self.runs = kept
        return (kept[0][0] if kept else self.stop) - 1


class FileUsage:
    """The files of the log that the groups still need."""

    def __init__(self, recovered: dict[int, RecoveredGroup]) -> None:
        self.groups: defaultdict[int, GroupFiles] = defaultdict(GroupFiles)
        for group_id, group in recovered.items():
            files = self.groups[group_id]
            files.term, files.voted_for = group.term, group.voted_for
            files.state_file, files.covered = group.state_file, group.covered
            for entry in group.entries:
                files.append(entry.index, entry.term, parts_of(entry.location)[0])

    def oldest(self) -> tuple[int, int] | None:
        """(file number, group id) of the oldest file with an entry that no checkpoint covers; None if there is none."""
        needed = ((files.file_of(files.covered + 1), key) for key, files in self.groups.items())
        return min(((number, key) for number, key in needed if number is not None), default=None)

    def oldest_beyond(self, indexes: Mapping[int, int]) -> int | None:
        """The oldest file with an entry whose index is above its group's in ``indexes``; None if there is none."""
        found = (self.groups[group].file_of(index + 1) for group, index in indexes.items() if group in self.groups)
        return min((number for number in found if number is not None), default=None)

    def to_repeat(self, number: int) -> Iterator[int]:
        """The groups whose VOTE record has to be written again before the files before ``number`` leave the log: those
        files state the group's term and vote, or hold entries that a checkpoint covers, and the record states both.
        """
        for group_id, files in self.groups.items():
            if files.state_file < number or (files.runs and files.runs[0][1] < number):
                yield group_id


class Wal:
    """The append-only log of a node, shared by its groups.

    Every record gets the next log sequence number (LSN). Records appended while a flush runs become durable together,
    by the next flush. All methods run on the event loop; write and fdatasync run in one thread of the log's own.

    After an error of a write or an fdatasync the log has failed for good: ``on_failure`` is called once with the
    error, no fsync is repeated, ``durable_lsn`` never grows again, and every later append raises WalFailed. A
    write that does not end for ``stall_s`` seconds is such an error, WalStalled: otherwise a leader whose disk hangs
    would go on to lead, since its followers' disks are enough to commit, until it runs out of memory.
    """

    recovered: dict[int, RecoveredGroup]
    """The state of each group when the log was opened, by group id. Erased groups are absent."""
    on_durable: Callable[[], None]
    """Called on the loop each time ``durable_lsn`` has grown, after every ``wake`` that waited for it. Does nothing
    until it is set.
    """
    durable_lsn: int = 0
    """Every record up to and including this one is on disk. 0 at opening, as recovered records have no LSN."""

    def __init__(
        self,
        directory: Path,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[BaseException], None],
        file_bytes: int = FILE_BYTES,
        cache_bytes_max: int = CACHE_BYTES_MAX,
        stall_s: float = STALL_S,
    ) -> None:
        """Recover the log in ``directory``, which is created if absent. Blocks while it reads.

        Files are preallocated to ``file_bytes`` bytes; a record that needs more gets a file of its own.
        ``cache_bytes_max`` bounds the bytes of durable payloads in memory. Raises WalLocked if another process uses
        the directory, WalCorrupt if records that were on disk are damaged or missing, OSError if the disk fails.
        """
        make_directory(directory)
        sync_directory(directory.parent)  # a process that created it may have died before its sync
        with ExitStack() as undo:
            self._lock = lock_directory(directory)
            undo.callback(os.close, self._lock)
            recovery = recover(directory)
            self._spares = SpareFiles(directory, file_bytes)
            self._spares.keep_before(recovery.identity.first)  # a process may have died before it did that
            undo.pop_all()
        self.recovered = recovery.groups
        self.on_durable = lambda: None
        self._identity = recovery.identity
        self._usage = FileUsage(recovery.groups)
        self._is_closed = False
        self._recent = RecentPayloads(cache_bytes_max)
        self._reader = WalReader(directory)
        self._tail = Tail(file_bytes, recovery.number, recovery.end, recovery.sizes)
        self.durable_position: int = self._tail.position
        """The position where the records on disk end, which grows over files and restarts (``Tail.position``)."""
        self._loop = loop
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._writer = WalWriter(self._spares.begin, self._identity.grow)
        self._thread = FlushThread(self._writer.write, loop)
        self._is_flushing = self._is_scheduled = False
        self._durable_bytes = 0
        self._next_flush: asyncio.Event | None = None
        """Set when the flush under way has ended, with or without an error."""
        self._waiting: dict[Callable[[], None], int] = {}
        self._directory, self._stall_s = directory, stall_s
        self._next_look = loop.call_later(stall_s / STALL_LOOKS, self._look, (0, 0), 0)

    @property
    def incarnation(self) -> int:
        """The number that tells this disk from any other: drawn when the log was made, 0 < incarnation < 2**63."""
        return self._identity.incarnation

    @property
    def level(self) -> int:
        """The cluster's feature level, as far as this disk knows."""
        return self._identity.level

    async def raise_level(self, level: int) -> None:
        """Record durably that data written from now on may need software of this feature level. A cancelled caller
        waits until that is done: once the log is closed, its identity belongs to the node's next process.
        """
        await in_thread(self._identity.raise_level, level)

    @property
    def is_new(self) -> bool:
        """Whether this directory has never held a record."""
        return self._identity.last == 0

    @property
    def lsn(self) -> int:
        """The LSN of the last record appended."""
        return self._tail.lsn

    @property
    def syncs(self) -> Histogram:
        """Seconds of each fdatasync since the log was opened."""
        return self._writer.syncs

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not durable yet. They are in memory: callers of ``append`` have to bound them."""
        return self._tail.appended_bytes - self._durable_bytes

    def append(self, group_id: int, index: int, term: int, payload: bytes) -> tuple[int, Location]:
        """Append an entry; returns its LSN and its location.

        ``index`` must follow the group's last index, if it has entries. Raises WalFailed after a failure or close.
        """
        files, tail = self._usage.groups[group_id], self._tail
        assert not files.runs or index == files.stop, (
            f"entry {index} of group {group_id} follows entry {files.stop - 1}"
        )
        self._flush_soon()
        location = tail.add(ENTRY, group_id, index, term, payload)
        files.append(index, term, tail.number)
        lsn = tail.lsn
        self._recent.add(location, lsn, payload)
        return lsn, location

    def truncate(self, group_id: int, from_index: int) -> int:
        """Drop the group's entries from ``from_index`` on; returns the LSN. If none is left, any index may follow."""
        self._flush_soon()
        self._tail.add(TRUNCATE, group_id, from_index, 0, b"")
        self._usage.groups[group_id].truncate(from_index)
        return self.lsn

    def reset(self, group_id: int, index: int, term: int) -> int:
        """Drop the group's entries, not its vote, as a checkpoint covers all up to (index, term); returns the LSN."""
        self._flush_soon()
        self._tail.add(RESET, group_id, index, term, b"")
        files = self._usage.groups[group_id]
        files.runs.clear()
        files.covered = max(files.covered, index)
        return self.lsn

    def save_vote(self, group_id: int, term: int, voted_for: str | None) -> int:
        """Record the group's current term, and the node voted for in it; returns the LSN."""
        assert voted_for != "", "the id of a node is not empty"
        files = self._usage.groups[group_id]
        self._flush_soon()
        self._tail.add(VOTE, group_id, files.covered, term, (voted_for or "").encode())
        files.term, files.voted_for, files.state_file = term, voted_for, self._tail.number
        return self.lsn

    def erase(self, group_id: int) -> int:
        """Drop the group: its entries, its term and its vote; returns the LSN."""
        self._flush_soon()
        self._tail.add(ERASE, group_id, 0, 0, b"")
        self._usage.groups.pop(group_id, None)
        return self.lsn

    def read(self, location: Location) -> bytes:
        """The payload of an entry, durable or not. Raises WalCorrupt if the disk returns other bytes."""
        found = self._recent.get(location)
        return self._reader.read(location) if found is None else found[1]

    def size(self, location: Location) -> int:
        """Bytes of the payload at ``location``, without a read."""
        return parts_of(location)[2]

    async def until_durable(self, lsn: int) -> None:
        """Return when the record is on disk. Raises WalFailed when it never will be."""
        while self.durable_lsn < lsn:
            if self._failure is not None:
                raise WalFailed("the log failed") from self._failure
            self._next_flush = self._next_flush or asyncio.Event()
            await self._next_flush.wait()

    async def all_durable(self) -> None:
        """Return when every record appended until now is on disk. Raises WalFailed when they never will be."""
        await self.until_durable(self._tail.lsn)

    def wake_when_durable(self, wake: Callable[[], None], lsn: int | None = None) -> None:
        """Call ``wake`` once, when record ``lsn`` is on disk; None: when every record appended until now is.

        A ``wake`` that waits already goes on to wait for its first record. It may wait again when called.
        """
        self._waiting.setdefault(wake, self._tail.lsn if lsn is None else lsn)

    @property
    def disk_bytes(self) -> int:
        """Bytes of all files of the log, including files that are being created; spare files do not count."""
        return self._tail.disk_bytes

    def covered(self, group_id: int, index: int) -> None:
        """Note that a checkpoint on disk covers the group's entries up to ``index``: restarts do not need them."""
        files = self._usage.groups[group_id]
        files.covered = max(files.covered, index)

    def pinning_group(self) -> int | None:
        """The id of the group whose entries pin the oldest file; None if only the file written to is needed."""
        oldest = self._usage.oldest()
        return None if oldest is None or oldest[0] >= self._tail.number else oldest[1]

    async def release(self, forget: Callable[[int, int], None], kept: Mapping[int, int] = NONE_KEPT) -> None:
        """Remove the oldest files from the log: those in which checkpoints cover all entries, and no entry's index is
        above that of its group in ``kept``.

        ``forget`` is called with the id of each group that has entries in those files, and its last index in them;
        these entries must not be read any more. Terms and votes in those files are written again first. The steps
        become durable in this order, so that a crash between two of them leaves a complete log: the repeated votes, the
        new first file in the identity, the removal of the files. Must not be called again before it has returned.
        Raises WalFailed or OSError.
        """
        oldest = self._usage.oldest()
        first = min(self._tail.number, oldest[0]) if oldest is not None else self._tail.number
        first = min(first, self._usage.oldest_beyond(kept) or first)
        if first <= self._identity.first:
            return
        for group_id in list(self._usage.to_repeat(first)):
            files = self._usage.groups[group_id]
            self.save_vote(group_id, files.term, files.voted_for)
        await self.all_durable()
        await asyncio.to_thread(self._identity.shrink, first)
        for group_id, files in self._usage.groups.items():
            if (index := files.drop_before(first)) is not None:
                forget(group_id, index)
        self._tail.forget_files_before(first)
        self._reader.forget_before(first)
        await asyncio.to_thread(self._spares.keep_before, first)

    async def close(self) -> None:
        """Make every record durable, then release files, thread and lock. May be called again.

        After WalStalled nothing is released: the thread may still write, so the lock is held until the process ends.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._flush()
        while self._is_flushing:  # a flush that ends begins the next one, if records wait, before this loop goes on
            if isinstance(self._failure, WalStalled):
                return
            self._next_flush = self._next_flush or asyncio.Event()
            await self._next_flush.wait()
        self._next_look.cancel()
        self._thread.close()
        self._writer.close()
        self._reader.close()
        os.close(self._lock)

    # Group commit: one flush at a time. Only write and fdatasync run in the thread.

    def _flush_soon(self) -> None:
        """Schedule a flush at the end of this turn of the loop, for the record that the caller is about to add and all
        others of the turn. Raises WalFailed after a failure or ``close``.
        """
        if self._failure is not None:
            raise WalFailed("the log takes no more records after a failed write") from self._failure
        if self._is_closed:
            raise WalFailed("the log is closed")
        if not self._is_flushing and not self._is_scheduled:
            self._is_scheduled = True
            # Two turns of ``call_soon``: the frames that this turn queues go out first, since the thread, once woken,
            # competes with the loop.
            self._loop.call_soon(self._loop.call_soon, self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        runs = self._tail.runs
        if not self._is_flushing and self._failure is None and runs:
            self._tail.runs = []
            self._is_flushing = True
            tail = self._tail
            self._thread.begin(runs, partial(self._flushed, tail.lsn, tail.appended_bytes, tail.position))

    def _flushed(self, lsn: int, appended_bytes: int, position: int, error: BaseException | None) -> None:
        if isinstance(self._failure, WalStalled):  # callers that waited for this flush were told that it failed
            return
        self._is_flushing = False
        if error is not None:
            self._fail(error)
            return
        self._wake()
        self.durable_lsn, self._durable_bytes, self.durable_position = lsn, appended_bytes, position
        self._flush()
        self._recent.settle(lsn)
        due = [wake for wake, last in self._waiting.items() if last <= lsn]
        for wake in due:
            del self._waiting[wake]
        for wake in due:
            wake()
        self.on_durable()

    def _look(self, step: tuple[int, int], looks: int) -> None:
        """Check the writer, and fail the log if it has stayed at one step for too long. ``looks`` is the number of
        earlier checks that found it at ``step``. Checks are counted, not seconds, since a disk does not hang while the
        process, or its machine, stands still.
        """
        now_at, every_s = self._writer.step, self._stall_s / STALL_LOOKS  # read once: the thread goes on
        looks = looks + 1 if self._is_flushing and step == now_at else 0
        if looks * every_s >= self._stall_s + step[1] / STALL_BYTES_PER_S:
            self._fail(WalStalled(self._directory, self._stall_s))
        elif self._failure is None:
            self._next_look = self._loop.call_later(every_s, self._look, now_at, looks)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._wake()
        self._on_failure(error)

    def _wake(self) -> None:
        if self._next_flush is not None:
            self._next_flush.set()
            self._next_flush = None
