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
from .request_errors import MethodNotAllowed, NotAcceptable, PermissionDenied, Unauthenticated

__all__ = [
    "BY_CODE",
    "MethodNotAllowed",
    "NotAcceptable",
    "PermissionDenied",
    "StockadeError",
    "Unauthenticated",
    "revive",
]


class InvalidRequest(StockadeError):
    """Path, query, headers or shape of a body. Fields: reason."""

    code, http_status, title = "INVALID_REQUEST", 400, "The request is malformed"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, reason=reason)


class InvalidRecord(StockadeError):
    """About the records themselves. Fields: reason, index (first bad record, or None for the batch as a whole)."""

    code, http_status, title = "INVALID_RECORD", 400, "A record cannot be stored"

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason, reason=reason, index=index)


class CorruptMessage(StockadeError):
    """The body is not a readable Arrow stream. Fields: reason, crc (CRC-32C of the bytes received, or None)."""

    code, http_status, title, retriable = "CORRUPT_MESSAGE", 400, "The bytes of the batch are damaged", True

    def __init__(self, reason: str, crc: int | None = None) -> None:
        super().__init__(reason, reason=reason, crc=crc)


class InvalidFencingToken(StockadeError):
    """An epoch that was never issued. Fields: current_epoch."""

    code, http_status, title = "INVALID_FENCING_TOKEN", 400, "This epoch was never issued"


class InvalidTransactionTimeout(StockadeError):
    """timeout_ms out of range. Fields: max."""

    code, http_status, title = "INVALID_TRANSACTION_TIMEOUT", 400, "timeout_ms is out of range"


class ProducerFenced(StockadeError):
    """A superseded token or identity (Kafka error 90). Fields: current_epoch, reason, outcome (with the producer
    trio); on a partition also ``holder``, who has the slot now, since when and by which operation (None: nobody alone),
    and ``ended``, when and why the caller's own grant ended there (None: not remembered).
    """

    code, http_status, title = "PRODUCER_FENCED", 403, "Somebody newer holds this place"
    explaining = frozenset({"holder", "ended"})


class InvalidProducerEpoch(StockadeError):
    """Append only: the producer epoch is old or was never issued (Kafka error 47). Fields: current_epoch, outcome."""

    code, http_status, title = "INVALID_PRODUCER_EPOCH", 403, "Not the producer's current epoch"


class NotOwner(StockadeError):
    """Guarded by ownership, with a fence_epoch that is not the current one. Fields: fence_epoch, resource, group."""

    code, http_status, title = "NOT_OWNER", 403, "The resource belongs to somebody else"


class UnknownTopicOrPartition(StockadeError):
    """Fields: topic, partition (None when the topic itself is unknown)."""

    code, http_status, title = "UNKNOWN_TOPIC_OR_PARTITION", 404, "No such topic or partition"
    retriable, metadata_stale = True, True


class UnknownSession(StockadeError):
    """Never opened, closed, or expired so long ago that it is forgotten."""

    code, http_status, title = "UNKNOWN_SESSION", 404, "No such session"


class NotFound(StockadeError):
    """Fields: what (route, ticket, producer, node, stage)."""

    code, http_status, title = "NOT_FOUND", 404, "Nothing here"


class InconsistentTopicId(StockadeError):
    """The topic was deleted and created again. Fields: topic_id (of the present incarnation)."""

    code, http_status, title = "INCONSISTENT_TOPIC_ID", 409, "The topic was deleted and created again"
    metadata_stale = True


class TopicAlreadyExists(StockadeError):
    """The name is taken by a topic with another definition. Fields: topic_id."""

    code, http_status, title = "TOPIC_ALREADY_EXISTS", 409, "A different topic has this name"


class StageAlreadyExists(StockadeError):
    """The name is taken by a stage of other bytes. Fields: stage."""

    code, http_status, title = "STAGE_ALREADY_EXISTS", 409, "A different stage has this name"


class TopicSealed(StockadeError):
    """Fields: log_end."""

    code, http_status, title = "TOPIC_SEALED", 409, "The topic takes no more records"


class OutOfOrderSequence(StockadeError):
    """Kafka error 45. Fields: reason (gap, overlap, new_epoch, no_state), expected_seq, last_seq (-1 = none)."""

    code, http_status, title = "OUT_OF_ORDER_SEQUENCE_NUMBER", 409, "Not the sequence number expected"
    retriable = True


class UnknownProducerId(StockadeError):
    """State was dropped by age or by the cap (Kafka error 59). Fields: log_start, log_end."""

    code, http_status, title = "UNKNOWN_PRODUCER_ID", 409, "The producer's state was dropped here"


class InvalidProducerIdMapping(StockadeError):
    """The id was never issued, or its name's registry row is gone (Kafka error 49)."""

    code, http_status, title = "INVALID_PRODUCER_ID_MAPPING", 409, "This producer id is not mapped"


