"""Removes backups, and the files that no other backup has.

**Why no backup loses a file**, though others are made and pruned in the same place meanwhile, and there are no locks.

A backup (begin.py) does, in this order: (a) read the mark; (b) read the manifest of the last backup, whose files it
goes on to use; (c) write files under names of its own; (d) announce its manifest; (e) give up if the mark is another
one, or the manifest of (b) is gone; (f) add the manifest, and only then withdraw the announcement.
A pruning does: (1) list the files of records; (2) remove manifests; (3) write its mark; (4) read all announcements, all
manifests, and both once more, in this order; (5) remove those files of (1) that none of them names.

Let the second reading of (4) begin at t.

- ``d < t``: it finds the announcement, or the manifest, which was there before the announcement went.
- ``t < d``, a file of (c) that (1) has: it was written before (1), so ``a < 3 < t < d < e``, and the backup gives up.
- ``t < d``, a file of the manifest of (b): if that was there when (4) read manifests first, it names the file: it was
  there until (e), or the backup gave up. If it came later, all of this holds for the backup that added it.

A manifest is never another one under its name, so one that is listed need not be read again by a process that has read
it (``Needed``). No clock is asked, but for two bounds (``ABANDONED_MS``):

- On announcements of backups that died.
- On announcements that cannot be read: an object store may keep a part of one. One that is not complete yet names
  nothing that the above needs, for d is when it is complete; a damaged one may. So a young one ends the pruning. One
  whose backup began so long ago is passed over, and is removed at the end if it could not be read at (1) nor at the
  second reading of (4): if its backup is alive, then ``a < 1 < 3 < t < d``, and it gives up.

A place that shows no manifest, or not the newest that it showed before, is not believed: no pruning removes the newest.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from ...partition.places.place import CannotReach
from .begin import begun_ms
from .manifest import Damaged, Manifest
from .store import DATA, MANIFESTS, Store

ABANDONED_MS = 7 * 86_400_000
"""A backup that announced its manifest and has not added it after so long never will."""


class Keep(NamedTuple):
    """Which backups stay: the ``last`` newest, and those whose cut is at or after ``since_ms``. The newest always."""

    last: int
    since_ms: int | None


class Pruned(NamedTuple):
    """Names of backups, and files of records with their bytes together, that were removed (or would be)."""

    backups: list[str]
    files: int
    bytes: int


class Needed:
    """What the manifests of a place name, without the manifests: of each file the newest one that names it. So memory
    goes with files and backups, and not with both multiplied.
    """

    def __init__(self) -> None:
        self.cuts: dict[str, int] = {}
        """When each backup was cut, by its name."""
        self._newest: dict[str, str] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._newest

    def read(self, store: Store, without: Collection[str] = ()) -> None:
        """Read the manifests that are there now, but for these names, and forget those that are gone.

        Raises CannotReach; Damaged if one cannot be read: nothing says which files it needs.
        """
        names = [name for name in store.manifests() if name not in without]
        newest, gone = max(self.cuts, default=""), self.cuts.keys() - names
        if gone and (not names or max(gone) > names[0]):  # it may have been the newest that names a file
            self.cuts, self._newest = {}, {}
        if newest and (not names or names[-1] < newest):
            raise CannotReach(f"{store.url}: {MANIFESTS}/{newest}.json was there, and is not any more")
        for name in gone & self.cuts.keys():
            del self.cuts[name]
        for name in names:
            if name not in self.cuts:
                self._add(store, name)
        oldest = min(self.cuts, default="")
        self._newest = {path: name for path, name in self._newest.items() if name >= oldest}

    def _add(self, store: Store, name: str) -> None:
        manifest, fault = store.manifest_or_fault(name)
        if fault:
            text = f"{fault}; nothing more is removed before {MANIFESTS}/{name}.json is repaired, or removed by hand"
            raise Damaged(text)
        if manifest is not None:
            self.cuts[name] = manifest.cut_ms
            for _, file in manifest.files:
                self._newest[file.path] = max(name, self._newest.get(file.path, ""))


def chosen(cuts: Mapping[str, int], keep: Keep) -> list[str]:
    """The names of the backups to remove; ``cuts``: when each was cut, by its name."""
    old = sorted(cuts)[: -max(1, keep.last)]
    return [name for name in old if keep.since_ms is None or cuts[name] < keep.since_ms]


def prune(
    store: Store,
    keep: Keep,
    now_ms: int,
    needed: Needed | None = None,
    *,
    dry: bool = False,
    removed: Callable[[int], None] = lambda size: None,
) -> Pruned:
    """Remove backups; ``removed`` is called with the bytes of each file of records. ``dry``: remove nothing. ``needed``
    is of an earlier pruning of the place.

    Raises CannotReach; Damaged, with no file of records removed, if a manifest or an announcement cannot be read.
    """
    needed = Needed() if needed is None else needed
    files = store.sizes(DATA)
    announced, unreadable = _announced(store, now_ms)
    needed.read(store)
    old = chosen(needed.cuts, keep)
    if not needed.cuts:
        return Pruned([], 0, 0)
    if dry:
        kept = Needed()
        kept.read(store, set(old))
        doomed = unneeded(files, announced, kept)
        return Pruned(old, len(doomed), sum(doomed.values()))
    for name in old:
        store.forget(name)
    store.begin_pruning(uuid.uuid4().bytes)
    for abandoned in [each for each in announced if each.ended_ms < now_ms - ABANDONED_MS]:
        store.withdraw(abandoned.name)
    doomed, again = files, unreadable
    for _ in range(2):
        announced, again = _announced(store, now_ms)
        needed.read(store)
        doomed = unneeded(doomed, announced, needed)
    for path, size in doomed.items():
        store.remove(path)
        removed(size)
    for name in unreadable & again:
        store.withdraw(name)
    return Pruned(old, len(doomed), sum(doomed.values()))


def unneeded(files: dict[str, int], announced: Iterable[Manifest], needed: Needed) -> dict[str, int]:
    """The files that none of these manifests names."""
    used = {file.path for manifest in announced for _, file in manifest.files}
    return {path: size for path, size in files.items() if path not in used and path not in needed}


def _announced(store: Store, now_ms: int) -> tuple[list[Manifest], set[str]]:
    """What backups announced; and the names of what cannot be read, of backups that began so long ago. Raises Damaged
    for one that began later.
    """
    found, damaged = store.announced()
    for name, fault in damaged.items():
        began_ms = begun_ms(name)
        if began_ms is None or began_ms >= now_ms - ABANDONED_MS:
            raise Damaged(
                f"{fault}; no more files are removed before it is {ABANDONED_MS // 86_400_000} days old, or is removed"
                " by hand while no backup is made"
            )
    return found, set(damaged)
