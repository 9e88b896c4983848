"""The bytes of an object: a part of a full segment, and its index.

An object is a skippable frame of zstd with the index, then a zstd stream of an Arrow stream: for readers of zstd it is
the Arrow stream alone. The messages and the index entries are those of the segment, byte for byte, so a fetched object
serves as a segment. Everything here blocks, and is for threads: it uses files, and no state that the loop uses.
"""

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from ...partition.commands import Append, Offset, TierObject
from ...partition.log import segment_files
from ...partition.log.image import ImageDamaged
from ...partition.log.index import IndexDamaged, SegmentIndex
from ...partition.log.interface import StoredBatch
from ...partition.log.modes import DATA_MODE
from ...partition.records.batch import STREAM_END, STREAM_START
from ...partition.records.checksum import crc32

OBJECT_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of messages beyond which an object does not grow, unless its only batch is larger."""
_FRAME = struct.Struct("<II")
_SKIPPABLE = 0x184D2A50
_INDEX_BYTES_MAX = 1 << 30
_PIECE = 1024 * 1024
_ZSTD = "zstd"


class ObjectDamaged(Exception):
    """An object does not have the bytes that were stored."""


class Made(NamedTuple):
    """An object that is not stored yet: its bytes, and its item for the list, from which its name follows."""

    content: pa.Buffer
    item: TierObject


def make(segment: SegmentIndex, start: Offset, term: int, nonce: str) -> Made:
    """The object of a full segment's batches from that with ``start`` on, as many as fit one object. Every batch is
    compared with its CRC. Raises ImageDamaged, OSError.
    """
    (found,) = segment_files.open_segments(Path(segment.segment).parent, segment_files.extents([segment]))
    batches = list(_chosen(found, start))
    index = found if len(batches) == len(found) else SegmentIndex("", batches[0].base_offset, len(STREAM_START))
    data = pa.BufferOutputStream()
    with pa.CompressedOutputStream(data, _ZSTD) as packed:
        packed.write(STREAM_START)
        for piece in _pieces(found, batches, index):
            packed.write(piece)
        packed.write(STREAM_END)
    entries = _packed(index.entries)
    sink = pa.BufferOutputStream()
    sink.write(_FRAME.pack(_SKIPPABLE, len(entries)))
    sink.write(entries)
    sink.write(data.getvalue())
    content = sink.getvalue()
    return Made(content, _described(index, content, term, nonce))


def _pieces(segment: SegmentIndex, batches: list[StoredBatch], index: SegmentIndex) -> Iterator[bytes]:
    """The messages of these batches, joined to pieces; ``index`` gets the batches, unless it is the whole segment's."""
    messages: list[bytes] = []
    size = 0
    with Path(segment.segment).open("rb", buffering=_PIECE) as file:
        file.seek(batches[0].position)
        for batch in batches:
            message = file.read(batch.length)
            if crc32(message) != batch.crc:
                raise ImageDamaged(f"{segment.segment} is damaged in the batch at offset {batch.base_offset}")
            if index is not segment:
                index.add(_command(batch, message), batch.writer_epoch)
            messages.append(message)
            size += batch.length
            if size >= _PIECE:
                yield b"".join(messages)
                messages, size = [], 0
    yield b"".join(messages)


def _chosen(segment: SegmentIndex, start: Offset) -> Iterator[StoredBatch]:
    size = 0
    for number in range(segment.find(start), len(segment)):
        batch = segment.batch(number)
        size += batch.length
        if size > OBJECT_BYTES_MAX and size > batch.length:
            return
        yield batch


def _command(batch: StoredBatch, message: bytes) -> Append:
    return Append(message, batch.count, batch.crc, batch.timestamp_ms, batch.max_timestamp_ms, stamp=batch.stamp)


def _described(index: SegmentIndex, content: pa.Buffer, term: int, nonce: str) -> TierObject:
    return TierObject(
        first=index.base_offset,
        end=index.next_offset,
        term=term,
        nonce=nonce,
        size=content.size,
        sha256=hashlib.sha256(content).digest(),
        log_bytes=index.size,
        received_ms=index.last_timestamp_ms,
        greatest_timestamp_ms=index.greatest_timestamp_ms,
    )


def _packed(data: bytes | bytearray) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, _ZSTD) as packed:
        packed.write(data)
    return sink.getvalue()


def receive(pieces: Iterator[bytes], item: TierObject, there: Path) -> None:
    """Write an object's bytes to a file. Raises OSError, and ObjectDamaged if they are not those that were stored."""
    digest, size = hashlib.sha256(), 0
    with _created(there) as file:
        for piece in pieces:
            size += len(piece)
            if size > item.size:
                break
            digest.update(piece)
            file.write(piece)
    if size != item.size:
        raise ObjectDamaged(f"it does not have {item.size} bytes")
    if digest.digest() != item.sha256:
        raise ObjectDamaged("it has another SHA-256 than when it was stored")


def check(pieces: Iterator[bytes], item: TierObject) -> None:
    """Compare the SHA-256 of an object's bytes with that of the stored ones. Raises ObjectDamaged."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    if digest.digest() != item.sha256:
        raise ObjectDamaged("it has another SHA-256 than when it was stored")


def unpack(packed: Path, item: TierObject, data: Path) -> SegmentIndex:
    """Make a segment of a received object: ``data`` and the index beside it. Raises ObjectDamaged, OSError."""
    try:
        with packed.open("rb") as file:
            entries = _index_of(file)
            size = _unpack_messages(file, data)
        index = SegmentIndex.of(str(data), item.first, len(STREAM_START), entries)
    except (pa.ArrowException, IndexDamaged, struct.error) as error:
        raise ObjectDamaged(f"it cannot be read: {error}") from error
    if (index.next_offset, index.size) != (item.end, size - len(STREAM_END)):
        raise ObjectDamaged(f"its index ends at {index.next_offset}, not {item.end}")
    with _created(segment_files.files_of(index)[1]) as file:
        file.write(entries)
    segment_files.seal(index)
    return index


def sums(segment: SegmentIndex) -> tuple[int, int]:
    """The CRCs of the files of a segment that does not grow. Raises OSError."""
    messages, index = segment_files.files_of(segment)
    return _sum(messages), _sum(index)


def _sum(path: Path) -> int:
    found = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            found = crc32(piece, found)
    return found


def _created(path: Path) -> BinaryIO:
    """An empty file for the node's user and its group."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, DATA_MODE), "wb")


def _index_of(file: BinaryIO) -> bytes:
    magic, length = _FRAME.unpack(file.read(_FRAME.size))
    if magic != _SKIPPABLE or length > _INDEX_BYTES_MAX:
        raise ObjectDamaged("it does not begin with an index")
    with pa.CompressedInputStream(pa.BufferReader(file.read(length)), _ZSTD) as packed:
        entries: bytes = packed.read()
        return entries


def _unpack_messages(file: BinaryIO, data: Path) -> int:
    size = 0
    with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), _ZSTD) as packed, _created(data) as written:
        while piece := packed.read(_PIECE):
            written.write(piece)
            size += len(piece)
    return size
