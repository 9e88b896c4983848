"""Which parts of a partition's log lie in the store beyond the nodes' own disks, as an ordered list of objects.

The rules of ``add`` are what makes orphans safe to remove (docs/tiered.md): an object comes in only by an entry of the
term in its name, and only where the last one ended. Pure; the log itself knows nothing of this.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from ..commands import AddTierObject, BeginTier, Offset, Tiered, TierObject

OBJECTS_MAX = 10_000
"""Objects of a partition; beyond it segments stay on local disks. About 120 bytes each in a checkpoint."""
SUFFIX = ".arrow.zst"
SCRATCH = ".new"
"""At the end of the name of an object that is being written to a folder."""


def name_of(item: TierObject) -> str:
    """The name of its file, in the home of its partition."""
    return f"{item.first:020d}-{item.end:020d}-{item.term:x}-{item.nonce}{SUFFIX}"


class Name(msgspec.Struct, frozen=True):
    """What the name of a file says."""

    first: Offset
    end: Offset
    term: int


def parsed(name: str) -> Name | None:
    """The inverse of ``name_of``, as far as that goes, also for an object that is being written; None: it is no
    object's.
    """
    whole = name.removesuffix(SCRATCH)
    parts = whole.removesuffix(SUFFIX).split("-")
    if not whole.endswith(SUFFIX) or len(parts) != 4:
        return None
    try:
        return Name(int(parts[0]), int(parts[1]), int(parts[2], 16))
    except ValueError:
        return None


class SavedTier(msgspec.Struct, frozen=True, array_like=True):
    """Everything that decides future answers."""

    home: str
    end: Offset
    objects: list[TierObject]


class Tier:
    """The objects, ascending and without a gap, of the records below ``end``, which never goes down. ``home``: the
    folder that they are in; "": no upload was begun.
    """

    def __init__(self, objects_max: int = OBJECTS_MAX) -> None:
        self.home: str = ""
        self.end: Offset = 0
        self.objects: list[TierObject] = []
        self.size: int = 0
        """Bytes of the log that the objects have."""
        self._objects_max = objects_max

    @property
    def is_full(self) -> bool:
        """Whether the list takes no more."""
        return len(self.objects) >= self._objects_max

    def begin(self, command: BeginTier) -> Tiered:
        """Choose the home, once."""
        self.home = self.home or command.home
        return Tiered(self.end, self.home, self.home == command.home)

    def add(self, command: AddTierObject, term: int, log_start: Offset, log_end: Offset) -> Tiered:
        """List an object, if it follows the last one; ``term``: of the entry that has this command."""
        new = command.item
        follows = new.first == self.end if self.end >= log_start else self.end <= new.first <= log_start
        is_taken = (
            bool(self.home)
            and command.home == self.home
            and new.term == term
            and follows
            and max(log_start, new.first) < new.end <= log_end
            and not self.is_full
        )
        if is_taken:
            self.objects.append(new)
            self.end = new.end
            self.size += new.log_bytes
        return Tiered(self.end, self.home, is_taken)

    def trim(self, log_start: Offset) -> None:
        """Records below ``log_start`` are gone, and so are objects that have no others."""
        keep = bisect_right(self.objects, log_start, key=attrgetter("end"))
        if keep:
            self.size -= sum(each.log_bytes for each in self.objects[:keep])
            del self.objects[:keep]

    def at(self, offset: Offset) -> TierObject:
        """The first object with records at or after ``offset``, which is below ``end``."""
        return self.objects[bisect_right(self.objects, offset, key=attrgetter("end"))]

    def known(self, log_start: Offset, term: int) -> "Known":
        """The list as it is now, for a leader's sweep."""
        return Known(list(self.objects), self.end, log_start, term)

    def save(self) -> SavedTier | None:
        """The state to save; None: no upload was begun."""
        return SavedTier(self.home, self.end, self.objects) if self.home else None

    def load(self, saved: SavedTier | None) -> None:
        """The inverse of save."""
        self.home, self.end, self.objects = "", 0, []
        if saved is not None:
            self.home, self.end, self.objects = saved.home, saved.end, list(saved.objects)
        self.size = sum(each.log_bytes for each in self.objects)


class Known(msgspec.Struct, frozen=True):
    """What a leader goes by when it sweeps: the list as it was after an entry of this ``term`` was applied, and
    ``end`` and ``log_start`` at the same time.
    """

    objects: list[TierObject]
    end: Offset
    log_start: Offset
    term: int


def dead(names: Sequence[str], known: Known) -> list[str]:
    """The files in a partition's home that are not in the list and can never get into it, however old ``known`` is
    (docs/tiered.md says why); among them what a node was writing when it died. Takes some 5 us a file.
    """
    listed = {name_of(each) for each in known.objects}
    found = []
    for name in names:
        what = parsed(name)
        if what is None or name in listed:
            continue
        if what.term < known.term or what.first < known.end or what.end <= known.log_start:
            found.append(name)
    return found


def faults(tier: Tier, log_start: Offset) -> list[str]:
    """What is wrong with the list; empty: nothing."""
    found = []
    for before, after in zip(tier.objects, tier.objects[1:], strict=False):
        if before.end != after.first:
            found.append(f"objects end at {before.end} and go on at {after.first}")
    if tier.objects and (tier.objects[-1].end != tier.end or tier.objects[0].end <= log_start):
        found.append(f"objects end at {tier.objects[-1].end}, not {tier.end}, or lie below {log_start}")
    if tier.objects and tier.objects[0].first > log_start:
        found.append(f"objects begin at {tier.objects[0].first}, and the log at {log_start}")
    if not tier.home and (tier.objects or tier.end):
        found.append("there are objects, and they are nowhere")
    return found
