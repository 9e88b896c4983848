"""Verifies a backup by its manifest, with nothing but pyarrow and hashlib, as docs/how-to/backup.md does on a page."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from .manifest import Damaged, DataFile, Manifest, PartitionBackup
from .store import Store

FILES_AT_A_TIME = 4
"""Files that are read, and held in memory, at the same time."""
TIMESTAMP = "timestamp"
"""The column with the timestamps of the records."""


def batches_of(content: bytes, file: DataFile) -> Iterator[pa.RecordBatch]:
    """The batches of a file, one in memory at a time. Raises Damaged, before the first batch, if size, SHA-256 or
    number of records differ from the manifest's.
    """
    if len(content) != file.bytes:
        raise Damaged(f"{file.path} has {len(content)} bytes in place of {file.bytes}")
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise Damaged(f"{file.path} has another SHA-256 than its manifest says")
    try:
        rows = sum(batch.num_rows for batch in pa.ipc.open_stream(content))
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"{file.path} is no Arrow stream: {error}") from error
    if rows != file.end_offset - file.first_offset:
        raise Damaged(f"{file.path} has {rows} records in place of {file.end_offset - file.first_offset}")
    return iter(pa.ipc.open_stream(content))


def row_at(batches: Iterable[pa.RecordBatch], file: DataFile, offset: int) -> pa.RecordBatch:
    """The record of a file at this offset, as a batch of one row. Raises IndexError."""
    base = file.first_offset
    for batch in batches:
        if offset < base + batch.num_rows:
            return batch.slice(offset - base, 1)
        base += batch.num_rows
    raise IndexError(offset)


def times_of(batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """The least and the greatest timestamp of the records, in ms since 1970."""
    found = [pc.min_max(batch.column(TIMESTAMP).cast(pa.int64())) for batch in batches]
    return min(each["min"].as_py() for each in found), max(each["max"].as_py() for each in found)


def gaps(name: str, partition: PartitionBackup) -> Iterator[str]:
    """The faults of a partition's list of files: offsets that no file has, or that two files have."""
    expected = None
    for file in partition.files:
        is_first_late = expected is None and file.first_offset > partition.first_offset
        if is_first_late or (expected is not None and file.first_offset != expected):
            yield f"{name}: {file.path} begins at {file.first_offset}, and records before it are missing"
        expected = file.end_offset
    if (partition.first_offset if expected is None else expected) != partition.end_offset:
        yield f"{name}: its files end at {expected}, and the backup at {partition.end_offset}"


def verify(store: Store, manifest: Manifest, verified: Callable[[DataFile], None]) -> list[str]:
    """All faults of a backup; ``verified`` is called after each file. Raises CannotReach."""
    faults: list[str] = []
    for topic in manifest.topics:
        for partition in topic.partitions:
            faults += gaps(f"{topic.topic}/{partition.partition}", partition)
    with ThreadPoolExecutor(FILES_AT_A_TIME) as pool:
        for chunk in _chunks(manifest.files):
            for (_, file), fault in zip(chunk, pool.map(lambda each: _fault(store, *each), chunk), strict=True):
                faults += [fault] if fault else []
                verified(file)
    return faults


def _chunks(files: list[tuple[str, DataFile]]) -> Iterator[list[tuple[str, DataFile]]]:
    rest = iter(files)
    while chunk := list(islice(rest, FILES_AT_A_TIME)):
        yield chunk


def _fault(store: Store, name: str, file: DataFile) -> str:
    """The fault of a file; "" if it has none."""
    try:
        if times_of(batches_of(store.read(file.path), file)) != (file.timestamp_ms_min, file.timestamp_ms_max):
            return f"{name}: {file.path} has records of other times than its manifest says"
    except Damaged as damage:
        return f"{name}: {damage}"
    return ""
