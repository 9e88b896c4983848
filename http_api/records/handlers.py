"""Handlers of one partition: append, fetch, find an offset, read the tail, trim, and list the tenures of its slot."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, cast

from aiohttp import web

from ...cluster.api.partition import Partition
from ...partition.api.ownership import Fences, FenceTenure
from ...partition.api.producers import PartitionProducers
from ...partition.api.records import Offsets, Trimmed
from ...partition.api.topics import Mode
from ...partition.commands import Offset
from ...partition.errors import StockadeError
from ...partition.log.interface import Slice
from ...partition.state.fence import Tenure
from ..codec import json_codec, schemas
from ..codec.json_codec import or_none
from ..request.call import Call, json_answer
from .append import append_answer, check_message_id, read_conditions, read_token, receive_batch, waits_for_verdict
from .encode import Row, rows
from .fetch import fetch_once, read_fetch_request, records_gone
from .streaming import follow

TAIL_MAX = 10_000
"""Most records of a tail."""
TAIL_PIECE_BYTES = 16 * 1024 * 1024
"""Bytes of each further slice, when the first slice does not reach the end of the tail."""
PRODUCERS_MAX = 1000
"""Most producers of one list."""
POSITIONS_MAX = 1000
"""Most positions of one list."""


async def append(call: Call) -> web.StreamResponse:
    """Append one batch to a partition."""
    conditions = read_conditions(call.parameters, call.caller.principal)
    waits = waits_for_verdict(call.parameters)
    partition, batch = await receive_batch(call, conditions.topic_id)
    check_message_id(partition, conditions)
    append = call.front.writes.append(call.id, partition, batch, conditions)
    if not waits:
        call.finish_later(append)
        return json_answer({"topic": partition.topic, "partition": partition.partition, "accepted": True}, 202)
    return append_answer(call, partition, await append)


async def fetch(call: Call) -> web.StreamResponse:
    """Read records once, or follow the log."""
    wanted = read_fetch_request(call)
    call.wait_s = 0.0 if wanted.follow else wanted.max_wait_ms / 1000  # also if this node forwards the request
    partition = await call.find_partition()
    if wanted.follow:
        return await follow(call, partition, wanted)
    return await fetch_once(call, partition, wanted)


async def get_offset(call: Call) -> web.StreamResponse:
    """Find the offset of the log's start or end, of a time, or of the greatest timestamp."""
    at = call.parameters.query_integer_or("at", ("earliest", "latest", "max_timestamp"), "latest")
    partition = await call.find_partition()
    if at in ("earliest", "latest"):
        end = await partition.read(None, max_bytes=1, min_bytes=0, max_wait_ms=0, local=False)
        log_start, log_end = end.log_start, end.log_end
        offset, timestamp_ms = (log_start if at == "earliest" else log_end), None
    else:
        wanted = at if isinstance(at, int) else None
        offset, timestamp_ms, log_start, log_end = await partition.find_offset(wanted)
    return json_answer(Offsets(partition.topic, partition.partition, offset, timestamp_ms, log_start, log_end))


async def read_tail(call: Call) -> web.StreamResponse:
    """The last records with their producers, sent piece by piece: a tail has no bound in bytes."""
    count = call.parameters.query_integer("n", 1, TAIL_MAX, 1)
    partition = await call.find_partition()
    found, topic_epoch = await partition.read_tail(count)
    call.spend_bytes(found.size)
    call.hold_answer(min(found.size, TAIL_PIECE_BYTES))
    start = max(found.log_start, found.log_end - count)
    head = {
        "topic": partition.topic,
        "partition": partition.partition,
        "log_start": found.log_start,
        "log_end": found.log_end,
        "topic_epoch": topic_epoch,
    }
    stream = await call.start_stream(200, {"Content-Type": "application/json"})
    await call.write(json_codec.dump(head)[:-1] + b',"records":[')
    separator = b""
    try:
        async for piece in _tail(call, partition, found, start):
            call.check_rights()
            await call.write_text(separator + b",".join(json_codec.dump(row.record) for row in piece))
            separator = b","
    except FileNotFoundError as error:
        raise records_gone() from error
    await call.write(b"]}")
    return stream


