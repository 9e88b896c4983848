"""Files that the write-ahead log needs no more are kept for their room, and written over by those it needs next.

New blocks are written twice, with zeros and synced before a record needs them; those of a spare need that no more.
"""

import os
from pathlib import Path

from .wal_files import Begun, create_file, first_unwritten, numbers_in, path_of, prepare, sync_directory
from .wal_records import FileHeader

SPARES_MAX = 4
"""Files kept for their room, beside those of the log."""


def spares_in(directory: Path) -> list[Path]:
    """The files that are kept for their room, ascending by the number that each had in the log."""
    return sorted(path for path in directory.glob("*.spare") if path.stem.isdecimal())


class Spares:
    """The files of ``directory`` that wait for their next use: each has ``file_bytes``, and a name that no log reads.

    A spare becomes a file of the log in one step, with its new header on disk before. The records it held bear the
    checksums of another file. Files come from one thread and go to another.
    """

    def __init__(self, directory: Path, file_bytes: int) -> None:
        """Lets go of those that were kept when files had another size."""
        self._directory = directory
        self._file_bytes = file_bytes
        for path in spares_in(directory):
            if path.stat().st_size != file_bytes:
                path.unlink()

    def begin(self, file_bytes: int, header: FileHeader) -> Begun:
        """Have the file of this header, of this size; durable before anything else is written to it."""
        path, spares = path_of(self._directory, header.number), spares_in(self._directory)
        if not spares or file_bytes != self._file_bytes:
            return create_file(path, file_bytes, header)
        fd = os.open(spares[0], os.O_RDWR)
        try:
            prepare(fd, file_bytes, header)
            written_end = first_unwritten(fd)  # a copy may have come back from a backup with holes
            spares[0].rename(path)
            sync_directory(self._directory)
        except BaseException:
            os.close(fd)
            raise
        return Begun(fd, written_end)

    def keep_before(self, number: int) -> None:
        """Take the files before this one out of the log. The process may die meanwhile: then some are there still."""
        for each in numbers_in(self._directory):
            if each < number:
                self._keep(path_of(self._directory, each))
        sync_directory(self._directory)

    def _keep(self, path: Path) -> None:
        if len(spares_in(self._directory)) < SPARES_MAX and path.stat().st_size == self._file_bytes:
            path.rename(path.with_suffix(".spare"))
        else:
            path.unlink()
