"""Append by key: the server splits the records of one body over the partitions of a topic.

The records for one partition are a part: an append of its own, stored here or forwarded to the leader of the partition,
and accepted or refused separately.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiohttp import web
from msgspec import structs

from ...cluster.front.front import retry_at_leader, without_frames
from ...cluster.front.writes import answer_to, leading_partition, now_ms
from ...cluster.model import Conditions, Leader
from ...partition.api.topics import BATCH_BYTES_MAX
from ...partition.errors import (
    BY_CODE,
    InconsistentTopicId,
    NotLeaderOrFollower,
    RequestTimedOut,
    StockadeError,
    revive,
)
from ...partition.records.batch import Batch, stream
from ..codec import media, problems
from ..reading.decode import FORMS, body_bytes_max
from ..reading.work import INLINE_BYTES_MAX, SplitBatches, SplitPart
from ..request import peers
from ..request.call import DEADLINE_S, UNKNOWN_LEADER, Call, json_answer, leader_named_by
from ..request.tracing import carried
from .append import read_conditions, refuse_headers, waits_for_verdict

_NOT_OF_A_PART = ("topic", "partition")


class PartOutcome(NamedTuple):
    """The outcome of a part: the ``fields`` of its result (offsets, or ``problem``), and the leader that decided it."""

    fields: dict[str, Any]
    leader: Leader

    @property
    def problem(self) -> dict[str, Any] | None:
        """The problem document; None when the part was stored."""
        return self.fields.get("problem")


@dataclass(frozen=True)
class Appender:
    """Appends the parts of one request to the partitions of its topic."""

    call: Call
    topic: str
    conditions: Conditions

    async def append(self, part: SplitPart) -> PartOutcome:
        """The outcome of one part. A refusal is returned as the part's problem, never raised."""
        partition, batch = part.partition, part.batch
        try:
            if part.refusal is not None:
                raise part.refusal.error()
            assert batch is not None
            return await retry_at_leader(
                self.call,
                lambda: self._store(partition, batch),
                lambda moved: self._forward(moved, partition, batch),
            )
        except NotLeaderOrFollower as moved:
            return self._refused(moved, leader_named_by(moved))
        except StockadeError as refusal:
            return self._refused(refusal, UNKNOWN_LEADER)

    def _refused(self, refusal: StockadeError, leader: Leader) -> PartOutcome:
        self.call.context.metrics.refused(refusal.code)
        self.call.log_denial(refusal)
        return PartOutcome({"problem": problems.document(without_frames(refusal))}, leader)

    async def _store(self, partition: int, batch: Batch) -> PartOutcome:
        call, conditions = self.call, self.conditions
        found = await leading_partition(call.service, self.topic, partition, conditions.topic_id)
        appended = await call.front.writes.append(call.id, found, batch, conditions)
        leader = found.leader()
        return PartOutcome(_of_a_part(structs.asdict(answer_to(appended, found, leader.term))), leader)

    async def _forward(self, moved: NotLeaderOrFollower, partition: int, batch: Batch) -> PartOutcome:
        message = peers.Message(
            "POST",
            f"/v1/topics/{self.topic}/partitions/{partition}/records{self._query()}",
            {
                **{"Content-Type": media.ARROW, "Accept": media.JSON, **carried(self.call.request.headers)},
                **(self.call.credentials() | self._fence()),
            },
            b"".join(stream([batch.message])),
        )
        upstream = await self.call.context.peers.reach(moved.fields["leader"], message, DEADLINE_S)
        document = await peers.whole_json(upstream, DEADLINE_S)
        headers = upstream.headers
        term = headers.get("Stockade-Leader-Term", "0")
        leader = Leader(None, headers.get("Stockade-Leader") or None, int(term) if term.isdecimal() else 0)
        if upstream.status != 200:
            return PartOutcome({"problem": document}, leader)
        return PartOutcome(_of_a_part(document), leader)

    def _query(self) -> str:
        topic_id = self.conditions.topic_id
        return "" if topic_id is None else f"?topic_id={topic_id}"

    def _fence(self) -> dict[str, str]:
        token = self.conditions.token
        if token is None:
            return {}
        return {
            "Stockade-Fence-Grant": token.grant_id,
            "Stockade-Fence-Epoch": str(token.epoch),
            "Stockade-Session": token.session,
        }


def _of_a_part(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in _NOT_OF_A_PART}


PARTS_AT_ONCE = 32
"""Most parts of one request that are in flight at one time."""
TOPICS_REMEMBERED_MAX = 10_000
"""Most topics of which a node remembers the last partition for keyless records."""


class Layout(NamedTuple):
    """The facts about a topic that a split needs."""

    topic_id: int
    partitions: int
    batch_bytes_max: int


