"""Removes backups, and the files that no other backup needs.

**Why no backup loses a file**, although other processes make and prune backups in the same place, without locks.

A backup (begin.py) does, in this order: (a) read the mark; (b) read the manifest of the last backup, whose files it
goes on to use; (c) write files under names of its own; (d) announce its manifest; (e) give up if the mark has changed,
or the manifest of (b) is gone; (f) add the manifest, and only then withdraw the announcement.

A pruning does: (1) list the files of records; (2) remove manifests; (3) write its mark; (4) read all announcements,
then all manifests, and then both once more; (5) remove the files of (1) that no announcement or manifest of (4) names.

Let t be the time at which the second reading of (4) begins, and take a backup and a file that it needs.

- ``d < t``: the second reading finds the announcement; or it finds the manifest, added before the announcement went.
- ``t < d``, and (1) lists the file, and the backup wrote it at (c): that was before (1), so ``a < 3 < t < d < e``, and
  the backup gives up.
- ``t < d``, and the file is of the manifest of (b): if the first reading of (4) found that manifest, the file stays. If
  not, the manifest was removed before, and the backup gives up at (e); or it was added later, and then all of this
  holds for the backup that added it.

The content of a manifest never changes, so a process that has read a listed manifest need not read it again
(``Needed``). No clock is read, except for two bounds (``ABANDONED_MS``):

- On the age of announcements of backups that died.
- On the age of announcements that cannot be read: an object store may keep a part of one. An incomplete announcement
  names nothing that the proof needs, for d is the time when it is complete; a damaged one may. So a young one ends the
  pruning. An old one is passed over, and is removed at the end if it could be read neither at (1) nor at the second
  reading of (4): if its backup is alive, then ``a < 1 < 3 < t < d``, and that backup gives up.

If a place lists no manifest, or not the newest that it listed before, the listing is taken to be wrong and nothing is
removed: no pruning removes the newest manifest.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from ...partition.places.place import CannotReach
from .begin import begun_ms
from .manifest import Damaged, Manifest
from .store import DATA, MANIFESTS, Store

ABANDONED_MS = 7 * 86_400_000
"""A backup that has not added its manifest so long after its announcement is taken to be dead."""
HOUR_MS = 3_600_000


class Keep(NamedTuple):
    """Which backups stay: the ``last`` newest (at least one), those with ``cut_ms >= since_ms``, and of each hour the
    newest with ``cut_ms >= hourly_since_ms``. None: none for that reason.
    """

    last: int
    since_ms: int | None
    hourly_since_ms: int | None = None


class Pruned(NamedTuple):
    """What was removed, or would be: names of backups, the number of files of records, and their bytes in all."""

    backups: list[str]
    files: int
    bytes: int


class Needed:
    """The files that the manifests of a place name: for each file, only the newest manifest that names it. So memory
    grows with files + backups, not with files * backups.
    """

    def __init__(self) -> None:
        self.cuts: dict[str, int] = {}
        """``cut_ms`` of each backup, by its name."""
        self._newest: dict[str, str] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._newest

    def read(self, store: Store, without: Collection[str] = ()) -> None:
        """Read the manifests that are in the place now, except those of ``without``, and forget those that are gone.

        Raises CannotReach; Damaged if one cannot be read: nothing says which files it needs.
        """
        names = [name for name in store.manifests() if name not in without]
        newest, gone = max(self.cuts, default=""), self.cuts.keys() - names
        if gone and (not names or max(gone) > names[0]):  # it may be the newest manifest that names a file
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
    """The names of the backups to remove; ``cuts``: ``cut_ms`` of each backup, by its name."""
    names = sorted(cuts)
    of_hour = {cuts[name] // HOUR_MS: name for name in names}
    hourly = {name for name in of_hour.values() if _is_since(cuts[name], keep.hourly_since_ms)}
    old = names[: -max(1, keep.last)]
    return [name for name in old if name not in hourly and not _is_since(cuts[name], keep.since_ms)]


def _is_since(cut_ms: int, since_ms: int | None) -> bool:
    return since_ms is not None and cut_ms >= since_ms


def prune(
    store: Store,
    keep: Keep,
    now_ms: int,
    needed: Needed | None = None,
    *,
    dry: bool = False,
    removed: Callable[[int], None] = lambda size: None,
) -> Pruned:
    """Remove the backups that ``keep`` does not keep, and files that no backup needs. ``removed`` is called with the
    bytes of each removed file. ``dry``: remove nothing. ``needed``: that of an earlier pruning, which saves reading.

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
    """Those of ``files`` that no announced manifest names, and no manifest of ``needed``."""
    used = {file.path for manifest in announced for _, file in manifest.files}
    return {path: size for path, size in files.items() if path not in used and path not in needed}


def _announced(store: Store, now_ms: int) -> tuple[list[Manifest], set[str]]:
    """The announced manifests; and the names of unreadable announcements whose backups began over ABANDONED_MS ago.
    Raises Damaged for an unreadable one of a backup that began later.
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
