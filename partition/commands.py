"""The commands of a partition's state machine, its answers, and the bytes of both.

Commands are frozen values. They carry everything that apply may depend on (SEMANTICS 3): the leader reads the clock for
the timestamp of receipt, and validates a batch, before it proposes. The bytes are MessagePack with a tag for each kind;
a refusal is identified by its code. Encoding is deterministic, so equal commands have equal bytes.

Commands about the slot (InstallFence, InstallSeats, ClearFence) are ordered by (epoch, grant_index). ``grant_index`` is
the number of the decision among all decisions about slots, which the controller counts
(cluster/controller/ownership/slots.py), so a grant that resumes an epoch comes after the one it resumes. A
command that arrives after a later one is recognised by this order and changes nothing. Their ``now_ms`` is the
controller's lease clock at the decision; it is shown to people, and decides nothing.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from .config import PartitionConfig
from .errors import StockadeError, revive

_Command = TypeVar("_Command")
_Result = TypeVar("_Result")


class _Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    code: str
    detail: str
    fields: dict[str, Any]


class Codec(Generic[_Command, _Result]):
    """The codec of one machine's commands and answers. Encoding is deterministic: equal values have equal bytes."""

    def __init__(self, commands: Any, results: Any) -> None:
        """``commands`` and ``results`` are unions of tagged structs."""
        self._encoder = msgspec.msgpack.Encoder()
        self._results: msgspec.msgpack.Decoder[_Result | _Refusal] = msgspec.msgpack.Decoder(results | _Refusal)
        self.encode_command: Callable[[_Command], bytes] = self._encoder.encode
        """The bytes of a command, as they go into the replicated log."""
        self.decode_command: Callable[[bytes], _Command] = msgspec.msgpack.Decoder(commands).decode
        """Inverse of encode_command. Raises msgspec.DecodeError (a ValueError) on anything else."""

    def encode_result(self, result: _Result | StockadeError) -> bytes:
        """The bytes of an answer or a refusal, which carry it from the leader to the node that asked."""
        if isinstance(result, StockadeError):
            return self._encoder.encode(_Refusal(result.code, result.detail, result.fields))
        return self._encoder.encode(result)

    def decode_result(self, data: bytes) -> _Result | StockadeError:
        """Inverse of encode_result."""
        result = self._results.decode(data)
        return revive(result.code, result.detail, result.fields) if isinstance(result, _Refusal) else result


class InstallFence(msgspec.Struct, frozen=True, tag="install_fence"):
    """Put an exclusive grant into the slot, in place of its holders; topic_epoch becomes ``epoch``.

    Accepted if the grant is later than everything that was installed or cleared here, or if it holds the slot already;
    otherwise nothing changes. ``operation`` says how the grant got the slot (acquire, resume, promotion, eviction), and
    ``ends`` why the tenure of the holder before it ended, if that holder is still here. The grant began at ``now_ms``
    on the controller's lease clock, at ``wall_ms`` on its leader's wall clock (0: not known); ``ttl_ms`` is the
    session's time to live. These three decide nothing. ``principal`` is the session's: no other may write with the
    token.
    """

    grant_id: str
    epoch: int
    session: str
    producer_name: str
    mode: str
    grant_index: int
    client_id: str | None = None
    now_ms: int = 0
    operation: str = "acquire"
    ends: str = "superseded"
    wall_ms: int = 0
    ttl_ms: int = 0
    principal: str = ""


class SharedHolder(msgspec.Struct, frozen=True):
    """One of several producers that share the slot, since ``now_ms`` of the lease clock and ``wall_ms`` of the wall
    clock.
    """

    grant_id: str
    session: str
    producer_name: str
    client_id: str | None = None
    now_ms: int = 0
    wall_ms: int = 0
    principal: str = ""


class InstallSeats(msgspec.Struct, frozen=True, tag="install_seats"):
    """``seats`` are all holders that share the slot now (none: it is free); sharing raises no epoch.

    ``grant_index`` is that of the latest change of the set, by a holder that came or left. Accepted if it is later than
    everything that was installed or cleared here, or the same again. ``ends`` says why the tenures of those present
    holders ended that are not among ``seats``.
    """

    epoch: int
    grant_index: int
    seats: list[SharedHolder]
    now_ms: int = 0
    ends: str = "released"


