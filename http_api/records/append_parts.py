"""Append to many partitions: one request with all batches that a client has for the partitions that a node leads.

Each part is an append of its own: its partition decides it, and it is counted and answered separately. All parts of a
request are proposed in one turn of the loop, unless that takes too long, so that they share frames and syncs. A part is
answered as soon as it is decided, by a line with its number: a slow partition does not delay the others.

A part whose partition another node leads is refused, not forwarded: the client must learn the leader, and send to it
from then on. Forwarding would hide the leader, and copy the batch twice, for each request.
"""

import asyncio
import logging
from functools import partial

from aiohttp import web

from ...cluster.api.partition import Partition
from ...cluster.front.front import without_frames
from ...cluster.front.writes import answer_to, leading_partition, now_ms
from ...cluster.groups import WATCH
from ...partition.api.records import PARTS, PartAnswer
from ...partition.commands import Appended
from ...partition.errors import InternalError, LeaderNotAvailable, NotLeaderOrFollower, StockadeError
from ...partition.records.batch import Batch, batch_from_stream
from ..codec import json_codec, media, problems
from ..reading.work import is_light_arrow
from ..request.call import Call
from .append import check_message_id
from .parts import PARTS_BODY_BYTES_MAX, Part, PartList, list_of, parts_of

TURN_S = 0.005
"""Longest time for which parts of one request are read and proposed before other tasks get a turn of the loop.
Compressed parts of 1 KB each may unpack to a hundred MiB together.
"""

_log = logging.getLogger(__name__)


async def append_parts(call: Call) -> web.StreamResponse:
    """Append batches to partitions that this node leads."""
    media.choose(call.accept, (media.NDJSON,))
    call.body_type((PARTS,))
    body = await call.read(PARTS_BODY_BYTES_MAX)
    parts = parts_of(body, await call.context.reader.json(list_of(body), PartList), call.caller.principal)
    call.hold_requests(len(parts), at_once=len(parts))
    verdicts = Verdicts(call, parts)
    await verdicts.propose()
    return await verdicts.answer()


