"""One group's journal: what pysyncobj expects of a journal, kept in the log that all groups of the node share.

It holds terms, locations and configurations in memory and payloads never: those are read back through the shared log.
It begins at an origin: the founding of the group, or a checkpoint, which holds all that came before it. The commit
index is not kept: after a restart it is the origin, and what a leader has proved since.
"""

from collections import deque
from typing import Any

from .configuration import CONFIGURATION, Configuration
from .history import Configurations
from .origin import FIRST_INDEX, FOUNDED_BY_NOBODY, NEVER_LEFT, Left, Origin, going_on
from .ports import Log
from .terms import Terms
from .wal_records import Entry, Location, RecoveredGroup

NO_OP = b"\x01"
"""pysyncobj's no-op, as its constructor would write it at index 1."""
FORGOTTEN = "?"
"""In place of a vote: perhaps there was one, for nobody knows whom, so there will be none in that term."""
ENTRIES_MAX = 8192
"""Entries in one message."""


class Journal:
    """Entries, configurations, current term and vote of one group.

    ``base_index`` is the last entry that is gone: its term is known, its payload is not. It is never above the origin:
    entries below the origin may stay for followers that lack them.
    """

    def __init__(
        self,
        group_id: int,
        log: Log,
        recovered: RecoveredGroup,
        origin: Origin = FOUNDED_BY_NOBODY,
        left: Left = NEVER_LEFT,
    ) -> None:
        """``recovered`` is what the log holds, ``left`` what a replica that was erased here had promised.

        Raises ValueError if what the log holds does not follow the origin.
        """
        self._group_id = group_id
        self._log = log
        self.term: int = recovered.term
        self.voted_for = recovered.voted_for
        if left.term >= self.term:
            self.term, self.voted_for = left.term, FORGOTTEN if left.term else None
        self._left = left
        self.origin: Origin = origin
        """What this log builds upon. Everything up to it is committed."""
        self._state_lsn = 0
        self._begin(origin.index, origin.term, origin.configuration)
        self._recover(recovered.entries)
        self._durable_index = self.last_index

    def _begin(self, index: int, term: int, configuration: Configuration) -> None:
        """No entries, from ``index`` on, whose term may not be on disk: no vote of that term has left this node."""
        if term > self.term:
            self.setCurrentTerm(term, None)
        self.base_index: int = index
        self.last_index: int = index  # on disk or not
        self._locations: list[Location] = []
        self._terms = Terms(index, term)
        self._configurations = Configurations(index, configuration)
        self._unsynced: deque[tuple[int, int]] = deque()
        self._durable_index = index

    def _recover(self, entries: list[Entry]) -> None:
        """Take in what the log holds, as far as it goes on from the origin."""
        found = going_on(entries, self.origin)
        if found is None:
            if entries:
                self._log.reset(self._group_id, self.origin.index, self.origin.term)
            return
        self.base_index, base_term, kept = found
        self.last_index = self.base_index
        self._terms = Terms(self.base_index, base_term)
        for entry in kept:
            self._check_order(entry.index, entry.term)
            self._place(entry.index, entry.term, entry.location)
            if entry.index > self.origin.index and entry.type == CONFIGURATION[0]:
                self._configurations.add(entry.index, self._log.read(entry.location))
        if self.last_term > self.term:
            raise ValueError(
                f"group {self._group_id}: an entry of term {self.last_term}, but the current term is {self.term}"
            )

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self._terms.last

    @property
    def end(self) -> tuple[int, int]:
        """Term and index of the last entry: the longer of two journals is that with the later end."""
        return self.last_term, self.last_index

    @property
    def promised_end(self) -> tuple[int, int]:
        """No journal may be supported whose end is before this."""
        return max(self.end, (self._left.last_term, self._left.last_index))

    def leave(self) -> Left:
        """What has to be remembered of this journal when it is erased."""
        last_term, last_index = self.promised_end
        return Left(self.term, last_term, last_index)

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
        return self._configurations.latest[1]

    @property
    def configuration_index(self) -> int:
        """Where it lies. While that is not committed, the configuration is being changed."""
        return self._configurations.latest[0]

    def configuration_at(self, index: int) -> Configuration:
        """The configuration in force at ``index``, which must not lie before the origin."""
        return self._configurations.at(index)

    def configurations_since(self, index: int) -> list[Configuration]:
        """The one in force at ``index``, which must not lie before the origin, and all that follow."""
        return self._configurations.since(index)

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
        return max(self._state_lsn, self._unsynced[-1][0] if self._unsynced else 0) > self._log.durable_lsn

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
        assert from_index > self.base_index, from_index
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

    def payload_at(self, index: int) -> bytes:
        """The payload of the entry at ``index``, above the base."""
        assert index > self.base_index, index
        return self._log.read(self._locations[index - self.base_index - 1])

    def truncate(self, from_index: int) -> None:
        """Drop the entries from ``from_index`` on."""
        assert self.origin.index < from_index <= self.last_index, from_index
        self._log.truncate(self._group_id, from_index)
        del self._locations[from_index - self.base_index - 1 :]
        self.last_index = from_index - 1
        self._terms.cut(from_index)
        self._configurations.cut(from_index)
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
        self._configurations.begin_at(origin.index, origin.configuration)
        self.origin = origin

    def _check_order(self, index: int, term: int) -> None:
        if index != self.last_index + 1 or term < self.last_term:
            raise ValueError(f"group {self._group_id}: entry {(term, index)} cannot follow {self.end}")

    def _place(self, index: int, term: int, location: Location) -> None:
        self._locations.append(location)
        self.last_index = index
        self._terms.add(index, term)

    # What follows is the contract of pysyncobj, by its names; positions are list positions.

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry."""
        self._check_order(idx, term)
        lsn, location = self._log.append(self._group_id, idx, term, command)
        self._place(idx, term, location)
        self._unsynced.append((lsn, idx))
        if command.startswith(CONFIGURATION):
            self._configurations.add(idx, command)

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
