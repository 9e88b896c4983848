"""What a node remembers after a stop of any kind: reads the write-ahead log's files and brings them in order.

Recovery reads, and then cuts what the last flush left unfinished; being killed within it and running it again
changes nothing. It never drops a record that was reported durable: where one is damaged it raises WalCorrupt.
One case cannot be told from a cut: damage to the very last flush, after which nothing was written.
"""

import mmap
import os
from pathlib import Path

from .wal_files import numbers_in, path_of, sync_directory
from .wal_records import (
    ENTRY,
    ERASE,
    FILE_HEADER_BYTES,
    MARKER,
    RECORD_HEADER_BYTES,
    RESET,
    TRUNCATE,
    VOTE,
    Entry,
    FileHeader,
    Location,
    Record,
    RecoveredGroup,
    WalCorrupt,
    decode_file_header,
    decode_record,
    locate,
)

_WHAT_TO_DO = (
    "Starting would silently lose what this node promised to keep. Move its data folder away (keep it: it may"
    " still be of use) and start the node with an empty one while all other nodes run, so that it copies theirs."
)


def recover(directory: Path) -> "Recovery":
    """Read all files and cut a torn tail. Raises WalCorrupt rather than lose a record that was on disk."""
    numbers = numbers_in(directory)
    if numbers and _never_held_a_record(path_of(directory, numbers[-1])):
        path_of(directory, numbers.pop()).unlink()
        sync_directory(directory)
    recovery = Recovery()
    for number in numbers:
        recovery.read(path_of(directory, number), number, is_last=number == numbers[-1])
    return recovery


def _never_held_a_record(path: Path) -> bool:
    """Whether the process died creating this file: records are written only when its header is durable."""
    with path.open("rb") as file:
        if decode_file_header(file.read(FILE_HEADER_BYTES)) is not None:
            return False
        while chunk := file.read(1 << 20):
            if chunk.strip(b"\0"):
                return False
    return True


class Recovery:
    """What the files read so far hold: the groups, the last file's number (0: none) and where its records end."""

    def __init__(self) -> None:
        self.groups: dict[int, RecoveredGroup] = {}
        self.number = 0
        self.end = 0

    def read(self, path: Path, number: int, *, is_last: bool) -> None:
        """Read the next file; if it is the last, cut it where its records end and make that durable."""
        with path.open("r+b") as file:
            if is_last:
                _forget_cached_pages(file.fileno())
            header = self._check_header(path, number, decode_file_header(file.read(FILE_HEADER_BYTES)))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
                self.number, self.end = number, self._read_records(path, view, header)
                if is_last and _was_synced_later(data, view, self.end, header.marker):
                    raise _corrupt(path, self.end, "a record is damaged that was on disk before later ones")
            if is_last:
                os.ftruncate(file.fileno(), self.end)
                os.fsync(file.fileno())

    def _check_header(self, path: Path, number: int, header: FileHeader | None) -> FileHeader:
        if header is None or header.number != number:
            raise _corrupt(path, 0, "the header of the file is damaged")
        if number != self.number + 1:
            raise _corrupt(path, 0, f"the file before this one, number {number - 1}, is missing")
        if header.previous_end != self.end:
            before = path_of(path.parent, self.number)
            raise _corrupt(
                before, self.end, f"a record is damaged or missing; {header.previous_end} is where they ended"
            )
        return header

    def _read_records(self, path: Path, view: memoryview, header: FileHeader) -> int:
        """Apply every record up to the first that is not intact; answers where that is."""
        position = FILE_HEADER_BYTES
        while (record := decode_record(view, position, header.marker)) is not None:
            payload = position + RECORD_HEADER_BYTES
            said = bytes(view[payload : payload + (record.length if record.kind == VOTE else min(1, record.length))])
            fault = self._apply(record, locate(header.number, position, record.length), said)
            if fault is not None:
                raise _corrupt(path, position, fault)
            position = payload + record.length
        return position

    def _apply(self, record: Record, location: Location, said: bytes) -> str | None:
        """Apply one record; answers why it cannot follow those before it, if so.

        ``said`` is the whole payload of a vote, the first byte of any other.
        """
        if record.kind == ERASE:
            self.groups.pop(record.group_id, None)
            return None
        group = self.groups.setdefault(record.group_id, RecoveredGroup())
        entries = group.entries
        if record.kind == ENTRY:
            if entries and record.index != entries[-1].index + 1:
                return f"entry {record.index} of group {record.group_id} follows entry {entries[-1].index}"
            entries.append(Entry(record.index, record.term, location, said[0] if said else 0))
            if record.term > group.term:
                group.term, group.voted_for = record.term, None
        elif record.kind == TRUNCATE:
            del entries[max(0, record.index - entries[0].index) if entries else 0 :]
        elif record.kind == RESET:
            entries.clear()
        elif record.kind == VOTE:
            group.term, group.voted_for = record.term, said.decode() or None
        else:
            return f"a record of the unknown kind {record.kind}: a newer version of this software wrote it"
        return None


def _forget_cached_pages(fd: int) -> None:
    """Have the file read from the disk itself.

    After a failed fdatasync the kernel's cache may hold records, marked clean, that never reached the disk.
    """
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _was_synced_later(data: mmap.mmap, view: memoryview, position: int, marker: int) -> bool:
    """Whether an intact record after ``position`` says that ``position`` was on disk before it."""
    needle = MARKER.pack(marker)
    found = data.find(needle, position + 1)
    while found >= 0:
        record = decode_record(view, found, marker)
        if record is not None and record.synced > position:
            return True
        found = data.find(needle, found + 1)
    return False


def _corrupt(path: Path, position: int, fault: str) -> WalCorrupt:
    return WalCorrupt(path, position, f"{fault}. {_WHAT_TO_DO}")
