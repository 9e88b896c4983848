"""Digests of sealed files, by which two nodes find out that they hold the same bytes.

A node that catches up while its group takes records copies one checkpoint after the other, each with all files of the
one before. If each copy read all of them again, the copy of a large group would take longer than the log reaches back,
and the next copy would always be needed. So a digest is remembered for as long as its file is the same.
"""

import hashlib
from pathlib import Path

from ...partition.log.fsutil import open_to_read

CHUNK_BYTES = 1 << 20
KNOWN_MAX = 65_536
"""Most digests that are remembered: those of 2 TiB of full segments with their indexes."""


def digest(path: Path, size: int) -> bytes:
    """BLAKE2b of the first ``size`` bytes of a file. Blocks."""
    hasher = hashlib.blake2b(digest_size=32)
    with open_to_read(path) as file:
        while size > 0 and (chunk := file.read(min(size, CHUNK_BYTES))):
            hasher.update(chunk)
            size -= len(chunk)
    return hasher.digest()


class Digests:
    """A cache of the digests of a node's files. May be used by several threads."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int], bytes] = {}

    def of(self, path: Path, size: int) -> bytes:
        """The digest of the first ``size`` bytes of a file that is only ever appended to: computed once for each inode
        and modification time, however many names (hard links) the file has. Blocks.
        """
        status = path.stat()
        key = status.st_ino, status.st_mtime_ns, size
        found = self._known.get(key)
        if found is None:
            found = digest(path, size)
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[key] = found
        return found
