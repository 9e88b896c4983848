"""What the write-ahead log stores, and its bytes.

A file is a header and records without gaps. What follows the last record is none: zeros, or what is left of the file
whose room this one was given. The number of the file is part of each record's checksum, so no record of another file
ever passes for one of its own. Every record carries ``synced``: all of its file before that position was on disk when
the record was written. That is what tells an accident from damage: a power cut may leave any part of the last flush, so
records of one flush never vouch for each other, but an unreadable record that lies before a later record's ``synced``
was on disk once and has been damaged since.
"""

import struct
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..partition.checksum import crc32
from .refusal import DiskRefused

Location = int
"""Where an entry's payload lies: file number, position, length in one integer. Opaque outside the log."""

ENTRY, TRUNCATE, VOTE, ERASE, RESET = 1, 2, 3, 4, 5
"""Kinds of records. Truncate: ``index`` is the first that goes. Vote: the payload is the id, empty for nobody; a
checkpoint holds all up to ``index``, 0 for none. Reset: all entries go, a checkpoint holds all up to ``index``, which
the next one follows; the vote stays."""

_MAGIC = b"STOCKADE"
_VERSION, _VERSION_WITHOUT_REUSE = 2, 1
_FILE = struct.Struct("<8sIIQQ")
_CRC = struct.Struct("<I")
FILE_HEADER_BYTES = _FILE.size + _CRC.size

MARKER = struct.Struct("<I")
"""The first bytes of every record."""
_PREFIX = struct.Struct("<II")
_FIELDS = struct.Struct("<IIQQIB3x")
RECORD_HEADER_BYTES = _PREFIX.size + _FIELDS.size
PAYLOAD_BYTES_MAX = 32 << 20
"""Longest payload: a longer one would fit in no frame anyway."""
FILE_BYTES_MAX = 1 << 31
"""Largest size of a file; positions within one are u32."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One log entry of a group, without its payload (``Wal.read(location)`` has it)."""

    index: int
    term: int
    location: Location
    type: int = 0
    """The first byte of the payload."""


class RecoveredGroup(msgspec.Struct):
    """What the log holds of one group: its current term, its vote in that term, its entries by index."""

    term: int = 0
    voted_for: str | None = None
    entries: list[Entry] = msgspec.field(default_factory=list)
    covered: int = 0
    """A checkpoint that holds all up to here must be on this disk: entries that it holds may be gone."""
    state_file: int = 0
    """Number of the file with the last record that tells the term."""


class WalLocked(Exception):
    """Another process uses this data folder."""


class WalFailed(Exception):
    """The log takes no more records: an earlier write or fdatasync failed, or the log was closed."""


class WalCorrupt(DiskRefused):
    """Records that were on disk are damaged or missing; going on would silently lose them."""

    def __init__(self, path: Path, position: int, explanation: str) -> None:
        super().__init__(path, f"position {position}: {explanation}")
        self.position = position


class FileHeader(NamedTuple):
    """``marker`` begins every record of this file and no other's: random, so no payload can pass for a record.

    ``previous_end`` is where the records of the file before end; 0 if there is none. ``version`` 1 is that of files
    which were never given the room of another.
    """

    marker: int
    number: int
    previous_end: int
    version: int = _VERSION

    @property
    def seed(self) -> int:
        """What the checksum of every record begins with: it differs from that of any other file in this room."""
        return 0 if self.version == _VERSION_WITHOUT_REUSE else self.number & 0xFFFFFFFF


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record without its payload of ``length`` bytes."""

    kind: int
    group_id: int
    index: int
    term: int
    synced: int
    length: int


def locate(number: int, position: int, length: int) -> Location:
    """The location of the payload of ``length`` bytes whose record begins at ``position`` of file ``number``."""
    return number << 64 | position << 32 | length


def parts_of(location: Location) -> tuple[int, int, int]:
    """File number, position of the record, length of the payload."""
    return location >> 64, location >> 32 & 0xFFFFFFFF, location & 0xFFFFFFFF


def encode_file_header(header: FileHeader) -> bytes:
    """The first FILE_HEADER_BYTES of a file."""
    fields = _FILE.pack(_MAGIC, header.version, header.marker, header.number, header.previous_end)
    return fields + _CRC.pack(crc32(fields))


def decode_file_header(data: bytes | memoryview) -> FileHeader | None:
    """The header, or None if these bytes are not an intact one of a version known here."""
    if len(data) < FILE_HEADER_BYTES:
        return None
    magic, version, marker, number, previous_end = _FILE.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _FILE.size)
    if (magic, crc) != (_MAGIC, crc32(data[: _FILE.size])) or version not in (_VERSION, _VERSION_WITHOUT_REUSE):
        return None
    return FileHeader(marker, number, previous_end, version)


def encode_record_header(header: FileHeader, record: Record, payload: bytes) -> bytes:
    """What precedes the payload: marker, CRC-32 of all that follows, and the fields."""
    fields = _FIELDS.pack(record.length, record.group_id, record.index, record.term, record.synced, record.kind)
    return _PREFIX.pack(header.marker, crc32(payload, crc32(fields, header.seed))) + fields


def decode_record(view: memoryview, position: int, header: FileHeader) -> Record | None:
    """The record of this file that begins at ``position``, or None if no intact one does."""
    payload = position + RECORD_HEADER_BYTES
    if payload > len(view):
        return None
    found, crc = _PREFIX.unpack_from(view, position)
    length, group_id, index, term, synced, kind = _FIELDS.unpack_from(view, position + _PREFIX.size)
    if found != header.marker or length > len(view) - payload:
        return None
    if crc32(view[position + _PREFIX.size : payload + length], header.seed) != crc:
        return None
    return Record(kind, group_id, index, term, synced, length)
