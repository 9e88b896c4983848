"""An append to one partition without anything that it can do without.

What is stored here is answered as the route's own handler does (records.append). That one gets every request that is
not as plain as can be, and every one of which nothing was proposed, so that it says what is wrong. What may have been
proposed is never proposed again. Nobody waits here: the verdict is answered where it is made.
"""

from functools import lru_cache
from typing import NamedTuple, NoReturn, cast

from aiohttp import web

from ..cluster.model import UNCONDITIONAL, Conditions
from ..cluster.service import Partition
from ..partition.commands import Appended
from ..partition.errors import LeaderNotAvailable, NotLeaderOrFollower, StockadeError
from ..partition.records import Batch
from . import media, wire
from .batches import FORMS, body_bytes_max, read_batch
from .call import Call, RequestHandler, Route
from .context import Context
from .dispatch import conclude
from .parameters import Parameters
from .plain import PLAIN_HEADERS, Plain, is_plain
from .short import Request, Starter
from .writing import (
    BASE_OFFSET,
    GUARDS,
    check_message_id,
    conditions_of,
    count_refused,
    now_ms,
    stored,
)

PLACES_REMEMBERED_MAX = 1024
"""Partitions whose names in a path need not be judged again."""

_GUARDS = frozenset(name.lower() for name in GUARDS)
_HEADERS = PLAIN_HEADERS | _GUARDS
_BASE_OFFSET_LINE = BASE_OFFSET.encode() + b": %d\r\n"


class Prepared(NamedTuple):
    """An append that may be proposed, and is under way: its body takes so much of the node's bound."""

    partition: Partition
    batch: Batch
    conditions: Conditions
    body_bytes: int


def shortened(route: Route, context: Context, general: RequestHandler) -> Starter:
    """The beginning of the short way; ``general`` is the endpoint of the route."""

    def start(request: Request) -> bool:
        prepared = _prepare(route, context, request)
        if prepared is None:
            return False

        def settle(found: Appended | Exception | None) -> None:
            context.dismiss(prepared.body_bytes)
            told = _answered(context, prepared, found) if isinstance(found, Appended) else found
            if isinstance(told, Plain):
                request.connection.answer(told)
            elif told is None or isinstance(told, NotLeaderOrFollower | LeaderNotAvailable):  # nothing was proposed
                request.leave_to(general)
            else:
                call = Call(cast(web.Request, request), context, route)
                request.connection.answer_later(conclude(call, _refuse(call, prepared, told)))

        try:
            is_begun = prepared.partition.submit(prepared.batch, prepared.conditions, settle)
        except Exception as bug:  # perhaps it was proposed
            settle(bug)
            return True
        if not is_begun:
            context.dismiss(prepared.body_bytes)
        return is_begun

    return start


def _prepare(route: Route, context: Context, request: Request) -> Prepared | None:
    """What may be proposed, in place of which nothing has been. None: whatever it is, the general handler tells it."""
    try:
        return _read(route, context, request) if is_plain(request.fields, _HEADERS) else None
    except Exception:
        return None


def _read(route: Route, context: Context, request: Request) -> Prepared | None:
    headers, body = request.fields, request.body
    context.tokens.check(headers.get("authorization"), route.needs)
    conditions = UNCONDITIONAL if _GUARDS.isdisjoint(headers) else conditions_of(headers)
    partition = context.service.held(*_place(**request.match_info))
    if partition is None or not partition.is_leading:
        return None
    form, bytes_max = media.body_type(headers.get("content-type"), None, FORMS), partition.config.max_batch_bytes
    if len(body) > body_bytes_max(bytes_max):
        return None
    batch = read_batch(form, body, now_ms=now_ms(), batch_bytes_max=bytes_max)
    check_message_id(partition, conditions)
    context.admit(len(body))
    return Prepared(partition, batch, conditions, len(body))


@lru_cache(PLACES_REMEMBERED_MAX)
def _place(topic: str, partition: str) -> tuple[str, int]:
    given = Parameters({"topic": topic, "partition": partition}, (), (), ())
    return given.topic(), given.partition()


async def _refuse(call: Call, prepared: Prepared, error: Exception) -> NoReturn:
    call.partition = prepared.partition
    if isinstance(error, StockadeError):
        conditions = prepared.conditions
        count_refused(call, prepared.partition, error, conditions.token, conditions.stamp)
    raise error


def _answered(context: Context, prepared: Prepared, appended: Appended) -> Plain | Exception:
    partition, batch = prepared.partition, prepared.batch
    try:
        if not appended.duplicate:
            context.metrics.appended(batch.count, len(batch.message))
        leader = partition.leader()
        place = b"" if appended.base_offset is None else _BASE_OFFSET_LINE % appended.base_offset
        return Plain.of(context, leader, wire.dump(stored(partition, appended, leader.term)), place)
    except Exception as bug:
        return bug
