"""The tree of refusals, one class for each code of the HTTP contract.

The machines *return* refusals (apply never raises); the edges *raise* them. The policy for callers is data on the
class, so no caller lists types: ``retriable`` (the same bytes sent again may succeed), ``no_side_effects`` (nothing was
changed; False: the request may have changed something, or is known to have), ``metadata_stale`` (the caller's metadata
about leaders is out of date). One instance may differ from its class in ``no_side_effects``: see ``had_effects``.

    StockadeError
    ├── InvalidRequest, InvalidRecord, CorruptMessage, InvalidFencingToken                              400
    ├── Unauthenticated 401; ProducerFenced, InvalidProducerEpoch, NotOwner, PermissionDenied           403
    ├── UnknownTopicOrPartition, UnknownSession, NotFound 404, MethodNotAllowed 405, NotAcceptable 406
    ├── InconsistentTopicId, TopicAlreadyExists, StageAlreadyExists, TopicSealed, OutOfOrderSequence,
    │   UnknownProducerId, InvalidProducerIdMapping, HoldAndWait, GenerationFenced, FeatureUpdateFailed,
    │   FeatureLevelTooLow 409
    ├── SessionExpired 410, OffsetMismatch and PlanChanged 412, MessageTooLarge 413, UnsupportedMediaType 415,
    │   NotLeaderOrFollower 421
    ├── OffsetOutOfRange 410 or 416, ProducerBusy 423, FencingTokenRequired 428
    ├── ThrottlingQuotaExceeded and WaitQueueFull 429
    ├── HeadersTooLarge 431, InternalError 500, LeaderNotAvailable, NotEnoughReplicas, LedgerFull and
    │   TieredStoreUnavailable 503, RequestTimedOut 504
    └── InsufficientStorage, StorageQuotaExceeded                                                         507
"""

from typing import Any, ClassVar, Self, TypedDict, Unpack

from .refusal_texts import Surface, Text, text_of, writer_of


class Policy(TypedDict, total=False):
    """The attributes that a class of refusals declares in its ``class`` line; it inherits the others from its base."""

    code: str
    http_status: int
    title: str
    retriable: bool
    no_side_effects: bool
    metadata_stale: bool
    explaining: frozenset[str]


def _made_again(kind: type[Exception], args: tuple[Any, ...]) -> Exception:
    error = kind.__new__(kind)
    error.args = args
    return error


class StockadeError(Exception):
    """Base of all refusals.

    ``detail`` says in a sentence what happened, ``hint`` what to do next; a traceback shows both. ``fields`` are the
    members that the problem document carries beside the common ones.
    """

    code: ClassVar[str]
    title: ClassVar[str]
    http_status: ClassVar[int]
    retriable: ClassVar[bool] = False
    no_side_effects: bool = True
    metadata_stale: ClassVar[bool] = False
    explaining: ClassVar[frozenset[str]] = frozenset()
    """The fields that are for people only, as ``detail`` is: they do not count when refusals are compared."""

    def __init_subclass__(cls, **policy: Unpack[Policy]) -> None:
        super().__init_subclass__()
        for name, value in policy.items():
            setattr(cls, name, value)

    def __init__(self, detail: str | None = None, **fields: Any) -> None:
        """``detail`` says in a sentence what happened this time; it defaults to the sentence of refusal_texts.py."""
        self.fields: dict[str, Any] = fields
        self.detail: str = detail or self._because()
        super().__init__(f"{self.code}: {self.detail}")

    @property
    def hint(self) -> str:
        """What a Python program does next, in a sentence or two; empty if there is no advice."""
        return self.hint_on("python")

    def hint_on(self, surface: Surface) -> str:
        """What to do next on this surface, in a sentence or two; empty if there is no advice."""
        return self._text().on(surface)

    def _text(self) -> Text:
        return text_of(self.code, self.fields.get("reason", self.fields.get("what")))

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # add_note appends to this list
        """The lines that a traceback shows below the refusal: the hint, and then those of ``add_note``.

        Made when they are looked at: a node makes refusals by the thousand, and shows none of them in a traceback.
        """
        notes: list[str] | None = self.__dict__.get("_notes")
        if notes is None:
            notes = self.__dict__["_notes"] = [f"What to do next: {self.hint}"] if self.hint else []
        return notes

    def _because(self) -> str:
        template = self._text().because
        try:
            fields = (
                self.fields | {"writer": writer_of(self.fields["holder"])} if "{writer}" in template else self.fields
            )
            return template.format_map(fields) or self.title
        except (LookupError, TypeError):  # a field is missing, or null
            return self.title

    @property
    def status(self) -> int:
        """HTTP status of this instance; the class's, except where the contract gives one code two."""
        return self.http_status

    def had_effects(self) -> Self:
        """Mark this refusal: its request has changed something, or may have. Returns it."""
        self.no_side_effects = False
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy all attributes: by default an exception is made again from its message alone."""
        return _made_again, (type(self), self.args), self.__dict__

    def __eq__(self, other: object) -> bool:
        """Whether two refusals have one type and equal fields, apart from those that are for people only."""
        return type(self) is type(other) and self._verdict() == other._verdict()

    def __hash__(self) -> int:
        return hash(self.code)

    def _verdict(self) -> dict[str, Any]:
        return {name: value for name, value in self.fields.items() if name not in self.explaining}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.fields.items())})"


class CorruptMessage(
    StockadeError, code="CORRUPT_MESSAGE", http_status=400, title="The bytes of the batch are damaged", retriable=True
):
    """The body is not a readable Arrow stream. Fields: reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, reason=reason)


