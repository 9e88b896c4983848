"""An append to one partition without anything that it can do without.

What is stored here is answered as the route's own handler does (records.append). That one gets every request that is
not as plain as can be, and every one of which nothing was proposed, so that it says what is wrong. What may have been
proposed is never proposed again. Nobody waits here: the verdict is answered where it is made.
"""

from typing import NamedTuple, NoReturn, cast

from aiohttp import web

from ..cluster.model import Conditions
from ..cluster.service import Partition
from ..partition.commands import Appended
from ..partition.errors import InvalidRequest, LeaderNotAvailable, NotLeaderOrFollower, StockadeError
from ..partition.records import Batch
from . import media, wire
from .batches import FORMS, body_bytes_max, read_batch
from .call import Call, Route
from .context import Context
from .dispatch import conclude
from .framing import SEQUENCE, Template
from .parameters import Parameters
from .plain import PLAIN_HEADERS, Plain, is_plain
from .short import Request, RequestHandler, Starter
from .writing import (
    BASE_OFFSET,
    GUARDS,
    check_message_id,
    conditions_of,
    count_refused,
    now_ms,
    numbered,
    stored,
)

_HEADERS = PLAIN_HEADERS | frozenset(name.lower() for name in GUARDS)
_ANY_NUMBER = "0"
_BASE_OFFSET_LINE = BASE_OFFSET.encode() + b": %d\r\n"


class Asked(NamedTuple):
    """What the head of a request asks for, whatever its sequence number is."""

    topic: str
    partition: int
    form: str
    authorization: str | None
    conditions: Conditions


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

        is_settled = False

        def settle(found: Appended | Exception | None) -> None:
            nonlocal is_settled
            if is_settled:
                return
            is_settled = True
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
            if is_settled:  # and could not be answered, which ends the connection
                raise
            settle(bug)
            return True
        if not is_begun:
            context.dismiss(prepared.body_bytes)
        return is_begun

    return start


def _prepare(route: Route, context: Context, request: Request) -> Prepared | None:
    """What may be proposed, in place of which nothing has been. None: whatever it is, the general handler tells it."""
    try:
        return _read(route, context, request)
    except Exception:
        return None


def _read(route: Route, context: Context, request: Request) -> Prepared | None:
    body, sequence = request.body, request.head.sequence
    place = request.match_info
    asked = _asked(request.head.template, place, is_numbered=sequence is not None)
    context.tokens.check(asked.authorization, route.needs)
    partition = context.service.held(asked.topic, asked.partition)
    if partition is None or not partition.is_leading:
        return None
    bytes_max = partition.config.max_batch_bytes
    if len(body) > body_bytes_max(bytes_max):
        return None
    conditions = asked.conditions if sequence is None else numbered(asked.conditions, sequence)
    batch = read_batch(asked.form, body, now_ms=now_ms(), batch_bytes_max=bytes_max)
    check_message_id(partition, conditions)
    return Prepared(partition, batch, conditions, len(body)) if context.admit(len(body)) else None


def _asked(template: Template, place: dict[str, str], *, is_numbered: bool) -> Asked:
    """Raises StockadeError for what is wrong, and for what the general handler must look at."""
    asked = template.readings.get(is_numbered)
    if asked is None:
        asked = template.readings[is_numbered] = _read_head(template, place, is_numbered=is_numbered)
    return cast(Asked, asked)


def _read_head(template: Template, place: dict[str, str], *, is_numbered: bool) -> Asked:
    headers = {**template.headers, SEQUENCE: _ANY_NUMBER} if is_numbered else template.headers
    if not is_plain(headers, _HEADERS):
        raise InvalidRequest("it is for the general handler")
    given = Parameters(place, (), (), ())
    form = media.body_type(headers.get("content-type"), None, FORMS)
    return Asked(given.topic(), given.partition(), form, headers.get("authorization"), conditions_of(headers))


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
