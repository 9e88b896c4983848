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

No clock is asked, but for the bound on announcements of backups that died (``ABANDONED_MS``).
"""

import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

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


def chosen(manifests: Sequence[Manifest], keep: Keep) -> list[str]:
    """The names of the backups to remove; ``manifests`` are ascending by name."""
    old = manifests[: -max(1, keep.last)]
    return [each.name for each in old if keep.since_ms is None or each.cut_ms < keep.since_ms]


def unneeded(files: dict[str, int], manifests: Sequence[Manifest]) -> dict[str, int]:
    """The files that none of these manifests names."""
    needed = {file.path for manifest in manifests for _, file in manifest.files}
    return {path: size for path, size in files.items() if path not in needed}


def prune(
    store: Store, keep: Keep, now_ms: int, *, dry: bool = False, removed: Callable[[int], None] = lambda size: None
) -> Pruned:
    """Remove backups; ``removed`` is called with the bytes of each file of records. ``dry``: remove nothing.

    Raises CannotReach; Damaged, with nothing removed, if a manifest cannot be read: nothing says which files it needs.
    """
    files = store.sizes(DATA)
    announced, manifests = store.announced(), _all(store)
    old = chosen(manifests, keep)
    if dry:
        kept = [each for each in manifests if each.name not in old]
        doomed = unneeded(files, [*announced, *kept])
        return Pruned(old, len(doomed), sum(doomed.values()))
    for name in old:
        store.forget(name)
    store.begin_pruning(uuid.uuid4().bytes)
    for abandoned in [each for each in announced if each.ended_ms < now_ms - ABANDONED_MS]:
        store.withdraw(abandoned.name)
    first = [*store.announced(), *_all(store)]
    doomed = unneeded(files, [*first, *store.announced(), *_all(store)])
    for path, size in doomed.items():
        store.remove(path)
        removed(size)
    return Pruned(old, len(doomed), sum(doomed.values()))


def _all(store: Store) -> list[Manifest]:
    manifests, damaged = store.all_manifests()
    if damaged:
        name, fault = next(iter(damaged.items()))
        text = f"{fault}; nothing more is removed before {MANIFESTS}/{name}.json is repaired, or removed by hand"
        raise Damaged(text)
    return manifests
