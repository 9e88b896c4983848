"""Reads of a partition: the parameters of a fetch, and its answer in each form (followed streams: streaming.py).

With ``origins``, an Arrow answer is followed by a second Arrow stream with a row for each batch: its producer.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
from aiohttp import web

from ...cluster.api.partition import Partition
from ...cluster.front.front import unless_ended
from ...cluster.model import ReadGuard
from ...partition.commands import Offset
from ...partition.errors import InvalidRequest, LeaderNotAvailable
from ...partition.log.interface import Slice, StoredBatch
from ...partition.records.batch import STREAM_END, STREAM_START
from ..codec import json_codec, media
from ..codec.parameters import INT64_MAX, integer
from ..request.call import Call
from ..request.connections import Descriptors
from . import sendfile
from .encode import first_offset, take

_ORIGINS = pa.schema(
    [
        ("count", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("first_sequence", pa.int32()),
        ("writer_epoch", pa.int64()),
    ]
)


def origin_stream(batches: Iterable[StoredBatch]) -> bytes:
    """An Arrow stream of one record batch, with a row for the producer of each batch."""
    rows = [
        (each.count, *((s.pid, s.epoch, s.first_seq) if (s := each.stamp) else (None, None, None)), each.writer_epoch)
        for each in batches
    ]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in _ORIGINS]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _ORIGINS, strict=True)], schema=_ORIGINS
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _ORIGINS) as written:
        written.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


BYTES_MAX = 64 * 1024 * 1024
"""Greatest ``max_bytes`` of a fetch."""
WAIT_MS_MAX = 60_000
"""Longest time that a fetch may wait for records."""

SHORT_BYTES = 256 * 1024
"""Arrow answers with records up to this size are sent as one body, which takes fewer steps than sendfile, if the bound
on answers in memory has room for them.
"""

READINGS_MAX = 3
"""Tries of a fetch whose records are dropped while they are read."""

_FOR_A_MOMENT = Descriptors()
"""Files that are closed in the turn in which they were opened have no bound: there is one at a time."""

BATCHES_PER_TURN = 5000
"""Batches whose producers are read before the event loop gets its turn."""

EARLIEST = -1
"""The log's start, as an offset to read from; None is its end."""

_WHOLE = (media.JSON, media.NDJSON, media.ARROW, media.EVENTS)
_FOLLOWED = (media.NDJSON, media.ARROW, media.EVENTS)


class FetchRequest(NamedTuple):
    """The parameters of a fetch. ``offset``: EARLIEST is the log's start, None its end."""

    form: str
    follow: bool
    offset: Offset | None
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    meta: bool
    origins: bool
    local: bool
    guard: ReadGuard | None


def read_fetch_request(call: Call) -> FetchRequest:
    """Read the parameters of a fetch from its request. Raises InvalidRequest, NotAcceptable."""
    parameters = call.parameters
    follow = parameters.query_flag("follow")
    guard = parameters.read_guard()
    wanted = FetchRequest(
        form=media.choose(call.accept, _FOLLOWED if follow else _WHOLE),
        follow=follow,
        offset=_offset(parameters.query_integer_or("offset", ("earliest", "latest"), "earliest")),
        max_bytes=parameters.query_integer("max_bytes", 1, BYTES_MAX, 1_048_576),
        min_bytes=parameters.query_integer("min_bytes", 0, BYTES_MAX, 1),
        max_wait_ms=parameters.query_integer("max_wait_ms", 0, WAIT_MS_MAX, 0),
        meta=parameters.query_flag("meta"),
        origins=parameters.query_flag("origins"),
        local=parameters.query_flag("local"),
        guard=None if guard is None else ReadGuard(*guard, call.caller.principal),
    )
    if wanted.form == media.ARROW and wanted.meta:
        raise InvalidRequest(
            "meta: not with Arrow, whose batches are sent as they are stored; origins names their producers"
        )
    if wanted.origins and (wanted.form != media.ARROW or wanted.follow):
        raise InvalidRequest("origins: only with an Arrow answer that does not follow")
    if wanted.form == media.EVENTS:
        return wanted._replace(follow=True, offset=_resumed(call, wanted.offset))
    return wanted


async def fetch_once(call: Call, partition: Partition, wanted: FetchRequest) -> web.StreamResponse:
    """The answer to a fetch that does not follow."""
    for _ in range(READINGS_MAX):
        try:
            return await _read_once(call, partition, wanted)
        except FileNotFoundError:
            continue  # the file was trimmed, deleted, or replaced by a checkpoint: the next try tells
    raise records_gone()


