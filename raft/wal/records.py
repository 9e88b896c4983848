"""The records of the write-ahead log, their bytes, and how ``Tail`` lays them out in files. No IO.

A file is a header and records without gaps. After the last record come zeros, or the remains of the file whose blocks
this one reuses. The number of the file is part of each record's checksum, so a record of another file never passes for
one of this file. Every record carries ``synced``, a position in its file: all before it was on disk when the record was
written. ``synced`` tells an interrupted flush from damage: a power cut may leave any part of the last flush on disk, so
records of one flush never vouch for each other; but an unreadable record that lies before a later record's ``synced``
was on disk once and has been damaged since.
"""

import secrets
import struct
from typing import NamedTuple

import msgspec

from ...partition.records.checksum import crc32

Location = int
"""Where an entry's payload lies: file number, position of its record and length, in one integer. Opaque outside wal/.
"""

ENTRY, TRUNCATE, VOTE, ERASE, RESET = 1, 2, 3, 4, 5
"""Kinds of records.

- ENTRY: a log entry at (``index``, ``term``).
- TRUNCATE: the group's entries from ``index`` on are dropped.
- VOTE: the group's ``term``; the payload is the id of the node voted for, empty for none. A checkpoint covers all
  entries up to ``index`` (0: there is no checkpoint).
- ERASE: the group is dropped: entries, term and vote.
- RESET: all entries are dropped, since a checkpoint covers all up to ``index``; the next entry is at ``index + 1``.
  Term and vote stay.
"""

_MAGIC = b"STOCKADE"
FILE_VERSION, _VERSION_WITHOUT_REUSE = 2, 1
_FILE = struct.Struct("<8sIIQQ")
_CRC = struct.Struct("<I")
FILE_HEADER_BYTES = _FILE.size + _CRC.size

MARKER = struct.Struct("<I")
"""The first bytes of every record."""
_PREFIX = struct.Struct("<II")
_FIELDS = struct.Struct("<IIQQII")
"""Length of the payload, low 32 bits of the group id, index, term, ``synced``; kind (low 8 bits) and the high 24 bits
of the group id, which are zero in records that software of feature level 1 writes.
"""
_LOW = (1 << 32) - 1
RECORD_HEADER_BYTES = _PREFIX.size + _FIELDS.size
PAYLOAD_BYTES_MAX = 32 << 20
"""Longest payload: a longer one would not fit in a frame."""
FILE_BYTES_MAX = 1 << 31
"""Largest size of a file; positions within a file are u32."""
PAGE_BYTES = 4096
"""The unit of the log's writes, which bypass the kernel's cache: length and position of each are multiples of it."""


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """One log entry of a group, without its payload (``Wal.read(location)`` reads it)."""

    index: int
    term: int
    location: Location
    type: int = 0
    """The first byte of the payload."""


class RecoveredGroup(msgspec.Struct):
    """The state of a group that its records in the log make: current term, vote in that term, entries by index."""

    term: int = 0
    voted_for: str | None = None
    entries: list[LogEntry] = msgspec.field(default_factory=list)
    covered: int = 0
    """A checkpoint at this index or beyond must be on this disk: the entries up to it may be gone from the log."""
    state_file: int = 0
    """Number of the file with the last record that states the term."""


class FileHeader(NamedTuple):
    """The header of a file of the log. ``marker`` begins every record of this file and of no other: it is random, so
    that no payload passes for a record.

    ``previous_end`` is the position where the records of the file before this one end; 0 if there is none. Files of
    ``version`` 1 never reuse the blocks of another file.
    """

    marker: int
    number: int
    previous_end: int
    version: int = FILE_VERSION

    @property
    def seed(self) -> int:
        """The value with which the checksum of every record begins; no other file that had these blocks has it."""
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
    """The location of a payload of ``length`` bytes whose record begins at ``position`` of file ``number``."""
    return number << 64 | position << 32 | length


def parts_of(location: Location) -> tuple[int, int, int]:
    """File number, position of the record, length of the payload."""
    return location >> 64, location >> 32 & 0xFFFFFFFF, location & 0xFFFFFFFF


def encode_file_header(header: FileHeader) -> bytes:
    """The first FILE_HEADER_BYTES bytes of a file."""
    fields = _FILE.pack(_MAGIC, header.version, header.marker, header.number, header.previous_end)
    return fields + _CRC.pack(crc32(fields))


def decode_file_header(data: bytes | memoryview) -> FileHeader | None:
    """The header, perhaps of a version newer than FILE_VERSION; None if these bytes are not an intact header."""
    if len(data) < FILE_HEADER_BYTES:
        return None
    magic, version, marker, number, previous_end = _FILE.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _FILE.size)
    if (magic, crc) != (_MAGIC, crc32(data[: _FILE.size])):
        return None
    return FileHeader(marker, number, previous_end, version)


