"""Followed streams: records as they are committed, until the client goes away, the node stops, or a problem ends them.

One piece is in memory at a time; the next piece is read only when the client has taken the last one.
"""

import asyncio
from typing import Any

from aiohttp import web

from ...cluster.api.partition import Partition
from ...cluster.front.front import unless_ended
from ...partition.commands import Offset
from ...partition.errors import StockadeError
from ...partition.log.interface import Slice
from ...partition.records.batch import STREAM_START
from ..codec import json_codec, media, problems
from ..request.call import Call
from ..request.metrics import OBSERVATION
from . import sendfile
from .encode import first_offset, rows
from .fetch import FetchRequest, records_gone, slice_headers

SILENCE_MS = 15_000
"""Longest time without bytes on an event stream; then a comment line is sent."""


async def follow(call: Call, partition: Partition, wanted: FetchRequest) -> web.StreamResponse:
    """Answer with the records from ``wanted.offset`` on, without end. Raises refusals only before the first byte; later
    ones end the stream with a problem.
    """
    in_flight = call.front.in_flight
    in_flight.take(followers=1)
    try:
        found = await partition.read(
            wanted.offset,
            max_bytes=wanted.max_bytes,
            min_bytes=0,
            max_wait_ms=0,
            local=wanted.local,
            guard=wanted.guard,
        )
        return await _stream(call, partition, wanted, found)
    finally:
        in_flight.give_back(followers=1)


async def _stream(call: Call, partition: Partition, wanted: FetchRequest, found: Slice) -> web.StreamResponse:
    call.request[OBSERVATION].is_stream = True
    start = first_offset(found, wanted.offset)
    headers = slice_headers(found, start, wanted) | {"Content-Type": wanted.form, "Cache-Control": "no-cache"}
    stream = await call.start_stream(200, headers)
    send = _SEND[wanted.form]
    if wanted.form == media.ARROW:
        await call.write(STREAM_START)
    try:
        while True:
            await send(call, wanted, found, start)
            call.free_answer()
            await call.pay(found.size)
            start = found.next_offset
            found = await unless_ended(call, _next(partition, wanted, start))
            call.check_rights()
    except (StockadeError, FileNotFoundError) as error:
        refusal = error if isinstance(error, StockadeError) else records_gone()
        await call.write(problems.stream_end(wanted.form, problems.document(refusal, call.id)))
    return stream


async def _next(partition: Partition, wanted: FetchRequest, start: Offset) -> Slice:
    return await partition.read(
        start,
        max_bytes=wanted.max_bytes,
        min_bytes=1,
        max_wait_ms=SILENCE_MS,
        local=wanted.local,
        guard=wanted.guard,
    )


async def _send_lines(call: Call, wanted: FetchRequest, found: Slice, start: Offset) -> None:
    """NDJSON: one record per line."""
    async for piece in rows(found, start, call.hold_answer, with_meta=wanted.meta):
        await call.write_text(b"".join(json_codec.dump_line(row.record) for row in piece))


async def _send_events(call: Call, wanted: FetchRequest, found: Slice, start: Offset) -> None:
    """Server-sent events: one record per event, whose id is the offset; a comment after SILENCE_MS without records."""
    if not found.runs:
        await call.write(b":\n\n")
    async for piece in rows(found, start, call.hold_answer, with_meta=wanted.meta):
        await call.write_text(b"".join(_event(row.record) for row in piece))


def _event(record: dict[str, Any]) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (record["offset"], json_codec.dump(record))


async def _send_arrow(call: Call, wanted: FetchRequest, found: Slice, start: Offset) -> None:
    """An Arrow stream of whole batches."""
    with sendfile.opened(found.runs, call.context.descriptors) as parts:
        for place, piece in enumerate(sendfile.pieces(parts, sendfile.WRITTEN_BYTES)):
            if place:  # between pieces only: after the last, all followers would keep the file open
                await asyncio.sleep(0)
            await call.write(piece)


_SEND = {media.NDJSON: _send_lines, media.EVENTS: _send_events, media.ARROW: _send_arrow}
"""Writes a slice, perhaps an empty one, to a followed stream, by the stream's form."""
