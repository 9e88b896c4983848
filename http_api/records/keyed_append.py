"""Append by key: the server splits one body over the partitions of a topic. Parts are accepted or refused
each by itself.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from aiohttp import web

from ..partition.errors import InconsistentTopicId, NotLeaderOrFollower, RequestTimedOut, StockadeError, revive
from ..partition.partitioner import partition_for_key
from . import bodies, media, peers, problems, wire
from .batches import BATCH_BYTES_MAX, FORMS, Columns, body_bytes_max, positions, read_columns
from .call import DEADLINE_S, Call, json_answer
from .leading import where_it_is_led
from .parts import Appender, Part
from .writing import now_ms, read_guards, refuse_headers

PARTS_AT_ONCE = 32
"""Parts of one request that are under way at one time."""
TOPICS_REMEMBERED_MAX = 10_000
"""Topics of which the last partition for keyless records is remembered."""


class Layout(NamedTuple):
    """What must be known of a topic to split a batch."""

    topic_id: int
    partitions: int
    batch_bytes_max: int


class Turns:
    """Gives the keyless records of each request to another partition of the topic."""

    def __init__(self) -> None:
        self._last: OrderedDict[int, int] = OrderedDict()

    def next(self, layout: Layout) -> int:
        """The partition for the keyless records of this request."""
        last = self._last.pop(layout.topic_id, None)
        turn = random.randrange(layout.partitions) if last is None else (last + 1) % layout.partitions  # noqa: S311
        self._last[layout.topic_id] = turn
        if len(self._last) > TOPICS_REMEMBERED_MAX:
            self._last.popitem(last=False)
        return turn


class KeyedAppend:
    """The handler. One for an application: it remembers whose turn it is."""

    def __init__(self) -> None:
        self._turns = Turns()

    async def __call__(self, call: Call) -> web.StreamResponse:
        """Append, the server choosing partitions by key."""
        given = call.parameters
        topic = given.topic()
        refuse_headers(given, "the server chooses the partition, so there can be no")
        conditions, waits = read_guards(given)
        form = bodies.check_type(call, FORMS)
        layout = await _find_layout(call, topic)
        batch_bytes_max = BATCH_BYTES_MAX if isinstance(layout, StockadeError) else layout.batch_bytes_max
        bytes_max = body_bytes_max(batch_bytes_max)
        body = await bodies.read(call, bytes_max)
        received_ms = now_ms()
        columns = read_columns(form, body, now_ms=received_ms, bytes_max=bytes_max)
        if isinstance(layout, StockadeError):
            raise layout
        if conditions.topic_id not in (None, layout.topic_id):
            raise InconsistentTopicId(topic_id=layout.topic_id)
        parts = self._split(layout, columns)
        work = _append_parts(Appender(call, topic, conditions, received_ms, batch_bytes_max), columns, parts)
        if not waits:
            call.finish_later(work)
            return json_answer({"topic": topic, "partition": None, "accepted": True}, 202)
        return _answer(call, topic, parts, await work)

    def _split(self, layout: Layout, columns: Columns) -> dict[int, list[int]]:
        count = layout.partitions
        keyless = self._turns.next(layout) if None in columns.keys else 0
        return positions(keyless if key is None else partition_for_key(key, count) for key in columns.keys)


async def _append_parts(appender: Appender, columns: Columns, parts: dict[int, list[int]]) -> list[Part]:
    places = asyncio.Semaphore(PARTS_AT_ONCE)

    async def append(partition: int, records: list[int]) -> Part:
        async with places:
            return await appender.append(partition, columns.pick(records))

    return await asyncio.gather(*(append(partition, records) for partition, records in parts.items()))


def _answer(call: Call, topic: str, places: dict[int, list[int]], parts: Sequence[Part]) -> web.Response:
    call.decided_by = parts[0].leader
    results = [
        {"partition": partition, "records": records} | part.fields
        for (partition, records), part in zip(places.items(), parts, strict=True)
    ]
    refused = [part.problem for part in parts if part.problem is not None]
    if len(refused) < len(parts):
        return json_answer({"topic": topic, "results": results, "partial": bool(refused)})
    problem: dict[str, Any] = refused[0]
    if not all(document["no_side_effects"] for document in refused):
        problem = problems.document(RequestTimedOut("what became of some parts is not known"))
    call.context.metrics.refused(problem["code"])
    return problems.answer(problem | {"instance": call.id, "results": results})


async def _find_layout(call: Call, topic: str) -> Layout | StockadeError:
    """Asked of the service, or of the node that it names. A refusal must wait until the shape of the body was
    judged.
    """
    try:
        return await where_it_is_led(
            call, lambda: _known_layout(call, topic), lambda moved: _ask_layout(call, topic, moved)
        )
    except StockadeError as refusal:
        return refusal


async def _known_layout(call: Call, topic: str) -> Layout:
    info = await call.service.get_topic(topic)
    return Layout(info.topic_id, len(info.partitions), info.config.max_batch_bytes)


async def _ask_layout(call: Call, topic: str, moved: NotLeaderOrFollower) -> Layout:
    message = peers.Message("GET", f"/v1/topics/{topic}", {"Accept": media.JSON} | call.credentials())
    upstream = await call.context.peers.reach(moved.fields["leader"], message, DEADLINE_S)
    document = wire.parse(await peers.whole_body(upstream, DEADLINE_S))
    if upstream.status != 200:
        raise revive(document["code"], document["detail"], problems.own_fields(document))
    return Layout(document["topic_id"], len(document["partitions"]), document["config"]["max_batch_bytes"])