class GenerationFenced(StockadeError):
    """A live owner has a higher generation. Fields: resource (the first refused), generation, fence_epoch, results
    (verdicts on all claims of an atomic request).
    """

    code, http_status, title = "GENERATION_FENCED", 409, "A live owner has a higher generation"


class HoldAndWait(StockadeError):
    """The session holds something and would have to wait. Fields: held_grants, ticket."""

    code, http_status, title = "HOLD_AND_WAIT", 409, "A session may not wait while it holds"


class SessionExpired(StockadeError):
    """Expired, and never revived."""

    code, http_status, title = "SESSION_EXPIRED", 410, "The session has ended"


class OffsetMismatch(StockadeError):
    """Conditional append lost. Fields: log_end."""

    code, http_status, title = "OFFSET_MISMATCH", 412, "The log does not end where you said"


class MessageTooLarge(StockadeError):
    """Fields: limit, unit (bytes, records)."""

    code, http_status, title = "MESSAGE_TOO_LARGE", 413, "The batch is too large"


class UnsupportedMediaType(StockadeError):
    """Fields: accepted (content types)."""

    code, http_status, title = "UNSUPPORTED_MEDIA_TYPE", 415, "The body's type is not understood here"


class OffsetOutOfRange(StockadeError):
    """Below log_start (410) or above log_end (416). Fields: offset, log_start, log_end."""

    code, http_status, title = "OFFSET_OUT_OF_RANGE", 416, "The offset is outside the log"

    def __init__(self, offset: int, log_start: int, log_end: int) -> None:
        detail = f"offset {offset} is outside {log_start}..{log_end}"
        super().__init__(detail, offset=offset, log_start=log_start, log_end=log_end)

    @property
    def status(self) -> int:
        """410 for what was trimmed, 416 for what is not written yet."""
        return 410 if self.fields["offset"] < self.fields["log_start"] else 416


class NotLeaderOrFollower(StockadeError):
    """This node does not lead the group. Fields: leader (base URL or None), leader_term (or None)."""

    code, http_status, title = "NOT_LEADER_OR_FOLLOWER", 421, "This node does not lead the group"
    retriable, metadata_stale = True, True

    def __init__(self, leader: str | None, leader_term: int | None) -> None:
        super().__init__(None, leader=leader, leader_term=leader_term)


class ProducerBusy(StockadeError):
    """The slot is taken (Pulsar ProducerBusy). Fields: reason, holder_mode, current_epoch, queue_len."""

    code, http_status, title = "PRODUCER_BUSY", 423, "Somebody else has, or waits for, the slot"
    retriable = True


class FencingTokenRequired(StockadeError):
    """The topic's require_fence is set and the request names no grant."""

    code, http_status, title = "FENCING_TOKEN_REQUIRED", 428, "This topic takes no write without a fence"


class ThrottlingQuotaExceeded(StockadeError):
    """Fields: retry_after_ms."""

    code, http_status, title, retriable = "THROTTLING_QUOTA_EXCEEDED", 429, "Too many requests", True


class WaitQueueFull(StockadeError):
    """Fields: retry_after_ms."""

    code, http_status, title, retriable = "WAIT_QUEUE_FULL", 429, "Too many are waiting already", True


class HeadersTooLarge(StockadeError):
    """Fields: limit (bytes)."""

    code, http_status, title = "HEADERS_TOO_LARGE", 431, "The request's headers are too large"


class InternalError(StockadeError):
    """A bug. The outcome of a mutating call is unknown."""

    code, http_status, title, no_side_effects = "INTERNAL_ERROR", 500, "A fault in the server", False


class LeaderNotAvailable(StockadeError):
    """Refused before anything was proposed. Fields: retry_after_ms."""

    code, http_status, title = "LEADER_NOT_AVAILABLE", 503, "No leader at the moment"
    retriable, metadata_stale = True, True

    def __init__(self, detail: str | None = None, retry_after_ms: int = 200) -> None:
        super().__init__(detail, retry_after_ms=retry_after_ms)


class NotEnoughReplicas(StockadeError):
    """Refused before anything was proposed. Fields: retry_after_ms."""

    code, http_status, title, retriable = "NOT_ENOUGH_REPLICAS", 503, "Too few replicas are up", True

    def __init__(self, detail: str | None = None, retry_after_ms: int = 1000) -> None:
        super().__init__(detail, retry_after_ms=retry_after_ms)


class RequestTimedOut(StockadeError):
    """Proposed, then no decision in time: the outcome is unknown. Fields: raft_index (or None)."""

    code, http_status, title, retriable = "REQUEST_TIMED_OUT", 504, "No answer in time", True
    no_side_effects = False

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