class ClearFence(msgspec.Struct, frozen=True, tag="clear_fence"):
    """End a grant, and with it every older one: the slot is emptied unless a later grant holds it.

    Late installs of ended grants are ignored from now on, even if this grant never arrived here: (topic_epoch,
    grant_index) rises to this grant's if it is lower. A later grant stays in force. A fence without a new holder clears
    a grant that was never given out: this evicts the holders and leaves the slot free. ``ends`` says why the tenure
    ended (released, closed, expired, evicted, fenced).
    """

    grant_id: str
    epoch: int
    grant_index: int
    now_ms: int = 0
    ends: str = "released"


class SlotState(msgspec.Struct, frozen=True, tag="slot"):
    """Answer to the three commands about the slot: whether the command is in force (``done``), and the partition's
    epoch. When the slot's latest decision came into force here, the log ended at ``log_end``, and ``previous`` was the
    grant_index in force; both are None if not ``done``, or if the decision is older than the version that keeps them.
    """

    done: bool
    topic_epoch: int
    log_end: int | None = None
    previous: int | None = None


class ForgetProducers(msgspec.Struct, frozen=True, tag="forget_producers"):
    """Ask which of these producers the partition does not know. If there are any, it ignores from now on all installs
    of unknown producers that the controller decided up to ``order``, an index of the controller's log: such a producer
    must be enrolled anew to write again. Answers ProducersForgotten.
    """

    pids: list[int]
    order: int


class ProducersForgotten(msgspec.Struct, frozen=True, tag="producers_forgotten"):
    """The producer ids of a ForgetProducers that the partition does not know."""

    pids: list[int]


ProducerId = int
Offset = int

PRODUCER_EPOCH_MAX = 32766
"""Highest producer epoch that a client is given; 32767 is reserved for the server."""
TOKEN_CHARACTERS_MAX = 249
"""Longest id of a grant or a session in a fencing token."""
MESSAGE_ID_CHARACTERS_MAX = 128
"""Longest message id of an append."""
SEQUENCE_MODULUS = 1 << 31
"""Sequence numbers are non-negative int32: 0 follows 2147483647."""


def belongs_to_another(owner: str, principal: str) -> bool:
    """Whether an object belongs to another principal than ``principal``. An object without an owner ("") belongs to
    all.
    """
    return owner not in ("", principal)


def is_named(pid: ProducerId) -> bool:
    """Whether a producer id is that of a named producer. Such ids are odd, those of anonymous producers even, so a
    zombie of a forgotten name never passes as anonymous.
    """
    return pid % 2 == 1


class Token(msgspec.Struct, frozen=True, gc=False):
    """The fencing token of a write: the grant, its epoch on this partition, and the session that holds the grant."""

    grant_id: str
    epoch: int
    session: str


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """The idempotence stamp of a batch (KIP-98): producer id and epoch, and the sequence number of its first record."""

    pid: ProducerId
    epoch: int
    first_seq: int


class Append(msgspec.Struct, frozen=True, tag="append", omit_defaults=True, gc=False):
    """Append one validated batch. Answers Appended, NotEnrolled, or a refusal.

    ``message`` is one encapsulated Arrow IPC RecordBatch message of ``count`` rows (batch.py), ``crc`` its CRC-32.
    ``timestamp_ms`` is the moment of receipt, ``max_timestamp_ms`` the greatest timestamp of a record in it; ``now_ms``
    is the lease clock, as in every command that has it. A topic with a writer_group requires ``fence_epoch``;
    ``message_id`` names the batch on a topic with a dedupe_window_ms. ``principal`` is the caller ("": none).
    """

    message: bytes
    count: int
    crc: int
    timestamp_ms: int
    max_timestamp_ms: int
    topic_id: int | None = None
    token: Token | None = None
    stamp: Stamp | None = None
    if_log_end: Offset | None = None
    now_ms: int = 0
    fence_epoch: int | None = None
    message_id: str | None = None
    principal: str = ""


class InstallProducer(msgspec.Struct, frozen=True, tag="install_producer"):
    """Make a producer known here with this epoch and no sequence, or raise its epoch. Never lowers an epoch.

    ``order`` is the index in the controller's log of the command that gave out the epoch. An install of an unknown
    producer with an ``order`` below that of a producer that was forgotten here is ignored: its epoch may be older than
    the forgotten one. ``principal`` was given the epoch ("": none, or not known). Answers ProducerInstalled.
    """

    pid: ProducerId
    epoch: int
    order: int = 0
    now_ms: int = 0
    principal: str = ""


