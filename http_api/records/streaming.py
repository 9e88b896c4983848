"""Followed streams: records as they are committed, until the client goes away, the node stops, or a problem
ends them.

One piece is in memory at a time, and the next is read only when the client has taken the last.
"""

import asyncio
from typing import Any, Protocol

from aiohttp import web

from ..cluster.service import Partition
from ..partition.commands import Offset
from ..partition.errors import StockadeError, ThrottlingQuotaExceeded
from ..partition.records import STREAM_START
from ..partition.segments import Slice
from . import files, media, problems, wire
from .call import Call, unless_ended
from .fetching import Wanted, dropped, slice_headers
from .metrics import OBSERVATION
from .rendering import first_offset, rows

SILENCE_MS = 15_000
"""Longest time without a word on an event stream: then it gets a comment line."""
FOLLOWERS_MAX = 10_000
"""Followed streams of a node at one time; beyond it they are THROTTLING_QUOTA_EXCEEDED."""


async def follow(call: Call, partition: Partition, wanted: Wanted) -> web.StreamResponse:
    """Answer with the records from ``wanted.offset`` on, without end. Raises refusals only before the first
    byte.
    """
    context = call.context
    if context.followers >= FOLLOWERS_MAX:
        raise ThrottlingQuotaExceeded("the node has too many followers", retry_after_ms=1000)
    context.followers += 1
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
        context.followers -= 1


async def _stream(call: Call, partition: Partition, wanted: Wanted, found: Slice) -> web.StreamResponse:
    call.request[OBSERVATION].is_stream = True
    start = first_offset(found, wanted.offset)
    headers = slice_headers(found, start, wanted) | {"Content-Type": wanted.form, "Cache-Control": "no-cache"}
    stream = await call.start_stream(200, headers)
    form = _FORMS[wanted.form](call, wanted.meta)
    await form.begin()
    try:
        while True:
            await form.send(found, start)
            start = found.next_offset
            found = await unless_ended(call, _next(partition, wanted, start))
    except (StockadeError, FileNotFoundError) as error:
        refusal = error if isinstance(error, StockadeError) else dropped()
        await call.write(farewell(wanted.form, problems.document(refusal, call.id)))
    return stream


async def _next(partition: Partition, wanted: Wanted, start: Offset) -> Slice:
    return await partition.read(
        start,
        max_bytes=wanted.max_bytes,
        min_bytes=1,
        max_wait_ms=SILENCE_MS,
        local=wanted.local,
        guard=wanted.guard,
    )


def farewell(form: str, problem: dict[str, Any]) -> bytes:
    """The last words of a followed stream that a problem ends. An Arrow stream has none: it just lacks its
    end.
    """
    if form == media.NDJSON:
        return wire.dump_line({"problem": problem})
    if form == media.EVENTS:
        return b"event: problem\ndata: " + wire.dump(problem) + b"\n\n"
    return b""


class _Form(Protocol):
    """How a stream is written. ``send`` with no records is called when there was silence for a while."""

    def __init__(self, call: Call, with_meta: bool) -> None: ...

    async def begin(self) -> None: ...

    async def send(self, found: Slice, start: Offset) -> None: ...


class _Lines:
    """NDJSON: a record a line."""

    def __init__(self, call: Call, with_meta: bool) -> None:
        self._call = call
        self._with_meta = with_meta

    async def begin(self) -> None:
        pass

    async def send(self, found: Slice, start: Offset) -> None:
        async for piece in rows(found, start, with_meta=self._with_meta):
            await self._call.write(b"".join(wire.dump_line(row.record) for row in piece))


class _Events:
    """Server-sent events: the offset is the event's id."""

    def __init__(self, call: Call, with_meta: bool) -> None:
        self._call = call
        self._with_meta = with_meta

    async def begin(self) -> None:
        pass

    async def send(self, found: Slice, start: Offset) -> None:
        if not found.runs:
            await self._call.write(b":\n\n")
        async for piece in rows(found, start, with_meta=self._with_meta):
            await self._call.write(b"".join(_event(row.record) for row in piece))


class _Arrow:
    """An Arrow stream of whole batches."""

    def __init__(self, call: Call, with_meta: bool) -> None:
        self._call = call

    async def begin(self) -> None:
        await self._call.write(STREAM_START)

    async def send(self, found: Slice, start: Offset) -> None:
        with files.opened(found.runs) as parts:
            for piece in files.pieces(parts):
                await self._call.write(piece)
                await asyncio.sleep(0)


def _event(record: dict[str, Any]) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (record["offset"], wire.dump(record))


_FORMS: dict[str, type[_Form]] = {media.NDJSON: _Lines, media.EVENTS: _Events, media.ARROW: _Arrow}
