"""One group's log: entries, current term and vote, stored in the write-ahead log that all groups of the node share.

``GroupLog`` holds terms, locations and configurations in memory, and never payloads: those are read back through the
write-ahead log. It begins at an origin: the founding of the group, or a checkpoint, which covers all entries up to it.
The commit index is not stored: after a restart it is the origin's index, until a leader proves more. GroupLog also
has the methods of a journal that pysyncobj calls: in its constructor, and when it sets the term or begins to lead.
"""

from bisect import bisect_right
from collections import deque

from ..ports import Log
from ..wal.errors import AnotherHistory
from ..wal.records import Location, LogEntry, RecoveredGroup
from .configuration import CONFIGURATION, NO_MEMBERS, Configuration
from .origin import FIRST_INDEX, NO_TOMBSTONE, ORIGIN_OF_JOINER, GroupTombstone, Origin, continuation


class TermRuns:
    """The terms of entries, from a first index on, as runs of equal terms: few numbers, however long the log is.

    Invariant: ``at(index) <= at(index + 1)``.
    """

    def __init__(self, index: int, term: int) -> None:
        self._starts = [index]
        self._terms = [term]
        self.last: int = term
        """The term of the last entry."""
        self._last_start = index

    def add(self, index: int, term: int) -> None:
        if term != self.last:
            self._starts.append(index)
            self._terms.append(term)
            self.last, self._last_start = term, index

    def at(self, index: int) -> int:
        return self.last if index >= self._last_start else self._terms[bisect_right(self._starts, index) - 1]

    def run_start(self, index: int) -> int:
        """The first index with the term of ``index``."""
        return self._starts[bisect_right(self._starts, index) - 1]

    def run_above(self, index: int, term: int) -> int:
        """The smallest index such that every term from it up to ``index`` is above ``term``."""
        run = bisect_right(self._starts, index) - 1
        while run > 0 and self._terms[run - 1] > term:
            run -= 1
        return self._starts[run]

    def truncate(self, from_index: int) -> None:
        """Drop the terms from ``from_index`` on, which is greater than the first index."""
        while self._starts[-1] >= from_index:
            self._starts.pop()
            self._terms.pop()
        self.last, self._last_start = self._terms[-1], self._starts[-1]

    def begin_at(self, index: int) -> None:
        """Drop the terms before ``index``, which becomes the first."""
        run = bisect_right(self._starts, index)
        self._starts[:run], self._terms[:run] = [index], [self._terms[run - 1]]
        self._last_start = self._starts[-1]


class ConfigurationHistory:
    """The configuration at the log's origin, and those in its entries. Each is in force from its index on."""

    def __init__(self, group_id: int, index: int, configuration: Configuration) -> None:
        self._group_id = group_id
        self._known = [(index, configuration)]

    @property
    def latest(self) -> tuple[int, Configuration]:
        """(index, configuration) of the configuration in force, committed or not."""
        return self._known[-1]

    def at(self, index: int) -> Configuration:
        """The configuration in force at ``index``, which is not before the first."""
        return next(known for begins, known in reversed(self._known) if begins <= index)

    def since(self, index: int) -> list[Configuration]:
        """The configuration in force at ``index``, which is not before the first, and all later ones."""
        return [self.at(index), *(known for begins, known in self._known if begins > index)]

    def add(self, index: int, configuration: Configuration) -> None:
        """Note that the entry at ``index`` holds this configuration. Raises AnotherHistory if it cannot be the next one
        here: a change is of one node. A joining node knows none before its first.
        """
        before = self._known[-1][1]
        voters, learners = configuration.voters.items(), configuration.learners.items()
        changed = {*(before.voters.items() ^ voters), *(before.learners.items() ^ learners)}
        if before != NO_MEMBERS and len(dict(changed)) > 1:
            raise AnotherHistory(self._group_id)
        self._known.append((index, configuration))

    def truncate(self, from_index: int) -> None:
        """Drop the configurations from ``from_index`` on, which is greater than the index of the first one."""
        while self._known[-1][0] >= from_index:
            self._known.pop()

    def begin_at(self, index: int, configuration: Configuration) -> None:
        """Make ``configuration``, at ``index``, the first one: drop those up to ``index``."""
        self._known = [(index, configuration), *[each for each in self._known if each[0] > index]]


