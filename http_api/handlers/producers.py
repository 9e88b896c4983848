"""Handlers of producers: identities for idempotent writing."""

from aiohttp import web
from msgspec import structs

from ...partition.errors import InvalidRequest, PermissionDenied
from ..codec import schemas
from ..codec.json_codec import or_none
from ..codec.parameters import INT64_MAX, NAME_CHARACTERS_MAX, integer
from ..request.call import Call, json_answer


async def init_producer(call: Call) -> web.StreamResponse:
    """Get a producer id and epoch."""
    wanted = await call.read_json(schemas.NewProducer)
    wanted.check()
    name = wanted.name
    if isinstance(name, str):
        call.caller.require("produce", "producer", name)
    pair = await call.service.at_controller().producers.init_producer(
        name,
        wanted.pair(),
        or_none(wanted.nonce),
        call.by_name("producer", name or "", most=call.caller.spending.quota.producers),
    )
    return json_answer(pair)


async def get_producer(call: Call) -> web.StreamResponse:
    """The state of a producer on the partitions of topics that the caller may see. In the path, digits alone are a
    producer id; anything else is a name.
    """
    key = _key(call.parameters.path("producer"))
    if isinstance(key, str):
        call.caller.require_sight("producer", key)
    found = await call.service.at_controller().producers.get_producer(key)
    # Rights are on names: the digits of an id have none.
    if not call.caller.may_see("producer", found.name or str(key)):
        raise PermissionDenied(f"{call.caller.name} lacks any right on the name of producer {key}")
    seen = [each for each in found.partitions if call.caller.may_see("topic", each.topic)]
    return json_answer(structs.replace(found, partitions=seen))


async def fence_producer(call: Call) -> web.StreamResponse:
    """Raise the epoch of a producer's name, so that its running instance is refused on every partition."""
    wanted = await call.read_json(schemas.ProducerFence)
    schemas.check_producer_name(wanted.name)
    call.caller.require("evict", "producer", wanted.name)
    return json_answer(await call.service.at_controller().producers.fence_producer(wanted.name, call.by))


def _key(text: str) -> int | str:
    if text.isascii() and text.isdigit():
        return integer("producer", text, 0, INT64_MAX)
    if len(text) > NAME_CHARACTERS_MAX:
        raise InvalidRequest(f"producer: not 1 to {NAME_CHARACTERS_MAX} characters")
    return text
