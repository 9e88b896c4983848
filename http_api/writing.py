"""What all appends share: guards in the headers, the way to the partition, and the answer's fields."""

import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from aiohttp import web
from msgspec import structs

from ..cluster.model import Conditions
from ..cluster.service import Partition
from ..partition.commands import PRODUCER_EPOCH_MAX, SEQUENCE_MODULUS, Appended, Stamp, Token
from ..partition.errors import InvalidRequest, NotLeaderOrFollower, StockadeError
from ..partition.records import Batch
from .call import Call, json_answer
from .parameters import INT64_MAX, UINT64_MAX, Parameters, integer
from .refused_writes import RefusedWrite

_PRODUCER = ("Stockade-Producer-Id", "Stockade-Producer-Epoch", "Stockade-Producer-Seq")
_FENCE = ("Stockade-Fence-Grant", "Stockade-Fence-Epoch", "Stockade-Session")
_IF_LOG_END = "Stockade-If-Log-End"
_MESSAGE_ID = "Stockade-Message-Id"
ONE_PARTITION = (*_PRODUCER, _IF_LOG_END, _MESSAGE_ID)
"""Headers that speak of one partition."""
GUARDS = (*ONE_PARTITION, *_FENCE)
"""Headers that set a condition for an append."""

BASE_OFFSET = "Stockade-Base-Offset"
"""Header that tells where a batch begins, when that is known."""

_MESSAGE_ID_CHARACTERS_MAX = 128


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What is told of a stored batch."""

    topic: str
    partition: int
    base_offset: int | None
    last_offset: int | None
    duplicate: bool
    log_start: int
    timestamp_ms: int | None
    leader_term: int


class Guards(NamedTuple):
    """Conditions of an append. ``waits`` is False for acks=0."""

    conditions: Conditions
    waits: bool


def read_guards(given: Parameters) -> Guards:
    """The conditions that a request names. Raises InvalidRequest."""
    conditions = Conditions(
        topic_id=given.topic_id(),
        token=read_token(given),
        stamp=_stamp(given),
        if_log_end=given.header_integer(_IF_LOG_END, INT64_MAX),
        message_id=given.header(_MESSAGE_ID),
        fence_epoch=given.fence_epoch(),
    )
    waits = given.query_choice("acks", ("all", "0"), "all") == "all"
    message_id = conditions.message_id
    if message_id is not None and not 1 <= len(message_id) <= _MESSAGE_ID_CHARACTERS_MAX:
        raise InvalidRequest(f"{_MESSAGE_ID}: not 1 to {_MESSAGE_ID_CHARACTERS_MAX} characters")
    if not waits:
        refuse_headers(given, "acks: 0 cannot be combined with")
    return Guards(conditions, waits)


def conditions_of(headers: Mapping[str, str]) -> Conditions:
    """What ``read_guards`` reads of headers whose names are in lower case, where there is no query. Raises likewise."""
    given = [(name, headers[name]) for name in map(str.lower, GUARDS) if name in headers]
    return read_guards(Parameters({}, (), given, ())).conditions


def numbered(conditions: Conditions, sequence: str) -> Conditions:
    """These conditions, which have a stamp, with another sequence number in it. Raises InvalidRequest."""
    stamp = conditions.stamp
    assert stamp is not None
    first_seq = integer(_PRODUCER[2], sequence, 0, SEQUENCE_MODULUS - 1)
    topic_id, token, _, if_log_end, message_id, fence_epoch = structs.astuple(conditions)
    return Conditions(topic_id, token, Stamp(stamp.pid, stamp.epoch, first_seq), if_log_end, message_id, fence_epoch)


def refuse_headers(given: Parameters, why: str) -> None:
    """Raises InvalidRequest when a header of ONE_PARTITION is there."""
    for name in ONE_PARTITION:
        if given.header(name) is not None:
            raise InvalidRequest(f"{why} {name}")


async def find_partition(call: Call, topic: str, partition: int, topic_id: int | None) -> Partition | StockadeError:
    """The partition if this node can decide there; otherwise why not. A refusal must wait until the body's
    shape was judged.
    """
    try:
        found = await call.service.partition(topic, partition, topic_id)
    except StockadeError as refusal:
        return refusal
    leader = call.decided_by = found.leader()
    if leader.node_id not in (None, call.service.node_id):
        return NotLeaderOrFollower(leader.url, leader.term)
    return found


def check_message_id(partition: Partition, conditions: Conditions) -> None:
    """Raises InvalidRequest for a message id where the topic remembers none."""
    if conditions.message_id is not None and not partition.config.dedupe_window_ms:
        raise InvalidRequest("Stockade-Message-Id: the topic has no dedupe_window_ms")


async def store(call: Call, partition: Partition, batch: Batch, conditions: Conditions) -> Appended:
    """Append and count."""
    try:
        appended = await partition.append(batch, conditions)
    except StockadeError as refusal:
        count_refused(call, partition, refusal, conditions.token, conditions.stamp)
        raise
    if not appended.duplicate:
        call.context.metrics.appended(batch.count, len(batch.message))
    return appended


def count_refused(
    call: Call, partition: Partition, refusal: StockadeError, token: Token | None, stamp: Stamp | None = None
) -> None:
    """Count a write that the partition refused, and remember it for people. What was not decided is no refusal."""
    if refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR or refusal.metadata_stale:
        return
    reason = str(refusal.fields.get("reason", ""))
    call.context.metrics.refused_write(refusal.code, reason)
    where = partition.topic, partition.partition
    call.context.refused_writes.add(RefusedWrite(now_ms(), call.id, *where, refusal.code, reason, token, stamp))


def append_answer(call: Call, partition: Partition, appended: Appended) -> web.Response:
    """The answer to an append to one partition."""
    call.decided_by = partition.leader()
    headers = {} if appended.base_offset is None else {BASE_OFFSET: str(appended.base_offset)}
    return json_answer(stored(partition, appended, call.decided_by.term), headers=headers)


def stored(partition: Partition, appended: Appended, leader_term: int) -> Stored:
    """What is told of a batch that was stored in a partition."""
    return Stored(
        partition.topic,
        partition.partition,
        appended.base_offset,
        appended.last_offset,
        appended.duplicate,
        appended.log_start,
        appended.timestamp_ms,
        leader_term,
    )


def now_ms() -> int:
    """Wall clock, for timestamps of records."""
    return time.time_ns() // 1_000_000


def read_token(given: Parameters) -> Token | None:
    """The fencing token that a request names. Raises InvalidRequest."""
    return _token(*map(given.text, _FENCE)) if given.trio(*_FENCE) else None


def _stamp(given: Parameters) -> Stamp | None:
    if not given.trio(*_PRODUCER):
        return None
    pid, epoch, sequence = _PRODUCER
    known = _identity(given.text(pid), given.text(epoch))
    return Stamp(*known, given.number(sequence, SEQUENCE_MODULUS - 1))


def _token(grant: str, epoch: str, session: str) -> Token:
    return Token(grant, integer(_FENCE[1], epoch, 0, UINT64_MAX), session)


def _identity(pid: str, epoch: str) -> tuple[int, int]:
    return integer(_PRODUCER[0], pid, 0, INT64_MAX), integer(_PRODUCER[1], epoch, 0, PRODUCER_EPOCH_MAX)
