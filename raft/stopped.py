"""The groups of a stopped node, read from its disk without changing it: for recovery when no majority is left.

A node's disk does not say how far its groups had committed. Entries that a checkpoint covers were committed. Later
entries may be committed or not: only a majority of the replicas can tell. If a group has one voter, its disk is that
majority.

Of a damaged log, the entries before the damage are read. A later entry behind the damage may have replaced them, as it
may replace any entry that is not known to be committed. Of a log that is gone, or whose identity is missing or damaged,
only the checkpoints are read.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from .checkpoint.store import Checkpoint, CheckpointDamaged, CheckpointStore
from .core.pending import commands_of
from .host import check_level
from .log.configuration import CONFIGURATION, Configuration, founding_configuration
from .log.origin import FIRST_INDEX, Origin, continuation
from .messages import Software
from .wal.errors import DiskRefused, WalCorrupt
from .wal.files import WalReader, lock_to_read
from .wal.records import LogEntry, RecoveredGroup
from .wal.recovery import recover


class StoppedGroup(NamedTuple):
    """A group on the disk: its last checkpoint (None: it has none), the folder of that checkpoint's files, and the
    entries of the log behind it. ``is_alone``: this disk is the group's only voter, so all entries are committed.
    ``end``: (term, index) of the last entry; of two disks, the one with the greater end is more up to date.
    """

    checkpoint: Checkpoint | None
    files: Path
    entries: list[LogEntry]
    is_alone: bool
    end: tuple[int, int]


class StoppedNode:
    """The disk of a stopped node, in ``with``, which keeps the node from starting. Blocks while it reads the log."""

    def __init__(self, data: Path, software: Software) -> None:
        """Raises WalLocked if the node runs, FileNotFoundError if the folder has no data of a node, DiskRefused if
        newer software wrote it, OSError.
        """
        with suppress(WalCorrupt):  # of the identity, which tells the level: ``recover`` meets it, too
            check_level(data, software)
        if not (data / "groups").exists():
            raise FileNotFoundError(f"{data} has no data of a node")
        self._lock: int | None = None
        with suppress(FileNotFoundError):  # of a log that was removed, or copied without it
            self._lock = lock_to_read(data / "wal")
        self.fault: DiskRefused | OSError | None = None
        """What is wrong with the log, of which only the records before that are read; None: nothing."""
        self._incarnation: int | None = None
        self._groups: dict[int, RecoveredGroup] = {}
        try:
            self._store = CheckpointStore(data / "groups")
            self._recover(data / "wal")
        except BaseException:
            self._unlock()
            raise
        self._reader = WalReader(data / "wal")

    def _recover(self, directory: Path) -> None:
        if not directory.exists():
            self.fault = DiskRefused(directory, "the folder is missing, so only the checkpoints could be read")
            return
        try:
            recovery = recover(directory, changes=False)
        except WalCorrupt as fault:  # no record can be read, and the checkpoints are there
            self.fault = fault
        else:
            self.fault, self._groups = recovery.fault, recovery.groups
            self._incarnation = recovery.identity.incarnation

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def group(self, group_id: int, founders: Mapping[str, int]) -> StoppedGroup:
        """A group with these founders. Raises DiskRefused if its checkpoint is damaged, or does not fit the log."""
        recovered = self._groups.get(group_id, RecoveredGroup())
        is_there = group_id in self._groups or self.fault is not None  # the damage may hide where the group begins
        checkpoint = self._store.read(group_id) if is_there else None
        path = self._store.path(group_id)
        founding = Origin(configuration=founding_configuration(founders))
        origin = founding if checkpoint is None else checkpoint.origin
        if recovered.covered > max(origin.index, FIRST_INDEX):
            raise CheckpointDamaged(path, f"the log builds upon a checkpoint at {recovered.covered}")
        try:
            found = continuation(recovered.entries, origin)
        except ValueError as error:
            raise CheckpointDamaged(path, str(error)) from error
        entries = [] if found is None else [entry for entry in found[2] if entry.index > origin.index]
        voters = self._configuration(origin, entries).voters
        end = (entries[-1].term, entries[-1].index) if entries else (origin.term, origin.index)
        is_alone = [*voters.values()] == [self._incarnation]
        files = self._store.files(group_id, checkpoint.generation if checkpoint is not None else 0)
        return StoppedGroup(checkpoint, files, entries, is_alone, end)

    def commands(self, group: StoppedGroup) -> Iterator[tuple[int, int, bytes]]:
        """(index, term, command) of each command behind the checkpoint, in order. Raises DiskRefused."""
        for entry in group.entries:
            payload = self._reader.read(entry.location)
            if payload[:1] != CONFIGURATION:
                for command in commands_of(payload):
                    yield entry.index, entry.term, command

    def _configuration(self, origin: Origin, entries: list[LogEntry]) -> Configuration:
        """The configuration in force at the end of the log."""
        changes = [entry for entry in entries if entry.type == CONFIGURATION[0]]
        return Configuration.of_entry(self._reader.read(changes[-1].location)) if changes else origin.configuration
