"""The end of the write-ahead log that is still in memory: where records will lie, and their bytes until written.

No IO here. Records gather in runs: bytes that go to one place of one file with one write and one fdatasync.
"""

import secrets

import msgspec

from .wal_records import (
    FILE_BYTES_MAX,
    FILE_HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    RECORD_HEADER_BYTES,
    FileHeader,
    Location,
    Record,
    encode_record_header,
    locate,
)


class Run(msgspec.Struct):
    """Bytes to write at ``start`` of the file ``number``. With a ``header``, the file is to be created first."""

    number: int
    start: int
    file_bytes: int
    header: FileHeader | None
    parts: list[bytes]


class Tail:
    """Lays records out, one after the other, in files of ``file_bytes`` (more for a record that needs more)."""

    def __init__(self, file_bytes: int, number: int, end: int) -> None:
        """``number`` is the last file there is, ``end`` where its records end; it is never appended to."""
        assert file_bytes <= FILE_BYTES_MAX
        self._file_bytes_min = file_bytes
        self.file_bytes: int = 0
        """The size of the file ``number``."""
        self.number: int = number
        self._end = end
        self._header = FileHeader(0, 0, 0)
        self._runs: list[Run] = []
        self.lsn: int = 0
        self.appended_bytes: int = 0

    def add(self, kind: int, group_id: int, index: int, term: int, payload: bytes) -> Location:
        """Put a record at the end; answers where it will lie."""
        assert len(payload) <= PAYLOAD_BYTES_MAX
        record_bytes = RECORD_HEADER_BYTES + len(payload)
        if self._end + record_bytes > self.file_bytes:
            self._begin_file(record_bytes)
        elif not self._runs:
            self._runs.append(Run(self.number, self._end, self.file_bytes, None, []))
        run = self._runs[-1]
        # The run before this one is synced before this one is written.
        record = Record(kind, group_id, index, term, run.start, len(payload))
        run.parts.append(encode_record_header(self._header, record, payload))
        run.parts.append(payload)
        position = self._end
        self._end += record_bytes
        self.appended_bytes += record_bytes
        self.lsn += 1
        return locate(self.number, position, len(payload))

    def take(self) -> list[Run]:
        """Hand over everything that was added since the last call, to be written in this order."""
        runs, self._runs = self._runs, []
        return runs

    def _begin_file(self, record_bytes: int) -> None:
        marker = 1 + secrets.randbelow((1 << 32) - 1)  # never zero, which is what unwritten space holds
        self.number += 1
        self._header = FileHeader(marker, self.number, self._end)
        self._end = FILE_HEADER_BYTES
        self.file_bytes = max(self._file_bytes_min, self._end + record_bytes)
        self._runs.append(Run(self.number, self._end, self.file_bytes, self._header, []))
