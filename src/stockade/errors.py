"""Every refusal of the cluster and the client as an exception: ``from stockade.errors import ProducerFenced``.

All are StockadeErrors, except InvalidConfig, a ValueError. Attributes of the class say what the caller can do:
``retriable`` (the same request may succeed later), ``no_side_effects`` (False: the outcome is unknown). ``code`` and
``fields`` are those of the problem document.
"""

from .client.config import InvalidConfig
from .client.errors import (
    BufferFull,
    ClientClosed,
    ClientFault,
    ClusterUnreachable,
    OtherEventLoop,
    PlaintextRefused,
    ProducerAborted,
    UnknownRefusal,
    UnreadableAnswer,
    UsedAfterFork,
)
from .client.producer.results import ProducerErrors
from .partition.errors import (
    CorruptMessage,
    FeatureLevelTooLow,
    FeatureUpdateFailed,
    FencingTokenRequired,
    GenerationFenced,
    HeadersTooLarge,
    HoldAndWait,
    InconsistentTopicId,
    InsufficientStorage,
    InternalError,
    InvalidFencingToken,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidRequest,
    LeaderNotAvailable,
    LedgerFull,
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
    PlanChanged,
    ProducerBusy,
    ProducerFenced,
    RequestTimedOut,
    SessionExpired,
    StageAlreadyExists,
    StockadeError,
    StorageQuotaExceeded,
    ThrottlingQuotaExceeded,
    TieredStoreUnavailable,
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
    "BufferFull", "ClientClosed", "ClientFault", "ClusterUnreachable", "CorruptMessage", "FeatureLevelTooLow",
    "FeatureUpdateFailed", "FencingTokenRequired", "GenerationFenced", "HeadersTooLarge", "HoldAndWait",
    "InconsistentTopicId", "InsufficientStorage", "InternalError", "InvalidConfig", "InvalidFencingToken",
    "InvalidProducerEpoch", "InvalidProducerIdMapping", "InvalidRecord", "InvalidRequest", "LeaderNotAvailable",
    "LedgerFull", "MessageTooLarge", "MethodNotAllowed", "NotAcceptable", "NotEnoughReplicas", "NotFound",
    "NotLeaderOrFollower", "NotOwner", "OffsetMismatch", "OffsetOutOfRange", "OtherEventLoop", "OutOfOrderSequence",
    "PermissionDenied", "PlaintextRefused", "PlanChanged", "ProducerAborted", "ProducerBusy", "ProducerErrors",
    "ProducerFenced", "RequestTimedOut", "SessionExpired", "StageAlreadyExists", "StockadeError",
    "StorageQuotaExceeded", "ThrottlingQuotaExceeded", "TieredStoreUnavailable", "TopicAlreadyExists", "TopicSealed",
    "Unauthenticated", "UnknownProducerId", "UnknownRefusal", "UnknownSession", "UnknownTopicOrPartition",
    "UnreadableAnswer", "UnsupportedMediaType", "UsedAfterFork", "WaitQueueFull",
]  # fmt: skip