class Verdicts:
    """The verdicts on the parts of one request. Invariant: each part is answered by exactly one line."""

    def __init__(self, call: Call, parts: list[Part]) -> None:
        self._call = call
        self._parts = parts
        self._received_ms = now_ms()
        self._is_open = [True] * len(parts)
        self._open = len(parts)
        self._lines: list[bytes] = []
        self._news = asyncio.Event()
        self._slow: set[asyncio.Task[None]] = set()
        self._reading = asyncio.Lock()

    async def propose(self) -> None:
        """Propose each part that can be proposed at once, in this turn of the loop, or in several of TURN_S each; start
        tasks for the other parts.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for number, part in enumerate(self._parts):
            if loop.time() - began_s > TURN_S:
                await asyncio.sleep(0)
                began_s = loop.time()
            try:
                self._propose(number, part)
            except StockadeError as refusal:
                self._refused(number, refusal)
            except Exception as bug:  # the batch may have been proposed
                self._refused(number, _reported(bug))

    async def answer(self) -> web.StreamResponse:
        """Send a line for each part once it is decided; return when all are. Raises ConnectionError if the client went
        away, but only when all parts are decided.
        """
        call, gone = self._call, None
        while self._open or self._lines:
            if not self._lines:
                self._news.clear()
                await self._news.wait()
            lines, self._lines = b"".join(self._lines), []
            if call.stream is None and not self._open:
                return web.Response(body=lines, content_type=media.NDJSON)
            if gone is None:
                try:
                    if call.stream is None:
                        await call.start_stream(200, {"Content-Type": media.NDJSON})
                    await call.write(lines)
                except ConnectionError as error:
                    gone = error
        if gone is not None:
            try:
                raise gone
            finally:
                del gone  # its traceback has this frame, and with it the request
        assert call.stream is not None
        return call.stream

    def _propose(self, number: int, part: Part) -> None:
        self._call.caller.require("produce", "topic", part.topic)
        found, topic_id = self._call.service.held(part.topic, part.partition), part.conditions.topic_id
        if (
            found is None
            or not found.is_leading
            or topic_id not in (None, found.topic_id)  # this node may lag: see Service.partition
            or WATCH.get() is not None
            or not is_light_arrow(part.stream, found.config.max_batch_bytes)
        ):
            self._decide_slowly(number)
            return
        check_message_id(found, part.conditions)
        bytes_max = found.config.max_batch_bytes
        batch = batch_from_stream(part.stream, now_ms=self._received_ms, batch_bytes_max=bytes_max)
        if not found.submit(batch, part.conditions, partial(self._settle, number, found, batch)):
            self._decide_slowly(number, batch)

    async def _batch(self, part: Part, found: Partition) -> Batch:
        """The batch of a part. Parts are read one at a time, after a turn for other tasks, because all parts of a
        request come here together while their partitions have no leader. A heavy part is read in another process.
        """
        check_message_id(found, part.conditions)
        async with self._reading:
            await asyncio.sleep(0)
            reader, body, bytes_max = self._call.context.reader, bytes(part.stream), found.config.max_batch_bytes
            return await reader.batch(media.ARROW, body, now_ms=self._received_ms, batch_bytes_max=bytes_max)

    def _settle(self, number: int, found: Partition, batch: Batch, verdict: Appended | Exception | None) -> None:
        try:
            self._decided(number, found, batch, verdict)
        except Exception as bug:  # otherwise the part would get no answer, and its client would wait for ever
            self._refused(number, _reported(bug))

    def _decided(self, number: int, found: Partition, batch: Batch, verdict: Appended | Exception | None) -> None:
        if isinstance(verdict, Appended):
            if not verdict.duplicate:
                self._call.front.writes.stored(batch.count, len(batch.message))
            self._stored(number, found, verdict)
        elif verdict is None or isinstance(verdict, NotLeaderOrFollower | LeaderNotAvailable):
            self._decide_slowly(number, batch)  # certainly nothing was proposed
        elif isinstance(verdict, StockadeError):
            conditions = self._parts[number].conditions
            self._call.front.writes.refused(self._call.id, found, verdict, conditions.token, conditions.stamp)
            self._refused(number, verdict)
        else:
            self._refused(number, _reported(verdict))

    def _decide_slowly(self, number: int, batch: Batch | None = None) -> None:
        """Append a part in a task: its leader must be found, or its batch read, first. ``batch``: if read already."""
        task = asyncio.get_running_loop().create_task(self._append(number, batch))
        self._slow.add(task)
        task.add_done_callback(self._slow.discard)

    async def _append(self, number: int, batch: Batch | None) -> None:
        call, part = self._call, self._parts[number]
        try:
            found = await leading_partition(call.service, part.topic, part.partition, part.conditions.topic_id)
            batch = await self._batch(part, found) if batch is None else batch
            self._stored(number, found, await call.front.writes.append(call.id, found, batch, part.conditions))
        except StockadeError as refusal:
            self._refused(number, refusal)
        except Exception as bug:
            self._refused(number, _reported(bug))

    def _stored(self, number: int, found: Partition, appended: Appended) -> None:
        answer = answer_to(appended, found, found.leader().term)
        self._answered(number, json_codec.dump(PartAnswer(number, stored=answer)) + b"\n")

    def _refused(self, number: int, refusal: StockadeError) -> None:
        self._call.context.metrics.refused(refusal.code)
        self._call.log_denial(refusal)
        document = problems.document(without_frames(refusal), self._call.id)
        self._answered(number, json_codec.dump_line({"part": number, "problem": document}))

    def _answered(self, number: int, line: bytes) -> None:
        if self._is_open[number]:
            self._is_open[number] = False
            self._open -= 1
            self._lines.append(line)
            self._news.set()


def _reported(bug: Exception) -> InternalError:
    _log.error("a part of an append met a bug", exc_info=bug)
    return InternalError()
