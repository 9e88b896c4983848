"""The fast path of appends to one partition.

A batch that is stored is answered as the route's own handler would (``records.handlers``). The general handler gets
every request that is not plain, and every request whose batch was surely not proposed, and then answers the refusal. A
batch that may have been proposed is never proposed again. No task waits for the verdict: the apply of the command calls
``settle``, which answers.
"""

from collections.abc import Mapping
from typing import NamedTuple, NoReturn, cast

from aiohttp import web
from msgspec import structs

from ...cluster.access.quotas import Spending
from ...cluster.access.rights import Caller
from ...cluster.api.partition import Partition
from ...cluster.front.front import Front
from ...cluster.front.writes import answer_to, now_ms
from ...cluster.model import Conditions
from ...partition.commands import SEQUENCE_MODULUS, Appended
from ...partition.errors import LeaderNotAvailable, NotLeaderOrFollower, StockadeError
from ...partition.records.batch import Batch
from ..codec import json_codec, media
from ..codec.parameters import Parameters
from ..endpoint.dispatch import conclude
from ..reading.decode import FORMS, read_batch
from ..reading.work import ReadBatch
from ..records.append import BASE_OFFSET, CONDITION_HEADERS, conditions_of
from ..request.call import Call, RequestHandler, Route
from ..request.context import Context
from .connection import PLAIN_HEADERS, FastRequest, FastResponse, head_led_by, is_plain
from .parser import SEQUENCE, HeadTemplate

_HEADERS = PLAIN_HEADERS | frozenset(name.lower() for name in CONDITION_HEADERS)
_ANY_NUMBER = "0"
_BASE_OFFSET_LINE = BASE_OFFSET.encode() + b": %d\r\n"


class AppendTarget(NamedTuple):
    """The head of an append, parsed, without its sequence number, which is in ``Head.value``."""

    topic: str
    partition: int
    form: str
    authorization: str | None
    conditions: Conditions


class FastAppends:
    """The fast path of appends to partitions that this node leads. ``general`` is the endpoint of the route."""

    def __init__(self, route: Route, context: Context, general: RequestHandler) -> None:
        self.route = route
        self.context = context
        self.front: Front = context.front
        self.general = general

    def start(self, request: FastRequest) -> bool:
        """Propose the batch of a plain request. False: nothing was proposed, and no room is held."""
        body, sequence = request.body, request.head.value
        try:
            target = self._target(request.head.template, request.match_info, is_numbered=sequence is not None)
            if target is None:
                return False
            caller = self.front.access.caller(target.authorization, request.certificate)
            self.route.check(caller, request.match_info)
            partition = self.front.service.held(target.topic, target.partition)
            if partition is None or not partition.is_leading:
                return False
            config, conditions, first_seq = partition.config, target.conditions, int(sequence or 0)
            refuses_id = conditions.message_id is not None and not config.dedupe_window_ms
            reading = ReadBatch(target.form, now_ms(), config.max_batch_bytes)
            is_heavy = len(body) > config.max_batch_bytes or not reading.is_light(body)
            if is_heavy or refuses_id or first_seq >= SEQUENCE_MODULUS:
                return False
            if sequence is not None and conditions.stamp is not None:
                stamp = structs.replace(conditions.stamp, first_seq=first_seq)
                conditions = structs.replace(conditions, stamp=stamp)
            if caller.principal:
                conditions = structs.replace(conditions, principal=caller.principal)
            batch = read_batch(reading.form, body, now_ms=reading.now_ms, batch_bytes_max=reading.batch_bytes_max)
            self.front.in_flight.take(requests=1, body_bytes=len(body))
            spending = self._admitted(caller, len(body))
        except StockadeError:
            return False  # the general handler gets the same refusal, and answers it
        except Exception:
            self.context.metrics.fast_path_bug(self.route.path)
            return False
        return FastAppend(self, request, partition, batch, conditions, spending).propose()

    def _admitted(self, caller: Caller, size: int) -> Spending | None:
        """Charge the append to the quota of its principal, and return that spending; None: the caller has no principal.
        Raises ThrottlingQuotaExceeded, and gives the room back then.
        """
        if not caller.principal:
            return None
        try:
            self.front.admit(caller.spending, size)
        except StockadeError:
            self.front.in_flight.give_back(requests=1, body_bytes=size)
            raise
        caller.spending.spend_bytes(size)
        return caller.spending

    def give_back(self, size: int, spending: Spending | None) -> None:
        """Give back the room that an append with a body of ``size`` bytes has held in ``in_flight``."""
        self.front.in_flight.give_back(requests=1, body_bytes=size)
        if spending is not None:
            spending.held_requests -= 1
            spending.held_body_bytes -= size

    def leave(self, size: int, spending: Spending | None) -> None:
        """Give back the room of an append, and its charge, before the general handler takes and charges both again."""
        self.give_back(size, spending)
        if spending is not None:
            spending.take_back(size)

    def _target(
        self, template: HeadTemplate, path_parameters: dict[str, str], *, is_numbered: bool
    ) -> AppendTarget | None:
        """The parsed head, read once for all requests that share ``template``; None: they are not plain. Raises
        StockadeError for a fault in the head.
        """
        if is_numbered not in template.readings:
            headers = {**template.headers, SEQUENCE.name: _ANY_NUMBER} if is_numbered else template.headers
            template.readings[is_numbered] = _read_head(headers, path_parameters)
        return cast(AppendTarget | None, template.readings[is_numbered])