class Trim(msgspec.Struct, frozen=True, tag="trim"):
    """Drop the records below ``before`` (None: all), as a writer asks (SEMANTICS 5.14), unless the partition's epoch is
    no longer ``if_epoch``, or its log's end no longer ``if_log_end`` (None: no condition): then the refusal is
    PlanChanged. Answers Trimmed or a refusal.
    """

    before: Offset | None
    topic_id: int | None = None
    token: Token | None = None
    now_ms: int = 0
    principal: str = ""
    if_epoch: int | None = None
    if_log_end: Offset | None = None


OFFSET_BEGIN_MAX = 1 << 53
"""The highest offset at which a log may begin: programs of every language can count from there for centuries."""


class BeginAt(msgspec.Struct, frozen=True, tag="begin_at"):
    """Let a log that has never had a record begin at ``offset``, so that a log restored from a backup has the old
    offsets. Of feature level 2. Answers Trimmed, also if the log begins there already and is empty; a refusal if not:
    OffsetMismatch.
    """

    offset: Offset
    topic_id: int | None = None
    now_ms: int = 0
    principal: str = ""


class Retain(msgspec.Struct, frozen=True, tag="retain", omit_defaults=True):
    """Drop the records below ``before``, as the topic's retention demands, and advance the lease clock to ``now_ms``.
    Answers Trimmed.

    ``all_message_ids``, of feature level 2: forget every message id that is due, not only the oldest ones.
    """

    before: Offset
    now_ms: int
    all_message_ids: bool = False