class Unauthenticated(StockadeError, code="UNAUTHENTICATED", http_status=401, title="Credentials are missing or wrong"):
    """The request has no bearer token, or one that the cluster does not know."""


class PermissionDenied(StockadeError, code="PERMISSION_DENIED", http_status=403, title="Not allowed"):
    """The principal may not do this. Fields, where a page in a browser is refused: reason (foreign_host,
    foreign_page), host or origin.
    """


class MethodNotAllowed(
    StockadeError, code="METHOD_NOT_ALLOWED", http_status=405, title="The route does not know this method"
):
    """The route does not have this method; the Allow header lists those that it has."""


class NotAcceptable(StockadeError, code="NOT_ACCEPTABLE", http_status=406, title="No such representation"):
    """Fields: available (media types)."""


class MessageTooLarge(StockadeError, code="MESSAGE_TOO_LARGE", http_status=413, title="The request is too large"):
    """Fields: limit, unit (bytes, records, parts, values)."""


class UnsupportedMediaType(
    StockadeError, code="UNSUPPORTED_MEDIA_TYPE", http_status=415, title="The body's type is not understood here"
):
    """Fields: accepted (content types)."""


class HeadersTooLarge(
    StockadeError, code="HEADERS_TOO_LARGE", http_status=431, title="The request's headers are too large"
):
    """Fields: limit (bytes)."""


class NotFound(StockadeError, code="NOT_FOUND", http_status=404, title="Not found"):
    """Fields: what (route, ticket, producer, node, stage, principal, token, session)."""

    def __init__(self, detail: str | None = None, what: str | None = None) -> None:
        super().__init__(detail, what=what)


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
    """The path, the query, a header or the shape of the body is wrong. Fields: reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, reason=reason)


class InvalidRecord(StockadeError, code="INVALID_RECORD", http_status=400, title="A record cannot be stored"):
    """A record, or the batch, cannot be stored. Fields: reason, index (of the first bad record; None: the batch)."""

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason, reason=reason, index=index)


class InvalidFencingToken(
    StockadeError, code="INVALID_FENCING_TOKEN", http_status=400, title="This epoch was never issued"
):
    """The fencing token names an epoch above the partition's. Fields: current_epoch."""


class ProducerFenced(
    StockadeError,
    code="PRODUCER_FENCED",
    http_status=403,
    title="The token or identity of the writer is not in force",
    explaining=frozenset({"holder", "ended"}),
):
    """A superseded fencing token or producer (Kafka error 90). Fields: current_epoch, reason, outcome (with a producer
    stamp); on a partition also ``holder``: the exclusive holder of the slot, since when and by which operation (None:
    there is none), and ``ended``: when and why the caller's own tenure ended there (None: not remembered).
    """

    @property
    def holder(self) -> dict[str, Any] | None:
        """The fields of a `model.SlotHolder`; None: there is none, or it is not known."""
        return self.fields.get("holder")


class InvalidProducerEpoch(
    StockadeError, code="INVALID_PRODUCER_EPOCH", http_status=403, title="Not the producer's current epoch"
):
    """Append only: the producer epoch is old or was never issued (Kafka error 47). Fields: current_epoch, outcome."""


class NotOwner(StockadeError, code="NOT_OWNER", http_status=403, title="Not the owner of the resource"):
    """The request's fence_epoch is not that of the resource's owner; or another session owns what a disown names.
    Fields: fence_epoch, resource, group; of an append with a sequence number whose fence_epoch has been succeeded,
    outcome (as ProducerFenced).
    """


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
    """The session was never opened, was closed, or expired so long ago that it is forgotten."""


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


