"""Handlers of groups: owners of resources, and the positions at which a group's readers continue."""

import asyncio
from contextlib import suppress

from aiohttp import web

from ...cluster.api.partition import Partition
from ...cluster.controller.ownership.resources import partition_named
from ...partition.api.ownership import OwnAnswer, Position, Resources
from ...partition.errors import UnknownTopicOrPartition
from ..codec import json_codec, media, schemas
from ..codec.json_codec import or_none
from ..request.call import Call, json_answer

RESOURCES_PER_TURN = 5_000
"""Resources of a group that are encoded in one turn of the loop."""


async def own(call: Call) -> web.StreamResponse:
    """Claim resources of a group for a session; each claim has its own verdict."""
    group, session = call.parameters.group(), call.parameters.session()
    wanted = await call.read_json(schemas.OwnBody)
    for claim in wanted.claims:
        call.caller.require("own", "resource", f"{group}/{claim.resource}")
    taken = [f"{group}/{claim.resource}" for claim in wanted.claims if or_none(claim.generation) is not None]
    if not call.caller.principal and wanted.sever == "session":
        for name in taken:  # without a principal there is no other guard, and the owner's session may lose grants, too
            call.caller.require("evict", "resource", name)
    unwritable = await _unwritable(call, group, [claim.resource for claim in wanted.claims])
    results = await call.service.at_controller().resources.own(
        group,
        session,
        wanted.made(),
        atomic=wanted.atomic,
        sever=wanted.sever,
        unwritable=unwritable,
        by=call.by_name("resource", *taken, most=call.caller.spending.quota.groups),
    )
    return json_answer(OwnAnswer(group, results))


async def _unwritable(call: Call, group: str, resources: list[str]) -> list[str]:
    """The topics of claimed partitions that the caller may not acquire, and so may not own in their writer_group. From
    feature level 2 on, the command checks this; below, only the check here does, which a concurrent change of the topic
    may overtake. Raises PermissionDenied.
    """
    topics = {named[0] for resource in resources if (named := partition_named(resource)) is not None}
    found = sorted(topic for topic in topics if not call.caller.may("acquire", "topic", topic))
    for topic in found:
        with suppress(UnknownTopicOrPartition):
            if (await call.service.get_topic(topic)).config.writer_group == group:
                call.caller.require("acquire", "topic", topic)
    return found


async def disown(call: Call) -> web.StreamResponse:
    """Give up resources that a session owns in a group."""
    parameters = call.parameters
    group, session, resources = parameters.group(), parameters.session(), parameters.query_list("resource")
    schemas.check_resources("resource", resources)
    for resource in resources:
        call.caller.require("own", "resource", f"{group}/{resource}")
    results = await call.service.at_controller().resources.disown(group, session, resources, call.by)
    return json_answer(OwnAnswer(group, results))


async def list_resources(call: Call) -> web.StreamResponse:
    """Every resource of a group, with its owner."""
    group = call.parameters.group()
    found = await call.service.at_controller().resources.list_resources(group)
    if len(found) <= RESOURCES_PER_TURN:
        return json_answer(Resources(group, found))
    pieces = []
    for start in range(0, len(found), RESOURCES_PER_TURN):
        pieces.append(json_codec.dump(found[start : start + RESOURCES_PER_TURN])[1:-1])
        await asyncio.sleep(0)
    body = b'{"group":%b,"resources":[%b]}' % (json_codec.dump(group), b",".join(pieces))
    return web.Response(body=body, content_type=media.JSON)


async def get_position(call: Call) -> web.StreamResponse:
    """The offset at which a group continues to read."""
    group = call.parameters.group()
    partition = await call.find_partition()
    position = await partition.position(group)
    return _position(group, partition, position.offset, position.metadata)


async def commit_position(call: Call) -> web.StreamResponse:
    """Store the offset at which a group continues to read."""
    group = call.parameters.group()
    topic, number, topic_id = call.parameters.topic(), call.parameters.partition(), call.parameters.topic_id()
    wanted = await call.read_json(schemas.NewPosition)
    call.partition = partition = await call.service.partition(topic, number, topic_id)
    metadata = or_none(wanted.metadata)
    await partition.commit_position(group, wanted.offset, metadata, or_none(wanted.fence_epoch), call.caller.principal)
    return _position(group, partition, wanted.offset, metadata)


async def forget_position(call: Call) -> web.StreamResponse:
    """Forget the offset at which a group continues to read."""
    group, fence_epoch = call.parameters.group(), call.parameters.fence_epoch()
    partition = await call.find_partition()
    await partition.commit_position(group, None, None, fence_epoch, call.caller.principal)
    return _position(group, partition, None, None)


def _position(group: str, partition: Partition, offset: int | None, metadata: str | None) -> web.Response:
    return json_answer(Position(group, partition.topic, partition.partition, offset, metadata))