class FastAppend:
    """One append that holds room in ``in_flight``. It is settled once: ``settle`` gives the room back and answers."""

    __slots__ = ("_batch", "_conditions", "_is_settled", "_owner", "_partition", "_request", "_spending")

    def __init__(
        self,
        owner: FastAppends,
        request: FastRequest,
        partition: Partition,
        batch: Batch,
        conditions: Conditions,
        spending: Spending | None,
    ) -> None:
        self._spending = spending
        self._owner = owner
        self._request = request
        self._partition = partition
        self._batch = batch
        self._conditions = conditions
        self._is_settled = False

    def propose(self) -> bool:
        """Propose the batch. False: nothing was proposed, because the append first needs another step (a configuration
        to put in force, say).
        """
        try:
            is_proposed = self._partition.submit(self._batch, self._conditions, self.settle)
        except Exception as bug:  # the batch may have been proposed
            if self._is_settled:  # the bug is in sending the answer: raising ends the connection
                raise
            self.settle(bug)
            return True
        if not is_proposed:
            self._owner.leave(len(self._request.body), self._spending)
        return is_proposed

    def settle(self, verdict: Appended | Exception | None) -> None:
        """Answer the verdict. If certainly nothing was proposed (None, or no leader here), let the general handler
        answer. A second call does nothing.
        """
        if self._is_settled:
            return
        self._is_settled = True
        size = len(self._request.body)
        if verdict is None or isinstance(verdict, NotLeaderOrFollower | LeaderNotAvailable):
            self._owner.leave(size, self._spending)
            self._request.answer_by(self._owner.general)
            return
        self._owner.give_back(size, self._spending)
        outcome = self._response(verdict) if isinstance(verdict, Appended) else verdict
        if isinstance(outcome, FastResponse):
            self._request.connection.answer(outcome)
        else:
            call = Call(cast(web.Request, self._request), self._owner.context, self._owner.route)
            self._request.connection.answer_later(conclude(call, self._refuse(call, outcome)))

    def _response(self, appended: Appended) -> FastResponse | Exception:
        """The answer to a stored batch, or the unexpected exception that prevented it. It is returned and not raised:
        an exception could cause a second proposal of the batch.
        """
        front, partition, batch = self._owner.front, self._partition, self._batch
        try:
            if not appended.duplicate:
                front.writes.stored(batch.count, len(batch.message))
            leader = partition.leader()
            head = head_led_by(leader.url or "", leader.term)
            if appended.base_offset is not None:
                head += _BASE_OFFSET_LINE % appended.base_offset
            body = json_codec.dump(answer_to(appended, partition, leader.term))
            return FastResponse(head, body, not front.is_leaving)
        except Exception as bug:
            return bug

    async def _refuse(self, call: Call, error: Exception) -> NoReturn:
        call.partition = self._partition
        if isinstance(error, StockadeError):
            conditions = self._conditions
            call.front.writes.refused(call.id, self._partition, error, conditions.token, conditions.stamp)
        raise error


def _read_head(headers: Mapping[str, str], path_parameters: dict[str, str]) -> AppendTarget | None:
    if not is_plain(headers, _HEADERS):
        return None
    path = Parameters(path_parameters, (), (), ())
    form = media.body_type(headers.get("content-type", ""), "", FORMS)
    return AppendTarget(path.topic(), path.partition(), form, headers.get("authorization"), conditions_of(headers))
