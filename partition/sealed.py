"""Captured states as bytes: a magic word, the version of the layout and a CRC-32, then MessagePack."""

import struct
from typing import Generic, TypeVar

import msgspec

from .checksum import crc32
from .image import ImageDamaged

_HEADER = struct.Struct("<4sHxxI")
"""Magic, version, CRC-32 of the rest."""
_State = TypeVar("_State", bound=msgspec.Struct)


class Sealed(Generic[_State]):
    """The bytes of one kind of state. ``owner`` (partition, controller) is what messages call its machine."""

    def __init__(
        self, kind: type[_State], magic: bytes, version: int, owner: str, encoder: msgspec.msgpack.Encoder
    ) -> None:
        self._magic = magic
        self._version = version
        self._owner = owner
        self._encoder = encoder
        self._decoder = msgspec.msgpack.Decoder(kind)

    def encode(self, state: _State) -> bytes:
        """Bytes of a state."""
        body = self._encoder.encode(state)
        return _HEADER.pack(self._magic, self._version, crc32(body)) + body

    def decode(self, data: bytes) -> _State:
        """Inverse of encode. Raises ImageDamaged for any other bytes."""
        if len(data) < _HEADER.size:
            raise ImageDamaged(f"the state of the {self._owner} is cut off")
        magic, version, crc = _HEADER.unpack_from(data)
        body = memoryview(data)[_HEADER.size :]
        if magic != self._magic or version != self._version:
            raise ImageDamaged(f"the state is not that of a {self._owner}, or of another version of this software")
        if crc32(body) != crc:
            raise ImageDamaged(f"the state of the {self._owner} does not have its CRC")
        try:
            return self._decoder.decode(body)
        except msgspec.DecodeError as error:
            raise ImageDamaged(f"the state of the {self._owner} cannot be read: {error}") from error
