"""The files of records of one backup: how they are written, and which of earlier backups go on to be used.

A backup after each minute would make a file of a partition for each minute, and a manifest that names them all. So a
backup that has something new takes the last files in, too, while what it has is at least a half as large as the file
before it: sizes fall by half at least from each file to the next, so a partition has a few large files and, at its end,
as many small ones as its size has doublings at most; and each record is written again only so often. What is taken in
is read from the place and compared with its digest. Files of earlier backups stay until they are pruned.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import pyarrow as pa

from ...partition.records.batch import SCHEMA
from .manifest import Damaged, DataFile, PartitionBackup
from .store import DATA, Store
from .verify import batches_of, times_of

FILE_BYTES = 32 * 1024 * 1024
"""A file is complete when it has so many bytes."""
FILE_BYTES_UNPACKED = 128 * 1024 * 1024
"""Or when its records have so many in memory: ZSTD makes very little of some."""


BATCH_BYTES = 1024 * 1024
"""Batches are put together up to so many bytes: a batch of one record takes more room than the record."""


class DamagedFile(Damaged):
    """``file``, of an earlier backup, is not as its manifest says, or it is gone."""

    def __init__(self, file: DataFile, damage: Damaged) -> None:
        super().__init__(str(damage))
        self.file = file


def read_file(store: Store, file: DataFile) -> Iterator[pa.RecordBatch]:
    """Its batches, once all of it is as the manifest says. Raises DamagedFile, before the first; CannotReach."""
    try:
        return batches_of(store.read(file.path), file)
    except Damaged as damage:
        raise DamagedFile(file, damage) from damage


class FileWriter:
    """An Arrow stream in memory, compressed with ZSTD."""

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
        """Whether the next records belong into the next file."""
        return self._sink.tell() >= FILE_BYTES or self._unpacked >= FILE_BYTES_UNPACKED

    def add(self, batch: pa.RecordBatch) -> None:
        """Records that follow those that it has."""
        if batch.num_rows:
            self._held.append(batch)
            self._held_bytes += batch.nbytes
            if self._held_bytes >= BATCH_BYTES:
                self.write_held()

    def write_held(self) -> int:
        """Compress what waits to be compressed with more; answers the bytes of the file so far."""
        if self._held:
            batch = pa.concat_batches(self._held)
            least, most = times_of([batch])
            self.times = (least, most) if self.times is None else (min(least, self.times[0]), max(most, self.times[1]))
            self._stream.write_batch(batch)
            self._unpacked += self._held_bytes
            self._held, self._held_bytes = [], 0
        return int(self._sink.tell())

    def close(self) -> pa.Buffer:
        """The file's bytes."""
        self.write_held()
        self._stream.close()
        return self._sink.getvalue()


class PartitionFiles:
    """The files of a partition, as they will be in the manifest: ``files`` go on to be used. Blocks."""

    def __init__(self, store: Store, place: str, backup: str, files: Sequence[DataFile], start: int) -> None:
        """``place``: TOPIC_ID-TOPIC/PARTITION. ``start``: the offset that follows ``files``."""
        self.files: list[DataFile] = list(files)
        self._store, self._folder, self._backup = store, f"{DATA}/{place}", backup
        self._writer = FileWriter(start)

    def add(self, batch: pa.RecordBatch, end: int) -> None:
        """Records up to the offset ``end``."""
        self._writer.add(batch)
        if self._writer.is_full:
            self._write(end)
            self._writer = FileWriter(end)

    def begin_at(self, offset: int) -> None:
        """What lies before this offset is not needed any more."""
        self.files, self._writer = [], FileWriter(offset)

    def finish(self, end: int) -> list[DataFile]:
        """Write the rest, up to the offset ``end``. Raises DamagedFile, CannotReach."""
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
        self._store.write(path, content)
        self.files.append(DataFile(path, first, end, content.size, hashlib.sha256(content).hexdigest(), *times))


def whole(files: Sequence[DataFile], sizes: dict[str, int], missing: Callable[[str], None]) -> list[DataFile]:
    """The first of these files that are all there, with as many bytes as they should have. ``missing`` is called with
    the others that are not.
    """
    faulty = [file for file in files if sizes.get(file.path) != file.bytes]
    for file in faulty:
        missing(file.path)
    return list(files[: files.index(faulty[0])] if faulty else files)


def kept(before: PartitionBackup | None, log_start: int) -> list[DataFile]:
    """The files of the last backup that go on to be needed: those with records from the log's start on."""
    return [file for file in before.files if file.end_offset > log_start] if before is not None else []
