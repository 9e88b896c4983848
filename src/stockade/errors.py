"""Every refusal, to catch: ``from stockade.errors import ProducerFenced``. All are StockadeErrors.

What may be done about one is on its class: ``retriable``, ``no_side_effects`` (False: the outcome is unknown).
"""

from .client.config import InvalidConfig
from .client.errors import BufferFull, ClientClosed, ClusterUnreachable, UnknownRefusal
from .partition.errors import (
    CorruptMessage,
    FencingTokenRequired,
    GenerationFenced,
    HeadersTooLarge,
    HoldAndWait,
    InconsistentTopicId,
    InternalError,
    InvalidFencingToken,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidRequest,
    InvalidTransactionTimeout,
    LeaderNotAvailable,
    MessageTooLarge,
    MethodNotAllowed,
    NotAcceptable,
    NotEnoughReplicas,
    NotFound,
    NotLeaderOrFollower,
    NotOwner,
    OffsetMismatch,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PermissionDenied,
    ProducerBusy,
    ProducerFenced,
    RequestTimedOut,
    SessionExpired,
    StageAlreadyExists,
    StockadeError,
    ThrottlingQuotaExceeded,
    TopicAlreadyExists,
    TopicSealed,
    Unauthenticated,
    UnknownProducerId,
    UnknownSession,
    UnknownTopicOrPartition,
    UnsupportedMediaType,
    WaitQueueFull,
)

__all__ = [
    "BufferFull", "ClientClosed", "ClusterUnreachable", "CorruptMessage", "FencingTokenRequired", "GenerationFenced",
    "HeadersTooLarge", "HoldAndWait", "InconsistentTopicId", "InternalError", "InvalidConfig", "InvalidFencingToken",
    "InvalidProducerEpoch", "InvalidProducerIdMapping", "InvalidRecord", "InvalidRequest", "InvalidTransactionTimeout",
    "LeaderNotAvailable", "MessageTooLarge", "MethodNotAllowed", "NotAcceptable", "NotEnoughReplicas", "NotFound",
    "NotLeaderOrFollower", "NotOwner", "OffsetMismatch", "OffsetOutOfRange", "OutOfOrderSequence", "PermissionDenied",
    "ProducerBusy", "ProducerFenced", "RequestTimedOut", "SessionExpired", "StageAlreadyExists", "StockadeError",
    "ThrottlingQuotaExceeded", "TopicAlreadyExists", "TopicSealed", "Unauthenticated", "UnknownProducerId",
    "UnknownRefusal", "UnknownSession", "UnknownTopicOrPartition", "UnsupportedMediaType", "WaitQueueFull",
]  # fmt: skip
