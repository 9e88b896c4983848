"""Which file of the write-ahead log holds what: so it is known which files no group needs any more.

No IO here. What is kept is a pair of numbers for each group and file, however many entries there are.
"""

from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from .wal_records import RecoveredGroup, parts_of


class Place(msgspec.Struct):
    """Where one group's records are."""

    term: int = 0
    voted_for: str | None = None
    state_file: int = 0
    """The file of the last record that tells the term."""
    covered: int = 0
    """A checkpoint on disk holds what all entries up to here did."""
    stop: int = 0
    """The index after the last entry."""
    runs: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(index of the first entry, number of the file), for each file with entries that count; ascending."""

    def file_needed(self) -> int | None:
        """The file of the first entry that no checkpoint holds; None if there is no such entry."""
        if not self.runs or self.covered + 1 >= self.stop:
            return None
        at = bisect_right(self.runs, (self.covered + 1, 1 << 62))
        return self.runs[max(0, at - 1)][1]

    def entry(self, index: int, number: int) -> None:
        """The next entry is in file ``number``."""
        if not self.runs or self.runs[-1][1] != number:
            self.runs.append((index, number))
        self.stop = index + 1

    def cut(self, from_index: int) -> None:
        """The entries from ``from_index`` on count no more."""
        while self.runs and self.runs[-1][0] >= from_index:
            self.runs.pop()
        self.stop = min(self.stop, from_index)

    def drop_before(self, number: int) -> int | None:
        """The files before ``number`` are gone; answers the last index that went with them, None if nothing did."""
        kept = [run for run in self.runs if run[1] >= number]
        if len(kept) == len(self.runs):
            return None
        self.runs = kept
        return (kept[0][0] if kept else self.stop) - 1


class Places:
    """The places of all groups."""

    def __init__(self, recovered: dict[int, RecoveredGroup]) -> None:
        self.groups: dict[int, Place] = {group_id: _place_of(group) for group_id, group in recovered.items()}

    def of(self, group_id: int) -> Place:
        """A group's place; a new one if nothing was known of it."""
        place = self.groups.get(group_id)
        if place is None:
            place = self.groups[group_id] = Place()
        return place

    def oldest(self) -> tuple[int, int] | None:
        """(file number, group id) of the oldest file with an entry that no checkpoint holds; None if there is none."""
        needed = [(number, key) for key, place in self.groups.items() if (number := place.file_needed()) is not None]
        return min(needed, default=None)

    def to_repeat(self, number: int) -> Iterator[int]:
        """The groups of which something must be told again before the files before ``number`` go.

        That is their term and vote, or that a checkpoint holds the entries that go with those files.
        """
        for group_id, place in self.groups.items():
            if place.state_file < number or (place.runs and place.runs[0][1] < number):
                yield group_id


def _place_of(group: RecoveredGroup) -> Place:
    place = Place(group.term, group.voted_for, group.state_file, group.covered)
    for entry in group.entries:
        place.entry(entry.index, parts_of(entry.location)[0])
    return place
