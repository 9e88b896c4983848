"""The tree of refusals, one class for each code of the HTTP contract.

The machines *return* refusals (apply never raises); the edges *raise* them. What a caller may do next is data on the
class, so nobody lists types: ``retriable`` (the same bytes sent again may succeed), ``no_side_effects`` (nothing was
changed; False: the outcome is unknown), ``metadata_stale`` (the caller's idea of who leads is out of date).

    StockadeError
    ├── InvalidRequest, InvalidRecord, CorruptMessage, InvalidFencingToken, InvalidTransactionTimeout   400
    ├── Unauthenticated 401; ProducerFenced, InvalidProducerEpoch, NotOwner, PermissionDenied           403
    ├── UnknownTopicOrPartition, UnknownSession, NotFound 404, MethodNotAllowed 405, NotAcceptable 406
    ├── InconsistentTopicId, TopicAlreadyExists, StageAlreadyExists, TopicSealed, OutOfOrderSequence,
    │   UnknownProducerId, InvalidProducerIdMapping, HoldAndWait, GenerationFenced                      409
    ├── SessionExpired 410, OffsetMismatch 412, MessageTooLarge 413, UnsupportedMediaType 415, NotLeaderOrFollower 421
    ├── OffsetOutOfRange 410 or 416, ProducerBusy 423, FencingTokenRequired 428
    ├── ThrottlingQuotaExceeded and WaitQueueFull 429
    └── HeadersTooLarge 431, InternalError 500, LeaderNotAvailable and NotEnoughReplicas 503, RequestTimedOut 504
"""

from typing import Any

from .refusal import StockadeError
from .request_errors import (
    CorruptMessage,
    HeadersTooLarge,
    MessageTooLarge,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    UnsupportedMediaType,
)

__all__ = [
    "BY_CODE",
    "CorruptMessage",
    "HeadersTooLarge",
    "MessageTooLarge",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "PermissionDenied",
    "StockadeError",
    "Unauthenticated",
    "UnsupportedMediaType",
    "revive",
]


class InvalidRequest(StockadeError, code="INVALID_REQUEST", http_status=400, title="The request is malformed"):
    """Path, query, headers or shape of a body. Fields: reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, reason=reason)


class InvalidRecord(StockadeError, code="INVALID_RECORD", http_status=400, title="A record cannot be stored"):
    """About the records themselves. Fields: reason, index (first bad record, or None for the batch as a whole)."""

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason, reason=reason, index=index)


class InvalidFencingToken(
    StockadeError, code="INVALID_FENCING_TOKEN", http_status=400, title="This epoch was never issued"
):
    """An epoch that was never issued. Fields: current_epoch."""


class InvalidTransactionTimeout(
    StockadeError, code="INVALID_TRANSACTION_TIMEOUT", http_status=400, title="timeout_ms is out of range"
):
    """timeout_ms out of range. Fields: max."""


class ProducerFenced(
    StockadeError,
    code="PRODUCER_FENCED",
    http_status=403,
    title="Somebody newer holds this place",
    explaining=frozenset({"holder", "ended"}),
):
    """A superseded token or identity (Kafka error 90). Fields: current_epoch, reason, outcome (with the producer
    trio); on a partition also ``holder``, who has the slot now, since when and by which operation (None: nobody alone),
    and ``ended``, when and why the caller's own grant ended there (None: not remembered).
    """


class InvalidProducerEpoch(
    StockadeError, code="INVALID_PRODUCER_EPOCH", http_status=403, title="Not the producer's current epoch"
):
    """Append only: the producer epoch is old or was never issued (Kafka error 47). Fields: current_epoch, outcome."""


class NotOwner(StockadeError, code="NOT_OWNER", http_status=403, title="The resource belongs to somebody else"):
    """Guarded by ownership, with a fence_epoch that is not the current one. Fields: fence_epoch, resource, group."""


class UnknownTopicOrPartition(
    StockadeError,
    code="UNKNOWN_TOPIC_OR_PARTITION",
    http_status=404,
    title="No such topic or partition",
    retriable=True,
    metadata_stale=True,
):
    """Fields: topic, partition (None when the topic itself is unknown)."""

    def __init__(self, detail: str | None = None, topic: str | None = None, partition: int | None = None) -> None:
        if detail is None and topic is not None:
            detail = f"No such topic: {topic}" if partition is None else f"Topic {topic} has no partition {partition}"
        super().__init__(detail, topic=topic, partition=partition)


class UnknownSession(StockadeError, code="UNKNOWN_SESSION", http_status=404, title="No such session"):
    """Never opened, closed, or expired so long ago that it is forgotten."""


class InconsistentTopicId(
    StockadeError,
    code="INCONSISTENT_TOPIC_ID",
    http_status=409,
    title="The topic was deleted and created again",
    metadata_stale=True,
):
    """The topic was deleted and created again. Fields: topic_id (of the present incarnation)."""


class TopicAlreadyExists(
    StockadeError, code="TOPIC_ALREADY_EXISTS", http_status=409, title="A different topic has this name"
):
    """The name is taken by a topic with another definition. Fields: topic_id."""


class StageAlreadyExists(
    StockadeError, code="STAGE_ALREADY_EXISTS", http_status=409, title="A different stage has this name"
):
    """The name is taken by a stage of other bytes. Fields: stage."""


class TopicSealed(StockadeError, code="TOPIC_SEALED", http_status=409, title="The topic takes no more records"):
    """Fields: log_end."""


class OutOfOrderSequence(
    StockadeError,
    code="OUT_OF_ORDER_SEQUENCE_NUMBER",
    http_status=409,
    title="Not the sequence number expected",
    retriable=True,
):
    """Kafka error 45. Fields: reason (gap, overlap, new_epoch, no_state), expected_seq, last_seq (-1 = none)."""


class UnknownProducerId(
    StockadeError, code="UNKNOWN_PRODUCER_ID", http_status=409, title="The producer's state was dropped here"
):
    """State was dropped by age or by the cap (Kafka error 59). Fields: log_start, log_end."""


class InvalidProducerIdMapping(
    StockadeError, code="INVALID_PRODUCER_ID_MAPPING", http_status=409, title="This producer id is not mapped"
):
    """The id was never issued, or its name's registry row is gone (Kafka error 49)."""