class TopicSealed(StockadeError, code="TOPIC_SEALED", http_status=409, title="The topic is sealed"):
    """Nothing is appended any more. Fields: log_end; for an append with a sequence number, outcome (ProducerFenced)."""


class OutOfOrderSequence(
    StockadeError,
    code="OUT_OF_ORDER_SEQUENCE_NUMBER",
    http_status=409,
    title="Not the expected sequence number",
    retriable=True,
):
    """The batch does not begin at the producer's next sequence number (Kafka error 45). Fields: reason (gap, overlap,
    new_epoch, no_state), expected_seq, last_seq (-1 = none).
    """


class UnknownProducerId(
    StockadeError, code="UNKNOWN_PRODUCER_ID", http_status=409, title="The partition no longer remembers the producer"
):
    """The partition forgot the producer, by age or by max_producers (Kafka error 59). Fields: log_start, log_end."""


class InvalidProducerIdMapping(
    StockadeError, code="INVALID_PRODUCER_ID_MAPPING", http_status=409, title="This producer id is not mapped"
):
    """The id was never issued, or the registry has forgotten its name (Kafka error 49)."""


class GenerationFenced(
    StockadeError, code="GENERATION_FENCED", http_status=409, title="A live owner has a higher generation"
):
    """A live owner has a higher generation. Fields: resource (the first refused), generation, fence_epoch, results
    (verdicts on all claims of an atomic request).
    """


class HoldAndWait(StockadeError, code="HOLD_AND_WAIT", http_status=409, title="A holder of a grant may not wait"):
    """The session holds a grant, or has a ticket, and would have to wait. Fields: held_grants, ticket."""


class SessionExpired(StockadeError, code="SESSION_EXPIRED", http_status=410, title="The session has ended"):
    """The session has expired; it is never revived."""


class FeatureUpdateFailed(
    StockadeError, code="FEATURE_UPDATE_FAILED", http_status=409, title="The feature level cannot be that one now"
):
    """The cluster's feature level is higher already, or a member does not support the level, or cannot be asked.
    Fields: nodes (those members), feature_level (the cluster's).
    """


class FeatureLevelTooLow(
    StockadeError, code="FEATURE_LEVEL_TOO_LOW", http_status=409, title="The cluster's feature level does not have that"
):
    """A member may run software that does not know the request. Fields: feature_level (the cluster's), needed."""


class OffsetMismatch(
    StockadeError, code="OFFSET_MISMATCH", http_status=412, title="The log does not end at the given offset"
):
    """The condition ``if_log_end`` of an append does not hold. Fields: log_end."""


class PlanChanged(
    StockadeError, code="PLAN_CHANGED", http_status=412, title="The state is not the one that the order rests on"
):
    """An order of an operator names the state that it was decided on (if_grants, if_epoch, if_log_end, if_plan), which
    is another one now. Fields, those that the order has conditions on: grants (that it would end), topic_epoch,
    log_end, plan (its digest).
    """


class OffsetOutOfRange(
    StockadeError, code="OFFSET_OUT_OF_RANGE", http_status=416, title="The offset is outside the log"
):
    """The offset is below log_start (410) or above log_end (416). Fields: offset, log_start, log_end; ``stale`` (True)
    when these are the bounds of a replica that did not ask the leader, and may lag behind it.
    """

    def __init__(self, offset: int, log_start: int, log_end: int, *, stale: bool = False) -> None:
        detail = f"offset {offset} is outside {log_start}..{log_end}"
        if stale:
            detail += ", the bounds of this replica, which may lag behind the leader"
        of_replica = {"stale": True} if stale else {}
        super().__init__(detail, offset=offset, log_start=log_start, log_end=log_end, **of_replica)

    @property
    def status(self) -> int:
        """410 for an offset that was trimmed, 416 for one that is not written yet."""
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
    title="Another producer holds the slot or waits for it",
    retriable=True,
    explaining=frozenset({"holder"}),
):
    """The slot is taken (Pulsar ProducerBusy). Fields: reason, holder_mode, current_epoch, queue_len; ``holder``: who
    has it, since when and until when at most, as `model.SlotHolder` (None: only tickets are in the way).
    """

    @property
    def holder(self) -> dict[str, Any] | None:
        """The fields of a `model.SlotHolder`; None: there is none, or it is not known."""
        return self.fields.get("holder")


