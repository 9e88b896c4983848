"""Handlers of stages: batches stored beside a partition's log until an append by reference moves them into it."""

import hashlib
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from ...cluster.front.writes import leading_partition, now_ms
from ...partition.commands import PRODUCER_EPOCH_MAX
from ...partition.errors import InvalidRequest, StockadeError
from ..codec.parameters import INT64_MAX
from ..records.append import append_answer, check_message_id, read_conditions, receive_batch
from ..request.call import Call, json_answer

TTL_MS_MAX = 30 * 86_400_000
TTL_MS_DEFAULT = 86_400_000
CHANGED_MAX = 4096

_StageName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._~-]{1,249}\Z")]
_StageNames = Annotated[list[_StageName], Meta(max_length=CHANGED_MAX)]


class StageChanges(msgspec.Struct, forbid_unknown_fields=True):
    """Body of PATCH …/stages."""

    producer_id: Annotated[int, Meta(ge=0, le=INT64_MAX)]
    producer_epoch: Annotated[int, Meta(ge=0, le=PRODUCER_EPOCH_MAX)]
    keep: _StageNames = []
    delete: _StageNames = []


async def put_stage(call: Call) -> web.StreamResponse:
    """Store a batch under a name."""
    parameters = call.parameters
    name, topic_id = parameters.stage(), parameters.topic_id()
    ttl_ms = parameters.query_integer("ttl_ms", 1, TTL_MS_MAX, TTL_MS_DEFAULT)
    found, batch = await receive_batch(call, topic_id)
    form = call.request.content_type.encode()
    digest = hashlib.sha256(form + b"\n" + call.body).hexdigest()
    principal = call.caller.principal
    is_new = await found.put_stage(name, digest, batch, ttl_ms=ttl_ms, topic_id=topic_id, principal=principal)
    call.decided_by = found.leader()
    answer = {"topic": found.topic, "partition": found.partition, "stage": name, "records": batch.count}
    return json_answer(answer | {"digest": digest}, 201 if is_new else 200)


async def list_stages(call: Call) -> web.StreamResponse:
    """The stages of a partition, or those whose names begin with a prefix."""
    prefix = call.parameters.stage_prefix()
    found = await call.find_partition()
    stages = await found.stages(prefix)
    return json_answer({"topic": found.topic, "partition": found.partition, "stages": stages})


async def change_stages(call: Call) -> web.StreamResponse:
    """Keep some stages beyond their time to live, and delete others, all or none."""
    parameters = call.parameters
    topic, number, topic_id = parameters.topic(), parameters.partition(), parameters.topic_id()
    wanted = await call.read_json(StageChanges)
    if both := {*wanted.keep}.intersection(wanted.delete):
        raise InvalidRequest(f"delete: {min(both)} is in keep, too")
    call.partition = found = await call.service.partition(topic, number, topic_id)
    pair = wanted.producer_id, wanted.producer_epoch
    await found.change_stages(
        wanted.keep,
        wanted.delete,
        producer=pair,
        topic_id=topic_id,
        principal=call.caller.principal,
        evicts=call.caller.may("evict", "topic", topic),
    )
    return json_answer({"topic": topic, "partition": number})


async def append_stage(call: Call) -> web.StreamResponse:
    """Append a stage's batch, once."""
    parameters = call.parameters
    name, conditions = parameters.stage(), read_conditions(parameters, call.caller.principal)
    call.partition = found = await leading_partition(
        call.service, parameters.topic(), parameters.partition(), conditions.topic_id
    )
    check_message_id(found, conditions)
    try:
        evicts = call.caller.may("evict", "topic", found.topic)
        appended, size = await found.append_stage(name, now_ms(), conditions, evicts=evicts)
    except StockadeError as refusal:
        call.front.writes.refused(call.id, found, refusal, conditions.token, conditions.stamp)
        raise
    if appended.base_offset is not None and appended.last_offset is not None and not appended.duplicate:
        call.front.writes.stored(appended.last_offset - appended.base_offset + 1, size)
    return append_answer(call, found, appended)