class GenerationFenced(
    StockadeError, code="GENERATION_FENCED", http_status=409, title="A live owner has a higher generation"
):
    """A live owner has a higher generation. Fields: resource (the first refused), generation, fence_epoch, results
    (verdicts on all claims of an atomic request).
    """


class HoldAndWait(StockadeError, code="HOLD_AND_WAIT", http_status=409, title="A session may not wait while it holds"):
    """The session holds something and would have to wait. Fields: held_grants, ticket."""


class SessionExpired(StockadeError, code="SESSION_EXPIRED", http_status=410, title="The session has ended"):
    """Expired, and never revived."""


class OffsetMismatch(
    StockadeError, code="OFFSET_MISMATCH", http_status=412, title="The log does not end where you said"
):
    """Conditional append lost. Fields: log_end."""


class OffsetOutOfRange(
    StockadeError, code="OFFSET_OUT_OF_RANGE", http_status=416, title="The offset is outside the log"
):
    """Below log_start (410) or above log_end (416). Fields: offset, log_start, log_end."""

    def __init__(self, offset: int, log_start: int, log_end: int) -> None:
        detail = f"offset {offset} is outside {log_start}..{log_end}"
        super().__init__(detail, offset=offset, log_start=log_start, log_end=log_end)

    @property
    def status(self) -> int:
        """410 for what was trimmed, 416 for what is not written yet."""
        return 410 if self.fields["offset"] < self.fields["log_start"] else 416


class NotLeaderOrFollower(
    StockadeError,
    code="NOT_LEADER_OR_FOLLOWER",
    http_status=421,
    title="This node does not lead the group",
    retriable=True,
    metadata_stale=True,
):
    """This node does not lead the group. Fields: leader (base URL or None), leader_term (or None)."""

    def __init__(self, leader: str | None, leader_term: int | None) -> None:
        super().__init__(None, leader=leader, leader_term=leader_term)


class ProducerBusy(
    StockadeError,
    code="PRODUCER_BUSY",
    http_status=423,
    title="Somebody else has, or waits for, the slot",
    retriable=True,
):
    """The slot is taken (Pulsar ProducerBusy). Fields: reason, holder_mode, current_epoch, queue_len."""


class FencingTokenRequired(
    StockadeError, code="FENCING_TOKEN_REQUIRED", http_status=428, title="This topic takes no write without a fence"
):
    """The topic's require_fence is set and the request names no grant."""


class ThrottlingQuotaExceeded(
    StockadeError, code="THROTTLING_QUOTA_EXCEEDED", http_status=429, title="Too many requests", retriable=True
):
    """Fields: retry_after_ms."""


class WaitQueueFull(
    StockadeError, code="WAIT_QUEUE_FULL", http_status=429, title="Too many are waiting already", retriable=True
):
    """Fields: retry_after_ms."""


class InternalError(
    StockadeError, code="INTERNAL_ERROR", http_status=500, title="A fault in the server", no_side_effects=False
):
    """A bug. The outcome of a mutating call is unknown."""


class LeaderNotAvailable(
    StockadeError,
    code="LEADER_NOT_AVAILABLE",
    http_status=503,
    title="No leader at the moment",
    retriable=True,
    metadata_stale=True,
):
    """Refused before anything was proposed. Fields: retry_after_ms."""

    def __init__(self, detail: str | None = None, retry_after_ms: int = 200) -> None:
        super().__init__(detail, retry_after_ms=retry_after_ms)


class NotEnoughReplicas(
    StockadeError, code="NOT_ENOUGH_REPLICAS", http_status=503, title="Too few replicas are up", retriable=True
):
    """Refused before anything was proposed. Fields: retry_after_ms."""

    def __init__(self, detail: str | None = None, retry_after_ms: int = 1000) -> None:
        super().__init__(detail, retry_after_ms=retry_after_ms)


class RequestTimedOut(
    StockadeError,
    code="REQUEST_TIMED_OUT",
    http_status=504,
    title="No answer in time",
    retriable=True,
    no_side_effects=False,
):
    """Proposed, then no decision in time: the outcome is unknown. Fields: raft_index (or None)."""

    def __init__(self, detail: str | None = None, raft_index: int | None = None) -> None:
        super().__init__(detail, raft_index=raft_index)


BY_CODE: dict[str, type[StockadeError]] = {cls.code: cls for cls in StockadeError.__subclasses__()}
"""Every refusal by its wire code."""


def revive(code: str, detail: str, fields: dict[str, Any]) -> StockadeError:
    """A refusal that crossed the wire, as an instance of its class again."""
    cls = BY_CODE[code]
    error = cls.__new__(cls)
    StockadeError.__init__(error, detail, **fields)
    return error
