"""How a backup begins and ends in a place where others may be made and pruned at the same time (prune.py says why it is
right).
"""

import secrets
from datetime import UTC, datetime
from typing import NamedTuple

from .manifest import Manifest
from .store import DATA, Store

_NAME_TIME = "%Y%m%dT%H%M%S.%fZ"


class CannotBackUp(Exception):
    """The place has a backup that does not belong to this cluster, or others work there."""


class Begun(NamedTuple):
    """A backup under way. ``previous``: the last one that can be read. ``sizes``: the files that are there.
    ``damaged``: what is wrong with manifests that were written since the previous one.
    """

    name: str
    started_ms: int
    mark: bytes
    previous: Manifest | None
    sizes: dict[str, int]
    damaged: list[str]


def begin(store: Store, cluster_id: str) -> Begun:
    """Choose the backup to go on from. Raises CannotBackUp, CannotReach."""
    started = datetime.now(UTC)
    mark, damaged = store.last_pruning(), []
    previous = None
    for name in reversed(store.manifests()):
        previous, fault = store.manifest_or_fault(name)
        if previous is not None:
            break
        damaged.append(fault)
    if previous is not None and previous.cluster_id != cluster_id:
        raise CannotBackUp(f"{store.url} has backups of the cluster {previous.cluster_id}, not {cluster_id}")
    name = f"{started.strftime(_NAME_TIME)}-{secrets.token_hex(3)}"
    return Begun(name, int(started.timestamp() * 1000), mark, previous, store.sizes(DATA), damaged)


def begun_ms(name: str) -> int | None:
    """When a backup of this name began; None: no backup has such a name."""
    try:
        return int(datetime.strptime(name.partition("-")[0], _NAME_TIME).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return None


def end(store: Store, begun: Begun, manifest: Manifest) -> None:
    """Make the backup exist. Raises CannotBackUp: it comes to nothing; CannotReach."""
    store.announce(manifest)
    is_used = begun.previous is None or store.has_manifest(begun.previous.name)
    if store.last_pruning() != begun.mark or not is_used:
        store.withdraw(manifest.name)
        raise CannotBackUp(f"{store.url} was pruned while the backup was made: make it again")
    store.add(manifest)
    store.withdraw(manifest.name)
