"""The controller's replicated state as bytes, for checkpoints: equal on replicas that applied the same commands.

The bytes have a magic word, the version of their layout and a CRC; everything else is MessagePack. Maps are sorted;
state whose order counts is a list. Version 2 has enrolments as one flat list (producers.py).
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from ...partition.api.cluster import NotedBackup
from ...partition.state.snapshot import Sealed
from .ledger import SavedLedger
from .ownership.pending_installs import SavedPendingInstalls
from .ownership.reader_fences import SavedReaderFences
from .ownership.resources import Resource
from .ownership.slots import SavedSlots
from .principals import SavedPrincipals
from .producers import SavedRegistry
from .sessions import SavedSessions
from .topology.catalog import Topic
from .topology.replica_assignment import SavedReplicaAssignment


class SavedState(msgspec.Struct, frozen=True):
    """All state on which future answers depend, part by part."""

    applied_index: int
    term: int
    lease_clock_ms: int
    catalog_index: int
    catalog: list[Topic]
    sessions: SavedSessions
    ownership: SavedSlots
    resources: list[tuple[str, list[tuple[str, Resource]]]]
    reader_fences: SavedReaderFences
    registry: SavedRegistry
    membership: SavedReplicaAssignment
    resources_floor: int = 0
    severing: SavedPendingInstalls = []
    leaving: SavedPendingInstalls = []
    principals: SavedPrincipals = SavedPrincipals()
    group_founders: list[tuple[str, str]] = []
    ledger: SavedLedger = SavedLedger()
    backups: list[NotedBackup] = []


_sealed = Sealed(SavedState, b"StkC", 2, "controller", msgspec.msgpack.Encoder(order="deterministic"), oldest=1)
encode: Callable[[SavedState], bytes] = _sealed.encode
decode: Callable[[bytes], SavedState] = _sealed.decode


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection in the block. A million names are millions of objects, none of them garbage: to search
    them for garbage takes longer than to make them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