class SpreadTurns:
    """Round robin for keyless records: those of one request go to one partition, those of the next request to the
    next partition. The first partition is random.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[int, int] = OrderedDict()

    def next(self, layout: Layout) -> int:
        """The partition for the keyless records of the next request. Only ``took`` makes it the last one."""
        last = self._last.get(layout.topic_id)
        # Randomness only spreads load here, and keeps nothing secret.
        return random.randrange(layout.partitions) if last is None else (last + 1) % layout.partitions  # noqa: S311  # nosec B311

    def took(self, layout: Layout, turn: int) -> None:
        """Remember that keyless records went to partition ``turn``."""
        self._last.pop(layout.topic_id, None)
        self._last[layout.topic_id] = turn
        if len(self._last) > TOPICS_REMEMBERED_MAX:
            self._last.popitem(last=False)


class AppendByKey:
    """The handler of appends by key. An application has one, since it remembers where the last keyless records went."""

    def __init__(self) -> None:
        self._turns = SpreadTurns()

    async def append_by_key(self, call: Call) -> web.StreamResponse:
        """Append records; the server chooses the partition of each by its key."""
        parameters = call.parameters
        topic = parameters.topic()
        refuse_headers(parameters, "the server chooses the partition, so there can be no")
        conditions, waits = read_conditions(parameters, call.caller.principal), waits_for_verdict(parameters)
        form = call.body_type(FORMS)
        layout = await self._layout(call, topic, form, conditions.topic_id)
        body = await call.read(body_bytes_max(layout.batch_bytes_max))
        parts = await self._split(call, layout, form, body)
        call.hold_requests(len(parts), at_once=PARTS_AT_ONCE)
        work = _append_parts(Appender(call, topic, conditions), parts)
        if not waits:
            call.finish_later(work)
            return json_answer({"topic": topic, "partition": None, "accepted": True}, 202)
        return _answer(call, topic, parts, await work)

    async def _layout(self, call: Call, topic: str, form: str, topic_id: int | None) -> Layout:
        """The layout of a topic, as this node or the controller's leader knows it. On a refusal a small body is judged
        first, as in ``receive_batch``.
        """
        try:
            layout = await retry_at_leader(
                call, lambda: _known_layout(call, topic, topic_id), lambda moved: _ask_layout(call, topic, moved)
            )
            if topic_id not in (None, layout.topic_id):
                raise InconsistentTopicId(topic_id=layout.topic_id)
        except StockadeError:
            if call.has_small_body:
                body = await call.read(INLINE_BYTES_MAX)
                await call.context.reader.split(SplitBatches(form, now_ms(), BATCH_BYTES_MAX, 1, 0), body)
            raise
        return layout

    async def _split(self, call: Call, layout: Layout, form: str, body: bytes) -> list[SplitPart]:
        turn = self._turns.next(layout)
        order = SplitBatches(form, now_ms(), layout.batch_bytes_max, layout.partitions, turn)
        found = await call.context.reader.split(order, body)
        if found.has_keyless:
            self._turns.took(layout, turn)
        return found.parts


async def _append_parts(appender: Appender, parts: list[SplitPart]) -> list[PartOutcome]:
    places = asyncio.Semaphore(PARTS_AT_ONCE)

    async def append(part: SplitPart) -> PartOutcome:
        async with places:
            return await appender.append(part)

    return await asyncio.gather(*map(append, parts))


def _answer(call: Call, topic: str, parts: list[SplitPart], outcomes: Sequence[PartOutcome]) -> web.Response:
    call.decided_by = outcomes[0].leader
    results = [
        {"partition": part.partition, "records": part.records} | outcome.fields
        for part, outcome in zip(parts, outcomes, strict=True)
    ]
    refused = [outcome.problem for outcome in outcomes if outcome.problem is not None]
    if len(refused) < len(parts):
        return json_answer({"topic": topic, "results": results, "partial": bool(refused)})
    problem: dict[str, Any] = refused[0]
    if not all(document["no_side_effects"] for document in refused):
        problem = problems.document(RequestTimedOut("the outcome of some parts is unknown"))
    return problems.answer(problem | {"instance": call.id, "results": results})


async def _known_layout(call: Call, topic: str, topic_id: int | None) -> Layout:
    info = await call.service.get_topic(topic, topic_id)
    return Layout(info.topic_id, len(info.partitions), info.config.max_batch_bytes)


async def _ask_layout(call: Call, topic: str, moved: NotLeaderOrFollower) -> Layout:
    message = peers.Message("GET", f"/v1/topics/{topic}", {"Accept": media.JSON} | call.credentials())
    upstream = await call.context.peers.reach(moved.fields["leader"], message, DEADLINE_S)
    document = await peers.whole_json(upstream, DEADLINE_S)
    if upstream.status == 200:
        return Layout(document["topic_id"], len(document["partitions"]), document["config"]["max_batch_bytes"])
    if not isinstance(document, dict) or document.get("code") not in BY_CODE:
        raise peers.lost(message.method, peers.name_of(upstream))
    raise revive(document["code"], document["detail"], problems.own_fields(document))
