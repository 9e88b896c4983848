"""The files of records of one backup: how it writes new files, and which files of earlier backups it goes on to use.

A backup in each minute would otherwise write a file of each partition in each minute, and its manifest would name them
all. So a backup with new records merges the last files of a partition into its new file, while that is at least half as
large as the file before it. Then each file is at most half as large as the one before it, unless both together would
reach FILE_BYTES: a partition has a few large files, and behind them at most as many small ones as its size has
doublings. A merge makes the file of a record at least half as large again, so each record is merged only a few times.
A merged file is read from the place and compared with its digest. Files of earlier backups stay until they are pruned.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from types import TracebackType

import pyarrow as pa

from ...partition.places.place import CannotReach
from ...partition.records.batch import SCHEMA
from .manifest import Damaged, DataFile, PartitionBackup
from .store import DATA, Store
from .verify import batches_of, times_of

FILE_BYTES = 32 * 1024 * 1024
"""A file is complete at this size, compressed."""
FILE_BYTES_UNPACKED = 128 * 1024 * 1024
"""A file is also complete when its records have so many bytes in memory: ZSTD makes very little of some."""


BATCH_BYTES = 1024 * 1024
"""Small batches are joined up to this size in memory: a batch of one record takes more room than the record."""


class DamagedFile(Damaged):
    """The file ``file`` of an earlier backup differs from its manifest's entry, or is gone."""

    def __init__(self, file: DataFile, damage: Damaged) -> None:
        super().__init__(str(damage))
        self.file = file


def read_file(store: Store, file: DataFile) -> Iterator[pa.RecordBatch]:
    """The batches of a file that the manifest names. Raises DamagedFile, before the first batch, unless the whole file
    is as the manifest says; CannotReach.
    """
    try:
        return batches_of(store.read(file.path), file)
    except Damaged as damage:
        raise DamagedFile(file, damage) from damage


class FileWriter:
    """One file of records as it grows: an Arrow stream in memory, compressed with ZSTD."""

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.times: tuple[int, int] | None = None
        self._unpacked = 0
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._stream = pa.ipc.new_stream(self._sink, SCHEMA, options=options)

    @property
    def is_full(self) -> bool:
        """Whether the file is complete, so that the next records go into a new file."""
        return self._sink.tell() >= FILE_BYTES or self._unpacked >= FILE_BYTES_UNPACKED

    def add(self, batch: pa.RecordBatch) -> None:
        """Append records, which follow those that the file has."""
        if batch.num_rows:
            self._held.append(batch)
            self._held_bytes += batch.nbytes
            if self._held_bytes >= BATCH_BYTES:
                self.write_held()

    def write_held(self) -> int:
        """Compress the batches that wait to be joined; returns the bytes of the file so far."""
        if self._held:
            batch = pa.concat_batches(self._held)
            least, most = times_of([batch])
            self.times = (least, most) if self.times is None else (min(least, self.times[0]), max(most, self.times[1]))
            self._stream.write_batch(batch)
            self._unpacked += self._held_bytes
            self._held, self._held_bytes = [], 0
        return int(self._sink.tell())

    def close(self) -> pa.Buffer:
        """End the file; returns its bytes."""
        self.write_held()
        self._stream.close()
        return self._sink.getvalue()


class Attempt:
    """The files of records that one backup has written. No other backup knows them before it is announced, so if it
    fails before, in ``async with``, they go: one backup after the other that fails would fill the place.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._paths: list[str] = []
        self._is_given_up = False

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await asyncio.to_thread(self.give_up)

    def write(self, path: str, content: pa.Buffer) -> None:
        """Write a file. Blocks. Raises CannotReach."""
        self._paths.append(path)
        self._store.write(path, content)
        if self._is_given_up:  # while this thread wrote
            self._store.remove(path)

    def give_up(self) -> None:
        """Remove all files, as far as the place can be reached; a pruning removes the others. Blocks."""
        self._is_given_up = True
        with suppress(CannotReach):
            for path in self._paths:
                self._store.remove(path)


class PartitionFiles:
    """The files of a partition as the manifest will name them: ``files`` of earlier backups, then new ones. Blocks."""

    def __init__(
        self, attempt: Attempt, store: Store, place: str, backup: str, files: Sequence[DataFile], start: int
    ) -> None:
        """``place``: TOPIC_ID-TOPIC/PARTITION. ``start``: the offset that follows ``files``."""
        self.files: list[DataFile] = list(files)
        self._attempt, self._store, self._folder, self._backup = attempt, store, f"{DATA}/{place}", backup
        self._writer = FileWriter(start)

    def add(self, batch: pa.RecordBatch, end: int) -> None:
        """Append records; ``end``: the offset that follows them."""
        self._writer.add(batch)
        if self._writer.is_full:
            self._write(end)
            self._writer = FileWriter(end)

    def begin_at(self, offset: int) -> None:
        """Begin anew at this offset: records before it were trimmed, and no file so far is needed."""
        self.files, self._writer = [], FileWriter(offset)

    def finish(self, end: int) -> list[DataFile]:
        """Write the records that are not in a file yet, up to the offset ``end``, and merge the last files. Returns all
        files of the partition. Raises DamagedFile, CannotReach.
        """
        if self._writer.first_offset < end:
            self._take_in()
        if self._writer.first_offset < end:
            self._write(end)
        return self.files

    def _take_in(self) -> None:
        count, size = len(self.files), self._writer.write_held()
        while count and self.files[count - 1].bytes <= 2 * size and self.files[count - 1].bytes + size < FILE_BYTES:
            count -= 1
            size += self.files[count].bytes
        taken, newest = self.files[count:], self._writer
        if taken:
            del self.files[count:]
            self._writer = FileWriter(taken[0].first_offset)
            at = taken[0].first_offset
            for batch in chain(*(read_file(self._store, file) for file in taken), pa.ipc.open_stream(newest.close())):
                at += batch.num_rows
                self.add(batch, at)

    def _write(self, end: int) -> None:
        content = self._writer.close()
        first, times = self._writer.first_offset, self._writer.times
        assert times is not None, "a file has records"
        path = f"{self._folder}/{first:020d}-{end:020d}-{self._backup}.arrow"
        self._attempt.write(path, content)
        self.files.append(DataFile(path, first, end, content.size, hashlib.sha256(content).hexdigest(), *times))


def whole(files: Sequence[DataFile], sizes: dict[str, int], missing: Callable[[str], None]) -> list[DataFile]:
    """The files before the first one that is missing or has another size than it should. ``sizes``: bytes by path.
    ``missing`` is called with the path of each such file.
    """
    faulty = [file for file in files if sizes.get(file.path) != file.bytes]
    for file in faulty:
        missing(file.path)
    return list(files[: files.index(faulty[0])] if faulty else files)


def kept(before: PartitionBackup | None, log_start: int) -> list[DataFile]:
    """The files of a partition's last backup that are still needed: those with a record at or above the log's start."""
    return [file for file in before.files if file.end_offset > log_start] if before is not None else []
