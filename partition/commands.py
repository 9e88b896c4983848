"""What can be asked of a partition's state machine, what it answers, and the bytes of both.

Commands are frozen values. Everything that apply may depend on travels in them (SEMANTICS 3): the timestamp of
receipt was read by the leader before proposing, and a batch was validated before. The bytes are MessagePack with a
tag for each kind; encoding is deterministic, so equal commands have equal bytes.
"""

import msgspec

from .codec import Codec

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


class Token(msgspec.Struct, frozen=True):
    """Fencing token of an append: the grant, its epoch on this partition, and the session that holds it."""

    grant_id: str
    epoch: int
    session: str


class Stamp(msgspec.Struct, frozen=True):
    """Idempotence stamp of a batch (KIP-98): producer id, its epoch, and the sequence number of the first record."""

    pid: ProducerId
    epoch: int
    first_seq: int

    def __post_init__(self) -> None:
        """Checked where a stamp is made: found in apply, a bad one would stop every replica, at every start."""
        assert 0 <= self.pid < 1 << 63
        assert 0 <= self.epoch <= PRODUCER_EPOCH_MAX
        assert 0 <= self.first_seq < SEQUENCE_MODULUS


class Append(msgspec.Struct, frozen=True, tag="append"):
    """Append one validated batch.

    ``message`` is one encapsulated Arrow IPC RecordBatch message of ``count`` rows (records.py), ``crc`` its CRC-32.
    ``timestamp_ms`` is the moment of receipt, ``max_timestamp_ms`` the greatest timestamp of a record in it.
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


class InstallFence(msgspec.Struct, frozen=True, tag="install_fence"):
    """Put a grant into the slot, in place of any older one; topic_epoch becomes ``epoch``.

    The grants of a partition are ordered by (epoch, grant_index). ``grant_index`` is the index of the acquire in the
    controller's log, so a grant that resumes an epoch comes after the one it resumes. Accepted if the grant is later
    than every grant that was installed or cleared here, or if it holds the slot already; nothing changes otherwise.
    """

    grant_id: str
    epoch: int
    session: str
    producer_name: str
    mode: str
    grant_index: int


class ClearFence(msgspec.Struct, frozen=True, tag="clear_fence"):
    """End a grant, and with it every older one: the slot is emptied unless a later grant holds it.

    Late installs of what was ended are refused from now on, also when this grant never arrived here: the place in the
    order of grants, and with it topic_epoch, rises to this grant's if it is lower. A later grant is left alone.
    """

    grant_id: str
    epoch: int
    grant_index: int


class InstallProducer(msgspec.Struct, frozen=True, tag="install_producer"):
    """Make a producer known here with this epoch (a fence-only entry), or raise its epoch. Never lowers one."""

    pid: ProducerId
    epoch: int


Command = Append | InstallFence | ClearFence | InstallProducer


class Appended(msgspec.Struct, frozen=True, tag="appended"):
    """Stored now, or (``duplicate``) by an earlier request, whose offsets and time these are; None: no longer
    remembered.
    """

    base_offset: Offset | None
    last_offset: Offset | None
    duplicate: bool
    log_start: Offset
    timestamp_ms: int | None


class SlotState(msgspec.Struct, frozen=True, tag="slot"):
    """Answer to InstallFence and ClearFence: whether the slot is now as asked, and the partition's epoch."""

    done: bool
    topic_epoch: int


class ProducerInstalled(msgspec.Struct, frozen=True, tag="producer_installed"):
    """Answer to InstallProducer: the epoch in force here."""

    epoch: int


class NotEnrolled(msgspec.Struct, frozen=True, tag="not_enrolled"):
    """This partition does not know the producer yet: ask the controller, install the producer, propose again."""

    pid: ProducerId


Result = Appended | SlotState | ProducerInstalled | NotEnrolled


_codec: Codec[Command, Result] = Codec(Command, Result)
encode_command = _codec.encode_command
decode_command = _codec.decode_command
encode_result = _codec.encode_result
decode_result = _codec.decode_result