class FencingTokenRequired(
    StockadeError, code="FENCING_TOKEN_REQUIRED", http_status=428, title="The topic requires a fencing token"
):
    """The topic's require_fence is set and the request has no fencing token, whether the slot is held or free."""


class ThrottlingQuotaExceeded(
    StockadeError,
    code="THROTTLING_QUOTA_EXCEEDED",
    http_status=429,
    title="A bound or a quota is reached",
    retriable=True,
):
    """Fields: retry_after_ms."""


class WaitQueueFull(
    StockadeError, code="WAIT_QUEUE_FULL", http_status=429, title="The wait queue is full", retriable=True
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
    """No leader is known, or it cannot prove that it leads; nothing was proposed. Fields: retry_after_ms; reasons, if a
    node tells why it is not ready.
    """

    def __init__(self, detail: str | None = None, retry_after_ms: int = 200, **reasons: Any) -> None:
        super().__init__(detail, retry_after_ms=retry_after_ms, **reasons)


class NotEnoughReplicas(
    StockadeError, code="NOT_ENOUGH_REPLICAS", http_status=503, title="Too few replicas are up", retriable=True
):
    """Too few nodes are up for the request; nothing was proposed. Fields: retry_after_ms."""

    def __init__(self, detail: str | None = None, retry_after_ms: int = 1000) -> None:
        super().__init__(detail, retry_after_ms=retry_after_ms)


class LedgerFull(
    StockadeError, code="LEDGER_FULL", http_status=503, title="Too much waits for the ledger", retriable=True
):
    """An act of administration that could not be recorded: nothing was changed. Fields: entries (that wait to be
    copied to the ledger's topic), retry_after_ms.
    """


class RequestTimedOut(
    StockadeError,
    code="REQUEST_TIMED_OUT",
    http_status=504,
    title="No answer in time",
    retriable=True,
    no_side_effects=False,
):
    """The command was proposed and not decided in time: the outcome is unknown. Fields: raft_index (or None)."""

    def __init__(self, detail: str | None = None, raft_index: int | None = None) -> None:
        super().__init__(detail, raft_index=raft_index)


class InsufficientStorage(
    StockadeError, code="INSUFFICIENT_STORAGE", http_status=507, title="Too little room on disk", retriable=True
):
    """The disks that would have to store the batch have less free than ``disk_soft_free_bytes``, or few inodes; nothing
    was proposed. Fields: nodes (ids of the nodes with these disks), retry_after_ms.
    """

    def __init__(self, nodes: list[str], retry_after_ms: int = 1000) -> None:
        text = f"too little room is left on the disk of {', '.join(nodes)}; nothing was proposed"
        super().__init__(text, nodes=nodes, retry_after_ms=retry_after_ms)


class StorageQuotaExceeded(
    StockadeError,
    code="STORAGE_QUOTA_EXCEEDED",
    http_status=507,
    title="The partition's quota of bytes does not take the batch",
    retriable=True,
):
    """The partition keeps ``kept_bytes``; with the appends under way and the batch it would exceed the topic's
    ``quota_bytes``. Nothing was proposed. Fields: quota_bytes, kept_bytes, retry_after_ms.
    """

    def __init__(self, quota_bytes: int, kept_bytes: int, retry_after_ms: int = 1000) -> None:
        text = f"the partition keeps {kept_bytes} bytes, its quota is {quota_bytes}; nothing was proposed"
        super().__init__(text, quota_bytes=quota_bytes, kept_bytes=kept_bytes, retry_after_ms=retry_after_ms)


class TieredStoreUnavailable(
    StockadeError,
    code="TIERED_STORE_UNAVAILABLE",
    http_status=503,
    title="Old records cannot be read now",
    retriable=True,
):
    """The records are in the tiered store, which does not answer, answers too slowly, or has other bytes than were
    stored. Fields: store (its URL without arguments, None: this node has none), retry_after_ms.
    """

    def __init__(self, detail: str | None = None, store: str | None = None, retry_after_ms: int = 1000) -> None:
        super().__init__(detail, store=store, retry_after_ms=retry_after_ms)


BY_CODE: dict[str, type[StockadeError]] = {cls.code: cls for cls in StockadeError.__subclasses__()}
"""Every refusal by its wire code."""


def revive(code: str, detail: str, fields: dict[str, Any]) -> StockadeError:
    """The refusal with this code, detail and fields, which came over the wire, as an instance of its class."""
    cls = BY_CODE[code]
    error = cls.__new__(cls)
    StockadeError.__init__(error, detail, **fields)
    return error
