"""What a node keeps of its groups on disk, log and checkpoints, brought together when a group is opened.

One lock guards the checkpoints of all groups: whoever replaces one, or removes one, holds it. Blocking work runs in
threads of the keeper's own, which ``close`` waits for.
"""

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from .checkpoints import Checkpoint, CheckpointDamaged, CheckpointStore
from .configuration import founded_by
from .departures import Departures
from .journal import Journal
from .machine import CheckpointedMachine, FileExtent, Image, ImageDamaged, Machine
from .origin import FIRST_INDEX, Origin
from .refusal import DiskRefused
from .wal import RecoveredGroup, Wal

_Result = TypeVar("_Result")
THREADS = 2
ENTRY_BYTES = 4096
"""What an entry counts towards a checkpoint beside its commands: a restart, which applies it again, takes 20 to 30 us
for each, and 3 us for a command more.
"""
STATE_SHARE = 16
"""A group applies so many times the state of its last checkpoint before the next is due: encoding one holds up the
loop, and 100,000 producers make 15 MB of it.
"""
UNSYNCED_BYTES = 4 * 1024 * 1024
"""So much a machine writes before the next sync of it begins: what is left to a checkpoint stays small."""


class Kept:
    """A group that is open here. It counts what its machine applies."""

    def __init__(self, machine: Machine, journal: Journal, due: Callable[[], None], checkpoint_bytes: int) -> None:
        self.machine = machine
        self.journal = journal
        self.generation = 1
        """Which folder the machine's files are in."""
        self._newest_generation = 1
        self.stale: list[Path] = []
        """Folders that nobody needs when the next checkpoint counts."""
        self.state_bytes: int = 0
        """Of the last checkpoint."""
        self.applied_bytes: int = 0
        """Of commands since the last checkpoint, and ENTRY_BYTES for each of their entries."""
        self._index = 0
        self._due = due
        self._checkpoint_bytes = checkpoint_bytes
        self.bundles: bool = getattr(machine, "bundles", False)
        self._flush: Callable[[], None] | None = getattr(machine, "flush", None)
        self.begin_sync: Callable[[], Callable[[], None] | None] = getattr(machine, "begin_sync", lambda: None)
        """Begin to sync what was written. The rest is for a thread."""
        if isinstance(machine, CheckpointedMachine):
            self.capture: Callable[[], Image] = machine.capture
            self.restore: Callable[[Path, bytes, Sequence[FileExtent]], None] = machine.restore

    @property
    def is_due(self) -> bool:
        """Whether so much was applied, or would be set free on disk, that a checkpoint should be taken."""
        reclaimable: int = getattr(self.machine, "reclaimable", 0)
        return self.applied_bytes + reclaimable >= self._bound

    @property
    def _bound(self) -> int:
        return max(self._checkpoint_bytes, STATE_SHARE * self.state_bytes)

    @property
    def is_unsynced(self) -> bool:
        """Whether so much was written that a sync of it should begin."""
        unsynced_bytes: int = getattr(self.machine, "unsynced_bytes", 0)
        return unsynced_bytes >= UNSYNCED_BYTES

    def make_due(self) -> None:
        """Have a checkpoint taken soon, whatever was applied."""
        self.applied_bytes += self._bound
        self._due()

    def next_generation(self) -> int:
        """That of a folder which no checkpoint on disk may name."""
        self._newest_generation = max(self._newest_generation, self.generation) + 1
        return self._newest_generation

    def apply(self, index: int, term: int, command: bytes) -> object:
        """Apply, and count."""
        self.applied_bytes += len(command)
        if index != self._index:  # the first command of its entry
            self._index = index
            self.applied_bytes += ENTRY_BYTES
        return self.machine.apply(index, term, command)

    def flush(self) -> None:
        """A run of applies is over: write what the machine keeps of it, and see whether it is time for a checkpoint."""
        if self._flush is not None:
            self._flush()
        if self.is_due or self.is_unsynced:
            self._due()


