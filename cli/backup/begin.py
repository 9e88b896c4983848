"""How a backup begins and ends in a place where other processes may make and prune backups at the same time; prune.py
has the proof that it loses no file.
"""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from .manifest import Manifest
from .store import DATA, Store

_NAME_TIME = "%Y%m%dT%H%M%S.%fZ"


class CannotBackUp(Exception):
    """The backup is refused: its place is another cluster's or was pruned meanwhile, or the caller may not see all."""


class Begun(NamedTuple):
    """A backup under way. ``mark``: that of the last pruning; ``previous``: the last manifest that can be read;
    ``sizes``: the files of records in the place, with their bytes; ``damaged``: the faults of the manifests after
    ``previous``.
    """

    name: str
    started_ms: int
    mark: bytes
    previous: Manifest | None
    sizes: dict[str, int]
    damaged: list[str]


def begin(store: Store, cluster_id: str, *, had_backups: bool = False) -> Begun:
    """Begin a backup: read the mark, and choose the previous backup. ``had_backups``: the place had one before, and no
    pruning removes the last; so without any it is the bare folder of a share that is not mounted. Raises CannotBackUp,
    CannotReach.
    """
    started = datetime.now(UTC)
    mark, damaged = store.last_pruning(), []
    previous = None
    names = store.manifests()
    if had_backups and not names:
        raise CannotBackUp(
            f"{store.url} had backups, and has none now: is it mounted? If it was emptied, start with --anew"
        )
    for name in reversed(names):
        previous, fault = store.manifest_or_fault(name)
        if previous is not None:
            break
        if fault:  # "": it was removed since it was listed
            damaged.append(fault)
    if previous is not None and previous.cluster_id != cluster_id:
        raise CannotBackUp(f"{store.url} has backups of the cluster {previous.cluster_id}, not {cluster_id}")
    return Begun(_name(started, names), int(started.timestamp() * 1000), mark, previous, store.sizes(DATA), damaged)


def _name(started: datetime, names: Sequence[str]) -> str:
    """The name of a backup that began at ``started``, behind all ``names``: the last one is the newest backup, which a
    restore takes and no pruning removes. So a clock that was wrong, now or when that one was made, hides no backup.
    """
    newest = _time_of(names[-1]) if names else None
    if newest is not None and newest >= started:
        started = newest + timedelta(microseconds=1)
    return f"{started.strftime(_NAME_TIME)}-{secrets.token_hex(3)}"


def begun_ms(name: str) -> int | None:
    """When the backup of this name began, in ms since 1970; None if no backup can have this name."""
    time = _time_of(name)
    return None if time is None else int(time.timestamp() * 1000)


def _time_of(name: str) -> datetime | None:
    try:
        return datetime.strptime(name.partition("-")[0], _NAME_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def end(store: Store, begun: Begun, manifest: Manifest) -> None:
    """Announce the manifest, and add it unless the place was pruned meanwhile: then raise CannotBackUp, and there is no
    backup. Raises CannotReach.
    """
    store.announce(manifest)
    is_used = begun.previous is None or store.has_manifest(begun.previous.name)
    if store.last_pruning() != begun.mark or not is_used:
        store.withdraw(manifest.name)
        raise CannotBackUp(f"{store.url} was pruned while the backup was made: make it again")
    store.add(manifest)
    store.withdraw(manifest.name)
