"""Handlers of one partition: append, fetch, find an offset, read the tail, trim, and the history of its slot."""

from typing import Any

from aiohttp import web

from ..cluster.service import Partition
from ..partition.errors import StockadeError
from ..partition.tenures import Tenure
from . import bodies, shapes, wire
from .call import Call, json_answer
from .fetching import dropped, fetch_once, read_wanted
from .following import follow
from .receiving import receive_batch
from .rendering import rows
from .writing import append_answer, check_message_id, count_refused, read_guards, read_token, store

TAIL_MAX = 10_000
"""Most records of a tail."""


async def append(call: Call) -> web.StreamResponse:
    """Append one batch to a partition."""
    conditions, waits = read_guards(call.parameters)
    found, batch = await receive_batch(call, conditions.topic_id)
    check_message_id(found, conditions)
    if not waits:
        call.finish_later(store(call, found, batch, conditions))
        return json_answer({"topic": found.topic, "partition": found.partition, "accepted": True}, 202)
    return append_answer(call, found, await store(call, found, batch, conditions))


async def fetch(call: Call) -> web.StreamResponse:
    """Read records."""
    wanted = read_wanted(call)
    partition = await _partition(call)
    if wanted.follow:
        return await follow(call, partition, wanted)
    return await fetch_once(call, partition, wanted)


async def get_offset(call: Call) -> web.StreamResponse:
    """Find an offset."""
    at = call.parameters.query_integer_or("at", ("earliest", "latest", "max_timestamp"), "latest")
    partition = await _partition(call)
    if at in ("earliest", "latest"):
        end = await partition.read(None, max_bytes=1, min_bytes=0, max_wait_ms=0, local=False)
        log_start, log_end = end.log_start, end.log_end
        offset, timestamp_ms = (log_start if at == "earliest" else log_end), None
    else:
        wanted = at if isinstance(at, int) else None
        offset, timestamp_ms, log_start, log_end = await partition.find_offset(wanted)
    return json_answer(
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": offset,
            "timestamp_ms": timestamp_ms,
            "log_start": log_start,
            "log_end": log_end,
        }
    )


async def read_tail(call: Call) -> web.StreamResponse:
    """The last records, with who wrote them. Sent piece by piece: a tail has no bound in bytes."""
    count = call.parameters.query_integer("n", 1, TAIL_MAX, 1)
    partition = await _partition(call)
    found, topic_epoch = await partition.read_tail(count)
    start = max(found.log_start, found.log_end - count)
    head = {
        "topic": partition.topic,
        "partition": partition.partition,
        "log_start": found.log_start,
        "log_end": found.log_end,
        "topic_epoch": topic_epoch,
    }
    stream = await call.start_stream(200, {"Content-Type": "application/json"})
    await call.write(wire.dump(head)[:-1] + b',"records":[')
    separator = b""
    try:
        async for piece in rows(found, start, with_meta=True):
            await call.write(separator + b",".join(wire.dump(row.record) for row in piece))
            separator = b","
    except FileNotFoundError as error:
        raise dropped() from error
    await call.write(b"]}")
    return stream


async def trim(call: Call) -> web.StreamResponse:
    """Drop the oldest records."""
    given = call.parameters
    topic, number, topic_id, token = given.topic(), given.partition(), given.topic_id(), read_token(given)
    wanted = shapes.read(await bodies.read_json(call), shapes.TrimBody)
    call.partition = partition = await call.service.partition(topic, number, topic_id)
    before = None if wanted.before == -1 else wanted.before
    try:
        log_start, log_end = await partition.trim(before, topic_id=topic_id, token=token)
    except StockadeError as refusal:
        count_refused(call, partition, refusal, token)
        raise
    return json_answer({"topic": topic, "partition": number, "log_start": log_start, "log_end": log_end})


async def list_fences(call: Call) -> web.StreamResponse:
    """Who holds the slot and who held it, the latest first."""
    partition = await _partition(call)
    fences = [_fence(tenure) for tenure in await partition.fences()]
    return json_answer({"topic": partition.topic, "partition": partition.partition, "fences": fences})


def _fence(tenure: Tenure) -> dict[str, Any]:
    return {
        "grant": tenure.grant_id,
        "mode": tenure.mode,
        "epoch": tenure.epoch,
        "producer_name": tenure.producer_name,
        "client_id": tenure.client_id,
        "operation": tenure.operation,
        "since_ms": tenure.since_ms,
        "until_ms": tenure.until_ms,
        "end": tenure.end,
        "refused": tenure.refused,
    }


async def _partition(call: Call) -> Partition:
    given = call.parameters
    call.partition = await call.service.partition(given.topic(), given.partition(), given.topic_id())
    return call.partition
