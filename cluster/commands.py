"""What can be asked of the controller's state machine, what it answers, and the bytes of both.

Commands are frozen values in MessagePack, a tag for each kind. Every command carries ``now_ms``, the lease
clock of the leader that proposed it (SEMANTICS 8): apply reads no other clock. Ids are made from the log
index, except session ids: they are secrets, so the leader's shell draws them and they travel in the command.
"""

from collections.abc import Callable

import msgspec

from ..partition.codec import Codec
from ..partition.errors import StockadeError
from .group_commands import GroupCommand, Owned
from .membership_commands import Arranged, MembershipCommand
from .model import TopicConfig
from .producer_commands import (
    Enrol,
    Enrolled,
    FenceProducer,
    ForgetNames,
    InitProducer,
    ProducerCommand,
    ProducerFence,
    ProducerFenceInstalled,
    ProducerState,
    WithdrawProducers,
)
from .refs import FenceRef, ReaderRef
from .timed import Timed as _Timed
from .topic_commands import TopicChanged, TopicCommand, TopicFenced

GroupId = int
"""Raft group: 0 is the controller's, the others are partitions' (catalog.group_id)."""


class CreateTopic(_Timed, frozen=True, tag="create_topic"):
    """Create a topic and place its replicas on ``nodes``: node ids and zones (None: a zone of its own).

    ``replication_factor`` None: 3, or the greatest odd number of nodes when there are fewer.
    Answers TopicCreated, or InvalidRequest, TopicAlreadyExists, NotEnoughReplicas, ThrottlingQuotaExceeded.
    """

    name: str
    partitions: int
    replication_factor: int | None
    config: TopicConfig
    nodes: list[tuple[str, str | None]]


class DeleteTopic(_Timed, frozen=True, tag="delete_topic"):
    """Delete a topic; its grants end.

    Answers TopicDeleted, or UnknownTopicOrPartition, InconsistentTopicId.
    """

    name: str
    topic_id: int | None = None


class OpenSession(_Timed, frozen=True, tag="open_session"):
    """Open a session; ``ttl_ms`` is moved into the range allowed.

    The same id again is the same session. Answers SessionState, or ThrottlingQuotaExceeded.
    """

    session: str
    client_id: str
    ttl_ms: int


class RenewSession(_Timed, frozen=True, tag="renew_session"):
    """Full ttl from now. Answers SessionState, or UnknownSession, SessionExpired."""

    session: str


class RenewSessions(_Timed, frozen=True, tag="renew_sessions"):
    """Deadlines as the leader knows them: it heard of these sessions, and they do not end before. Answers Done."""

    deadlines_ms: list[tuple[str, int]]


class CloseSession(_Timed, frozen=True, tag="close_session"):
    """End a session and its grants. Idempotent. Answers Freed."""

    session: str


class Acquire(_Timed, frozen=True, tag="acquire"):
    """All partitions of the set (None: all of the topic, also those that come later) or none (SEMANTICS 5.2).

    ``ticket_ttl_ms``: how long a ticket stays in line; None: as long as the session. Answers GrantState, TicketState
    (WaitForExclusive alone), or InvalidRequest, UnknownSession, SessionExpired, UnknownTopicOrPartition,
    InconsistentTopicId, ProducerFenced, InvalidFencingToken, ProducerBusy, HoldAndWait, WaitQueueFull,
    ThrottlingQuotaExceeded.
    """

    session: str
    topic: str
    partitions: list[int] | None
    mode: str
    producer_name: str
    topic_id: int | None = None
    resume_epoch: int | None = None
    ticket_ttl_ms: int | None = None


class CancelTicket(_Timed, frozen=True, tag="cancel_ticket"):
    """Leave the line. Answers TicketState (cancelled; also when there is no such ticket), or the GrantState that came
    first, or UnknownSession, SessionExpired, ProducerFenced.
    """

    session: str
    ticket_id: str


class Release(_Timed, frozen=True, tag="release"):
    """End a grant; an unknown one is fine.

    Answers Freed, or UnknownSession, SessionExpired, ProducerFenced.
    """

    session: str
    grant_id: str


class FenceInstalled(_Timed, frozen=True, tag="fence_installed"):
    """The partition's slot is at this place in the order of decisions, or at a later one. Idempotent. Answers Done."""

    group_id: GroupId
    order: int


class Tick(_Timed, frozen=True, tag="tick"):
    """Nothing but the passing of time: due sessions expire. Answers Done."""


Command = (
    CreateTopic
    | DeleteTopic
    | OpenSession
    | RenewSession
    | RenewSessions
    | CloseSession
    | Acquire
    | CancelTicket
    | Release
    | FenceInstalled
    | Tick
    | MembershipCommand
    | TopicCommand
    | GroupCommand
    | ProducerCommand
)


class TopicCreated(msgspec.Struct, frozen=True, tag="topic_created"):
    """The topic, and whether this command made it."""

    topic_id: int
    created: bool


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic_deleted"):
    """The incarnation that is gone, and how many partitions it had."""

    topic_id: int
    partitions: int


class SessionState(msgspec.Struct, frozen=True, tag="session"):
    """A live session. It ends when the lease clock reaches ``deadline_ms``."""

    session: str
    client_id: str
    ttl_ms: int
    deadline_ms: int


class OfTicket(msgspec.Struct, frozen=True):
    """What became of an acquire."""

    ticket_id: str
    session: str
    topic: str
    partitions: list[int]


class GrantState(OfTicket, frozen=True, tag="grant"):
    """A live grant. ``grant_index`` is its place in the order of decisions about slots.

    ``epochs`` are those of the partitions, in their order; ``epoch`` is None for Shared. ``pending`` has the partitions
    that are not known to have the fence yet. All lists ascend by partition. ``all_partitions``: it was asked for the
    whole topic, not for a list.
    """

    grant_id: str
    grant_index: int
    topic_id: int
    all_partitions: bool
    mode: str
    producer_name: str
    epoch: int | None
    epochs: list[int]
    pending: list[int]

    @property
    def is_in_force(self) -> bool:
        """Every partition has the fence, so every older token is dead."""
        return not self.pending


class TicketState(OfTicket, frozen=True, tag="ticket"):
    """A ticket without a grant: in line behind ``position`` others that touch its set, or (None) out of the line."""

    position: int | None


class Freed(msgspec.Struct, frozen=True, tag="freed"):
    """The grants are free in the controller; answer the client when every one of ``fences`` is over, and every one of
    ``readers`` installed.
    """

    fences: list[FenceRef]
    readers: list[ReaderRef] = []


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Noted."""


Result = (
    TopicCreated
    | TopicDeleted
    | TopicChanged
    | TopicFenced
    | SessionState
    | GrantState
    | TicketState
    | Freed
    | Owned
    | ProducerState
    | Enrolled
    | Arranged
    | Done
)


_codec: Codec[Command, Result] = Codec(Command, Result)
encode_command: Callable[[Command], bytes] = _codec.encode_command
decode_command: Callable[[bytes], Command] = _codec.decode_command
encode_result: Callable[[Result | StockadeError], bytes] = _codec.encode_result
decode_result: Callable[[bytes], Result | StockadeError] = _codec.decode_result

__all__ = [
    "Enrol",
    "Enrolled",
    "FenceProducer",
    "ForgetNames",
    "InitProducer",
    "ProducerFence",
    "ProducerFenceInstalled",
    "ProducerState",
    "WithdrawProducers",
]
