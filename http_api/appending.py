"""An append to one partition without anything that it can do without.

What is stored here is answered as the route's own handler does (records.append). That one gets every request that is
not as plain as can be, and every one of which nothing was proposed, so that it says what is wrong. What may have been
proposed is never proposed again.
"""

from functools import lru_cache
from typing import NamedTuple, NoReturn, cast

from aiohttp import web

from ..cluster.service import Partition
from ..partition.commands import Appended
from ..partition.errors import LeaderNotAvailable, MessageTooLarge, NotLeaderOrFollower, StockadeError
from ..partition.records import Batch
from . import media, wire
from .batches import FORMS, body_bytes_max, read_batch
from .call import Call, RequestHandler, Route
from .context import Context
from .dispatch import conclude
from .parameters import Parameters
from .plain import PLAIN_HEADERS, Plain, fields, is_plain
from .writing import (
    GUARDS,
    UNGUARDED,
    Guards,
    appended_fields,
    base_offset_header,
    check_message_id,
    count_refused,
    guards_of,
    now_ms,
    propose,
)

PLACES_REMEMBERED_MAX = 1024
"""Partitions whose names in a path need not be judged again."""

_GUARDS = frozenset(name.lower() for name in GUARDS)
_HEADERS = PLAIN_HEADERS | _GUARDS


class Prepared(NamedTuple):
    """An append that may be proposed, and is under way: its body takes so much of the node's bound."""

    partition: Partition
    batch: Batch
    guards: Guards
    body_bytes: int


def shortened(route: Route, context: Context, general: RequestHandler) -> RequestHandler:
    """A handler for the short way; ``general`` is the endpoint of the route."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if not is_plain(fields(request), _HEADERS):
            return await general(request)
        try:
            prepared = await _prepare(route, context, request)
        except Exception:  # whatever it is, the other one tells it
            return await general(request)
        try:
            appended = await _propose(context, prepared)
        except (NotLeaderOrFollower, LeaderNotAvailable):  # nothing was proposed
            return await general(request)
        except Exception as error:
            call = Call(request, context, route)
            return await conclude(call, _refuse(call, prepared, error))
        return cast(web.StreamResponse, _answer(context, prepared, appended))

    return answer


async def _prepare(route: Route, context: Context, request: web.Request) -> Prepared:
    """All that may be wrong before anything is proposed raises something."""
    headers, body = fields(request), request.content.read_nowait()
    context.tokens.check(headers.get("authorization"), route.needs)
    guards = UNGUARDED if _GUARDS.isdisjoint(headers) else guards_of(headers)
    partition = await context.service.partition(*_place(**request.match_info), None)
    if partition.leader().node_id not in (None, context.service.node_id):
        raise NotLeaderOrFollower(None, None)
    form = media.body_type(headers.get("content-type"), None, FORMS)
    if len(body) > body_bytes_max(partition.config.max_batch_bytes):
        raise MessageTooLarge(limit=body_bytes_max(partition.config.max_batch_bytes), unit="bytes")
    batch = read_batch(form, body, now_ms=now_ms(), batch_bytes_max=partition.config.max_batch_bytes)
    check_message_id(partition, guards)
    context.admit(len(body))
    return Prepared(partition, batch, guards, len(body))


@lru_cache(PLACES_REMEMBERED_MAX)
def _place(topic: str, partition: str) -> tuple[str, int]:
    given = Parameters({"topic": topic, "partition": partition}, (), (), ())
    return given.topic(), given.partition()


async def _propose(context: Context, prepared: Prepared) -> Appended:
    try:
        return await propose(prepared.partition, prepared.batch, prepared.guards)
    finally:
        context.dismiss(prepared.body_bytes)


async def _refuse(call: Call, prepared: Prepared, error: Exception) -> NoReturn:
    call.partition = prepared.partition
    if isinstance(error, StockadeError):
        count_refused(call, prepared.partition, error, prepared.guards.token, prepared.guards.stamp)
    raise error


def _answer(context: Context, prepared: Prepared, appended: Appended) -> Plain:
    partition, batch = prepared.partition, prepared.batch
    if not appended.duplicate:
        context.metrics.appended(batch.count, len(batch.message))
    leader = partition.leader()
    found = Plain.of(context, leader, wire.dump(appended_fields(partition, appended, leader.term)))
    found.headers.update(base_offset_header(appended))
    return found
