"""One group's journal: what pysyncobj expects of a journal, kept in the log that all groups of the node share.

It holds terms, locations and configurations in memory and payloads never: those are read back through the shared log.
It begins at an origin: the founding of the group, or a checkpoint, which holds all that came before it. The commit
index is not kept: after a restart it is the origin, and what a leader has proved since.
"""

from collections import deque
from typing import Any, Protocol

from .configuration import CONFIGURATION, Configuration
from .origin import FIRST_INDEX, FOUNDED_BY_NOBODY, Origin
from .terms import Terms
from .wal_records import Entry, Location, RecoveredGroup

NO_OP = b"\x01"
"""pysyncobj's no-op, as its constructor would write it at index 1."""
ENTRIES_MAX = 8192
"""Entries in one message."""


class Log(Protocol):
    """What a journal uses of the node's write-ahead log (wal.py says what it means)."""

    @property
    def durable_lsn(self) -> int: ...  # noqa: D102
    def append(self, group_id: int, index: int, term: int, payload: bytes) -> tuple[int, Location]: ...  # noqa: D102
    def truncate(self, group_id: int, from_index: int) -> int: ...  # noqa: D102
    def reset(self, group_id: int, index: int, term: int) -> int: ...  # noqa: D102
    def save_vote(self, group_id: int, term: int, voted_for: str | None) -> int: ...  # noqa: D102
    def read(self, location: Location) -> bytes: ...  # noqa: D102


