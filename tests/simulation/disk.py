"""A simulated disk: what was synced survives a crash; of what was not, a prefix of some length does."""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from simulation.checkpoints import Checkpoint

from stockade.raft.log.configuration import CONFIGURATION
from stockade.raft.log.origin import GroupTombstone
from stockade.raft.wal.records import LogEntry, RecoveredGroup

FIRST_INDEX = 2
"""Index 1 is the same everywhere and is not written."""


@dataclass(frozen=True, slots=True)
class Record:
    kind: str
    group: int
    index: int = 0
    term: int = 0
    payload: bytes = b""
    voted_for: str | None = None


@dataclass(slots=True)
class View:
    """One group, as a sequence of records leaves it. LogEntry ``index`` is at ``entries[index - first_index]``.

    What is before the first one was compacted, or overtaken by a checkpoint; the term right before it is known.
    """

    term: int = 0
    voted_for: str | None = None
    entries: list[tuple[int, bytes]] = field(default_factory=list)
    locations: list[int] = field(default_factory=list)
    first_index: int = FIRST_INDEX
    term_before: int = 0
    changes: list[int] = field(default_factory=list)
    """Indexes of the entries that are configurations."""

    @property
    def last_index(self) -> int:
        return self.first_index - 1 + len(self.entries)

    def entry(self, index: int) -> tuple[int, bytes] | None:
        return self.entries[index - self.first_index] if self.first_index <= index <= self.last_index else None

    def term_at(self, index: int) -> int | None:
        if index == self.first_index - 1:
            return self.term_before
        entry = self.entry(index)
        return None if entry is None else entry[0]

    def copy(self) -> "View":
        return replace(self, entries=[*self.entries], locations=[*self.locations], changes=[*self.changes])

    def begin_after(self, index: int, term: int) -> None:
        """Where there are no entries, those that follow a checkpoint may."""
        if not self.entries and self.first_index <= index:
            self.first_index, self.term_before = index + 1, term

    def compact(self, index: int) -> None:
        """Drop entries up to ``index``, as far as there are any."""
        count = min(index, self.last_index) + 1 - self.first_index
        if count > 0:
            self.term_before = self.entries[count - 1][0]
            self.first_index += count
            del self.entries[:count]
            del self.locations[:count]
            self.changes = [at for at in self.changes if at > index]

    def take(self, record: Record, location: int) -> None:
        if record.kind == "entry":
            assert record.index == self.last_index + 1, "a hole in the log"
            self.entries.append((record.term, record.payload))
            self.locations.append(location)
            if record.payload.startswith(CONFIGURATION):
                self.changes.append(record.index)
        elif record.kind == "truncate":
            count = max(0, record.index - self.first_index)
            del self.entries[count:]
            del self.locations[count:]
            self.changes = [at for at in self.changes if at < record.index]
        elif record.kind == "reset":
            self.entries, self.locations, self.changes = [], [], []
            self.first_index, self.term_before = record.index + 1, record.term
        elif record.kind == "vote":
            self.term, self.voted_for = record.term, record.voted_for
        else:
            self.term, self.voted_for, self.entries, self.locations, self.changes = 0, None, [], [], []
            self.first_index, self.term_before = FIRST_INDEX, 0


