"""What can be asked of the controller's state machine, what it answers, and the bytes of both.

Commands are frozen values in MessagePack, a tag for each kind. Every command carries ``now_ms``, the lease
clock of the leader that proposed it (SEMANTICS 8): apply reads no other clock. Ids are made from the log
index, except session ids: they are secrets, so the leader's shell draws them and they travel in the command.
"""

import msgspec

from ..partition.codec import Codec
from ..partition.commands import ProducerId
from .membership_commands import Arranged, MembershipCommand
from .model import TopicConfig
from .timed import Timed as _Timed

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


class CloseSession(_Timed, frozen=True, tag="close_session"):
    """End a session and its grants. Idempotent. Answers Freed."""

    session: str


class Acquire(_Timed, frozen=True, tag="acquire"):
    """All partitions of the set (None: all that the topic has now) or none (SEMANTICS 5.2).

    Answers GrantState, or InvalidRequest, UnknownSession, SessionExpired, UnknownTopicOrPartition,
    InconsistentTopicId, ProducerFenced, InvalidFencingToken, ProducerBusy.
    """

    session: str
    topic: str
    partitions: list[int] | None
    mode: str
    producer_name: str
    topic_id: int | None = None
    resume_epoch: int | None = None


class Release(_Timed, frozen=True, tag="release"):
    """End a grant; an unknown one is fine.

    Answers Freed, or UnknownSession, SessionExpired, ProducerFenced.
    """

    session: str
    grant_id: str


class FenceInstalled(_Timed, frozen=True, tag="fence_installed"):
    """The partition has committed InstallFence of this grant, answered ``done``. Idempotent. Answers Done."""

    group_id: GroupId
    grant_id: str


class FenceCleared(_Timed, frozen=True, tag="fence_cleared"):
    """The partition has committed ClearFence of this grant. Idempotent. Answers Done."""

    group_id: GroupId
    grant_id: str


class InitProducer(_Timed, frozen=True, tag="init_producer"):
    """InitProducerId (SEMANTICS 6.5). ``pair`` is (pid, epoch) of a caller that was here before.

    Answers ProducerState, or InvalidRequest, InvalidTransactionTimeout, ProducerFenced,
    ThrottlingQuotaExceeded.
    """

    name: str | None
    timeout_ms: int
    pair: tuple[int, int] | None = None
    nonce: str | None = None


class FenceProducer(_Timed, frozen=True, tag="fence_producer"):
    """Fence whoever writes under this name (SEMANTICS 5.15). Answers ProducerState, or NotFound."""

    name: str


class Enrol(_Timed, frozen=True, tag="enrol"):
    """A partition asks about a producer that it does not know; from now on it is told every epoch of it.

    Answers Enrolled, or UnknownTopicOrPartition, InvalidProducerIdMapping, ProducerFenced,
    ThrottlingQuotaExceeded.
    """

    pid: ProducerId
    group_id: GroupId


class ProducerFenceInstalled(_Timed, frozen=True, tag="producer_fence_installed"):
    """The partition has committed InstallProducer with this epoch. Idempotent. Answers Done."""

    pid: ProducerId
    epoch: int
    group_id: GroupId


class Tick(_Timed, frozen=True, tag="tick"):
    """Nothing but the passing of time: due sessions expire. Answers Done."""


Command = (
    CreateTopic
    | DeleteTopic
    | OpenSession
    | RenewSession
    | CloseSession
    | Acquire
    | Release
    | FenceInstalled
    | FenceCleared
    | InitProducer
    | FenceProducer
    | Enrol
    | ProducerFenceInstalled
    | Tick
    | MembershipCommand
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


class GrantState(msgspec.Struct, frozen=True, tag="grant"):
    """A live grant. ``grant_index`` is the log index of its acquire.

    ``pending`` has the partitions that are not known to have the fence yet; both lists ascend.
    ``all_partitions``: it was asked for the whole topic, not for a list.
    """

    grant_id: str
    ticket_id: str
    grant_index: int
    session: str
    topic: str
    topic_id: int
    partitions: list[int]
    all_partitions: bool
    mode: str
    producer_name: str
    epoch: int
    pending: list[int]

    @property
    def is_in_force(self) -> bool:
        """Every partition has the fence, so every older token is dead."""
        return not self.pending


class FenceRef(msgspec.Struct, frozen=True):
    """A freed grant on one partition, whose slot may hold it still (ControllerMachine.is_over tells)."""

    group_id: GroupId
    grant_index: int


class Freed(msgspec.Struct, frozen=True, tag="freed"):
    """The grants are free in the controller; answer the client when every one of ``fences`` is over."""

    fences: list[FenceRef]


class ProducerFence(msgspec.Struct, frozen=True):
    """An epoch that a partition must know before the producer's pair is given out (is_installed tells)."""

    pid: ProducerId
    epoch: int
    group_id: GroupId


class ProducerState(msgspec.Struct, frozen=True, tag="producer"):
    """The pair of a producer; give it to the client when every one of ``pending`` is installed."""

    pid: ProducerId
    epoch: int
    name: str | None
    pending: list[ProducerFence]


class Enrolled(msgspec.Struct, frozen=True, tag="enrolled"):
    """The epoch to install on the partition that asked: the registry's, or 0 for an anonymous producer. ``order`` is
    the log index of this answer.
    """

    pid: ProducerId
    epoch: int
    order: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Noted."""


Result = TopicCreated | TopicDeleted | SessionState | GrantState | Freed | ProducerState | Enrolled | Arranged | Done


_codec: Codec[Command, Result] = Codec(Command, Result)
encode_command = _codec.encode_command
decode_command = _codec.decode_command
encode_result = _codec.encode_result
decode_result = _codec.decode_result
