"""The groups of a node on disk: their logs, checkpoints and tombstones, brought together when a group is opened.

``CheckpointScheduler`` takes their checkpoints, one at a time. One lock guards the checkpoints of all groups: code that
replaces or removes a checkpoint holds it. Blocking work runs in threads of the storage's own; ``close`` waits for them.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ..core.group import Group
from ..log.configuration import founding_configuration
from ..log.group_log import GroupLog
from ..log.origin import FIRST_INDEX, CapturedState, Origin
from ..machine import ImageDamaged, Machine
from ..settings import RaftSettings
from ..threads import to_its_end
from ..wal.errors import DiskRefused
from ..wal.records import RecoveredGroup
from ..wal.wal import NONE_KEPT, Wal
from .digests import Digests
from .store import Checkpoint, CheckpointDamaged, CheckpointStore
from .tombstones import Tombstones

_Result = TypeVar("_Result")
THREADS = 2
ENTRY_BYTES = 4096
"""Bytes that an entry counts towards a checkpoint, beside its commands: applying it again after a restart takes 20 to
30 us, and each further command in it 3 us.
"""
STATE_SHARE = 16
"""A group applies this multiple of its last checkpoint's state before the next checkpoint is due: encoding the state
holds up the loop, and 100,000 producers make 15 MB of it.
"""
UNSYNCED_BYTES = 4 * 1024 * 1024
"""Bytes that a machine writes before the next sync of them begins, so that little is left to a checkpoint's sync."""
RECORDS = 16 * 1024
"""Records of the log after which the scheduler checks again how much the groups have applied together."""
INDEX_MAX = (1 << 63) - 1
"""No log has so many entries."""
SHARE = 16
"""A group is light while it has applied less than ``checkpoint_bytes / SHARE``: with many light groups, checkpoints
would cost more than they save.
"""

_log = logging.getLogger(__name__)


