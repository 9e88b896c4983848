"""Fetched objects as segment files on this node's disk, as many as fit a bound. They can be fetched again at any time:
nothing here is synced, and a start begins with none.

Used on the loop; the files are written in threads (store.py).
"""

import shutil
from collections import OrderedDict
from contextlib import suppress
from itertools import count
from pathlib import Path

from ...partition.log import segment_files
from ...partition.log.index import SegmentIndex
from ...partition.log.modes import FOLDER_MODE

SUFFIX = ".arrow"


class Cache:
    """Segments of fetched objects, by key. Beyond ``bytes_max`` the least recently used are dropped; a reader that has
    the file open reads on.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """Removes what is left of an earlier run. Blocks. Raises OSError."""
        self._folder = folder
        self._bytes_max = bytes_max
        self._numbers = count()
        self._held: OrderedDict[str, SegmentIndex] = OrderedDict()
        self.size: int = 0
        """Bytes of all files."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        """The path for the messages of an object: a new one for each fetch, so a late removal hits no newer file."""
        return self._folder / f"{key}-{next(self._numbers)}{SUFFIX}"

    def get(self, key: str) -> SegmentIndex | None:
        """The segment of an object; None: it, or a file of it, is not here. An operator may have removed files."""
        found = self._held.get(key)
        if found is None:
            return None
        if not _is_whole(found):
            self.size -= _size(self._held.pop(key))
            with suppress(OSError):  # a start removes what is left
                segment_files.remove(segment_files.files_of(found))
            return None
        self._held.move_to_end(key)
        return found

    def add(self, key: str, segment: SegmentIndex) -> list[Path]:
        """Take in a fetched object; returns the files that have to make room for it, which a thread removes."""
        self._held[key] = segment
        self.size += _size(segment)
        doomed: list[Path] = []
        while self.size > self._bytes_max and len(self._held) > 1:
            _, oldest = self._held.popitem(last=False)
            self.size -= _size(oldest)
            doomed += segment_files.files_of(oldest)
        return doomed


def _is_whole(segment: SegmentIndex) -> bool:
    messages, index = segment_files.files_of(segment)
    try:
        return messages.stat().st_size >= segment.size and index.stat().st_size >= segment.index_size
    except OSError:
        return False


def _size(segment: SegmentIndex) -> int:
    return segment.size + segment.index_size