class TierObject(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of the log in the tiered store: the records of ``first <= offset < end``, in whole batches. Its file has
    ``size`` bytes with this SHA-256; as a segment it would have ``log_bytes``. It was uploaded in ``term``; ``nonce``
    makes its name unique. Its last batch was received at ``received_ms``; the greatest timestamp of its records is
    ``greatest_timestamp_ms``.
    """

    first: Offset
    end: Offset
    term: int
    nonce: str
    size: int
    sha256: bytes
    log_bytes: int
    received_ms: int
    greatest_timestamp_ms: int


class BeginTier(msgspec.Struct, frozen=True, tag="begin_tier"):
    """Choose this folder of the tiered store for the partition's objects, unless one was chosen before. Of feature
    level 2. Answers Tiered.
    """

    folder: str = msgspec.field(name="home")


class AddTierObject(msgspec.Struct, frozen=True, tag="add_tier_object"):
    """List an object that was uploaded to ``folder`` and verified there. Of feature level 2. Answers Tiered."""

    folder: str = msgspec.field(name="home")
    item: TierObject


class Configure(msgspec.Struct, frozen=True, tag="configure"):
    """Put the topic's configuration into force, as the command at index ``order`` of the controller's log decided it;
    ignored unless ``order`` is above that of the configuration in force. Answers Configured.
    """

    order: int
    config: PartitionConfig
    now_ms: int = 0


class PutStage(msgspec.Struct, frozen=True, tag="put_stage"):
    """Store a validated batch beside the log under a name (stages.py). Answers Staged, or a refusal.

    ``digest``, of the bytes that the client sent, distinguishes a repetition from other bytes. A stage that is neither
    appended nor kept is forgotten ``ttl_ms`` later. ``received_ms`` is the moment of receipt, the timestamp of records
    without one; None in logs of versions that did not keep it. Only ``principal`` may keep, delete and append the stage
    ("": all may; feature level 2).
    """

    name: str
    digest: str
    message: bytes
    count: int
    crc: int
    max_timestamp_ms: int
    ttl_ms: int
    topic_id: int | None = None
    now_ms: int = 0
    received_ms: int | None = None
    principal: str = ""


class ChangeStages(msgspec.Struct, frozen=True, tag="change_stages"):
    """Keep stages, so that they do not expire, and delete others; all or nothing. The epoch of producer ``pid`` must be
    ``epoch``. ``evicts``: stages of other principals may be among them. Answers StagesChanged, NotEnrolled, or a
    refusal.
    """

    keep: list[str]
    delete: list[str]
    pid: ProducerId
    epoch: int
    topic_id: int | None = None
    now_ms: int = 0
    principal: str = ""
    evicts: bool = False


class AppendStage(msgspec.Struct, frozen=True, tag="append_stage", omit_defaults=True):
    """Append the batch of a stage. Fields and answers are those of Append; a stage that was appended before is answered
    as a duplicate. ``timestamp_ms`` is the moment at which this command was received, from which retention counts; the
    answer's timestamp is the moment at which the stage was received. ``evicts`` as in ChangeStages.
    """

    name: str
    timestamp_ms: int
    topic_id: int | None = None
    token: Token | None = None
    stamp: Stamp | None = None
    if_log_end: Offset | None = None
    now_ms: int = 0
    fence_epoch: int | None = None
    message_id: str | None = None
    principal: str = ""
    evicts: bool = False


class InstallReader(msgspec.Struct, frozen=True, tag="install_reader"):
    """Raise the fence_epoch of this partition as a resource of ``group``; if ``owned``, it has an owner, of
    ``principal``.

    Accepted unless a higher fence_epoch was installed, or the same one without an owner: the next owner has a higher
    fence_epoch (SEMANTICS 6.4). Answers ReaderInstalled.
    """

    group: str
    fence_epoch: int
    owned: bool = True
    principal: str = ""


class CommitPosition(msgspec.Struct, frozen=True, tag="commit_position"):
    """Remember the offset where a group continues to read; None: forget its position (feature level 2). ``fence_epoch``
    is required once the group has owned the partition.

    Answers PositionCommitted, NotOwner, PermissionDenied, OffsetOutOfRange, ThrottlingQuotaExceeded.
    """

    group: str
    offset: Offset | None
    metadata: str | None = None
    fence_epoch: int | None = None
    principal: str = ""


Command = (
    Append
    | InstallFence
    | InstallSeats
    | ClearFence
    | InstallProducer
    | ForgetProducers
    | Trim
    | BeginAt
    | Retain
    | Configure
    | InstallReader
    | CommitPosition
    | PutStage
    | ChangeStages
    | AppendStage
    | BeginTier
    | AddTierObject
)


class Appended(msgspec.Struct, frozen=True, tag="appended", gc=False):
    """The batch is stored: by this request, or, if ``duplicate``, by an earlier one, whose offsets and time these are;
    None: no longer remembered.
    """

    base_offset: Offset | None
    last_offset: Offset | None
    duplicate: bool
    log_start: Offset
    timestamp_ms: int | None


class ProducerInstalled(msgspec.Struct, frozen=True, tag="producer_installed"):
    """The lowest epoch of the producer that is accepted here. It is in force, or the install was ignored, and the
    producer has to be enrolled before it may write.
    """

    epoch: int


class NotEnrolled(msgspec.Struct, frozen=True, tag="not_enrolled"):
    """This partition does not know the producer yet: ask the controller for its epoch, install it, propose again."""

    pid: ProducerId


class Trimmed(msgspec.Struct, frozen=True, tag="trimmed"):
    """The offsets at which the log begins and ends now."""

    log_start: Offset
    log_end: Offset


class Tiered(msgspec.Struct, frozen=True, tag="tiered"):
    """The state of the tier after a command: the objects end at ``end`` and are in ``folder``; ``is_taken``:
    whether the command is in force.
    """

    end: Offset
    folder: str = msgspec.field(name="home")
    is_taken: bool


class Configured(msgspec.Struct, frozen=True, tag="configured"):
    """The ``order`` of the configuration in force: that of the command, or a later one."""

    order: int


class ReaderInstalled(msgspec.Struct, frozen=True, tag="reader_installed"):
    """The group's fence_epoch in force here: that of the command, or a higher one."""

    fence_epoch: int


class PositionCommitted(msgspec.Struct, frozen=True, tag="position_committed"):
    """The position is remembered, or forgotten, as the command said."""


class Staged(msgspec.Struct, frozen=True, tag="staged"):
    """The stage is stored: if ``new`` by this command, else by an earlier one."""

    new: bool


class StagesChanged(msgspec.Struct, frozen=True, tag="stages_changed"):
    """The partition has kept and deleted the stages that the command named."""


Result = (
    Appended
    | SlotState
    | ProducerInstalled
    | ProducersForgotten
    | NotEnrolled
    | Trimmed
    | Configured
    | ReaderInstalled
    | PositionCommitted
    | Staged
    | StagesChanged
    | Tiered
)


_codec: Codec[Command, Result] = Codec(Command, Result)
encode_command: Callable[[Command], bytes] = _codec.encode_command
decode_command: Callable[[bytes], Command] = _codec.decode_command
encode_result: Callable[[Result | StockadeError], bytes] = _codec.encode_result
decode_result: Callable[[bytes], Result | StockadeError] = _codec.decode_result

__all__ = [
    "ClearFence",
    "ForgetProducers",
    "InstallFence",
    "InstallSeats",
    "ProducersForgotten",
    "SlotState",
]