class Journal:
    """Entries, configurations, current term and vote of one group.

    ``base_index`` is the last entry that is gone: its term is known, its payload is not. It is never above the origin:
    entries below the origin may stay for followers that lack them.
    """

    def __init__(self, group_id: int, log: Log, recovered: RecoveredGroup, origin: Origin = FOUNDED_BY_NOBODY) -> None:
        """``recovered`` is what the log holds. Raises ValueError if that does not follow the origin."""
        self._group_id = group_id
        self._log = log
        self.term = recovered.term
        self.voted_for = recovered.voted_for
        if origin.term > self.term:
            self.term, self.voted_for = origin.term, None  # no vote of that term has left this node: none is saved
        self.origin = origin
        """What this log builds upon. Everything up to it is committed."""
        self._state_lsn = 0
        self._begin(origin.index, origin.term, origin.configuration)
        self._recover(recovered.entries)
        self._durable_index = self.last_index

    def _begin(self, index: int, term: int, configuration: Configuration) -> None:
        """No entries, from ``index`` on."""
        self.base_index = index
        self._locations: list[Location] = []
        self._terms = Terms(index, term)
        self._configurations: list[tuple[int, Configuration]] = [(index, configuration)]
        self._unsynced: deque[tuple[int, int]] = deque()
        self._durable_index = index

    def _recover(self, entries: list[Entry]) -> None:
        """Take in what the log holds, unless the origin replaced it.

        Entries beyond the origin count only if the log holds the origin's own entry or begins right after it: an
        installed checkpoint may have overtaken a log that went astray.
        """
        if not entries:
            return
        origin, first = self.origin, entries[0].index
        if first > origin.index + 1:
            raise ValueError(
                f"group {self._group_id}: the log begins at {first}, what is before ends at {origin.index}"
            )
        at_origin = origin.index - first
        if at_origin >= len(entries) or (at_origin >= 0 and entries[at_origin].term != origin.term):
            self._log.reset(self._group_id, origin.index, origin.term)
            return
        if at_origin >= 0:
            self._reach_back(entries[0])
        for entry in entries:
            if entry.index > self.base_index:
                self._check_order(entry.index, entry.term)
                self._place(entry.index, entry.term, entry.location)
                if entry.index > origin.index and entry.type == CONFIGURATION[0]:
                    self._configure(entry.index, self._log.read(entry.location))
        if self.last_term > self.term:
            raise ValueError(
                f"group {self._group_id}: an entry of term {self.last_term}, but the current term is {self.term}"
            )

    def _reach_back(self, first: Entry) -> None:
        """The log begins below the origin: keep what it has, its first entry excepted unless that is the group's."""
        whole = first.index == FIRST_INDEX + 1
        self.base_index = FIRST_INDEX if whole else first.index
        self._terms = Terms(self.base_index, 0 if whole else first.term)

    @property
    def last_index(self) -> int:
        """Index of the last entry, on disk or not."""
        return self.base_index + len(self._locations)

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self._terms.last

    @property
    def durable_index(self) -> int:
        """Every entry up to and including this index is on disk."""
        unsynced, durable_lsn = self._unsynced, self._log.durable_lsn
        while unsynced and unsynced[0][0] <= durable_lsn:
            self._durable_index = unsynced.popleft()[1]
        return self._durable_index

    @property
    def configuration(self) -> Configuration:
        """The configuration in force: the latest in the journal, committed or not."""
        return self._configurations[-1][1]

    @property
    def configuration_index(self) -> int:
        """Where it lies. While that is not committed, the configuration is being changed."""
        return self._configurations[-1][0]

    def configuration_at(self, index: int) -> Configuration:
        """The configuration in force at ``index``, which must not lie before the origin."""
        assert index >= self.origin.index, index
        return next(known for at, known in reversed(self._configurations) if at <= index)

    @property
    def is_new(self) -> bool:
        """Whether nothing has ever happened in this group here."""
        return self.last_index == FIRST_INDEX and self.term == 0

    @property
    def state_is_durable(self) -> bool:
        """Whether the current term and the vote in it are on disk."""
        return self._state_lsn <= self._log.durable_lsn

    @property
    def unsynced(self) -> bool:
        """Whether something of this group is not on disk yet."""
        return not self.state_is_durable or self.durable_index < self.last_index

    def term_at(self, index: int) -> int:
        """Term of the entry at ``index``, which must be in the journal."""
        assert self.base_index <= index <= self.last_index, index
        return self._terms.at(index)

    def run_start(self, index: int) -> int:
        """The first index of the run of equal terms that ``index`` lies in."""
        return self._terms.run_start(index)

    def conflict(self, prev_index: int, prev_term: int) -> int | None:
        """None if (``prev_index``, ``prev_term``) is in the journal, else the index the leader should send next.

        What lies below the base is committed, so every leader has it: it always matches.

        What cannot match is skipped in whole runs of a term, so that repair costs a message a term and not a message an
        entry: the leader starts after what is missing here, or before the runs whose terms are above ``prev_term``. An
        answer of ``prev_index + 1`` says that the term here is below ``prev_term``: it is the leader's run to skip.
        """
        assert prev_index >= FIRST_INDEX, "nothing comes before the first entry"
        if prev_index < self.base_index:
            return None
        if prev_index > self.last_index:
            return self.last_index + 1
        term = self._terms.at(prev_index)
        if term == prev_term:
            return None
        return prev_index + 1 if term < prev_term else self._terms.run_above(prev_index, prev_term)

    def read(self, from_index: int, bytes_max: int) -> list[tuple[int, int, bytes]]:
        """(index, term, payload) from ``from_index`` on: at least one, and as many as ``bytes_max`` allows."""
        entries: list[tuple[int, int, bytes]] = []
        size = 0
        for index in range(from_index, min(self.last_index + 1, from_index + ENTRIES_MAX)):
            payload = self.payload_at(index)
            size += len(payload)
            if entries and size > bytes_max:
                break
            entries.append((index, self.term_at(index), payload))
        return entries

    def payload_at(self, index: int) -> bytes:
        """The payload of the entry at ``index``, above the base."""
        assert index > self.base_index, index
        return self._log.read(self._locations[index - self.base_index - 1])

    def truncate(self, from_index: int) -> None:
        """Drop the entries from ``from_index`` on."""
        assert self.origin.index < from_index <= self.last_index, from_index
        self._log.truncate(self._group_id, from_index)
        del self._locations[from_index - self.base_index - 1 :]
        self._terms.cut(from_index)
        while self._configurations[-1][0] >= from_index:
            self._configurations.pop()
        while self._unsynced and self._unsynced[-1][1] >= from_index:
            self._unsynced.pop()
        self._durable_index = min(self._durable_index, from_index - 1)

    def checkpointed(self, index: int) -> None:
        """A checkpoint at ``index``, of what is committed and here, is on disk: it is the origin from now on."""
        if index > self.origin.index:
            self._rebase(Origin(index, self.term_at(index), self.configuration_at(index)))

    def compact(self, index: int) -> None:
        """Forget the entries up to ``index``, which must not lie beyond the origin. They are read no more."""
        assert index <= self.origin.index, index
        if index > self.base_index:
            del self._locations[: index - self.base_index]
            self._terms.begin_at(index)
            self.base_index = index

    def install(self, origin: Origin) -> None:
        """A checkpoint of another node is on disk: it is the origin from now on.

        What follows its last entry here stays if that entry is here, too; otherwise the whole journal goes.
        """
        assert origin.index > self.origin.index, origin
        if self.base_index <= origin.index <= self.last_index and self.term_at(origin.index) == origin.term:
            self._rebase(origin)
        else:
            self._log.reset(self._group_id, origin.index, origin.term)
            self.origin = origin
            self._begin(origin.index, origin.term, origin.configuration)

    def _rebase(self, origin: Origin) -> None:
        """Build upon this origin, which lies within the journal."""
        later = [(index, known) for index, known in self._configurations if index > origin.index]
        self._configurations = [(origin.index, origin.configuration), *later]
        self.origin = origin

    def _check_order(self, index: int, term: int) -> None:
        if index != self.last_index + 1 or term < self.last_term:
            last = (self.last_index, self.last_term)
            raise ValueError(f"group {self._group_id}: entry {(index, term)} cannot follow {last}")

    def _place(self, index: int, term: int, location: Location) -> None:
        self._locations.append(location)
        self._terms.add(index, term)

    def _configure(self, index: int, payload: bytes) -> None:
        self._configurations.append((index, Configuration.of_entry(payload)))

    # What follows is the contract of pysyncobj, by its names; positions are list positions.

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry."""
        self._check_order(idx, term)
        lsn, location = self._log.append(self._group_id, idx, term, command)
        self._place(idx, term, location)
        self._unsynced.append((lsn, idx))
        if command.startswith(CONFIGURATION):
            self._configure(idx, command)

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802
        """Drop the entries from this position on."""
        self.truncate(position + self.base_index)

    def setCurrentTerm(self, term: int, voted_for: str | None) -> None:  # noqa: N802
        """Save term and vote; ``state_is_durable`` says when they are on disk."""
        self.term, self.voted_for = term, voted_for
        self._state_lsn = self._log.save_vote(self._group_id, term, voted_for)

    def getCurrentTerm(self) -> int:  # noqa: N802
        """The saved term."""
        return self.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        """The saved vote."""
        return self.voted_for

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """Not kept: see above."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """What is surely committed after a restart."""
        return self.origin.index

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Nothing is done by the clock."""

    def _destroy(self) -> None:
        """The shared log outlives the group."""

    def __len__(self) -> int:
        """Of the entry at the base, which is position 0, pysyncobj wants to see index and term only."""
        return self.last_index - self.base_index + 1

    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return [self[at] for at in range(*position.indices(len(self)))]
        index = range(self.base_index, self.last_index + 1)[position]
        return NO_OP if index == self.base_index else self.payload_at(index), index, self.term_at(index)
