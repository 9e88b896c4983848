"""Handlers of topics."""

from typing import Any

from aiohttp import web
from msgspec import UNSET

from ..cluster.model import Leader, PartitionInfo, TopicInfo
from . import bodies, shapes, topic_shapes
from .call import Call, json_answer


async def list_topics(call: Call) -> web.StreamResponse:
    """List the topics."""
    return json_answer({"topics": await call.service.list_topics()})


async def create_topic(call: Call) -> web.StreamResponse:
    """Create a topic; the same definition again answers the topic that exists."""
    wanted = shapes.read(await bodies.read_json(call), topic_shapes.NewTopic)
    wanted.check()
    topic, is_new = await call.service.create_topic(
        wanted.name, wanted.partitions, shapes.given(wanted.replication_factor), wanted.config.made()
    )
    if not is_new:
        return json_answer(_topic(topic))
    return json_answer(_topic(topic), 201, {"Location": f"/v1/topics/{topic.name}"})


async def get_topic(call: Call) -> web.StreamResponse:
    """Describe a topic."""
    return json_answer(_topic(await call.service.get_topic(call.parameters.topic())))


async def change_topic(call: Call) -> web.StreamResponse:
    """Add partitions, change configuration, seal."""
    given = call.parameters
    name, topic_id = given.topic(), given.topic_id()
    wanted = shapes.read(await bodies.read_json(call), topic_shapes.TopicPatch)
    wanted.check()
    topic = await call.service.change_topic(
        name,
        topic_id,
        partitions=shapes.given(wanted.partitions),
        seal=wanted.sealed is True,
        config={} if wanted.config is UNSET else wanted.config.given(),
    )
    return json_answer(_topic(topic))


async def delete_topic(call: Call) -> web.StreamResponse:
    """Delete a topic."""
    await call.service.delete_topic(call.parameters.topic(), call.parameters.topic_id())
    return web.Response(status=204)


def _topic(topic: TopicInfo) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "replication_factor": topic.replication_factor,
        "sealed": topic.sealed,
        "config": topic.config,
        "partitions": [_partition(partition) for partition in topic.partitions],
    }


def _partition(partition: PartitionInfo) -> dict[str, Any]:
    return (
        {"partition": partition.partition}
        | _leader(partition.leader)
        | {
            "replicas": partition.replicas,
            "topic_epoch": partition.topic_epoch,
            "slot_mode": partition.slot_mode,
        }
    )


def _leader(leader: Leader) -> dict[str, Any]:
    return {"leader": leader.url, "leader_node": leader.node_id, "leader_term": leader.term}
