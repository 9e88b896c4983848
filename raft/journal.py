"""One group's journal: what pysyncobj expects of a journal, kept in the log that all groups of the node share.

It holds terms and locations in memory and payloads never: those are read back through the shared log. Index 1 is
pysyncobj's first no-op; it is the same on every node, so it is not written. The commit index is not kept either: after
a restart it is what a leader has proved since. Nothing is ever dropped from the front: there are no snapshots.
"""

from bisect import bisect_right
from collections import deque
from typing import Any, Protocol

from .wal_records import Location, RecoveredGroup

FIRST_INDEX = 1
FIRST_PAYLOAD = b"\x01"
"""pysyncobj's no-op, as its constructor would write it."""
ENTRIES_MAX = 8192
"""Entries in one message."""


class Log(Protocol):
    """What a journal uses of the node's write-ahead log (wal.py says what it means)."""

    @property
    def durable_lsn(self) -> int: ...  # noqa: D102
    def append(self, group_id: int, index: int, term: int, payload: bytes) -> tuple[int, Location]: ...  # noqa: D102
    def truncate(self, group_id: int, from_index: int) -> int: ...  # noqa: D102
    def save_vote(self, group_id: int, term: int, voted_for: str | None) -> int: ...  # noqa: D102
    def read(self, location: Location) -> bytes: ...  # noqa: D102


class Journal:
    """Entries, current term and vote of one group."""

    def __init__(self, group_id: int, log: Log, recovered: RecoveredGroup) -> None:
        self._group_id = group_id
        self._log = log
        self.term = recovered.term
        self.voted_for = recovered.voted_for
        self._state_lsn = 0
        self._locations: list[Location] = []
        # Runs of entries of one term: where each begins, and its term. Ascending in both.
        self._run_starts = [FIRST_INDEX]
        self._run_terms = [0]
        self._unsynced: deque[tuple[int, int]] = deque()
        for entry in recovered.entries:
            self._check_order(entry.index, entry.term)
            self._place(entry.index, entry.term, entry.location)
        if self.last_term > self.term:
            raise ValueError(
                f"group {group_id}: an entry of term {self.last_term}, but the current term is {self.term}"
            )
        self._durable_index = self.last_index

    @property
    def last_index(self) -> int:
        """Index of the last entry, on disk or not."""
        return FIRST_INDEX + len(self._locations)

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self._run_terms[-1]

    @property
    def durable_index(self) -> int:
        """Every entry up to and including this index is on disk."""
        unsynced, durable_lsn = self._unsynced, self._log.durable_lsn
        while unsynced and unsynced[0][0] <= durable_lsn:
            self._durable_index = unsynced.popleft()[1]
        return self._durable_index

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
        assert FIRST_INDEX <= index <= self.last_index, index
        if index >= self._run_starts[-1]:
            return self._run_terms[-1]
        return self._run_terms[bisect_right(self._run_starts, index) - 1]

    def run_start(self, index: int) -> int:
        """The first index of the run of equal terms that ``index`` lies in."""
        return self._run_starts[bisect_right(self._run_starts, index) - 1]

    def conflict(self, prev_index: int, prev_term: int) -> int | None:
        """None if (``prev_index``, ``prev_term``) is in the journal, else the index the leader should send next.

        What cannot match is skipped in whole runs of a term, so that repair costs a message a term and not a message an
        entry: the leader starts after what is missing here, or before the runs whose terms are above ``prev_term``. An
        answer of ``prev_index + 1`` says that the term here is below ``prev_term``: it is the leader's run to skip.
        """
        assert prev_index >= FIRST_INDEX, "nothing comes before the first entry"
        if prev_index > self.last_index:
            return self.last_index + 1
        run = bisect_right(self._run_starts, prev_index) - 1
        if self._run_terms[run] == prev_term:
            return None
        if self._run_terms[run] < prev_term:
            return prev_index + 1
        while self._run_terms[run - 1] > prev_term:
            run -= 1
        return self._run_starts[run]

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
        """The payload of the entry at ``index``."""
        if index == FIRST_INDEX:
            return FIRST_PAYLOAD
        return self._log.read(self._locations[index - FIRST_INDEX - 1])

    def truncate(self, from_index: int) -> None:
        """Drop the entries from ``from_index`` on."""
        assert FIRST_INDEX < from_index <= self.last_index, from_index
        self._log.truncate(self._group_id, from_index)
        del self._locations[from_index - FIRST_INDEX - 1 :]
        while self._run_starts[-1] >= from_index:
            self._run_starts.pop()
            self._run_terms.pop()
        while self._unsynced and self._unsynced[-1][1] >= from_index:
            self._unsynced.pop()
        self._durable_index = min(self._durable_index, from_index - 1)

    def _check_order(self, index: int, term: int) -> None:
        if index != self.last_index + 1 or term < self.last_term:
            last = (self.last_index, self.last_term)
            raise ValueError(f"group {self._group_id}: entry {(index, term)} cannot follow {last}")

    def _place(self, index: int, term: int, location: Location) -> None:
        self._locations.append(location)
        if term != self._run_terms[-1]:
            self._run_starts.append(index)
            self._run_terms.append(term)

    # What follows is the contract of pysyncobj, by its names; positions are list positions.

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry."""
        self._check_order(idx, term)
        lsn, location = self._log.append(self._group_id, idx, term, command)
        self._place(idx, term, location)
        self._unsynced.append((lsn, idx))

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802
        """Drop the entries from this position on."""
        self.truncate(position + FIRST_INDEX)

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
        """What is surely committed after a restart: the first no-op."""
        return FIRST_INDEX

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Nothing is done by the clock."""

    def _destroy(self) -> None:
        """The shared log outlives the group."""

    def __len__(self) -> int:
        return self.last_index

    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return [self[at] for at in range(*position.indices(len(self)))]
        index = range(FIRST_INDEX, self.last_index + 1)[position]
        return self.payload_at(index), index, self.term_at(index)