class Keeper:
    """Log and checkpoints of a node. ``due`` is called when a group's checkpoint should be taken."""

    def __init__(self, data: Path, log: Wal, checkpoint_bytes: int, due: Callable[[], None]) -> None:
        """Raises DiskRefused if there are checkpoints, but a log that never held anything."""
        self.log = log
        self.store: CheckpointStore = CheckpointStore(data / "groups")
        self._departures = Departures(data / "left")
        self.lock: asyncio.Lock = asyncio.Lock()
        self.kept: dict[int, Kept] = {}
        self._checkpoint_bytes = checkpoint_bytes
        self._due = due
        self._journals: dict[int, Journal] = {}
        self._is_closed = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="checkpoints")
        if log.is_new and not self.store.is_empty:
            raise DiskRefused(data / "wal", "the log is missing, though there are checkpoints of groups")

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Do blocking work in a thread. A caller that is cancelled waits until it is done all the same."""
        return await _to_its_end(asyncio.get_running_loop().run_in_executor(self._threads, work))

    def discard(self, path: Path) -> None:
        """Remove a folder that nobody needs, some time. What stays when the node dies goes when the group is opened."""
        if not self._is_closed:
            self._threads.submit(shutil.rmtree, path, ignore_errors=True)

    async def close(self) -> None:
        """Wait for the threads."""
        self._is_closed = True
        await asyncio.to_thread(self._threads.shutdown)

    def open(self, group_id: int, founders: Mapping[str, int], machine: Machine) -> Kept:
        """Bring a machine, and the journal after it, to where the checkpoint ends. Blocks while it reads.

        Raises DiskRefused.
        """
        journal = self._journals.get(group_id)
        if journal is None and group_id not in self.log.recovered:
            self.store.erase(group_id)  # what a crash left of an erased group
        checkpoint = self.store.read(group_id)
        if journal is None:
            journal = self._journals[group_id] = self._journal(group_id, founders, checkpoint)
        elif checkpoint is not None and checkpoint.index > journal.origin.index:
            journal.install(checkpoint.origin)
        kept = self.kept[group_id] = Kept(machine, journal, self._due, self._checkpoint_bytes)
        if isinstance(machine, CheckpointedMachine):
            self._begin(group_id, kept, machine, checkpoint)
        return kept

    def _journal(self, group_id: int, founders: Mapping[str, int], checkpoint: Checkpoint | None) -> Journal:
        recovered = self.log.recovered.pop(group_id, None) or RecoveredGroup()
        left = self._departures.read(group_id)
        founding = Origin(configuration=founded_by({} if left.term else founders))
        origin = founding if checkpoint is None else checkpoint.origin
        path = self.store.path(group_id)
        if recovered.covered > max(origin.index, FIRST_INDEX):
            there = f"it ends at {origin.index}" if checkpoint is not None else "it is missing"
            raise CheckpointDamaged(path, f"{there}, and the log builds upon a checkpoint at {recovered.covered}")
        try:
            return Journal(group_id, self.log, recovered, origin, left)
        except ValueError as error:
            raise CheckpointDamaged(path, str(error)) from error

    def _begin(self, group_id: int, kept: Kept, machine: CheckpointedMachine, checkpoint: Checkpoint | None) -> None:
        self.store.tidy(group_id, None if checkpoint is None else checkpoint.generation)
        if checkpoint is None:
            machine.start(self.store.begin(group_id, kept.generation))
            return
        directory = self.store.files(group_id, checkpoint.generation)
        try:
            machine.restore(directory, checkpoint.state, checkpoint.files)
        except (ImageDamaged, FileNotFoundError) as error:
            raise CheckpointDamaged(directory, str(error)) from error
        self.counts(group_id, checkpoint)

    def replaced(self, group_id: int, checkpoint: Checkpoint) -> None:
        """A checkpoint of a state that this node has reached is on disk."""
        self._journals[group_id].checkpointed(checkpoint.index)
        self.counts(group_id, checkpoint)

    def counts(self, group_id: int, checkpoint: Checkpoint) -> None:
        """The checkpoint on disk is this one, and the machine works on its files."""
        kept = self.kept[group_id]
        kept.generation, kept.state_bytes = checkpoint.generation, len(checkpoint.state)
        self.log.covered(group_id, checkpoint.index)
        while kept.stale:
            self.discard(kept.stale.pop())

    async def release(self) -> None:
        """Remove what the log holds and nobody needs. A caller that is cancelled waits until that is done."""
        await _to_its_end(asyncio.ensure_future(self.log.release(self._forget)))

    def _remember(self, group_id: int, opened: Journal | None, recovered: RecoveredGroup | None) -> None:
        if opened is not None:
            self._departures.write(group_id, opened.leave())
        elif recovered is not None:
            self._departures.write(group_id, self._departures.of_unopened(group_id, recovered))

    def _forget(self, group_id: int, index: int) -> None:
        journal, recovered = self._journals.get(group_id), self.log.recovered.get(group_id)
        if journal is not None:
            journal.compact(index)
        elif recovered is not None:  # of a group that is opened later
            recovered.entries = [entry for entry in recovered.entries if entry.index > index]

    async def forget_departures(self, is_gone: Callable[[int], bool]) -> None:
        """Forget what was promised in groups that nobody will ever open again."""
        await self.run(lambda: self._departures.forget(is_gone))

    async def erase(self, group_id: int) -> None:
        """Forget a group: its entries, then what it stored; what it had promised is kept. It must not be open."""
        opened = self._journals.pop(group_id, None)
        recovered = self.log.recovered.pop(group_id, None)
        if opened is not None or recovered is not None:
            await self.run(lambda: self._remember(group_id, opened, recovered))
            await self.log.until_durable(self.log.erase(group_id))
        await self.run(lambda: self.store.erase(group_id))


async def _to_its_end(work: asyncio.Future[_Result]) -> _Result:
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
