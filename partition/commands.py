"""What can be asked of a partition's state machine, what it answers, and the bytes of both.

Commands are frozen values. Everything that apply may depend on travels in them (SEMANTICS 3): the timestamp of
receipt was read by the leader before proposing, and a batch was validated before. The bytes are MessagePack with a
tag for each kind; encoding is deterministic, so equal commands have equal bytes.
"""

from collections.abc import Callable

import msgspec

from .codec import Codec
from .config import PartitionConfig
from .errors import StockadeError
from .forgetting import ForgetProducers, ProducersForgotten
from .slots import ClearFence, InstallFence, InstallSeats, SlotState

ProducerId = int
Offset = int

PRODUCER_EPOCH_MAX = 32766
"""Highest producer epoch given to a client; 32767 is kept for the server."""
SEQUENCE_MODULUS = 1 << 31
"""Sequence numbers are int32 without sign: 0 follows 2147483647."""


def is_named(pid: ProducerId) -> bool:
    """Named producers have odd ids, anonymous ones even ids, so a zombie of a forgotten name never passes as
    anonymous.
    """
    return pid % 2 == 1


class Token(msgspec.Struct, frozen=True, gc=False):
    """Fencing token of an append: the grant, its epoch on this partition, and the session that holds it."""

    grant_id: str
    epoch: int
    session: str


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """Idempotence stamp of a batch (KIP-98): producer id, its epoch, and the sequence number of the first record."""

    pid: ProducerId
    epoch: int
    first_seq: int

    def check(self) -> None:
        """Raises AssertionError for one out of range. To be called before it is proposed (not when it is decoded, on
        every replica): found in apply, it would stop all of them, at every start.
        """
        assert 0 <= self.pid < 1 << 63
        assert 0 <= self.epoch <= PRODUCER_EPOCH_MAX
        assert 0 <= self.first_seq < SEQUENCE_MODULUS


class Append(msgspec.Struct, frozen=True, tag="append", omit_defaults=True, gc=False):
    """Append one validated batch. Answers Appended, NotEnrolled, or a refusal.

    ``message`` is one encapsulated Arrow IPC RecordBatch message of ``count`` rows (records.py), ``crc`` its CRC-32.
    ``timestamp_ms`` is the moment of receipt, ``max_timestamp_ms`` the greatest timestamp of a record in it; ``now_ms``
    is the lease clock, as in every command that has one. ``fence_epoch`` is the guard of a topic with a writer_group,
    ``message_id`` names the batch on a topic with a dedupe_window_ms.
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


class InstallProducer(msgspec.Struct, frozen=True, tag="install_producer"):
    """Make a producer known here with this epoch (a fence-only entry), or raise its epoch. Never lowers one.

    ``order`` is the index in the controller's log of the command that gave out the epoch. What was decided before a
    producer was forgotten here is not taken any more: it may be older than what was forgotten. Answers
    ProducerInstalled.
    """

    pid: ProducerId
    epoch: int
    order: int = 0
    now_ms: int = 0


class Trim(msgspec.Struct, frozen=True, tag="trim"):
    """Drop the records below ``before`` (None: all), as a writer asks for it (SEMANTICS 5.14). Answers Trimmed."""

    before: Offset | None
    topic_id: int | None = None
    token: Token | None = None
    now_ms: int = 0


class Retain(msgspec.Struct, frozen=True, tag="retain"):
    """Drop the records below ``before``, as the topic's retention asks for it, and let time pass. Answers Trimmed."""

    before: Offset
    now_ms: int


class Configure(msgspec.Struct, frozen=True, tag="configure"):
    """The topic's configuration as decided by the command at ``order`` of the controller's log; an older one than the
    last is passed over. Answers Configured.
    """

    order: int
    config: PartitionConfig
    now_ms: int = 0


class PutStage(msgspec.Struct, frozen=True, tag="put_stage"):
    """Store a validated batch beside the log under a name (stages.py). Answers Staged, or a refusal.

    ``digest`` is of what the client sent: a repetition is told from other bytes by it. Without an append, and without
    being kept, the stage is forgotten ``ttl_ms`` later.
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


class ChangeStages(msgspec.Struct, frozen=True, tag="change_stages"):
    """Keep stages, so that they do not expire, and delete others; all or nothing. Producer ``pid`` must be in its
    ``epoch``. Answers StagesChanged, NotEnrolled, or a refusal.
    """

    keep: list[str]
    delete: list[str]
    pid: ProducerId
    epoch: int
    topic_id: int | None = None
    now_ms: int = 0


class AppendStage(msgspec.Struct, frozen=True, tag="append_stage", omit_defaults=True):
    """Append the batch of a stage. Its fields, and what it answers, are those of Append; a stage that was appended
    before is answered as a duplicate.
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


class InstallReader(msgspec.Struct, frozen=True, tag="install_reader"):
    """This partition as a resource of ``group`` has this fence_epoch now; ``owned``: somebody owns it.

    Accepted unless a higher fence_epoch was installed; one that was told to be ownerless never gets an owner again
    (SEMANTICS 6.4: the next owner has a higher one). Answers ReaderInstalled.
    """

    group: str
    fence_epoch: int
    owned: bool = True


class CommitPosition(msgspec.Struct, frozen=True, tag="commit_position"):
    """Remember where a group continues to read. ``fence_epoch`` is needed once the group has owned the partition.

    Answers PositionCommitted, NotOwner, OffsetOutOfRange, ThrottlingQuotaExceeded.
    """

    group: str
    offset: Offset
    metadata: str | None = None
    fence_epoch: int | None = None


Command = (
    Append
    | InstallFence
    | InstallSeats
    | ClearFence
    | InstallProducer
    | ForgetProducers
    | Trim
    | Retain
    | Configure
    | InstallReader
    | CommitPosition
    | PutStage
    | ChangeStages
    | AppendStage
)


class Appended(msgspec.Struct, frozen=True, tag="appended", gc=False):
    """Stored now, or (``duplicate``) by an earlier request, whose offsets and time these are; None: no longer
    remembered.
    """

    base_offset: Offset | None
    last_offset: Offset | None
    duplicate: bool
    log_start: Offset
    timestamp_ms: int | None


class ProducerInstalled(msgspec.Struct, frozen=True, tag="producer_installed"):
    """No lower epoch than this is taken here: it is in force, or the producer is not known here and its epoch is asked
    for before anything of it is taken.
    """

    epoch: int


class NotEnrolled(msgspec.Struct, frozen=True, tag="not_enrolled"):
    """This partition does not know the producer yet: ask the controller, install the producer, propose again."""

    pid: ProducerId


class Trimmed(msgspec.Struct, frozen=True, tag="trimmed"):
    """Where the log begins and ends now."""

    log_start: Offset
    log_end: Offset


class Configured(msgspec.Struct, frozen=True, tag="configured"):
    """The configuration of this or a later order is in force."""

    order: int


class ReaderInstalled(msgspec.Struct, frozen=True, tag="reader_installed"):
    """The group's fence_epoch in force here: the one asked for, or a higher one."""

    fence_epoch: int


class PositionCommitted(msgspec.Struct, frozen=True, tag="position_committed"):
    """The position is remembered."""


class Staged(msgspec.Struct, frozen=True, tag="staged"):
    """The stage is there; ``new``: since this command."""

    new: bool


class StagesChanged(msgspec.Struct, frozen=True, tag="stages_changed"):
    """What was to be kept is kept, what was to be deleted is gone."""


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