class OpenGroup:
    """A group that is open on this node: its machine, its log, and how much it applied since its last checkpoint."""

    def __init__(self, machine: Machine, log: GroupLog, due: Callable[[], None], checkpoint_bytes: int) -> None:
        self.machine = machine
        self.log = log
        self.generation: int = 1
        """The number of the folder with the files that the machine works on."""
        self.newest_generation: int = 1
        """The greatest number that the folder of a copied checkpoint has had."""
        self.stale: list[Path] = []
        """Folders of files to be removed when the next checkpoint is on disk."""
        self.state_bytes: int = 0
        """Bytes of the last checkpoint's state."""
        self.applied_bytes: int = 0
        """Bytes of commands applied since the last checkpoint, and ENTRY_BYTES for each entry that held them."""
        self._bound = self._bound_min = checkpoint_bytes
        self._due = due

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due, by what was applied since the last one and what it would free on disk."""
        return self.applied_bytes + self.machine.reclaimable >= self._bound

    @property
    def is_unsynced(self) -> bool:
        """Whether the machine has written UNSYNCED_BYTES or more since its last sync began."""
        return self.machine.unsynced_bytes >= UNSYNCED_BYTES

    def make_due(self) -> None:
        """Make a checkpoint of this group due, regardless of how much it has applied."""
        self.applied_bytes += self._bound
        self._due()

    def in_force(self, generation: int, state_bytes: int) -> None:
        """Note that a checkpoint of this generation, with ``state_bytes`` of state, is on disk."""
        self.generation, self.state_bytes = generation, state_bytes
        self._bound = max(self._bound_min, STATE_SHARE * state_bytes)

    def applied(self, entries: int, size: int) -> None:
        """Count ``entries`` entries that the machine has applied, with ``size`` bytes of commands, and call ``due`` if
        that makes a checkpoint or a sync due.
        """
        self.applied_bytes += size + entries * ENTRY_BYTES
        if self.is_due or self.is_unsynced:
            self._due()


class GroupStorage:
    """Log, checkpoints and tombstones of a node. ``due`` is called when a group's checkpoint, or sync, may be due."""

    def __init__(self, data: Path, log: Wal, checkpoint_bytes: int, due: Callable[[], None]) -> None:
        """Raises DiskRefused if groups have checkpoints and the log has never held a record: the log is missing."""
        self.log = log
        self.store: CheckpointStore = CheckpointStore(data / "groups")
        self.digests: Digests = Digests()
        self.copied: Callable[[], Mapping[int, int]] = dict
        """Returns by group the index of the oldest checkpoint that other nodes copy: next they need the entries after
        it.
        """
        self._tombstones = Tombstones(data / "left")
        self.lock: asyncio.Lock = asyncio.Lock()
        self.open_groups: dict[int, OpenGroup] = {}
        self._checkpoint_bytes = checkpoint_bytes
        self._due = due
        self._is_closed = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="checkpoints")
        if log.is_new and any((data / "groups").glob("*/checkpoint")):
            raise DiskRefused(data / "wal", "the log is missing, though there are checkpoints of groups")

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Do blocking work in a thread, and return its result. A cancelled caller waits until the work is done."""
        return await to_its_end(asyncio.get_running_loop().run_in_executor(self._threads, work))

    def discard(self, path: Path) -> None:
        """Remove an unused folder in a thread. If the node dies first, opening the group removes it."""
        if not self._is_closed:
            self._threads.submit(shutil.rmtree, path, ignore_errors=True)

    async def close(self) -> None:
        """Wait until the threads have done their work, and end them."""
        self._is_closed = True
        await asyncio.to_thread(self._threads.shutdown)

    def open(self, group_id: int, founders: Mapping[str, int], machine: Machine) -> OpenGroup:
        """Restore the group's machine and log from its checkpoint, or start them if it has none. Blocks while it reads.

        Raises DiskRefused if the checkpoint is missing or damaged, or does not fit the log. Must not be called again
        after that, nor while the group is open.
        """
        assert group_id not in self.open_groups, "what it has recovered is in use"
        if group_id not in self.log.recovered:
            self.store.erase(group_id)  # remains of a group whose erasure a crash interrupted
        checkpoint = self.store.read(group_id)
        group_log = self._recover(group_id, founders, checkpoint)
        opened = self.open_groups[group_id] = OpenGroup(machine, group_log, self._due, self._checkpoint_bytes)
        self._begin(group_id, opened, checkpoint)
        return opened

    def _recover(self, group_id: int, founders: Mapping[str, int], checkpoint: Checkpoint | None) -> GroupLog:
        recovered = self.log.recovered.pop(group_id, None) or RecoveredGroup()
        tombstone = self._tombstones.read(group_id)
        founding = Origin(configuration=founding_configuration({} if tombstone.term else founders))
        origin = founding if checkpoint is None else checkpoint.origin
        path = self.store.path(group_id)
        if recovered.covered > max(origin.index, FIRST_INDEX):
            there = f"it ends at {origin.index}" if checkpoint is not None else "it is missing"
            raise CheckpointDamaged(path, f"{there}, and the log builds upon a checkpoint at {recovered.covered}")
        try:
            return GroupLog(group_id, self.log, recovered, origin, tombstone)
        except ValueError as error:
            raise CheckpointDamaged(path, str(error)) from error

    def _begin(self, group_id: int, opened: OpenGroup, checkpoint: Checkpoint | None) -> None:
        self.store.tidy(group_id, None if checkpoint is None else checkpoint.generation)
        if checkpoint is None:
            opened.machine.start(self.store.begin(group_id, opened.generation))
            return
        directory = self.store.files(group_id, checkpoint.generation)
        try:
            opened.machine.restore(directory, checkpoint.state, checkpoint.files)
        except (ImageDamaged, FileNotFoundError) as error:
            raise CheckpointDamaged(directory, str(error)) from error
        self.in_force(group_id, checkpoint)

    def replaced(self, group_id: int, checkpoint: Checkpoint) -> None:
        """Note that a checkpoint which this node took of its own state is on disk."""
        self.open_groups[group_id].log.checkpointed(checkpoint.index)
        self.in_force(group_id, checkpoint)

    def in_force(self, group_id: int, checkpoint: Checkpoint) -> None:
        """Note that this checkpoint is on disk and the machine works on its files; remove the files of older ones."""
        opened = self.open_groups[group_id]
        opened.in_force(checkpoint.generation, len(checkpoint.state))
        self.log.covered(group_id, checkpoint.index)
        while opened.stale:
            self.discard(opened.stale.pop())

    async def release(self, log_bytes_kept: int = 0) -> None:
        """Remove the files of the log that no group needs. Files with entries after a checkpoint that another node is
        copying stay, too, while the log has at most ``log_bytes_kept`` bytes. A cancelled caller waits until the
        removal is done.
        """
        kept = self.copied() if self.log.disk_bytes <= log_bytes_kept else NONE_KEPT
        await to_its_end(asyncio.ensure_future(self.log.release(self._forget, kept)))

    def _remember(self, group_id: int, opened: OpenGroup | None, recovered: RecoveredGroup | None) -> None:
        if opened is not None:
            self._tombstones.write(group_id, opened.log.tombstone())
        elif recovered is not None:
            try:
                checkpoint = self.store.read(group_id)
                covered = (0, 0) if checkpoint is None else (checkpoint.term, checkpoint.index)
            except DiskRefused:  # it may have covered anything of this term
                covered = recovered.term, INDEX_MAX
            self._tombstones.write(group_id, self._tombstones.of_unopened(group_id, recovered, covered))

    def _forget(self, group_id: int, index: int) -> None:
        opened, recovered = self.open_groups.get(group_id), self.log.recovered.get(group_id)
        if opened is not None:
            opened.log.compact(index)
        elif recovered is not None:  # of a group that is opened later
            recovered.entries = [entry for entry in recovered.entries if entry.index > index]

    async def forget_tombstones(self, is_gone: Callable[[int], bool]) -> None:
        """Remove the tombstones of the groups for which ``is_gone`` returns True: they are never opened again."""
        await self.run(lambda: self._tombstones.forget(is_gone))

    async def erase(self, group_id: int) -> None:
        """Erase a group, which has stopped: write its tombstone, then remove its entries and its files."""
        opened = self.open_groups.pop(group_id, None)
        recovered = self.log.recovered.pop(group_id, None)
        if opened is not None or recovered is not None:
            await self.run(lambda: self._remember(group_id, opened, recovered))
            await self.log.until_durable(self.log.erase(group_id))
        await self.run(lambda: self.store.erase(group_id))


class CheckpointScheduler:
    """Takes the checkpoints of a node's groups when they are due, one at a time.

    A group is due when it has applied ``checkpoint_bytes`` of commands since its last checkpoint, or 16 times its state
    if that is more; or when its entries pin the oldest file of a log that is longer than ``wal_bytes_max``. When the
    groups together have applied more than ``wal_bytes_max`` since their last checkpoints, the group that has applied
    most is next: so a restart is short, however small the entries. Light groups (SHARE) neither count for that sum nor
    are taken because of it.

    Between two checkpoints the scheduler syncs the files that machines have written, a few MiB at a time: one sync of
    all of them would hold up the syncs of the log, and so all appends. On a disk with little room (``frees_early``), a
    group is due as soon as its checkpoint would free any file.

    The state is captured on the loop; its bytes are made durable in a thread, while the group goes on. A failing disk
    stops the node, by ``fail``; nothing is captured on a node that has failed (``has_failed``).
    """

    def __init__(
        self,
        groups: Mapping[int, Group],
        settings: RaftSettings,
        fail: Callable[[BaseException], None],
        has_failed: Callable[[], bool],
    ) -> None:
        self.frees_early: bool = False
        """Whether a group is due as soon as a checkpoint of it would free any room on disk."""
        self._groups = groups
        self._wal_bytes_max = settings.wal_bytes_max
        self._heavy_bytes = settings.checkpoint_bytes // SHARE
        self._fail = fail
        self._has_failed = has_failed
        self._may_be_due = asyncio.Event()
        self._seen_bytes = 0
        self._seen_lsn = 0
        self._warned: set[int] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self, storage: GroupStorage) -> None:
        """Begin to take checkpoints of the groups in ``storage``, until ``stop``."""
        self._storage = storage
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Take no more checkpoints. A write under way is finished."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def due(self) -> None:
        """Check all groups soon: one of them may be due."""
        self._may_be_due.set()

    def log_grew(self) -> None:
        """Check all groups soon if the log is too long, once for each new file of it, or has RECORDS records more."""
        log = self._storage.log
        is_too_long = log.disk_bytes > self._wal_bytes_max and log.disk_bytes != self._seen_bytes
        if is_too_long or log.lsn - self._seen_lsn >= RECORDS:
            self._seen_bytes, self._seen_lsn = log.disk_bytes, log.lsn
            self._may_be_due.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._may_be_due.wait()
                self._may_be_due.clear()
                passed: set[int] = set()
                while (group_id := self._next_due(passed)) is not None:
                    passed.add(group_id)  # the other due groups come first before it is taken again
                    await self._take(group_id)
                    await self._sync_early()
                await self._sync_early()
                await self._release()
        except Exception as error:
            self._fail(error)

    async def _sync_early(self) -> None:
        """Sync the files of machines that have written much, so that the syncs of checkpoints have little to do."""
        for open_group in list(self._storage.open_groups.values()):
            if open_group.is_unsynced and (sync := open_group.machine.begin_sync()) is not None:
                await self._storage.run(sync)

    def _next_due(self, passed: set[int]) -> int | None:
        """The id of the due group to take next; None if none is due. Groups in ``passed`` have been taken already."""
        applied = [(group.applied_bytes, key) for key, group in self._storage.open_groups.items() if key not in passed]
        heavy = [(size, key) for size, key in applied if size >= self._heavy_bytes]
        is_too_much = sum(size for size, _ in heavy) > self._wal_bytes_max
        due = heavy if is_too_much else [each for each in applied if self._is_due(each[1])]
        if due:
            return max(due)[1]
        log = self._storage.log
        oldest = log.pinning_group() if log.disk_bytes > self._wal_bytes_max else None
        return None if oldest in passed else oldest

    def _is_due(self, group_id: int) -> bool:
        group = self._storage.open_groups[group_id]
        return group.is_due or (self.frees_early and group.machine.reclaimable > 0)

    async def _take(self, group_id: int) -> bool:
        """Take a checkpoint of a group. False if it is not open, its last checkpoint is as new and a new one would free
        nothing, its configuration is not known yet, or this node has failed.
        """
        storage = self._storage
        async with storage.lock:
            captured = self._capture(group_id)
            if captured is None:
                return False
            checkpoint = Checkpoint(
                group_id,
                captured.index,
                captured.term,
                captured.configuration,
                storage.open_groups[group_id].generation,
                captured.image.state,
                captured.image.files,
            )

            def write() -> None:
                captured.image.sync()
                storage.store.write(checkpoint)

            await storage.run(write)
            storage.replaced(group_id, checkpoint)
            captured.image.stored()
        _log.info("group %d: checkpoint at %d, %d bytes", group_id, checkpoint.index, len(checkpoint.state))
        await self._release()
        return True

    async def _release(self) -> None:
        await self._storage.release(0 if self.frees_early else self._wal_bytes_max)

    def _capture(self, group_id: int) -> CapturedState | None:
        open_group, group = self._storage.open_groups.get(group_id), self._groups.get(group_id)
        if open_group is None or group is None:
            if group_id not in self._warned:
                _log.warning("group %d is not open here, so the log must keep all its entries", group_id)
                self._warned.add(group_id)
            return None
        if self._has_failed():
            return None
        open_group.applied_bytes = 0
        # A machine may drop files without a command: then a checkpoint at the same index frees them.
        is_new = group.applied_index > open_group.log.origin.index or open_group.machine.reclaimable > 0
        return group.capture() if is_new else None
