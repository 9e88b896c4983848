"""Renders stored batches as the records of an answer.

A slice is decoded and rendered in pieces, with a turn of the event loop between them, so that one reader neither fills
the memory nor blocks the loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ...partition.api.records import text_or_base64
from ...partition.commands import SEQUENCE_MODULUS, Offset
from ...partition.errors import ThrottlingQuotaExceeded
from ...partition.log.interface import Slice, StoredBatch
from ...partition.records.batch import RECORDS_MAX, decode_batch
from ..codec import json_codec

RECORDS_PER_TURN = 250
"""Records rendered before the event loop gets its turn."""
BYTES_PER_TURN = 256 * 1024
"""Likewise, bytes of their columns, estimated by the batch's mean record size; at least one record."""
READ_BYTES = 1024 * 1024
"""Bytes of messages read from disk at one time, unless one message is larger."""


class Row(NamedTuple):
    """One rendered record. ``size``: bytes of its key, its value, and the keys and values of its headers."""

    record: dict[str, Any]
    size: int


async def rows(
    found: Slice, start: Offset, hold: Callable[[int], None], *, with_meta: bool
) -> AsyncIterator[list[Row]]:
    """The records of a slice from offset ``start`` on, at most RECORDS_PER_TURN and about BYTES_PER_TURN in each piece.

    ``hold(bytes)`` reserves memory for what pieces are made of, packed or unpacked, whichever is more. ``with_meta``
    adds the producer of each record. Raises FileNotFoundError when a file of the slice was removed since, and as
    ``hold``.
    """
    has_begun = False
    for batches in _groups(batch for run in found.runs for batch in run.load()):
        read_bytes = sum(batch.length for batch in batches)
        hold(read_bytes)
        for batch, message in zip(batches, found.fetch(batches), strict=True):
            columns = decode_batch(message)
            hold(max(read_bytes, columns.nbytes))
            first = max(0, start - batch.base_offset)
            each_turn = max(1, min(RECORDS_PER_TURN, BYTES_PER_TURN * batch.count // max(1, columns.nbytes)))
            for row in range(first, batch.count, each_turn):
                if has_begun:  # between pieces only: after the last, all followers would hold the batch at once
                    await asyncio.sleep(0)
                has_begun = True
                yield list(_rendered(batch, row, columns.slice(row, each_turn), with_meta))


async def take(
    found: Slice, start: Offset, max_bytes: int, hold: Callable[[int], None], *, with_meta: bool
) -> list[bytes]:
    """Records from ``start`` on, each as a JSON text. The first is always taken; more follow while their sizes fit
    ``max_bytes``, there are at most RECORDS_MAX, and ``hold(total_bytes)`` reserves memory: as ``rows`` does, and for
    their texts. Raises FileNotFoundError as ``rows``, and ThrottlingQuotaExceeded if ``hold`` refuses the first piece.

    They are texts because a hundred thousand objects would have the garbage collector hold the loop again and again.
    Memory is reserved here because the size of the texts is known no sooner: batches may be compressed.
    """
    taken: list[bytes] = []
    room, size = max_bytes, 0
    try:
        async for piece in rows(found, start, hold, with_meta=with_meta):
            texts: list[bytes] = []
            for row in piece:
                room -= row.size
                if (taken or texts) and (room < 0 or len(taken) + len(texts) == RECORDS_MAX):
                    break
                texts.append(json_codec.dump(row.record))
            size += sum(map(len, texts))
            hold(size)
            taken += texts
            if len(texts) < len(piece):
                break
    except ThrottlingQuotaExceeded:
        if not taken:
            raise
    return taken


def first_offset(found: Slice, wanted: Offset | None) -> Offset:
    """The offset at which the answer to a read from ``wanted`` begins; -1 is the log's start, None its end."""
    if wanted is not None and wanted >= 0:
        return wanted
    return max(found.log_start, found.base_offset)


def _groups(batches: Iterable[StoredBatch]) -> Iterator[list[StoredBatch]]:
    group: list[StoredBatch] = []
    size = 0
    for batch in batches:
        if group and size + batch.length > READ_BYTES:
            yield group
            group, size = [], 0
        group.append(batch)
        size += batch.length
    if group:
        yield group


def _rendered(batch: StoredBatch, first: int, columns: Any, with_meta: bool) -> Iterator[Row]:
    keys = columns.column("key").to_pylist()
    values = columns.column("value").to_pylist()
    timestamps = columns.column("timestamp").cast("int64").to_pylist()
    headers = columns.column("headers").to_pylist()
    for place, (key, value, timestamp_ms, own) in enumerate(zip(keys, values, timestamps, headers, strict=True)):
        row = first + place
        record = {"offset": batch.base_offset + row, "timestamp_ms": timestamp_ms}
        record |= text_or_base64("key", key)
        record |= text_or_base64("value", value)
        record["headers"] = [{"key": h["key"]} | text_or_base64("value", h["value"]) for h in own or ()]
        if with_meta:
            record |= _meta(batch, row)
        size = len(key or b"") + len(value or b"") + sum(len(h["key"].encode()) + len(h["value"]) for h in own or ())
        yield Row(record, size)


def _meta(batch: StoredBatch, row: int) -> dict[str, Any]:
    stamp = batch.stamp
    return {
        "producer_id": stamp.pid if stamp else None,
        "producer_epoch": stamp.epoch if stamp else None,
        "sequence": (stamp.first_seq + row) % SEQUENCE_MODULUS if stamp else None,
        "writer_epoch": batch.writer_epoch,
    }