def encode_record(
    marker: int, seed: int, kind: int, group_id: int, index: int, term: int, synced: int, payload: bytes
) -> tuple[bytes, bytes]:
    """The bytes of a record before its payload, in two parts: marker and CRC-32 of all that follows; the fields of
    Record. ``marker`` and ``seed`` are the file's. Called once for each entry, so it makes no further objects.
    """
    fields = _FIELDS.pack(len(payload), group_id & _LOW, index, term, synced, kind | group_id >> 32 << 8)
    return _PREFIX.pack(marker, crc32(payload, crc32(fields, seed))), fields


def decode_record(view: memoryview, position: int, header: FileHeader) -> Record | None:
    """The record that begins at ``position`` of the file with this header; None if no intact record does."""
    payload = position + RECORD_HEADER_BYTES
    if payload > len(view):
        return None
    found, crc = _PREFIX.unpack_from(view, position)
    length, low, index, term, synced, kind = _FIELDS.unpack_from(view, position + _PREFIX.size)
    if found != header.marker or length > len(view) - payload:
        return None
    if crc32(view[position + _PREFIX.size : payload + length], header.seed) != crc:
        return None
    return Record(kind & 0xFF, kind >> 8 << 32 | low, index, term, synced, length)


class Run(msgspec.Struct):
    """The bytes (``parts``) to write at ``start`` of the file ``number``, and then to sync once. With a ``header``, the
    file has to be created first, with ``file_bytes`` bytes.
    """

    number: int
    start: int
    file_bytes: int
    header: FileHeader | None
    parts: list[bytes]


class Tail:
    """The end of the log, in memory until it is written: records without gaps, in files of ``file_bytes`` bytes.

    A record that needs a longer file gets a file of its own.
    """

    def __init__(self, file_bytes: int, number: int, end: int, file_sizes: dict[int, int]) -> None:
        """``number`` is that of the last file on disk, ``end`` the position where its records end. That file takes no
        more records. ``file_sizes`` has the bytes of each of the log's files by number.
        """
        assert file_bytes <= FILE_BYTES_MAX
        self._file_bytes_min = file_bytes
        self._file_bytes = 0
        self._file_sizes = file_sizes
        self.disk_bytes: int = sum(file_sizes.values())
        """Bytes of all files, including those that the writer is about to create."""
        self.number: int = number
        """The number of the file with the last record."""
        self._end = end
        self._marker = self._seed = 0  # of the file that takes the next record
        self.runs: list[Run] = []
        """The runs to be written, in this order. The caller that takes them puts an empty list here."""
        self.lsn: int = 0
        """The log sequence number of the last record: records are numbered from 1 since the log was opened."""
        self.appended_bytes: int = 0
        """Bytes of the records appended since the log was opened."""

    @property
    def position(self) -> int:
        """Where the records end: file number and position in one integer, which grows over files and restarts."""
        return self.number << 32 | self._end

    def add(self, kind: int, group_id: int, index: int, term: int, payload: bytes) -> Location:
        """Add a record; returns the location of its payload."""
        assert len(payload) <= PAYLOAD_BYTES_MAX
        record_bytes = RECORD_HEADER_BYTES + len(payload)
        if self._end + record_bytes > self._file_bytes:
            self._begin_file(record_bytes)
        elif not self.runs:
            self.runs.append(Run(self.number, self._end, self._file_bytes, None, []))
        run = self.runs[-1]
        # The writer syncs a run before it writes the next one, so all before ``run.start`` is on disk by then.
        run.parts += encode_record(self._marker, self._seed, kind, group_id, index, term, run.start, payload)
        run.parts.append(payload)
        location = locate(self.number, self._end, len(payload))
        self._end += record_bytes
        self.appended_bytes += record_bytes
        self.lsn += 1
        return location

    def forget_files_before(self, number: int) -> None:
        """Count the files before ``number`` as removed from the log."""
        for each in [each for each in self._file_sizes if each < number]:
            self.disk_bytes -= self._file_sizes.pop(each)

    def _begin_file(self, record_bytes: int) -> None:
        marker = 1 + secrets.randbelow((1 << 32) - 1)  # never zero: unwritten space holds zeros
        self.number += 1
        header = FileHeader(marker, self.number, self._end)
        self._marker, self._seed = marker, header.seed
        self._end = FILE_HEADER_BYTES
        self._file_bytes = max(self._file_bytes_min, self._end + record_bytes)
        self.runs.append(Run(self.number, self._end, self._file_bytes, header, []))
        self._file_sizes[self.number] = self._file_bytes
        self.disk_bytes += self._file_bytes
