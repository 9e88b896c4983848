"""A simulated disk: what was synced survives a crash; of what was not, a prefix of some length does."""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from stockade.raft.wal import Entry, RecoveredGroup

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
    """One group, as a sequence of records leaves it. Entry ``index`` is at ``entries[index - FIRST_INDEX]``."""

    term: int = 0
    voted_for: str | None = None
    entries: list[tuple[int, bytes]] = field(default_factory=list)
    locations: list[int] = field(default_factory=list)

    @property
    def last_index(self) -> int:
        return FIRST_INDEX - 1 + len(self.entries)

    def entry(self, index: int) -> tuple[int, bytes] | None:
        return self.entries[index - FIRST_INDEX] if FIRST_INDEX <= index <= self.last_index else None

    def term_at(self, index: int) -> int | None:
        if index < FIRST_INDEX:
            return 0
        entry = self.entry(index)
        return None if entry is None else entry[0]

    def take(self, record: Record, location: int) -> None:
        if record.kind == "entry":
            assert record.index == self.last_index + 1, "a hole in the log"
            self.entries.append((record.term, record.payload))
            self.locations.append(location)
        elif record.kind == "truncate":
            del self.entries[record.index - FIRST_INDEX :]
            del self.locations[record.index - FIRST_INDEX :]
        elif record.kind == "vote":
            self.term, self.voted_for = record.term, record.voted_for
        else:
            self.term, self.voted_for, self.entries, self.locations = 0, None, [], []


class Disk:
    """What outlives the processes of a node. ``latency_s`` draws the duration of a sync."""

    def __init__(self, rng: random.Random, latency_s: Callable[[], float]) -> None:
        self.incarnation = rng.getrandbits(63)
        self.records: list[Record] = []
        self.synced = 0
        self.latency_s = latency_s
        self.durable: defaultdict[int, View] = defaultdict(View)
        self._rng = rng

    def sync(self, count: int) -> None:
        """The first ``count`` records are durable from now on."""
        for location in range(self.synced, count):
            record = self.records[location]
            self.durable[record.group].take(record, location)
        self.synced = max(self.synced, count)

    def crash(self) -> None:
        """Of what was written and not synced, some prefix survives."""
        self.sync(self._rng.randint(self.synced, len(self.records)))
        del self.records[self.synced :]


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
        for location, record in enumerate(disk.records):
            self.views[record.group].take(record, location)
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
    entries = [Entry(index, term, location) for index, ((term, _), location) in enumerate(places, FIRST_INDEX)]
    return RecoveredGroup(view.term, view.voted_for, entries)
