"""Recovery of the write-ahead log from its files, after a stop of any kind.

Recovery reads all records, and then truncates the last file where its intact records end. It is idempotent: after a
kill during a recovery, the next one finds the same records. Recovery never drops a record that was reported durable: it
raises WalCorrupt if such a record is damaged. There is one exception, which it cannot tell from an unfinished flush:
damage to the very last flush, after which nothing was written.

For a reader of a stopped node's disk, recovery changes no file, and returns the records before a damage.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from .errors import NewerDisk, WalCorrupt
from .file_set import WalIdentity, identity_path, spares_in
from .files import numbers_in, path_of
from .records import (
    ENTRY,
    ERASE,
    FILE_HEADER_BYTES,
    FILE_VERSION,
    MARKER,
    RECORD_HEADER_BYTES,
    RESET,
    TRUNCATE,
    VOTE,
    FileHeader,
    Location,
    LogEntry,
    Record,
    RecoveredGroup,
    decode_file_header,
    decode_record,
    locate,
    parts_of,
)


def recover(directory: Path, *, changes: bool = True) -> "Recovery":
    """Read all files of a log, and truncate a torn tail. Raises WalCorrupt rather than lose a record that was on disk,
    so also if files or the identity are missing.

    An empty directory becomes a new log. Without ``changes`` the directory and its files stay as they are: a torn tail
    is only passed over, a log without an identity is refused, and ``fault`` says where a damage ended the reading.
    """
    identity, numbers = WalIdentity.read(directory), numbers_in(directory)
    if identity is None:
        if numbers or spares_in(directory) or not changes:
            raise WalCorrupt(identity_path(directory), 0, "the file is missing, so it is unknown which log this is")
        identity = WalIdentity(identity_path(directory), 1 + secrets.randbelow((1 << 63) - 1), 1, 0)
        identity.save()
    for number in numbers:
        if number > identity.last:
            _check_unused(directory, number, identity)
            if changes:
                path_of(directory, number).unlink()
    recovery, path = Recovery(identity, changes=changes), directory
    try:
        for number in range(identity.first, identity.last + 1):
            path = path_of(directory, number)
            if number not in numbers:
                raise WalCorrupt(path, 0, "the file is missing")
            recovery.read(path, number, is_last=number == identity.last)
    except (WalCorrupt, OSError) as fault:
        if isinstance(fault, OSError):
            fault.filename = fault.filename or str(path)  # a read or a sync does not note it
        if changes:
            raise
        recovery.fault = fault
    return recovery


def _check_unused(directory: Path, number: int, identity: WalIdentity) -> None:
    """Check a file beyond the identity's last one: a process died while it created the file. Raises WalCorrupt if it
    was used, since a file takes records only after the identity names it.
    """
    path = path_of(directory, number)
    if _was_used(memoryview(path.read_bytes())):
        raise WalCorrupt(path, 0, f"the log should end with file {identity.last}: its identity is older")


def _was_used(view: memoryview) -> bool:
    """Whether a record was written after the header; in a file without a header, which was new, or with one of a newer
    version, whose records are not known here: anything but zeros.
    """
    header = decode_file_header(view)
    if header is None or header.version > FILE_VERSION:
        return bool(bytes(view[FILE_HEADER_BYTES:]).strip(b"\0"))
    begins_as_one = view[FILE_HEADER_BYTES:][: MARKER.size] == MARKER.pack(header.marker)
    return begins_as_one or any(_records_within(view, FILE_HEADER_BYTES, header))


class Recovery:
    """The state recovered from the files read so far: the groups, the last file's number, and where its records end."""

    def __init__(self, identity: WalIdentity, *, changes: bool) -> None:
        self.identity = identity
        self._changes = changes
        self.groups: dict[int, RecoveredGroup] = {}
        self.number: int = identity.first - 1
        self.end: int = 0
        self.sizes: dict[int, int] = {}
        """Bytes of each file, by number."""
        self.fault: WalCorrupt | OSError | None = None
        """What ended the reading before the log's end."""

    def read(self, path: Path, number: int, *, is_last: bool) -> None:
        """Read the next file; truncate the last one, durably, where its records end, if recovery makes changes. Raises
        WalCorrupt, NewerDisk.
        """
        with path.open("r+b" if self._changes else "rb") as file:
            if is_last:
                _drop_cached_pages(file.fileno(), is_synced=self._changes)
            view = memoryview(file.read())  # not mapped: a disk that fails under a mapping kills the process (D11)
            header = self._check_header(path, number, decode_file_header(view))
            self.number, self.end = number, self._read_records(path, view, header)
            self.sizes[number] = self.end if is_last else len(view)
            if is_last:
                self._check_end(path, len(view))
                if any(record.synced > self.end for record in _records_within(view, self.end + 1, header)):
                    raise WalCorrupt(path, self.end, "a record is damaged that was on disk before later ones")
            if is_last and self._changes:
                if self.identity.last_end != self.end:
                    self.identity.end(self.end)
                os.ftruncate(file.fileno(), self.end)
                os.fsync(file.fileno())

    def _check_header(self, path: Path, number: int, header: FileHeader | None) -> FileHeader:
        if header is not None and header.version > FILE_VERSION:
            raise NewerDisk(path, header.version, FILE_VERSION)
        if header is None or header.number != number:
            raise WalCorrupt(path, 0, "the header of the file is damaged")
        if number != self.identity.first and header.previous_end != self.end:
            before = path_of(path.parent, self.number)
            raise WalCorrupt(
                before, self.end, f"a record is damaged or missing; records ended at byte {header.previous_end}"
            )
        return header

    def _check_end(self, path: Path, size: int) -> None:
        identity = self.identity
        if size < identity.last_bytes:
            raise WalCorrupt(path, size, f"the file is cut: it had {identity.last_bytes} bytes")
        if identity.last_end and self.end != identity.last_end:
            raise WalCorrupt(
                path, self.end, f"a record is damaged or missing; records ended at byte {identity.last_end}"
            )

    def _read_records(self, path: Path, view: memoryview, header: FileHeader) -> int:
        """Apply all records before the first one that is not intact; returns the position where that one begins."""
        position = FILE_HEADER_BYTES
        while (record := decode_record(view, position, header)) is not None:
            payload = position + RECORD_HEADER_BYTES
            length = record.length if record.kind == VOTE else min(1, record.length)
            content = bytes(view[payload : payload + length])
            fault = self._apply(record, locate(header.number, position, record.length), content)
            if fault is not None:
                raise WalCorrupt(path, position, fault)
            position = payload + record.length
        return position

    def _apply(self, record: Record, location: Location, content: bytes) -> str | None:
        """Apply one record. Returns None, or why the record cannot follow those before it.

        ``content`` is the whole payload of a VOTE record, and the first byte of any other payload.
        """
        if record.kind == ERASE:
            self.groups.pop(record.group_id, None)
            return None
        group = self.groups.setdefault(record.group_id, RecoveredGroup())
        entries = group.entries
        if record.kind == ENTRY:
            if entries and record.index != entries[-1].index + 1:
                return f"entry {record.index} of group {record.group_id} follows entry {entries[-1].index}"
            entries.append(LogEntry(record.index, record.term, location, content[0] if content else 0))
            if record.term > group.term:
                group.term, group.voted_for, group.state_file = record.term, None, parts_of(location)[0]
        elif record.kind == TRUNCATE:
            del entries[max(0, record.index - entries[0].index) if entries else 0 :]
        elif record.kind == RESET:
            entries.clear()
            group.covered = max(group.covered, record.index)
        elif record.kind == VOTE:
            group.term, group.voted_for, group.state_file = record.term, content.decode() or None, parts_of(location)[0]
            group.covered = max(group.covered, record.index)
        else:
            return f"a record of the unknown kind {record.kind}: a newer version of this software wrote it"
        return None


def _drop_cached_pages(fd: int, *, is_synced: bool) -> None:
    """Make the next read of the file come from the disk itself; ``is_synced``: after a sync.

    After a failed fdatasync the kernel's cache may hold records, marked clean, that never reached the disk. A reader
    that makes no changes does without the sync: a disk that an error has made read-only refuses it.
    """
    if is_synced:
        os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _records_within(view: memoryview, position: int, header: FileHeader) -> Iterator[Record]:
    """The intact records of this file that begin at ``position`` or anywhere after it."""
    data, needle = bytes(view[position:]), MARKER.pack(header.marker)
    found = data.find(needle)
    while found >= 0:
        record = decode_record(view, position + found, header)
        if record is not None:
            yield record
        found = data.find(needle, found + 1)
