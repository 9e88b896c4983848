"""Handlers of groups: who owns which resource, and where each group's readers continue."""

from aiohttp import web

from ..cluster.resources import partition_named
from ..cluster.service import Partition
from ..partition.errors import PermissionDenied, UnknownTopicOrPartition
from . import bodies, shapes
from .call import Call, json_answer


async def own(call: Call) -> web.StreamResponse:
    """Own resources."""
    group, session = call.parameters.group(), call.parameters.session()
    wanted = shapes.read(await bodies.read_json(call), shapes.OwnBody)
    if wanted.sever == "session" and any(shapes.given(claim.generation) is not None for claim in wanted.claims):
        call.check_right("write")  # whoever loses, loses its seats as a writer, too
    await _check_may_guard(call, group, [claim.resource for claim in wanted.claims])
    results = await call.service.own(group, session, wanted.made(), atomic=wanted.atomic, sever=wanted.sever)
    return json_answer({"group": group, "results": results})


async def _check_may_guard(call: Call, group: str, resources: list[str]) -> None:
    """Readers may own what guards reads, each other's included: that is how they share them out. What guards the writes
    of a topic, whose writer_group this is, is for writers. Raises PermissionDenied.
    """
    try:
        call.check_right("write")
    except PermissionDenied:
        topics = {named[0] for resource in resources if (named := partition_named(resource)) is not None}
        for topic in sorted(topics):
            try:
                found = await call.service.get_topic(topic)
            except UnknownTopicOrPartition:
                continue
            if found.config.writer_group == group:
                raise


async def disown(call: Call) -> web.StreamResponse:
    """Give resources up."""
    given = call.parameters
    group, session, resources = given.group(), given.session(), given.query_list("resource")
    shapes.check_resources("resource", resources)
    return json_answer({"group": group, "results": await call.service.disown(group, session, resources)})


async def list_resources(call: Call) -> web.StreamResponse:
    """Every resource of a group, with its owner."""
    group = call.parameters.group()
    return json_answer({"group": group, "resources": await call.service.list_resources(group)})


async def get_position(call: Call) -> web.StreamResponse:
    """Where a group continues to read."""
    group = call.parameters.group()
    partition = await _partition(call)
    position = await partition.position(group)
    return _position(group, partition, position.offset, position.metadata)


async def commit_position(call: Call) -> web.StreamResponse:
    """Remember where a group continues to read."""
    group = call.parameters.group()
    topic, number = call.parameters.topic(), call.parameters.partition()
    wanted = shapes.read(await bodies.read_json(call), shapes.NewPosition)
    call.partition = partition = await call.service.partition(topic, number, None)
    metadata = shapes.given(wanted.metadata)
    await partition.commit_position(group, wanted.offset, metadata, shapes.given(wanted.fence_epoch))
    return _position(group, partition, wanted.offset, metadata)


def _position(group: str, partition: Partition, offset: int | None, metadata: str | None) -> web.Response:
    return json_answer(
        {
            "group": group,
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": offset,
            "metadata": metadata,
        }
    )


async def _partition(call: Call) -> Partition:
    given = call.parameters
    call.partition = await call.service.partition(given.topic(), given.partition(), None)
    return call.partition
