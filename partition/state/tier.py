"""The list of the objects in the tiered store that hold the older part of a partition's log.

The rules of ``add`` make orphans safe to remove (docs/tiered.md): an object is listed only by a log entry of the term
in its name, and only at the offset where the last listed object ends. Pure; the log itself knows nothing of objects.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from ..commands import AddTierObject, BeginTier, Offset, Tiered, TierObject

OBJECTS_MAX = 10_000
"""Most objects of a partition; beyond it segments stay on local disks. Each takes about 120 bytes in a checkpoint."""
SUFFIX = ".arrow.zst"
SCRATCH = ".new"
"""The end of a file's name while an object is being written to a folder."""


def name_of(item: TierObject) -> str:
    """The name of an object's file in the folder of its partition."""
    return f"{item.first:020d}-{item.end:020d}-{item.term:x}-{item.nonce}{SUFFIX}"


class Name(msgspec.Struct, frozen=True):
    """The facts in the name of an object's file."""

    first: Offset
    end: Offset
    term: int


def parsed(name: str) -> Name | None:
    """The facts in a file's name (``name_of``), also in that of an object which is being written; None if the name is
    no object's.
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
    """The state of a Tier in a checkpoint."""

    folder: str
    end: Offset
    objects: list[TierObject]


class Tier:
    """The objects that hold a partition's records below ``end``: ascending by offset, without a gap. ``end`` never goes
    down. ``folder`` is that of the objects in the store; "" before the first upload.
    """

    def __init__(self, objects_max: int = OBJECTS_MAX) -> None:
        self.folder: str = ""
        self.end: Offset = 0
        self.objects: list[TierObject] = []
        self.size: int = 0
        """The sum of ``log_bytes`` of all objects."""
        self._objects_max = objects_max

    @property
    def is_full(self) -> bool:
        """Whether the list has as many objects as it may have."""
        return len(self.objects) >= self._objects_max

    def begin(self, command: BeginTier) -> Tiered:
        """Choose the folder, unless it was chosen before."""
        self.folder = self.folder or command.folder
        return Tiered(self.end, self.folder, self.folder == command.folder)

    def add(self, command: AddTierObject, term: int, log_start: Offset, log_end: Offset) -> Tiered:
        """List an object, if it follows the last one and was uploaded in ``term``, that of the entry with this command.
        If the log was trimmed beyond ``end``, the object may begin anywhere from ``end`` to ``log_start``.
        """
        new = command.item
        follows = new.first == self.end if self.end >= log_start else self.end <= new.first <= log_start
        is_taken = (
            bool(self.folder)
            and command.folder == self.folder
            and new.term == term
            and follows
            and max(log_start, new.first) < new.end <= log_end
            and not self.is_full
        )
        if is_taken:
            self.objects.append(new)
            self.end = new.end
            self.size += new.log_bytes
        return Tiered(self.end, self.folder, is_taken)

    def trim(self, log_start: Offset) -> None:
        """Forget the objects all of whose records are below ``log_start``."""
        keep = bisect_right(self.objects, log_start, key=attrgetter("end"))
        if keep:
            self.size -= sum(each.log_bytes for each in self.objects[:keep])
            del self.objects[:keep]

    def at(self, offset: Offset) -> TierObject:
        """The first object with records at or after ``offset``, which is below ``end``."""
        return self.objects[bisect_right(self.objects, offset, key=attrgetter("end"))]

    def lists(self, item: TierObject) -> bool:
        """Whether an object is in the list."""
        number = bisect_right(self.objects, item.first, key=attrgetter("end"))
        return number < len(self.objects) and self.objects[number] == item

    def snapshot(self, log_start: Offset, term: int) -> "TierSnapshot":
        """A snapshot of the list, for a leader's sweep of the folder."""
        return TierSnapshot(list(self.objects), self.end, log_start, term)

    def save(self) -> SavedTier | None:
        """The state for a checkpoint; None if no upload was begun."""
        return SavedTier(self.folder, self.end, self.objects) if self.folder else None

    def load(self, saved: SavedTier | None) -> None:
        """Restore the state that ``save`` returned."""
        self.folder, self.end, self.objects = "", 0, []
        if saved is not None:
            self.folder, self.end, self.objects = saved.folder, saved.end, list(saved.objects)
        self.size = sum(each.log_bytes for each in self.objects)


class TierSnapshot(msgspec.Struct, frozen=True):
    """A snapshot of a Tier by which a leader sweeps a folder: the list after an entry of ``term`` was applied, with
    ``end`` and ``log_start`` at that moment.
    """

    objects: list[TierObject]
    end: Offset
    log_start: Offset
    term: int


def dead(names: Sequence[str], snapshot: TierSnapshot) -> list[str]:
    """Those of the file ``names`` in a partition's folder that are not in the list and can never be listed, even if the
    snapshot is old (docs/tiered.md says why); also files that a node was writing when it died. Takes some 5 us a file.
    """
    listed = {name_of(each) for each in snapshot.objects}
    found = []
    for name in names:
        facts = parsed(name)
        if facts is None or name in listed:
            continue
        if facts.term < snapshot.term or facts.first < snapshot.end or facts.end <= snapshot.log_start:
            found.append(name)
    return found


def faults(tier: Tier, log_start: Offset) -> list[str]:
    """The broken invariants of the list, in words; empty if there are none."""
    found = []
    for before, after in zip(tier.objects, tier.objects[1:], strict=False):
        if before.end != after.first:
            found.append(f"objects end at {before.end} and go on at {after.first}")
    if tier.objects and (tier.objects[-1].end != tier.end or tier.objects[0].end <= log_start):
        found.append(f"objects end at {tier.objects[-1].end}, not {tier.end}, or lie below {log_start}")
    if tier.objects and tier.objects[0].first > log_start:
        found.append(f"objects begin at {tier.objects[0].first}, and the log at {log_start}")
    if not tier.folder and (tier.objects or tier.end):
        found.append("there are objects, and they are nowhere")
    return found