def records_gone() -> LeaderNotAvailable:
    """The refusal of a read whose files were removed while it was answered. The client may retry; if the records are
    gone, the refusal of the retry says which.
    """
    return LeaderNotAvailable("the records were dropped, or moved to other files, while they were read")


async def _read_once(call: Call, partition: Partition, wanted: FetchRequest) -> web.StreamResponse:
    """Read and answer once. Raises FileNotFoundError when a file of the slice is removed before it is read."""
    reading = partition.read(
        wanted.offset,
        max_bytes=wanted.max_bytes,
        min_bytes=wanted.min_bytes,
        max_wait_ms=wanted.max_wait_ms,
        local=wanted.local,
        guard=wanted.guard,
    )
    found = await unless_ended(call, reading)
    if wanted.max_wait_ms:
        call.check_rights()
    call.spend_bytes(found.size)
    if wanted.form == media.ARROW:
        return await _arrow(call, found, wanted)
    call.hold_answer(found.size)
    start = first_offset(found, wanted.offset)
    records = await take(found, start, wanted.max_bytes, call.hold_answer, with_meta=wanted.meta)
    next_offset = start + len(records)
    headers = slice_headers(found, start, wanted) | {"Stockade-Next-Offset": str(next_offset)}
    if wanted.form == media.NDJSON:
        body = b"\n".join([*records, b""])
        return web.Response(body=body, headers=headers, content_type=media.NDJSON)
    answer = {
        "topic": partition.topic,
        "partition": partition.partition,
        "log_start": found.log_start,
        "log_end": found.log_end,
        "next_offset": next_offset,
        "stale": found.stale,
        "records": [],
    }
    body = b"%b%b]}" % (json_codec.dump(answer).removesuffix(b"]}"), b",".join(records))
    return web.Response(body=body, headers=headers, content_type=media.JSON)


def slice_headers(found: Slice, start: Offset, wanted: FetchRequest) -> dict[str, str]:
    """The headers of a fetch's answer, except Stockade-Next-Offset. ``start``: the first offset of the answer; an Arrow
    answer begins at its first batch instead.
    """
    is_whole = wanted.form == media.ARROW and found.runs
    return {
        "Stockade-Base-Offset": str(found.base_offset if is_whole else start),
        "Stockade-Log-Start": str(found.log_start),
        "Stockade-Log-End": str(found.log_end),
        "Stockade-Stale": "true" if found.stale else "false",
    }


async def _arrow(call: Call, found: Slice, wanted: FetchRequest) -> web.StreamResponse:
    """Answer with whole batches as they are on disk: a short answer in one piece, a long one from file to socket."""
    headers = slice_headers(found, first_offset(found, wanted.offset), wanted) | {
        "Content-Type": media.ARROW,
        "Stockade-Next-Offset": str(found.next_offset),
    }
    end = STREAM_END + (await _origins(found) if wanted.origins else b"")
    is_short = found.size <= SHORT_BYTES and call.may_hold_answer(found.size)
    with sendfile.opened(found.runs, _FOR_A_MOMENT if is_short else call.context.descriptors) as parts:
        if is_short:
            body = b"".join((STREAM_START, *sendfile.pieces(parts), end))
            return web.Response(body=body, headers=headers)
        length = len(STREAM_START) + found.size + len(end)
        stream = await call.start_stream(200, headers, length)
        async with call.taken_in_time(length):  # its files are open, and keep the room that retention would free
            await call.write(STREAM_START)
            await sendfile.send(call, parts)
            await call.write(end)
        return stream


async def _origins(found: Slice) -> bytes:
    """The Arrow stream of the batches' producers. There may be a hundred thousand, so other requests get turns."""
    batches = []
    for run in found.runs:
        for batch in run.load():
            batches.append(batch)
            if len(batches) % BATCHES_PER_TURN == 0:
                await asyncio.sleep(0)
    return await asyncio.to_thread(origin_stream, batches)


def _offset(asked: int | str) -> Offset | None:
    if isinstance(asked, int):
        return asked
    return EARLIEST if asked == "earliest" else None


def _resumed(call: Call, offset: Offset | None) -> Offset | None:
    """The offset after the client's Last-Event-ID, at which its event stream continues; ``offset`` without one."""
    lines = call.request.headers.getall("Last-Event-ID", ())
    if len(lines) > 1:
        raise InvalidRequest(f"Last-Event-ID: occurs {len(lines)} times")
    return integer("Last-Event-ID", lines[0], 0, INT64_MAX - 1) + 1 if lines else offset
