"""The controller's replicated state as bytes, for checkpoints: equal on replicas that applied the same commands.

The bytes have a magic word, the version of their layout and a CRC; everything else is MessagePack. Maps are sorted;
what must keep its order is a list.
"""

from collections.abc import Callable

import msgspec

from ..partition.sealed import Sealed
from .catalog import Topic
from .membership import SavedMembership
from .ownership import SavedOwnership
from .promises import SavedPromises
from .reader_fences import SavedReaderFences
from .registry import SavedRegistry
from .resources import Resource
from .sessions import SavedSessions


class State(msgspec.Struct, frozen=True):
    """Everything that decides future answers, part by part."""

    applied_index: int
    term: int
    lease_clock_ms: int
    catalog_index: int
    catalog: list[Topic]
    sessions: SavedSessions
    ownership: SavedOwnership
    resources: list[tuple[str, list[tuple[str, Resource]]]]
    reader_fences: SavedReaderFences
    registry: SavedRegistry
    membership: SavedMembership
    resources_floor: int = 0
    severing: SavedPromises = []
    leaving: SavedPromises = []


_sealed = Sealed(State, b"StkC", 1, "controller", msgspec.msgpack.Encoder(order="deterministic"))
encode: Callable[[State], bytes] = _sealed.encode
decode: Callable[[bytes], State] = _sealed.decode
