"""Reads of a partition: what a fetch asks for, and its answer in each form. Followed streams are next door."""

import asyncio
from typing import NamedTuple

from aiohttp import web

from ..cluster.model import ReadGuard
from ..cluster.service import Partition
from ..partition.commands import Offset
from ..partition.errors import InvalidRequest, LeaderNotAvailable
from ..partition.records import STREAM_END, STREAM_START
from ..partition.segments import Slice
from . import files, media, origins, wire
from .call import Call, json_answer, unless_ended
from .parameters import INT64_MAX, integer
from .rendering import first_offset, take

BYTES_MAX = 64 * 1024 * 1024
"""Greatest max_bytes."""
WAIT_MS_MAX = 60_000
"""Longest time that a request may wait."""

SHORT_BYTES = 256 * 1024
"""Arrow answers up to here are sent as ordinary bodies: for them that takes fewer steps."""

READINGS_MAX = 3
"""How often a fetch is tried whose records are dropped while they are read."""

BATCHES_PER_TURN = 5000
"""Batches looked up before the event loop gets its turn."""

EARLIEST = -1
"""The log's start, as an offset to read from; None is its end."""

_WHOLE = (media.JSON, media.NDJSON, media.ARROW, media.EVENTS)
_FOLLOWED = (media.NDJSON, media.ARROW, media.EVENTS)


class Wanted(NamedTuple):
    """A fetch as asked for. ``offset`` EARLIEST: log start; None: log end."""

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


def read_wanted(call: Call) -> Wanted:
    """What a fetch asks for. Raises InvalidRequest, NotAcceptable."""
    given = call.parameters
    follow = given.query_flag("follow")
    guard = given.read_guard()
    wanted = Wanted(
        form=media.choose(call.accept, _FOLLOWED if follow else _WHOLE),
        follow=follow,
        offset=_offset(given.query_integer_or("offset", ("earliest", "latest"), "earliest")),
        max_bytes=given.query_integer("max_bytes", 1, BYTES_MAX, 1_048_576),
        min_bytes=given.query_integer("min_bytes", 0, BYTES_MAX, 1),
        max_wait_ms=given.query_integer("max_wait_ms", 0, WAIT_MS_MAX, 0),
        meta=given.query_flag("meta"),
        origins=given.query_flag("origins"),
        local=given.query_flag("local"),
        guard=None if guard is None else ReadGuard(*guard),
    )
    if wanted.form == media.ARROW and wanted.meta:
        raise InvalidRequest("meta: not with Arrow, whose batches are sent as they are stored; origins tells of them")
    if wanted.origins and (wanted.form != media.ARROW or wanted.follow):
        raise InvalidRequest("origins: only with an Arrow answer that does not follow")
    if wanted.form == media.EVENTS:
        return wanted._replace(follow=True, offset=_resumed(call, wanted.offset))
    return wanted


async def fetch_once(call: Call, partition: Partition, wanted: Wanted) -> web.StreamResponse:
    """The answer to a fetch that does not follow."""
    for _ in range(READINGS_MAX):
        try:
            return await _read_once(call, partition, wanted)
        except FileNotFoundError:
            # Trimmed, deleted, or replaced by a checkpoint since it was found: whoever asks again is told.
            continue
    raise dropped()


def dropped() -> LeaderNotAvailable:
    """The refusal of a read whose records went while it was answered; asked again, it is told which of them."""
    return LeaderNotAvailable("the records were dropped, or moved to other files, while they were read")


async def _read_once(call: Call, partition: Partition, wanted: Wanted) -> web.StreamResponse:
    """Raises FileNotFoundError when what was found is dropped before it is read."""
    call.wait_s = wanted.max_wait_ms / 1000
    reading = partition.read(
        wanted.offset,
        max_bytes=wanted.max_bytes,
        min_bytes=wanted.min_bytes,
        max_wait_ms=wanted.max_wait_ms,
        local=wanted.local,
        guard=wanted.guard,
    )
    found = await unless_ended(call, reading)
    if wanted.form == media.ARROW:
        return await _arrow(call, found, wanted)
    call.hold_answer(found.size)
    start = first_offset(found, wanted.offset)
    records = await take(found, start, wanted.max_bytes, with_meta=wanted.meta)
    next_offset = start + len(records)
    headers = slice_headers(found, start, wanted) | {"Stockade-Next-Offset": str(next_offset)}
    if wanted.form == media.NDJSON:
        body = b"".join(map(wire.dump_line, records))
        return web.Response(body=body, headers=headers, content_type=media.NDJSON)
    answer = {
        "topic": partition.topic,
        "partition": partition.partition,
        "log_start": found.log_start,
        "log_end": found.log_end,
        "next_offset": next_offset,
        "stale": found.stale,
        "records": records,
    }
    return json_answer(answer, headers=headers)


def slice_headers(found: Slice, start: Offset, wanted: Wanted) -> dict[str, str]:
    """Headers of a fetch, Stockade-Next-Offset aside. ``start`` is the first offset of the answer."""
    is_whole = wanted.form == media.ARROW and found.runs
    return {
        "Stockade-Base-Offset": str(found.base_offset if is_whole else start),
        "Stockade-Log-Start": str(found.log_start),
        "Stockade-Log-End": str(found.log_end),
        "Stockade-Stale": "true" if found.stale else "false",
    }


async def _arrow(call: Call, found: Slice, wanted: Wanted) -> web.StreamResponse:
    """Whole batches as they lie on disk. A short answer goes out in one piece, a long one from file to socket."""
    headers = slice_headers(found, first_offset(found, wanted.offset), wanted) | {
        "Content-Type": media.ARROW,
        "Stockade-Next-Offset": str(found.next_offset),
    }
    end = STREAM_END + (await _origins(found) if wanted.origins else b"")
    with files.opened(found.runs) as parts:
        if found.size <= SHORT_BYTES:
            body = b"".join((STREAM_START, *files.pieces(parts), end))
            return web.Response(body=body, headers=headers)
        stream = await call.start_stream(200, headers, len(STREAM_START) + found.size + len(end))
        await call.write(STREAM_START)
        await files.send(call, parts)
        await call.write(end)
        return stream


async def _origins(found: Slice) -> bytes:
    """Who wrote the batches: perhaps a hundred thousand of them, so other requests get their turn meanwhile."""
    batches = []
    for run in found.runs:
        for batch in run.load():
            batches.append(batch)
            if len(batches) % BATCHES_PER_TURN == 0:
                await asyncio.sleep(0)
    return await asyncio.to_thread(origins.stream, batches)


def _offset(asked: int | str) -> Offset | None:
    if isinstance(asked, int):
        return asked
    return EARLIEST if asked == "earliest" else None


def _resumed(call: Call, offset: Offset | None) -> Offset | None:
    """Where an event stream goes on that was broken off."""
    last_seen = call.request.headers.get("Last-Event-ID")
    return offset if last_seen is None else integer("Last-Event-ID", last_seen, 0, INT64_MAX) + 1
