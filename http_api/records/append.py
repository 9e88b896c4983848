"""The steps that all appends share: read conditions from headers, turn a body into one validated batch and find its
partition, and make the answer.
"""

from collections.abc import Mapping

from aiohttp import web

from ...cluster.api.partition import Partition
from ...cluster.front.writes import answer_to, leading_partition, now_ms
from ...cluster.model import Conditions
from ...partition.api.topics import BATCH_BYTES_MAX
from ...partition.commands import (
    MESSAGE_ID_CHARACTERS_MAX,
    PRODUCER_EPOCH_MAX,
    SEQUENCE_MODULUS,
    TOKEN_CHARACTERS_MAX,
    Appended,
    Stamp,
    Token,
)
from ...partition.errors import InvalidRequest, NotLeaderOrFollower, StockadeError
from ...partition.records.batch import Batch
from ..codec.parameters import INT64_MAX, UINT64_MAX, Parameters
from ..reading.decode import FORMS, body_bytes_max
from ..reading.work import INLINE_BYTES_MAX
from ..request.call import Call, json_answer

_PRODUCER = ("Stockade-Producer-Id", "Stockade-Producer-Epoch", "Stockade-Producer-Seq")
_FENCE = ("Stockade-Fence-Grant", "Stockade-Fence-Epoch", "Stockade-Session")
_IF_LOG_END = "Stockade-If-Log-End"
_MESSAGE_ID = "Stockade-Message-Id"
ONE_PARTITION = (*_PRODUCER, _IF_LOG_END, _MESSAGE_ID)
"""Condition headers that make sense for one partition only."""
CONDITION_HEADERS = (*ONE_PARTITION, *_FENCE)
"""Headers that set a condition for an append."""

BASE_OFFSET = "Stockade-Base-Offset"
"""Header of the answer: the first offset of the batch; absent where it is not known."""


def read_conditions(parameters: Parameters, principal: str) -> Conditions:
    """The conditions in a request's headers and query, and its principal. Raises InvalidRequest."""
    conditions = Conditions(
        topic_id=parameters.topic_id(),
        token=read_token(parameters),
        stamp=_read_stamp(parameters),
        if_log_end=parameters.header_integer(_IF_LOG_END, INT64_MAX),
        message_id=parameters.header(_MESSAGE_ID),
        fence_epoch=parameters.fence_epoch(),
        principal=principal,
    )
    message_id = conditions.message_id
    if message_id is not None and not 1 <= len(message_id) <= MESSAGE_ID_CHARACTERS_MAX:
        raise InvalidRequest(f"{_MESSAGE_ID}: not 1 to {MESSAGE_ID_CHARACTERS_MAX} characters")
    return conditions


def conditions_of(headers: Mapping[str, str]) -> Conditions:
    """The conditions in headers with names in lower case, of a request without a query; without a principal. Raises
    InvalidRequest.
    """
    named = [(name, headers[name]) for name in map(str.lower, CONDITION_HEADERS) if name in headers]
    return read_conditions(Parameters({}, (), named, ()), "")


def waits_for_verdict(parameters: Parameters) -> bool:
    """Whether the append waits for its verdict: False for acks=0. Raises InvalidRequest for acks=0 with a header of
    ONE_PARTITION.
    """
    if parameters.query_choice("acks", ("all", "0"), "all") == "all":
        return True
    refuse_headers(parameters, "acks: 0 cannot be combined with")
    return False


def refuse_headers(parameters: Parameters, why: str) -> None:
    """Raises InvalidRequest, with ``why``, if the request has a header of ONE_PARTITION."""
    for name in ONE_PARTITION:
        if parameters.header(name) is not None:
            raise InvalidRequest(f"{why} {name}")


def check_message_id(partition: Partition, conditions: Conditions) -> None:
    """Raises InvalidRequest for a message id if the topic remembers none (no dedupe_window_ms)."""
    if conditions.message_id is not None and not partition.config.dedupe_window_ms:
        raise InvalidRequest(f"{_MESSAGE_ID}: the topic has no dedupe_window_ms")


def append_answer(call: Call, partition: Partition, appended: Appended) -> web.Response:
    """The answer to an append to one partition."""
    call.decided_by = partition.leader()
    headers = {} if appended.base_offset is None else {BASE_OFFSET: str(appended.base_offset)}
    return json_answer(answer_to(appended, partition, call.decided_by.term), headers=headers)


def read_token(parameters: Parameters) -> Token | None:
    """The fencing token in a request's headers, None if there is none. Raises InvalidRequest."""
    if not parameters.trio(*_FENCE):
        return None
    grant, epoch, session = _FENCE
    token = Token(parameters.text(grant), parameters.number(epoch, UINT64_MAX), parameters.text(session))
    if len(token.grant_id) > TOKEN_CHARACTERS_MAX or len(token.session) > TOKEN_CHARACTERS_MAX:
        longest = grant if len(token.grant_id) > TOKEN_CHARACTERS_MAX else session
        raise InvalidRequest(f"{longest}: longer than {TOKEN_CHARACTERS_MAX} characters")
    return token


def _read_stamp(parameters: Parameters) -> Stamp | None:
    if not parameters.trio(*_PRODUCER):
        return None
    pid, epoch, sequence = _PRODUCER
    return Stamp(
        parameters.number(pid, INT64_MAX),
        parameters.number(epoch, PRODUCER_EPOCH_MAX),
        parameters.number(sequence, SEQUENCE_MODULUS - 1),
    )


async def receive_batch(call: Call, topic_id: int | None) -> tuple[Partition, Batch]:
    """The partition of a request and the batch in its body.

    If the partition is refused, a small body is validated first, so that faults of the request itself are answered
    before those of the partition; a body that may be large is not read. A body for another leader is read, but not
    parsed, and forwarded unchanged.
    """
    topic, number = call.parameters.topic(), call.parameters.partition()
    form, reader = call.body_type(FORMS), call.context.reader
    try:
        call.partition = await leading_partition(call.service, topic, number, topic_id)
    except StockadeError as refusal:
        is_forwarded = isinstance(refusal, NotLeaderOrFollower) and not call.is_forwarded
        if is_forwarded:
            await call.read(body_bytes_max(BATCH_BYTES_MAX))
        elif call.has_small_body:
            body = await call.read(INLINE_BYTES_MAX)
            await reader.batch(form, body, now_ms=now_ms(), batch_bytes_max=BATCH_BYTES_MAX)
        raise
    batch_bytes_max = call.partition.config.max_batch_bytes
    body = await call.read(body_bytes_max(batch_bytes_max))
    return call.partition, await reader.batch(form, body, now_ms=now_ms(), batch_bytes_max=batch_bytes_max)
