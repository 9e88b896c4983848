"""The set of files that make up a write-ahead log, beside the spare files that it will reuse.

The identity of the log is one small file, replaced as a whole, which names the disk and the log's files. The identity
names a file before the file holds its first record, and ceases to name it before the file is removed. So a named file
that is missing was lost, and a file that is not named is the remains of a creation or a removal that a crash
interrupted.

Files that the log no longer needs become spares, and the next files of the log reuse their blocks. New blocks are
written twice: with zeros, synced before a record needs them, and with records. The blocks of a spare are written once.
"""

import os
import struct
from functools import partial
from pathlib import Path
from threading import Lock

from ...partition.log.fsutil import names_in, open_file, sync_directory, write_durably
from ...partition.log.space import with_space
from ...partition.records.checksum import crc32
from .errors import WalCorrupt
from .files import OpenFile, create_file, first_unwritten, numbers_in, path_of, prepare
from .records import FileHeader

_MAGIC = b"STOCKDID"
_FIELDS = struct.Struct("<8sIQQQQQ")
_CRC = struct.Struct("<I")
IDENTITY_BYTES = _FIELDS.size + _CRC.size

SPARES_MAX = 4
"""The most spare files of a log."""


class WalIdentity:
    """The identity of a log: the files with numbers ``first <= number <= last`` make it up; ``last < first`` means that
    it has no file yet.

    ``incarnation``, 0 < incarnation < 2**63, tells this disk from any other that the node had before. The last file has
    ``last_bytes`` bytes. If ``last_end`` is not 0, the last file's records end there, and it takes no more records: so
    a file that was truncated from outside does not pass for one whose end was never written. Changes block until they
    are on disk, and may come from several threads.

    ``level`` is the cluster's feature level as far as this disk knows: the disk may hold data that need software which
    supports the level. It is in the place of the file's version, so software that knows only version 1 accepts a disk
    of level 1 and refuses any other.
    """

    def __init__(
        self,
        path: Path,
        incarnation: int,
        first: int,
        last: int,
        last_bytes: int = 0,
        last_end: int = 0,
        level: int = 1,
    ) -> None:
        self.level: int = level
        self.incarnation = incarnation
        self.first: int = first
        self.last: int = last
        self.last_bytes: int = last_bytes
        self.last_end: int = last_end
        self._path = path
        self._lock = Lock()

    @classmethod
    def read(cls, directory: Path) -> "WalIdentity | None":
        """The identity of the log in ``directory``; None if it has none. Raises WalCorrupt if it is damaged."""
        path = identity_path(directory)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(content) != IDENTITY_BYTES:
            raise WalCorrupt(path, 0, f"it holds {len(content)} bytes in place of {IDENTITY_BYTES}")
        magic, level, incarnation, first, last, last_bytes, last_end = _FIELDS.unpack_from(content)
        (crc,) = _CRC.unpack_from(content, _FIELDS.size)
        if (magic, crc) != (_MAGIC, crc32(content[: _FIELDS.size])):
            raise WalCorrupt(path, 0, "its checksum does not match")
        return cls(path, incarnation, first, last, last_bytes, last_end, level)

    def raise_level(self, level: int) -> None:
        """Record the cluster's feature level, durably, if it is higher than the one recorded."""
        with self._lock:
            if level > self.level:
                self.save(level)
                self.level = level

    def grow(self, last: int, last_bytes: int) -> None:
        """Record the new last file and its bytes, before it takes records."""
        with self._lock:
            self.last, self.last_bytes, self.last_end = last, last_bytes, 0
            self.save()

    def end(self, last_end: int) -> None:
        """Record that the last file's records end at ``last_end``, before the file is truncated there."""
        with self._lock:
            self.last_bytes = self.last_end = last_end
            self.save()

    def shrink(self, first: int) -> None:
        """Record the new first file, before the files before it are removed."""
        with self._lock:
            self.first = first
            self.save()

    def save(self, level: int | None = None) -> None:
        """Write the identity durably, with its present fields and this ``level``; None: the level that it has."""
        numbers = self.incarnation, self.first, self.last, self.last_bytes, self.last_end
        fields = _FIELDS.pack(_MAGIC, level or self.level, *numbers)
        write_durably(self._path, fields + _CRC.pack(crc32(fields)))


def identity_path(directory: Path) -> Path:
    """The path of the file with the identity of the log in ``directory``."""
    return directory / "identity"


def level_of(directory: Path) -> int:
    """The feature level that the log in ``directory`` needs; 1 if there is none. Raises WalCorrupt."""
    identity = WalIdentity.read(directory)
    return 1 if identity is None else identity.level


def spares_in(directory: Path) -> list[Path]:
    """The spare files, ascending by the number that each had in the log."""
    names = [name for name in names_in(directory) if name.endswith(".spare")]
    return sorted(directory / name for name in names if name.removesuffix(".spare").isdecimal())


class SpareFiles:
    """The spare files of a log: each has ``file_bytes`` bytes, and a name that recovery does not read.

    A spare becomes a file of the log by one rename, after its new header is on disk. The old records in it do not pass
    for records of the new file, as their checksums contain another file number. One thread adds spares while another
    takes them.
    """

    def __init__(self, directory: Path, file_bytes: int) -> None:
        """Remove the spares whose size is not ``file_bytes``."""
        self._directory = directory
        self._file_bytes = file_bytes
        for path in spares_in(directory):
            if path.stat().st_size != file_bytes:
                path.unlink()

    def begin(self, file_bytes: int, header: FileHeader) -> OpenFile:
        """Make the log's file of this header and size, durably: from a spare if there is one of this size."""
        path, spares = path_of(self._directory, header.number), spares_in(self._directory)
        if not spares or file_bytes != self._file_bytes:
            return create_file(path, file_bytes, header)
        fd = open_file(spares[0], os.O_RDWR)
        try:
            prepare(fd, file_bytes, header)
            written_end = first_unwritten(fd)  # a copy from a backup may have holes
            with_space(partial(spares[0].rename, path))  # the new name may take a block of the folder
            sync_directory(self._directory)
        except BaseException:
            os.close(fd)
            raise
        return OpenFile(fd, written_end)

    def keep_before(self, number: int) -> None:
        """Turn the files before ``number`` into spares; remove those beyond SPARES_MAX or of another size.

        If the process dies meanwhile, some of the files stay as they are.
        """
        for each in numbers_in(self._directory):
            if each < number:
                self._keep(path_of(self._directory, each))
        sync_directory(self._directory)

    def _keep(self, path: Path) -> None:
        if len(spares_in(self._directory)) < SPARES_MAX and path.stat().st_size == self._file_bytes:
            with_space(partial(path.rename, path.with_suffix(".spare")))
        else:
            path.unlink()