NO_OP = b"\x01"
"""pysyncobj's no-op, as its constructor would write it at index 1."""
FORGOTTEN = "?"
"""In place of the id voted for: an erased replica may have voted in this term, so this one must not."""
ENTRIES_MAX = 1024
"""Most entries in one message. The event loop stands still for 4 ms while a leader reads so many from its disk, and
while a follower appends them; with eight times as many small ones, still below a mebibyte, it stood still for 30 ms.
"""


class GroupLog:
    """The log of one group: its entries and configurations, the current term and the vote in it.

    ``base_index`` is the index of the last entry that is gone: its term is known, its payload is not. Entries up to the
    origin may stay for followers that lack them. Invariants: ``base_index <= origin.index <= last_index`` and
    ``durable_index <= last_index``.
    """

    def __init__(
        self,
        group_id: int,
        log: Log,
        recovered: RecoveredGroup,
        origin: Origin = ORIGIN_OF_JOINER,
        tombstone: GroupTombstone = NO_TOMBSTONE,
    ) -> None:
        """``recovered`` is the group's part of ``log``; ``tombstone`` is left of a replica that was erased here.

        Raises ValueError if recovered entries are missing after the origin, out of order, or of a term above the
        recovered one.
        """
        self._group_id = group_id
        self._log = log
        self.term: int = recovered.term
        self.voted_for = recovered.voted_for
        self._tombstone = tombstone
        self.origin: Origin = origin
        """Where the log begins; ``origin.index <= commit_index``."""
        self._state_lsn = 0
        self._last_lsn = 0
        """LSN of this group's last record in the write-ahead log, without entries that were truncated since."""
        if tombstone.term > self.term:  # writes a record, too: without any, a start takes the group for an erased one
            self.setCurrentTerm(tombstone.term, FORGOTTEN)
        elif tombstone.term and tombstone.term == self.term:
            self.voted_for = FORGOTTEN
        self._begin(origin.index, origin.term, origin.configuration)
        self._recover(recovered.entries)
        self._durable_index = self.last_index

    def _begin(self, index: int, term: int, configuration: Configuration) -> None:
        """Begin at ``index``, without entries. If ``term`` is newer than this node's, this node has not voted in it."""
        if term > self.term:
            self.setCurrentTerm(term, None)
        self.base_index: int = index
        self.last_index: int = index  # on disk or not
        self._locations: list[Location] = []
        self._terms = TermRuns(index, term)
        self._configurations = ConfigurationHistory(self._group_id, index, configuration)
        self._unsynced: deque[tuple[int, int]] = deque()
        self._last_lsn = self._state_lsn
        self._durable_index = index

    def _recover(self, entries: list[LogEntry]) -> None:
        """Take over the recovered entries if they continue the origin; otherwise reset the log to the origin."""
        found = continuation(entries, self.origin)
        if found is None:
            if entries:
                self._log.reset(self._group_id, self.origin.index, self.origin.term)
            return
        self.base_index, base_term, kept = found
        self.last_index = self.base_index
        self._terms = TermRuns(self.base_index, base_term)
        for entry in kept:
            self._check_order(entry.index, entry.term)
            self._locations.append(entry.location)
            self.last_index = entry.index
            self._terms.add(entry.index, entry.term)
            if entry.index > self.origin.index and entry.type == CONFIGURATION[0]:
                self._configurations.add(entry.index, Configuration.of_entry(self._log.read(entry.location)))
        if self.last_term > self.term:
            raise ValueError(
                f"group {self._group_id}: an entry of term {self.last_term}, but the current term is {self.term}"
            )

    @property
    def last_term(self) -> int:
        return self._terms.last

    @property
    def end(self) -> tuple[int, int]:
        """(term, index) of the last entry. Of two logs, the one with the greater end is more up to date."""
        return self.last_term, self.last_index

    @property
    def promised_end(self) -> tuple[int, int]:
        """The greater of this log's end and that of an erased one: this node votes only for a candidate whose end is
        not lower.
        """
        return max(self.end, (self._tombstone.last_term, self._tombstone.last_index))

    def tombstone(self) -> GroupTombstone:
        """The tombstone to keep when this log is erased: its term, and the end of the log that it has acked."""
        last_term, last_index = self.promised_end
        return GroupTombstone(self.term, last_term, last_index)

    @property
    def durable_index(self) -> int:
        """The highest index up to which every entry is on disk."""
        unsynced, durable_lsn = self._unsynced, self._log.durable_lsn
        while unsynced and unsynced[0][0] <= durable_lsn:
            self._durable_index = unsynced.popleft()[1]
        return self._durable_index

    @property
    def configuration(self) -> Configuration:
        """The configuration in force: the latest in the log, committed or not."""
        return self._configurations.latest[1]

    @property
    def configuration_index(self) -> int:
        """Index of the configuration in force. A membership change is in flight if it is above the commit index."""
        return self._configurations.latest[0]

    def configuration_at(self, index: int) -> Configuration:
        """The configuration in force at ``index >= origin.index``."""
        return self._configurations.at(index)

    def configurations_since(self, index: int) -> list[Configuration]:
        """The configuration in force at ``index >= origin.index``, and all later ones."""
        return self._configurations.since(index)

    @property
    def is_new(self) -> bool:
        """Whether this node has no entry and no term of the group."""
        return self.last_index == FIRST_INDEX and self.term == 0

    @property
    def state_is_durable(self) -> bool:
        """Whether the current term and the vote in it are on disk."""
        return self._state_lsn <= self._log.durable_lsn

    @property
    def unsynced(self) -> bool:
        """Whether an entry, the term or the vote of this group is not on disk yet."""
        return self._last_lsn > self._log.durable_lsn

    @property
    def unsynced_lsn(self) -> int:
        """LSN of the first record with an entry of this group that is not on disk; else of the group's last record."""
        durable_lsn = self._log.durable_lsn
        return next((lsn for lsn, _ in self._unsynced if lsn > durable_lsn), self._last_lsn)

    def term_at(self, index: int) -> int:
        """Term of the entry at ``index``, for ``base_index <= index <= last_index``."""
        assert self.base_index <= index <= self.last_index, index
        return self._terms.at(index)

    def run_start(self, index: int) -> int:
        """The first index with the term of ``index``."""
        return self._terms.run_start(index)

    def conflict(self, prev_index: int, prev_term: int) -> int | None:
        """None if the log matches at (``prev_index``, ``prev_term``), else the index that the leader should send next.

        Entries up to the base are committed, so every leader has them: they always match.

        Entries that cannot match are skipped by whole runs of a term, so that repair costs one message a term, not one
        an entry: the leader starts after the end of this log, or before the runs whose terms are above ``prev_term``.
        An answer of ``prev_index + 1`` says that the term here is below ``prev_term``: the leader has to skip its own
        run of ``prev_term``.
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
        """(index, term, payload) of entries from ``from_index`` on: one in any case, more within ``bytes_max`` bytes
        of payloads and ENTRIES_MAX entries.
        """
        assert from_index > self.base_index, from_index
        if from_index == self.last_index:  # as nearly always
            return [(from_index, self._terms.last, self._log.read(self._locations[-1]))]
        entries: list[tuple[int, int, bytes]] = []
        size = 0
        read, first = self._log.read, from_index - self.base_index - 1
        for index, location in enumerate(self._locations[first : first + ENTRIES_MAX], from_index):
            payload = read(location)
            size += len(payload)
            if entries and size > bytes_max:
                break
            entries.append((index, self._terms.at(index), payload))
        return entries

    def fits(self, from_index: int, bytes_max: int) -> bool:
        """Whether ``read`` would return all entries from ``from_index`` on. Reads no payload."""
        assert from_index > self.base_index, from_index
        count = self.last_index + 1 - from_index
        if count <= 1:
            return True
        if count > ENTRIES_MAX:
            return False
        return sum(map(self._log.size, self._locations[-count:])) <= bytes_max

    def payload_at(self, index: int) -> bytes:
        """The payload of the entry at ``index > base_index``."""
        assert index > self.base_index, index
        return self._log.read(self._locations[index - self.base_index - 1])

    def truncate(self, from_index: int) -> None:
        """Drop the entries from ``from_index`` on."""
        assert self.origin.index < from_index <= self.last_index, from_index
        self._log.truncate(self._group_id, from_index)
        del self._locations[from_index - self.base_index - 1 :]
        self.last_index = from_index - 1
        self._terms.truncate(from_index)
        self._configurations.truncate(from_index)
        while self._unsynced and self._unsynced[-1][1] >= from_index:
            self._unsynced.pop()
        self._last_lsn = max(self._state_lsn, self._unsynced[-1][0] if self._unsynced else 0)
        self._durable_index = min(self._durable_index, from_index - 1)

    def checkpointed(self, index: int) -> None:
        """Make this node's own checkpoint at ``index``, which it has applied and has on disk, the origin."""
        if index > self.origin.index:
            self._rebase(Origin(index, self.term_at(index), self.configuration_at(index)))

    def compact(self, index: int) -> None:
        """Drop the entries up to ``index <= origin.index`` from memory: their records are about to be removed."""
        assert index <= self.origin.index, index
        if index > self.base_index:
            del self._locations[: index - self.base_index]
            self._terms.begin_at(index)
            self.base_index = index

    def install(self, origin: Origin) -> None:
        """Make another node's checkpoint, which is on disk here, the origin.

        Entries after it stay if the log has the entry (origin.index, origin.term); otherwise all entries go.
        """
        assert origin.index > self.origin.index, origin
        if self.base_index <= origin.index <= self.last_index and self.term_at(origin.index) == origin.term:
            self._rebase(origin)
        else:
            self._log.reset(self._group_id, origin.index, origin.term)
            self.origin = origin
            self._begin(origin.index, origin.term, origin.configuration)

    def _rebase(self, origin: Origin) -> None:
        """Make ``origin``, at an index within the log, the log's origin; all entries stay."""
        self._configurations.begin_at(origin.index, origin.configuration)
        self.origin = origin

    def _check_order(self, index: int, term: int) -> None:
        if index != self.last_index + 1 or term < self.last_term:
            raise ValueError(f"group {self._group_id}: entry {(term, index)} cannot follow {self.end}")

    # From here on: what pysyncobj calls, by its names. A position is an index minus base_index.

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry. Raises AnotherHistory, and has stored nothing, if the log is of another cluster."""
        last_term = self._terms.last
        if idx != self.last_index + 1 or term < last_term:
            raise ValueError(f"group {self._group_id}: entry {(term, idx)} cannot follow {self.end}")
        if command[:1] == CONFIGURATION:  # first, as it may be refused
            self._configurations.add(idx, Configuration.of_entry(command))
        self._last_lsn, location = self._log.append(self._group_id, idx, term, command)
        self._locations.append(location)
        self.last_index = idx
        if term != last_term:
            self._terms.add(idx, term)
        self._unsynced.append((self._last_lsn, idx))

    def setCurrentTerm(self, term: int, voted_for: str | None) -> None:  # noqa: N802
        """Save term and vote; ``state_is_durable`` says when they are on disk."""
        self.term, self.voted_for = term, voted_for
        self._state_lsn = self._last_lsn = self._log.save_vote(self._group_id, term, voted_for)

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        return self.voted_for

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """The highest index known to be committed after a restart."""
        return self.origin.index

    def __len__(self) -> int:
        """Entries, and one for the base at position 0: pysyncobj reads the base's index and term only."""
        return self.last_index - self.base_index + 1

    def __getitem__(self, position: int) -> tuple[bytes, int, int]:
        """(payload, index, term) of the entry at a position; a no-op stands for the payload of the base."""
        index = range(self.base_index, self.last_index + 1)[position]
        return NO_OP if index == self.base_index else self.payload_at(index), index, self.term_at(index)
