"""The controller's replicated state as bytes, for checkpoints: equal on replicas that applied the same commands.

The bytes have a magic word, the version of their layout and a CRC; everything else is MessagePack. Maps are sorted;
what must keep its order is a list.
"""

import struct
import zlib

import msgspec

from ..partition.image import ImageDamaged
from .catalog import Topic
from .membership import SavedMembership
from .ownership import SavedOwnership
from .reader_fences import SavedReaderFences
from .registry import SavedRegistry
from .resources import Resource
from .sessions import SavedSessions

_MAGIC = b"StkC"
_VERSION = 1
_HEADER = struct.Struct("<4sHxxI")
"""Magic, version, CRC-32 of the rest."""


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


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(State)


def encode(state: State) -> bytes:
    """Bytes of a state."""
    body = _encoder.encode(state)
    return _HEADER.pack(_MAGIC, _VERSION, zlib.crc32(body)) + body


def decode(data: bytes) -> State:
    """Inverse of encode. Raises ImageDamaged for any other bytes."""
    if len(data) < _HEADER.size:
        raise ImageDamaged("the state of the controller is cut off")
    magic, version, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or version != _VERSION:
        raise ImageDamaged("the state is not that of a controller, or of another version of this software")
    if zlib.crc32(body) != crc:
        raise ImageDamaged("the state of the controller does not have its CRC")
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ImageDamaged(f"the state of the controller cannot be read: {error}") from error