class Disk:
    """What outlives the processes of a node. ``latency_s`` draws the duration of a sync."""

    def __init__(self, rng: random.Random, latency_s: Callable[[], float]) -> None:
        self.incarnation = rng.getrandbits(63)
        self.records: list[Record] = []
        self.synced = 0
        self.latency_s = latency_s
        self.durable: defaultdict[int, View] = defaultdict(View)
        self.checkpoints: dict[int, Checkpoint] = {}
        """The one that counts of each group: durable, since a rename puts it here."""
        self.left: dict[int, GroupTombstone] = {}
        """What replicas that were erased here had promised."""
        self._erased: dict[int, tuple[int, Checkpoint]] = {}
        """Checkpoints of groups that were erased, each with the place of the record that says so."""
        self._rng = rng

    def sync(self, count: int) -> None:
        """The first ``count`` records are durable from now on."""
        for location in range(self.synced, count):
            record = self.records[location]
            self.durable[record.group].take(record, location)
        self.synced = max(self.synced, count)

    def covered(self, group_id: int) -> int:
        """Everything of a group up to here is in its checkpoint."""
        checkpoint = self.checkpoints.get(group_id)
        return FIRST_INDEX - 1 if checkpoint is None else checkpoint.index

    def has(self, group_id: int, index: int, entry: tuple[int, bytes]) -> bool:
        """Whether a committed entry is on this disk, in the log or in the checkpoint."""
        return index <= self.covered(group_id) or self.durable[group_id].entry(index) == entry

    def compact(self, group_id: int, index: int) -> None:
        """The files that held the entries up to here are gone."""
        self.durable[group_id].compact(index)

    def erase(self, group_id: int) -> None:
        """The next record says that a group is erased: once that is durable, its checkpoint goes."""
        checkpoint = self.checkpoints.pop(group_id, None)
        if checkpoint is not None:
            self._erased[group_id] = len(self.records), checkpoint

    def crash(self) -> None:
        """Of what was written and not synced, some prefix survives."""
        self.sync(self._rng.randint(self.synced, len(self.records)))
        del self.records[self.synced :]
        for group_id, (place, checkpoint) in self._erased.items():
            if place >= self.synced:
                self.checkpoints.setdefault(group_id, checkpoint)
        self._erased.clear()


class Log:
    """The write-ahead log of one process over a disk, with the interface of ``raft.wal.Wal``."""

    def __init__(self, disk: Disk, later: Callable[[float, Callable[[], None]], None]) -> None:
        """``later`` runs a callback of this process after some seconds."""
        self.recovered = {group: _recovered(view) for group, view in disk.durable.items()}
        self.on_durable: Callable[[], None] = lambda: None
        self.on_append: Callable[[int, int, int, bytes], None] = lambda *_: None
        self.durable_lsn = 0
        self.lsn = 0
        self.views: defaultdict[int, View] = defaultdict(View)
        for group, checkpoint in disk.checkpoints.items():
            disk.durable[group].begin_after(checkpoint.index, checkpoint.term)
        self.views.update((group, view.copy()) for group, view in disk.durable.items())
        self._disk = disk
        self._later = later
        self._is_flushing = False

    @property
    def pending_bytes(self) -> int:
        return sum(len(record.payload) for record in self._disk.records[self._disk.synced :])

    def append(self, group_id: int, index: int, term: int, payload: bytes) -> tuple[int, int]:
        self.on_append(group_id, index, term, payload)
        lsn = self._add(Record("entry", group_id, index, term, payload))
        return lsn, len(self._disk.records) - 1

    def truncate(self, group_id: int, from_index: int) -> int:
        return self._add(Record("truncate", group_id, from_index))

    def reset(self, group_id: int, index: int, term: int) -> int:
        return self._add(Record("reset", group_id, index, term))

    def save_vote(self, group_id: int, term: int, voted_for: str | None) -> int:
        return self._add(Record("vote", group_id, term=term, voted_for=voted_for))

    def erase(self, group_id: int) -> int:
        return self._add(Record("erase", group_id))

    def read(self, location: int) -> bytes:
        return self._disk.records[location].payload

    def size(self, location: int) -> int:
        return len(self.read(location))

    def _add(self, record: Record) -> int:
        self._disk.records.append(record)
        self.views[record.group].take(record, len(self._disk.records) - 1)
        self.lsn += 1
        self._flush()
        return self.lsn

    def _flush(self) -> None:
        if self._is_flushing or self.durable_lsn == self.lsn:
            return
        self._is_flushing = True
        lsn, count = self.lsn, len(self._disk.records)

        def landed() -> None:
            self._disk.sync(count)
            self.durable_lsn = lsn
            self._is_flushing = False
            self._flush()
            self.on_durable()

        # The flush begins at the end of the turn: what the turn appends after this is in the next one.
        self._later(self._disk.latency_s(), landed)


def _recovered(view: View) -> RecoveredGroup:
    places = zip(view.entries, view.locations, strict=True)
    entries = [
        LogEntry(index, term, location, payload[0])
        for index, ((term, payload), location) in enumerate(places, view.first_index)
    ]
    return RecoveredGroup(view.term, view.voted_for, entries)