async def _tail(call: Call, partition: Partition, found: Slice, start: Offset) -> AsyncIterator[list[Row]]:
    """The records from ``start`` up to ``found.log_end``, in pieces; ``found`` is the first slice."""
    end = found.log_end
    while True:
        async for piece in rows(found, start, call.hold_answer, with_meta=True):
            if mine := [row for row in piece if row.record["offset"] < end]:
                yield mine
        start = found.next_offset
        if start >= end:
            return
        call.free_answer()
        await asyncio.sleep(0)
        found = await partition.read(start, max_bytes=TAIL_PIECE_BYTES, min_bytes=0, max_wait_ms=0, local=True)
        await call.pay(found.size)


async def trim(call: Call) -> web.StreamResponse:
    """Drop the oldest records."""
    parameters = call.parameters
    topic, number = parameters.topic(), parameters.partition()
    topic_id, token = parameters.topic_id(), read_token(parameters)
    wanted = await call.read_json(schemas.TrimBody)
    call.partition = partition = await call.service.partition(topic, number, topic_id)
    before = None if wanted.before == -1 else wanted.before
    conditions = {"if_epoch": or_none(wanted.if_epoch), "if_log_end": or_none(wanted.if_log_end)}
    try:
        async with _recorded(call, partition, "records.trim", {"before": wanted.before}) as result:
            log_start, log_end = await partition.trim(
                before, topic_id=topic_id, token=token, principal=call.caller.principal, **conditions
            )
            result |= {"log_start": log_start, "log_end": log_end}
    except StockadeError as refusal:
        call.front.writes.refused(call.id, partition, refusal, token)
        raise
    return json_answer(Trimmed(topic, number, log_start, log_end))


def _recorded(
    call: Call, partition: Partition, act: str, wanted: dict[str, Any]
) -> AbstractAsyncContextManager[dict[str, Any]]:
    """The context in which an act is carried out that the ledger records; its value takes the act's result. On a node
    that does not lead, nothing is recorded, because the act will be refused.
    """
    if not partition.is_leading:
        return nullcontext({})
    return call.service.ledger.act(act, partition.topic, partition.partition, wanted, call.by)


async def begin_at(call: Call) -> web.StreamResponse:
    """Let a log that has never had a record begin at an offset."""
    topic, number, topic_id = call.parameters.topic(), call.parameters.partition(), call.parameters.topic_id()
    wanted = await call.read_json(schemas.BeginBody)
    call.partition = partition = await call.service.partition(topic, number, topic_id)
    async with _recorded(call, partition, "records.begin", {"offset": wanted.offset}) as result:
        ends = await partition.begin_at(wanted.offset, topic_id=topic_id, principal=call.caller.principal)
        result |= {"log_start": ends[0], "log_end": ends[1]}
    return json_answer(Trimmed(topic, number, *ends))


async def list_fences(call: Call) -> web.StreamResponse:
    """The tenures of the slot, the latest first."""
    partition = await call.find_partition()
    fences = [_fence(tenure) for tenure in await partition.fences()]
    return json_answer(Fences(partition.topic, partition.partition, fences))


async def get_contents(call: Call) -> web.StreamResponse:
    """The log's ends and size, and the positions of the groups that the caller may see."""
    count = call.parameters.query_integer("n", 1, POSITIONS_MAX, 100)
    found = await (await call.find_partition()).contents(count, lambda group: call.caller.may_see("group", group))
    return json_answer(found)


async def list_producers(call: Call) -> web.StreamResponse:
    """The producers that the partition knows, the latest used first."""
    count = call.parameters.query_integer("n", 1, PRODUCERS_MAX, 100)
    partition = await call.find_partition()
    total, found = await partition.latest_producers(count)
    return json_answer(PartitionProducers(partition.topic, partition.partition, total, found))


def _fence(tenure: Tenure) -> FenceTenure:
    return FenceTenure(
        tenure.grant_id,
        cast(Mode, tenure.mode),
        tenure.epoch,
        tenure.producer_name,
        tenure.client_id,
        tenure.operation,
        tenure.since_ms,
        tenure.until_ms,
        tenure.end,
        tenure.refused,
        tenure.wall_ms or None,
        tenure.from_offset,
        tenure.until_offset,
    )
