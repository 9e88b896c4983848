"""The files of segments: their names and bytes, and how they are opened again and verified.

A segment ``00000000000000000000.arrow``, named by its first offset, is an Arrow IPC stream: the schema, then messages.
The ``.index`` file beside it has one entry of fixed size for each batch (index.py), written when a checkpoint needs it.
Bytes other than those that were written raise ImageDamaged; an error of the disk stays an OSError.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from errno import EIO
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple
from weakref import ref

from ..commands import Offset
from ..records.batch import STREAM_START
from ..records.checksum import crc32
from .fsutil import names_in, open_file, open_to_read, sync, write_all
from .image import FileExtent, ImageDamaged
from .index import BEHIND_A_CHECK, IndexDamaged, SegmentIndex
from .interface import StoredBatch

_DATA, _INDEX = ".arrow", ".index"
_NAME = re.compile(r"[0-9]{20}\.arrow")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_EXTEND = os.O_WRONLY | os.O_APPEND


class Writers(NamedTuple):
    """The descriptors of one segment's two files, open for appending."""

    messages: int
    entries: int

    def close(self) -> None:
        """Close both descriptors."""
        os.close(self.messages)
        os.close(self.entries)


def create(directory: Path, base_offset: Offset) -> tuple[SegmentIndex, Writers]:
    """Create a new, empty segment. Raises OSError, also if its files exist already."""
    path = directory / f"{base_offset:020d}{_DATA}"
    data = open_file(path, _CREATE)
    try:
        writers = Writers(data, open_file(path.with_suffix(_INDEX), _CREATE))
    except OSError:
        os.close(data)
        raise
    write_all(data, [STREAM_START])
    return SegmentIndex(str(path), base_offset, len(STREAM_START)), writers


def extend(segment: SegmentIndex) -> Writers:
    """Open the files of a segment for appending. Raises OSError."""
    data, index = files_of(segment)
    descriptor = open_file(data, _EXTEND)
    try:
        return Writers(descriptor, open_file(index, _EXTEND))
    except OSError:
        os.close(descriptor)
        raise


class LoadedIndexes:
    """A cache of the index entries of full segments, read when they are needed. The entries used last are kept, up to
    ``bytes_max`` together; those of a SegmentIndex go with it.

    Threads load, too: no step relies on the result of an earlier one, and the statements that change ``size`` contain
    no call, so the interpreter switches threads before or after them only.
    """

    def __init__(self, bytes_max: int) -> None:
        self.size: int = 0
        """Bytes of all entries that are kept."""
        self._bytes_max = bytes_max
        self._loaded: OrderedDict[ref[SegmentIndex], bytes] = OrderedDict()

    def load(self, segment: SegmentIndex) -> bytes:
        """The bytes of a segment's index file. Raises OSError, also if they are not those that were written: a flipped
        bit would pass for other offsets.
        """
        entries = self._loaded.get(ref(segment))
        if entries is None:
            path = files_of(segment)[1]
            entries = _read_file(path, segment.index_size)
            if crc32(entries) != BEHIND_A_CHECK:
                raise OSError(EIO, "its bytes do not have the CRC that they should have", str(path))
            size = len(entries)
            if self._loaded.setdefault(ref(segment, self._forget), entries) is entries:
                self.size += size
        with suppress(KeyError):  # another thread has dropped them meanwhile
            self._loaded.move_to_end(ref(segment))
            while self.size > self._bytes_max and len(self._loaded) > 1:
                size = len(self._loaded.popitem(last=False)[1])
                self.size -= size
        return entries

    def _forget(self, key: "ref[SegmentIndex]") -> None:
        size = len(self._loaded.pop(key, b""))
        self.size -= size


_LOADED = LoadedIndexes(64 * 1024 * 1024)


def seal(segment: SegmentIndex) -> None:
    """Seal a full segment: its index entries are dropped from memory, and read when they are needed."""
    segment.seal(_LOADED.load)


def files_of(segment: SegmentIndex) -> tuple[Path, Path]:
    """The paths of a segment's data file and of its index file."""
    data = Path(segment.segment)
    return data, data.with_suffix(_INDEX)


def extents(segments: Sequence[SegmentIndex]) -> tuple[FileExtent, ...]:
    """The extents of the segments as they are now: two files for each, in the order of offsets. All segments but the
    last are sealed.
    """
    found = []
    for segment in segments:
        data, index = files_of(segment)
        is_sealed = segment is not segments[-1]
        found.append(FileExtent(data.name, segment.size, is_sealed))
        found.append(FileExtent(index.name, segment.index_size, is_sealed))
    return tuple(found)


def keep_only(directory: Path, files: Sequence[FileExtent]) -> None:
    """Truncate the files to their extents, and remove all other files in the directory. A file that has its size
    already is not touched, and keeps the time of its last change.
    """
    for file in files:
        if (directory / file.name).stat().st_size != file.size:
            os.truncate(directory / file.name, file.size)
    kept = {file.name for file in files}
    remove(directory / name for name in names_in(directory) if name not in kept)


