"""Fetched objects as segment files on this node's disk, as many as fit a bound. They can be fetched again at any time:
nothing here is synced, a start begins with none, and a disk with little room keeps few.

Used on the loop; the files are written in threads (store.py).
"""

import shutil
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec

from ...partition.commands import TierObject
from ...partition.log import segment_files
from ...partition.log.index import SegmentIndex
from ...partition.log.modes import FOLDER_MODE
from ...partition.state.tier import name_of

SUFFIX = ".arrow"

Key = tuple[str, TierObject]
"""The folder of an object, and its item in the list."""


class Held(msgspec.Struct, eq=False):
    """An object in the cache: its segment, the sums of its two files (objects.py), and until when they count as right
    without a look at the files.
    """

    segment: SegmentIndex
    sums: tuple[int, int]
    good_until: float


class Cache:
    """Segments of fetched objects. Beyond ``bytes_max`` the least recently used are dropped; a reader that has the file
    open reads on.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """Removes what is left of an earlier run. Blocks. Raises OSError."""
        self.bytes_max: int = bytes_max
        self._folder = folder
        self._numbers = count()
        self._held: OrderedDict[Key, Held] = OrderedDict()
        self.size: int = 0
        """Bytes of all files."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)

    def path(self, item: TierObject) -> Path:
        """The path for the messages of an object: a new one for each fetch, so a late removal hits no newer file."""
        return self._folder / f"{name_of(item)}-{next(self._numbers)}{SUFFIX}"

    def get(self, key: Key) -> Held | None:
        """An object; None: it, or a file of it, is not here. An operator may have removed files."""
        found = self._held.get(key)
        if found is None:
            return None
        if not _is_whole(found.segment):
            with suppress(OSError):  # a start removes what is left
                segment_files.remove(self._drop(key))
            return None
        self._held.move_to_end(key)
        return found

    def add(self, key: Key, held: Held) -> list[Path]:
        """Take in a fetched object; returns the files that have to make room for it, which a thread removes."""
        self._held[key] = held
        self.size += _size(held.segment)
        return self._shrink()

    def drop(self, key: Key, held: Held) -> list[Path]:
        """Drop an object, unless it went already; returns its files, which a thread removes."""
        return list(self._drop(key)) if self._held.get(key) is held else []

    def keep(self, is_wanted: Callable[[Key], bool]) -> list[Path]:
        """Drop the objects that are not wanted, and those beyond the bound; returns their files, which a thread
        removes.
        """
        doomed: list[Path] = []
        for key in [key for key in self._held if not is_wanted(key)]:
            doomed += self._drop(key)
        return doomed + self._shrink()

    def _shrink(self) -> list[Path]:
        doomed: list[Path] = []
        while self.size > self.bytes_max and len(self._held) > 1:
            doomed += self._drop(next(iter(self._held)))
        return doomed

    def _drop(self, key: Key) -> tuple[Path, Path]:
        segment = self._held.pop(key).segment
        self.size -= _size(segment)
        return segment_files.files_of(segment)


def _is_whole(segment: SegmentIndex) -> bool:
    messages, index = segment_files.files_of(segment)
    try:
        return messages.stat().st_size >= segment.size and index.stat().st_size >= segment.index_size
    except OSError:
        return False


def _size(segment: SegmentIndex) -> int:
    return segment.size + segment.index_size
