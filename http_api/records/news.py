"""The request that waits at the ends of many logs: it returns the partitions of a topic that have records after the
follower's positions. One such request for all partitions that a node leads replaces a long poll for each of them. Its
answer is a hint where a fetch may return records; the fetch itself passes every check. So this request needs no read
barrier and no fence_epoch, and a follower that does not use it only waits longer.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from aiohttp import web

from ...cluster.condition import Condition
from ...cluster.front.front import unless_ended
from ...partition.api.records import News
from ...partition.errors import InvalidRequest
from ..codec import schemas
from ..codec.json_codec import or_none
from ..request.call import Call, json_answer

PARTITIONS_PER_REQUEST = 50
"""Partitions that count as one request in flight, and in a quota: watching one takes a hundredth of a long poll's
memory.
"""


async def wait_for_news(call: Call) -> web.StreamResponse:
    """Answer once one of the partitions has news, with all that have."""
    topic, wanted = call.parameters.topic(), await call.read_json(schemas.NewsBody)
    offsets = {position.partition: position.offset for position in wanted.positions}
    if len(offsets) < len(wanted.positions):
        raise InvalidRequest("positions: a partition occurs twice")
    units = -(-len(offsets) // PARTITIONS_PER_REQUEST)
    call.hold_requests(units, at_once=units)
    call.wait_s = wanted.max_wait_ms / 1000
    look = partial(_news, call, topic, or_none(wanted.topic_id))
    found = [partition for partition, offset in offsets.items() if look(partition, offset)]
    if not found and wanted.max_wait_ms:
        found = await unless_ended(call, _first(call, topic, offsets, look))
        call.check_rights()
    return json_answer(News(topic, sorted(found)))


def _news(call: Call, topic: str, topic_id: int | None, partition: int, offset: int) -> bool:
    """Whether a partition has news. True also for a partition that this node does not lead: a fetch then finds the
    leader.
    """
    held = call.service.held(topic, partition)
    return held is None or topic_id not in (None, held.topic_id) or held.has_news(offset)


async def _first(call: Call, topic: str, offsets: dict[int, int], look: Callable[[int, int], bool]) -> list[int]:
    """The partitions that have news once one of them has, and none if that takes longer than ``call.wait_s``."""
    found: set[int] = set()
    told = asyncio.Event()

    def changed(partition: int, offset: int) -> None:
        if partition not in found and look(partition, offset):
            found.add(partition)
            told.set()

    watched: list[tuple[Condition, Callable[[], None]]] = []
    try:
        for partition, offset in offsets.items():
            held = call.service.held(topic, partition)
            if held is not None:
                watched.append((held.changed, partial(changed, partition, offset)))
                held.changed.watch(watched[-1][1])
            changed(partition, offset)
        async with asyncio.timeout(call.wait_s):
            await told.wait()
    except TimeoutError:
        pass
    finally:
        for condition, watcher in watched:
            condition.unwatch(watcher)
    return [*found]
