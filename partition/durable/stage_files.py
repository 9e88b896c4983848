"""The files of stages: one message each, written once.

As with the log's segments, a write syncs nothing: a stage is durable in the node's write-ahead log, a checkpoint syncs
the files, and a file is removed only when a checkpoint without it is durable.
"""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..log.fsutil import open_file, open_to_read, sync, write_all
from ..log.image import FileExtent, ImageDamaged
from ..log.segment_files import remove
from ..records.checksum import crc32
from ..state.stages import Stage

_SUFFIX = ".stage"
_NAME = re.compile(r"[0-9]{20}\.stage")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def is_stage(file: FileExtent) -> bool:
    """Whether a file of an image is the file of a stage."""
    return _NAME.fullmatch(file.name) is not None


class DiskStageFiles:
    """Implements ``stages.StageFiles`` in a directory, which ``begin`` must give it before the first write."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._sizes: dict[int, int] = {}
        self._unsynced: set[int] = set()
        self._dropped: list[Path] = []  # files that only older images need
        self.reclaimable: int = 0
        """Bytes of the dropped files, which the next checkpoint removes."""

    def begin(self, directory: Path, files: Sequence[FileExtent] = ()) -> None:
        """Use a directory with these files, which are durable already."""
        self._directory = directory
        self._sizes = {_number(file): file.size for file in files}
        self._unsynced, self._dropped, self.reclaimable = set(), [], 0

    def write(self, number: int, message: bytes) -> None:
        """Store a message."""
        descriptor = open_file(self._path(number), _CREATE)
        try:
            write_all(descriptor, [message])
        finally:
            os.close(descriptor)
        self._unsynced.add(number)
        self._sizes[number] = len(message)

    def read(self, stage: Stage) -> bytes:
        """The message of a stage. Raises OSError, also when its bytes are not those that were written."""
        path = self._path(stage.number)
        with open_to_read(path) as file:
            message = file.read()
        if not _is_whole(message, stage):
            raise OSError(f"{path} does not have the bytes of stage {stage.name}")
        return message

    def drop(self, number: int) -> None:
        """Drop a message that is no longer needed: the next checkpoint removes its file."""
        self._unsynced.discard(number)
        self._dropped.append(self._path(number))
        self.reclaimable += self._sizes.pop(number)

    def extents(self) -> tuple[FileExtent, ...]:
        """The extents of the present files, all of which are sealed."""
        return tuple(FileExtent(self._path(number).name, size, True) for number, size in sorted(self._sizes.items()))

    def sync(self) -> Callable[[], None]:
        """A function that makes the present files durable, to be called in a thread."""
        return partial(_sync, [self._path(number) for number in sorted(self._unsynced)])

    def stored(self) -> Callable[[], None]:
        """A function that removes the files dropped so far, to be called when a checkpoint of the present state is
        durable.
        """
        return partial(self._forget, set(self._unsynced), list(self._dropped), self.reclaimable)

    def _forget(self, synced: set[int], dropped: list[Path], size: int) -> None:
        """Remove the dropped files of a captured state, unless another directory is in use since (as in SegmentLog)."""
        if self._dropped[: len(dropped)] == dropped:
            remove(dropped)
            del self._dropped[: len(dropped)]
            self.reclaimable -= size
            self._unsynced -= synced

    def _path(self, number: int) -> Path:
        assert self._directory is not None, "begin comes first"
        return self._directory / f"{number:020d}{_SUFFIX}"


def check(directory: Path, files: Sequence[FileExtent], stages: Sequence[Stage], *, reads: bool = False) -> None:
    """Compare the files of an image with the stages of its state; with ``reads``, also their bytes with the CRCs.
    Raises ImageDamaged.
    """
    expected = {stage.number: stage.length for stage in stages if not stage.is_appended}
    if {_number(file): file.size for file in files} != expected:
        raise ImageDamaged(f"the files of stages in {directory} are not those of its state")
    for file in files:
        if not (directory / file.name).exists() or (directory / file.name).stat().st_size < file.size:
            raise ImageDamaged(f"{directory / file.name} is missing or shorter than {file.size} bytes")
    for stage in stages:
        if reads and not stage.is_appended:
            path = directory / f"{stage.number:020d}{_SUFFIX}"
            with open_to_read(path) as stored:
                if not _is_whole(stored.read(stage.length), stage):
                    raise ImageDamaged(f"{path} does not have the bytes of stage {stage.name}")


def _is_whole(message: bytes, stage: Stage) -> bool:
    return len(message) == stage.length and crc32(message) == stage.crc


def _number(file: FileExtent) -> int:
    return int(file.name.removesuffix(_SUFFIX))


def _sync(paths: Sequence[Path]) -> None:
    """Sync the files, then the folder that has their names. A file that is gone belonged to a directory that was
    replaced meanwhile, and the checkpoint will not be stored.
    """
    for path in [*paths, *{path.parent for path in paths}]:
        with suppress(FileNotFoundError):
            descriptor = open_file(path, os.O_RDONLY)
            try:
                sync(descriptor)
            finally:
                os.close(descriptor)