def open_segments(directory: Path, files: Sequence[FileExtent]) -> Iterator[SegmentIndex]:
    """Yield the segments of an image, in the order of offsets; each is sealed before the next one is yielded. Changes
    no file.

    Verifies every index, and that each file is as long as its index and the image say. Raises ImageDamaged.
    """
    if len(files) % 2:
        raise ImageDamaged("the image names a segment without its index")
    before: SegmentIndex | None = None
    for data, index in zip(files[::2], files[1::2], strict=True):
        segment = _open(directory, data, index)
        if before is not None:
            if before.next_offset != segment.base_offset:
                raise ImageDamaged(f"offset {before.next_offset} is in none of the segments of {directory}")
            seal(before)
        yield segment
        before = segment


def inspected(segment: SegmentIndex) -> Iterator[int]:
    """Read every batch of a segment and compare it with its CRC, step by step: yield the length of each verified batch.
    Raises ImageDamaged.
    """
    with open_to_read(segment.segment) as file:
        if file.read(len(STREAM_START)) != STREAM_START:
            raise ImageDamaged(f"{segment.segment} does not begin with the schema")
        for number in range(len(segment)):
            batch = segment.batch(number)
            if file.tell() != batch.position or crc32(file.read(batch.length)) != batch.crc:
                raise ImageDamaged(f"{segment.segment} is damaged in the batch at offset {batch.base_offset}")
            yield batch.length


def identity(segment: SegmentIndex) -> tuple[int, ...]:
    """A value that stays equal while the segment is in the same two files (inodes) and nothing is written to them."""
    found = [path.stat() for path in files_of(segment)]
    return tuple(value for status in found for value in (status.st_ino, status.st_mtime_ns, status.st_size))


def inspected_on_disk(segment: SegmentIndex) -> Iterator[int]:
    """Like ``inspected`` for a segment in use, from its files alone, so it may run in a thread. The index is verified
    first.
    """
    directory = Path(segment.segment).parent
    for found in open_segments(directory, extents([segment])):
        yield from inspected(found)


class Unsynced:
    """The files of segments whose bytes may not be on disk yet. A call of the object syncs them: once, in any thread.

    The constructor opens the files, so they may be removed or replaced before the call.
    """

    def __init__(self, segments: Iterable[SegmentIndex]) -> None:
        self._sizes = [(segment, segment.size) for segment in segments if segment.synced < segment.size]
        self._descriptors: list[int] = []
        files = [path for segment, _ in self._sizes for path in files_of(segment)]
        for path in [*files, *{path.parent for path in files}]:  # the folder has their names
            self._descriptors.append(open_file(path, os.O_RDONLY))

    def __call__(self) -> None:
        """Sync the files; return when their bytes are on disk. Raises OSError."""
        try:
            for descriptor in self._descriptors:
                sync(descriptor)
        finally:
            self._close()
        for segment, size in self._sizes:
            segment.synced = max(segment.synced, size)

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)


def early_sync(writers: Writers) -> Callable[[], None] | None:
    """A function that makes the messages written so far durable, to be called once, in a thread, even after the files
    were closed; it raises OSError. None if no descriptor is free for it.

    Durability does not depend on it. It leaves less to the sync of a checkpoint, which delays all others on the disk.
    """
    try:
        descriptor = os.dup(writers.messages)
    except OSError:
        return None

    def sync_and_close() -> None:
        try:
            sync(descriptor, data_only=True)
        finally:
            os.close(descriptor)

    return sync_and_close


def remove(paths: Iterable[Path]) -> None:
    """Remove files; files that do not exist are ignored."""
    for path in paths:
        with suppress(FileNotFoundError):
            path.unlink()


def read_messages(batches: Sequence[StoredBatch]) -> list[bytes]:
    """The messages of stored batches, in order. One file is open at a time. Raises OSError."""
    messages = []
    for segment, group in groupby(batches, attrgetter("segment")):
        descriptor = open_file(segment, os.O_RDONLY)
        try:
            messages += [_read(descriptor, batch) for batch in group]
        finally:
            os.close(descriptor)
    return messages


def _open(directory: Path, data: FileExtent, index: FileExtent) -> SegmentIndex:
    if not _NAME.fullmatch(data.name) or index.name != data.name.removesuffix(_DATA) + _INDEX:
        raise ImageDamaged(f"{data.name!r} and {index.name!r} are not the files of a segment")
    for file in (data, index):
        if _size(directory / file.name) < file.size:
            raise ImageDamaged(f"{directory / file.name} is missing or shorter than {file.size} bytes")
    entries = _read_file(directory / index.name, index.size)
    base_offset = int(data.name.removesuffix(_DATA))
    try:
        segment = SegmentIndex.of(str(directory / data.name), base_offset, len(STREAM_START), entries)
    except IndexDamaged as error:
        raise ImageDamaged(f"{directory / index.name}: {error}") from error
    if segment.size != data.size:
        raise ImageDamaged(f"{directory / index.name} describes {segment.size} bytes, the image {data.size}")
    segment.synced = segment.size
    return segment


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _read_file(path: Path, size: int) -> bytes:
    """The first ``size`` bytes of a file."""
    with open_to_read(path) as file:
        return file.read(size)


def _read(descriptor: int, batch: StoredBatch) -> bytes:
    message = os.pread(descriptor, batch.length, batch.position)
    if len(message) != batch.length:
        raise OSError(f"{batch.segment} ends inside the batch at offset {batch.base_offset}")
    return message
