"""Handlers of topics."""

from collections.abc import Iterable

from aiohttp import web
from msgspec import UNSET

from ...cluster.features import LEDGER
from ...partition.api.topics import TopicConfig, TopicList
from ...partition.internal_names import LEDGER_TOPIC
from ..codec import schemas
from ..codec.json_codec import or_none
from ..codec.parameters import PARTITION_MAX
from ..request.call import Call, json_answer

PAGE_MAX = 1000
"""Greatest ``n``: most topics, or partitions, of one page."""
PAGE_DEFAULT = 100


async def list_topics(call: Call) -> web.StreamResponse:
    """List the topics on which the caller has a right."""
    parameters = call.parameters
    internal, held = parameters.query_flag("internal"), parameters.query_flag("held")
    find = parameters.query_text("find").lower()
    first = parameters.query_integer("first", 0, PARTITION_MAX, 0)
    most = parameters.query_integer("n", 1, PAGE_MAX, None)
    found = [
        topic
        for topic in await call.service.at_controller().topics.list_topics()
        if (internal or not topic.is_internal)
        and (topic.held or not held)
        and find in topic.name.lower()
        and call.caller.may_see("topic", topic.name)
    ]
    page = found[first:] if most is None else found[first : first + most]
    partitions, held_slots = sum(topic.partitions for topic in found), sum(topic.held or 0 for topic in found)
    single, no_majority = _sum(topic.single for topic in found), _sum(topic.no_majority for topic in found)
    return json_answer(TopicList(page, len(found), partitions, held_slots, single, no_majority))


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum; None if a count is not known, because the controller's leader is of an older version."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


async def create_topic(call: Call) -> web.StreamResponse:
    """Create a topic; the same definition again answers the topic that exists."""
    wanted = await call.read_json(schemas.NewTopic)
    call.caller.require("admin", "topic", wanted.name)
    wanted.check()
    given = schemas.read_config(wanted.config)
    topic, is_new = await call.service.at_controller().topics.create_topic(
        wanted.name,
        wanted.partitions,
        or_none(wanted.replication_factor),
        TopicConfig(**given),
        call.by_most("topics"),
        leaves_retention=given.keys().isdisjoint(("retention_ms", "retention_bytes")),
    )
    if not is_new:
        return json_answer(topic)
    return json_answer(topic, 201, {"Location": f"/v1/topics/{topic.name}"})


async def get_topic(call: Call) -> web.StreamResponse:
    """Describe a topic."""
    topic = call.parameters.topic()
    call.caller.require_sight("topic", topic)
    return json_answer(await call.service.get_topic(topic))


async def list_partitions(call: Call) -> web.StreamResponse:
    """A topic with a page of its partitions."""
    parameters = call.parameters
    topic = parameters.topic()
    call.caller.require_sight("topic", topic)
    first = parameters.query_integer("first", 0, PARTITION_MAX, 0)
    most = parameters.query_integer("n", 1, PAGE_MAX, PAGE_DEFAULT)
    return json_answer(await call.service.get_topic_page(topic, first, most, parameters.query_text("find")))


async def change_topic(call: Call) -> web.StreamResponse:
    """Add partitions to a topic, change its configuration, or seal it."""
    parameters = call.parameters
    name, topic_id = parameters.topic(), parameters.topic_id()
    wanted = await call.read_json(schemas.TopicPatch)
    wanted.check()
    topic = await call.service.at_controller().topics.change_topic(
        name,
        topic_id,
        partitions=or_none(wanted.partitions),
        seal=wanted.sealed is True,
        config={} if wanted.config is UNSET else schemas.read_config(wanted.config),
        by=call.by,
    )
    return json_answer(topic)


async def delete_topic(call: Call) -> web.StreamResponse:
    """Delete a topic. The ledger's topic cannot be deleted. A topic that had its name before there was a ledger
    prevents the raise of the feature level, so administrators of the cluster can delete that one.
    """
    parameters = call.parameters
    name = parameters.topic()
    if name == LEDGER_TOPIC and call.service.cluster().feature_level < LEDGER:
        call.caller.require("admin", "cluster", "")
    else:
        call.caller.require("admin", "topic", name)
    await call.service.at_controller().topics.delete_topic(
        name, parameters.topic_id(), parameters.query_text("if_grants") or None, by=call.by
    )
    return web.Response(status=204)
