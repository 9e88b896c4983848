"""What a write-ahead log knows of itself: which disk it is on, and which files it must have.

Kept in one small file that is replaced as a whole. A file counts from the moment it is named here, before it holds its
first record, until the moment it is named no more, before it is removed. So a file that is not there was lost, and one
that should not be there is what a crash left of a creation or a removal.
"""

import secrets
import struct
from pathlib import Path
from threading import Lock

from ..partition.checksum import crc32
from .durable import write_durably
from .refusal import DiskRefused

_MAGIC = b"STOCKDID"
_VERSION = 1
_FIELDS = struct.Struct("<8sIQQQQQ")
_CRC = struct.Struct("<I")
IDENTITY_BYTES = _FIELDS.size + _CRC.size


class Identity:
    """The files from number ``first`` to ``last`` make up the log; none if ``last`` is below ``first``.

    ``incarnation``, from 1 to 2**63 - 1, tells this disk from any that the node had before. The last file is
    ``last_bytes`` long; its records end at ``last_end`` if that is known: no more are added then. So a file that was
    cut short by somebody else is not taken for one whose end was never written. Changes block until they are on disk,
    and may come from several threads.
    """

    def __init__(
        self, path: Path, incarnation: int, first: int, last: int, last_bytes: int = 0, last_end: int = 0
    ) -> None:
        self.incarnation = incarnation
        self.first: int = first
        self.last: int = last
        self.last_bytes: int = last_bytes
        self.last_end: int = last_end
        self._path = path
        self._lock = Lock()

    @classmethod
    def create(cls, directory: Path) -> "Identity":
        """Make a new disk of an empty directory."""
        identity = cls(path_in(directory), 1 + secrets.randbelow((1 << 63) - 1), 1, 0)
        identity._save()
        return identity

    @classmethod
    def read(cls, directory: Path) -> "Identity | None":
        """That of the log in ``directory``; None if there is no such file. Raises DiskRefused if it is damaged."""
        path = path_in(directory)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(content) != IDENTITY_BYTES:
            raise DiskRefused(path, f"it holds {len(content)} bytes in place of {IDENTITY_BYTES}")
        magic, version, *fields = _FIELDS.unpack_from(content)
        (crc,) = _CRC.unpack_from(content, _FIELDS.size)
        if (magic, crc) != (_MAGIC, crc32(content[: _FIELDS.size])):
            raise DiskRefused(path, "its checksum does not match")
        if version != _VERSION:
            raise DiskRefused(path, f"another version of this software wrote it ({version} in place of {_VERSION})")
        return cls(path, *fields)

    def grow(self, last: int, last_bytes: int) -> None:
        """The file ``last``, so long, is about to take records."""
        with self._lock:
            self.last, self.last_bytes, self.last_end = last, last_bytes, 0
            self._save()

    def end(self, last_end: int) -> None:
        """The last file is about to be cut where its records end."""
        with self._lock:
            self.last_bytes = self.last_end = last_end
            self._save()

    def shrink(self, first: int) -> None:
        """The files before ``first`` are about to be removed."""
        with self._lock:
            self.first = first
            self._save()

    def _numbers(self) -> tuple[int, ...]:
        return self.incarnation, self.first, self.last, self.last_bytes, self.last_end

    def _save(self) -> None:
        fields = _FIELDS.pack(_MAGIC, _VERSION, *self._numbers())
        write_durably(self._path, fields + _CRC.pack(crc32(fields)))


def path_in(directory: Path) -> Path:
    """Where the identity of the log in ``directory`` is."""
    return directory / "identity"
