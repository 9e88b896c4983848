"""The commands of the controller's state machine, its answers, and the bytes of both.

Commands are frozen values in MessagePack, a tag for each kind. Every command carries ``now_ms``, the lease clock of the
leader that proposed it (SEMANTICS 8): apply reads no other clock. Ids are made from the log index, except session ids:
they are secrets, so the leader draws them and they travel in the command. Answers name the installs that partitions
must have committed before the client is answered (FenceRef, ReaderRef, ProducerFence).
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ...partition.api.topics import TopicConfig
from ...partition.commands import Codec, ProducerId
from ...partition.errors import StockadeError
from ..model import Claim
from .backups import NoteBackup
from .balance import BalanceCommand
from .ledger import LedgerCommand, Noted
from .principals import PrincipalCommand, PrincipalPut
from .sessions import CloseSession, FenceSession, OpenSession, RenewSession, RenewSessions, SessionState
from .timed import Asked, Done, Timed


class FenceRef(msgspec.Struct, frozen=True):
    """A grant left a partition by the decision at this place; its slot may have it until ControllerMachine.is_over."""

    group_id: int
    order: int


class ReaderRef(msgspec.Struct, frozen=True):
    """The fence_epoch of a partition as a resource of ``group``: the partition must refuse every older one."""

    group_id: int
    group: str
    fence_epoch: int


class Own(Asked, frozen=True, tag="own"):
    """Own resources of a group. ``sever``: an owner that loses one loses all its resources and grants (session), or
    that one alone (resource). ``unwritable``: topics that the caller has no right to acquire, so it may not own their
    partitions in their writer_group (feature level 2).

    Answers Owned, or InvalidRequest, UnknownSession, SessionExpired, GenerationFenced (``atomic`` alone),
    PermissionDenied, ThrottlingQuotaExceeded.
    """

    session: str
    group: str
    claims: list[Claim]
    atomic: bool = True
    sever: Literal["session", "resource"] = "session"
    unwritable: list[str] = msgspec.field(default_factory=list)


class Disown(Asked, frozen=True, tag="disown"):
    """Give resources up. Answers Owned, or InvalidRequest, UnknownSession, SessionExpired, NotOwner."""

    session: str
    group: str
    resources: list[str]


class ForgetResources(Timed, frozen=True, tag="forget_resources"):
    """Forget those of ``keys`` (group, resource) that had no owner for RESOURCE_TTL_MS. Answers Done."""

    keys: list[tuple[str, str]]


class ReaderFenceInstalled(Timed, frozen=True, tag="reader_fence_installed"):
    """The partition has committed InstallReader with these values. Idempotent. Answers Done."""

    group_id: int
    group: str
    fence_epoch: int
    owned: bool


GroupCommand = Own | Disown | ForgetResources | ReaderFenceInstalled


class Verdict(msgspec.Struct, frozen=True):
    """The decision on one claim, with the numbers that are in force now; ``code``: the error of a refusal."""

    resource: str
    granted: bool
    generation: int
    fence_epoch: int
    code: str | None = None


class Owned(msgspec.Struct, frozen=True, tag="owned"):
    """Verdicts in the order of the claims. Answer the client when every one of ``pending`` is installed, and every one
    of ``fences`` is over: these are about grants of the sessions that were severed.
    """

    verdicts: list[Verdict]
    pending: list[ReaderRef]
    fences: list[FenceRef] = []


class RegisterNode(Timed, frozen=True, tag="register_node"):
    """A node tells, at its start, its addresses and the incarnation of its disk.

    ``controllers``: the members of the controller group by this node's configuration; counts only while none are
    recorded. Answers Arranged, or NotFound (removed, and not added again), ThrottlingQuotaExceeded.
    """

    node_id: str
    url: str
    raft: str
    zone: str | None
    incarnation: int
    controllers: list[str]


class AddNode(Asked, frozen=True, tag="add_node"):
    """An operator announces a node before it registers; a node that was removed, or is being removed, may come again.

    Answers Arranged, or ThrottlingQuotaExceeded.
    """

    node_id: str
    url: str
    raft: str
    zone: str | None


class RemoveNode(Asked, frozen=True, tag="remove_node"):
    """Move a node's replicas elsewhere, then forget it. The same again changes nothing.

    ``if_plan``: only if this is the digest of the plan (ReplicaAssignment.removal; None: in any case). ``away``: nodes
    that take replicas only where there are not enough others. Answers Arranged, or NotFound, NotEnoughReplicas (no
    other node can take what it holds; nothing is changed), PlanChanged.
    """

    node_id: str
    if_plan: str | None = None
    away: list[str] = msgspec.field(default_factory=list)


class RemoveZone(Asked, frozen=True, tag="remove_zone"):
    """Remove all nodes of a zone (a machine) at once, so that nothing moves from one of them to another.

    Answers as RemoveNode does; NotFound: no node is there.
    """

    zone: str
    if_plan: str | None = None
    away: list[str] = msgspec.field(default_factory=list)


class Reassign(Asked, frozen=True, tag="reassign"):
    """Move a partition's replicas to these nodes, in place of any move under way. The same again changes nothing.

    Answers Arranged, or UnknownTopicOrPartition, NotFound (a node), InvalidRequest.
    """

    topic: str
    partition: int
    replicas: list[str]


class CheckMove(Timed, frozen=True, tag="check_move"):
    """Ask whether the move of this version is still wanted. Answers Done, or NotFound."""

    group_id: int
    version: int


class MoveDone(Timed, frozen=True, tag="move_done"):
    """The group's voters are exactly the move's target. Answers Arranged, or NotFound (not wanted any more)."""

    group_id: int
    version: int


class RaiseFeatureLevel(Asked, frozen=True, tag="raise_feature_level"):
    """The cluster has this feature level from now on. ``supporting``: the registered nodes whose software is known to
    support it; this command itself is the first that older software cannot read. A level that is in force already
    changes nothing. Answers Arranged, or FeatureUpdateFailed (a registered node is not in ``supporting``).
    """

    level: int
    supporting: list[str]


MembershipCommand = (
    RegisterNode
    | AddNode
    | RemoveNode
    | RemoveZone
    | Reassign
    | BalanceCommand
    | CheckMove
    | MoveDone
    | RaiseFeatureLevel
)


class Arranged(msgspec.Struct, frozen=True, tag="arranged"):
    """The command was applied, and counts as a change of the catalog."""


class InitProducer(Asked, frozen=True, tag="init_producer"):
    """InitProducerId (SEMANTICS 6.5). ``pair`` is the (pid, epoch) that the caller has had; None: none yet.

    Answers ProducerState, or InvalidRequest, ProducerFenced, ThrottlingQuotaExceeded.
    """

    name: str | None
    pair: tuple[int, int] | None = None
    nonce: str | None = None


class FenceProducer(Asked, frozen=True, tag="fence_producer"):
    """Fence the writer of this name (SEMANTICS 5.15). Answers ProducerState, or NotFound."""

    name: str


class Enrol(Timed, frozen=True, tag="enrol"):
    """A partition asks about a producer that it does not know; from now on the producer's epochs are installed there.

    Answers Enrolled, or UnknownTopicOrPartition, InvalidProducerIdMapping, ProducerFenced,
    ThrottlingQuotaExceeded.
    """

    pid: ProducerId
    group_id: int


class ProducerFenceInstalled(Timed, frozen=True, tag="producer_fence_installed"):
    """The partition has committed InstallProducer with this epoch. Idempotent. Answers Done."""

    pid: ProducerId
    epoch: int
    group_id: int


class WithdrawProducers(Timed, frozen=True, tag="withdraw_producers"):
    """The partition does not know these producers, and takes no install of them that was decided up to the index
    ``order``. Their enrolments there end, except of those about which an install was decided since. Answers Done.
    """

    group_id: int
    pids: list[ProducerId]
    order: int


class ForgetNames(Timed, frozen=True, tag="forget_names"):
    """Forget those of these names that were not used for NAME_TTL_MS, and that no partition may know. Answers Done."""

    names: list[str]


ProducerCommand = InitProducer | FenceProducer | Enrol | ProducerFenceInstalled | WithdrawProducers | ForgetNames


class ProducerFence(msgspec.Struct, frozen=True):
    """An epoch that a partition must know before the producer's pair is given out (see Enrolments.is_installed)."""

    pid: ProducerId
    epoch: int
    group_id: int


class ProducerState(msgspec.Struct, frozen=True, tag="producer"):
    """The pair of a producer; give it to the client when every one of ``pending`` is installed."""

    pid: ProducerId
    epoch: int
    name: str | None
    pending: list[ProducerFence]


class Enrolled(msgspec.Struct, frozen=True, tag="enrolled"):
    """The epoch to install on the partition that asked: the registry's, or 0 for an anonymous producer. ``order`` is
    the log index of the Enrol, ``principal`` the owner of the producer's name.
    """

    pid: ProducerId
    epoch: int
    order: int
    principal: str = ""


class ChangeTopic(Asked, frozen=True, tag="change_topic"):
    """Change a topic to what the fields say (None: unchanged); ``config`` has the fields of TopicConfig that change.

    New partitions are placed on ``nodes`` (``scattered`` as in CreateTopic); grants and tickets of the whole topic grow
    by them (SEMANTICS 7.4).
    Answers TopicChanged, or UnknownTopicOrPartition, InconsistentTopicId, InvalidRequest, NotEnoughReplicas,
    ThrottlingQuotaExceeded.
    """

    name: str
    topic_id: int | None
    partitions: int | None
    seal: bool
    config: dict[str, Any]
    nodes: list[tuple[str, str | None]]
    scattered: bool = False


class FenceTopic(Asked, frozen=True, tag="fence_topic"):
    """End whole grants that have one of these partitions (None: all), without a new holder; queued tickets are
    promoted. ``if_grants``: only if exactly these grants end (None: in any case).

    Answers TopicFenced, or UnknownTopicOrPartition, InconsistentTopicId, InvalidRequest, PlanChanged.
    """

    topic: str
    partitions: list[int] | None
    topic_id: int | None = None
    reason: str | None = None
    if_grants: list[str] | None = None


TopicCommand = ChangeTopic | FenceTopic


class TopicChanged(msgspec.Struct, frozen=True, tag="topic_changed"):
    """The topic is as asked. A partition acts by its configuration once that of ``config_order`` has reached it."""

    topic_id: int
    config_order: int


class FencedPartition(msgspec.Struct, frozen=True):
    """A partition's ``epoch`` right after a fence, the fence's place (``order``), and the grants that it ended."""

    partition: int
    epoch: int
    order: int
    grants: list[str]


class TopicFenced(msgspec.Struct, frozen=True, tag="topic_fenced"):
    """One item a partition, ascending. Answer the client when each partition is known to have reached its place."""

    topic_id: int
    partitions: list[FencedPartition]


GroupId = int
"""Raft group: 0 is the controller's, the others are partitions' (catalog.group_id)."""


class CreateTopic(Asked, frozen=True, tag="create_topic"):
    """Create a topic and place its replicas on ``nodes``: node ids and zones (None: a zone of its own).

    ``replication_factor`` None: 3, or 1 when there are fewer than three ``nodes``. ``scattered`` is how placement.py
    breaks ties; False in commands from before this field, so that they still give the same placements.
    Answers TopicCreated, or InvalidRequest, TopicAlreadyExists, NotEnoughReplicas, ThrottlingQuotaExceeded.
    """

    name: str
    partitions: int
    replication_factor: int | None
    config: TopicConfig
    nodes: list[tuple[str, str | None]]
    scattered: bool = False


class DeleteTopic(Asked, frozen=True, tag="delete_topic"):
    """Delete a topic; its grants end. ``if_grants``: only if this is the digest of those grants (None: in any case).

    Answers TopicDeleted, or UnknownTopicOrPartition, InconsistentTopicId, PlanChanged.
    """

    name: str
    topic_id: int | None = None
    if_grants: str | None = None


class Acquire(Asked, frozen=True, tag="acquire"):
    """Acquire all partitions of the set (None: all of the topic, also later ones) or none (SEMANTICS 5.2).

    ``ticket_ttl_ms``: how long a ticket stays queued; None: as long as the session. Answers GrantState, TicketState
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


class CancelTicket(Asked, frozen=True, tag="cancel_ticket"):
    """Take a ticket out of the queue. Answers TicketState (cancelled; also when there is no such ticket), or the
    GrantState that came first, or UnknownSession, SessionExpired, ProducerFenced.
    """

    session: str
    ticket_id: str


class Release(Asked, frozen=True, tag="release"):
    """End a grant; an unknown one is fine.

    Answers Freed, or UnknownSession, SessionExpired, ProducerFenced.
    """

    session: str
    grant_id: str


class FenceInstalled(Timed, frozen=True, tag="fence_installed"):
    """The partition's slot is at this place in the order of decisions, or at a later one. Idempotent. Answers Done.

    ``log_end``: the end offset of the partition's log when it reached this place; ``previous``: the place that it had
    before. None: not known.
    """

    group_id: GroupId
    order: int
    log_end: int | None = None
    previous: int | None = None


class Tick(Timed, frozen=True, tag="tick"):
    """Nothing but the passing of time: due sessions expire. Answers Done."""


Command = (
    CreateTopic
    | DeleteTopic
    | OpenSession
    | RenewSession
    | RenewSessions
    | CloseSession
    | FenceSession
    | Acquire
    | CancelTicket
    | Release
    | FenceInstalled
    | Tick
    | MembershipCommand
    | TopicCommand
    | GroupCommand
    | ProducerCommand
    | PrincipalCommand
    | LedgerCommand
    | NoteBackup
)


class TopicCreated(msgspec.Struct, frozen=True, tag="topic_created"):
    """The topic, and whether this command made it."""

    topic_id: int
    created: bool


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic_deleted"):
    """The id of the topic that was deleted, and how many partitions it had."""

    topic_id: int
    partitions: int


class OfTicket(msgspec.Struct, frozen=True):
    """The fields that both outcomes of an acquire have: a grant, and a ticket."""

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
        """Whether every partition has the fence, and so refuses every older token."""
        return not self.pending


class TicketState(OfTicket, frozen=True, tag="ticket"):
    """A ticket without a grant: queued behind ``position`` others that touch its set, or (None) not queued any more."""

    position: int | None


class Freed(msgspec.Struct, frozen=True, tag="freed"):
    """The controller has ended the grants. Answer the client when every one of ``fences`` is over, and every one of
    ``readers`` installed.
    """

    fences: list[FenceRef]
    readers: list[ReaderRef] = []


class SessionEnded(Freed, frozen=True, kw_only=True, tag="session_ended"):
    """A session was ended: it was of this client, had these grants, and owned so many resources."""

    client_id: str
    grants: list[str]
    resources: int


Result = (
    TopicCreated
    | TopicDeleted
    | TopicChanged
    | TopicFenced
    | SessionState
    | GrantState
    | TicketState
    | Freed
    | SessionEnded
    | Owned
    | ProducerState
    | Enrolled
    | Arranged
    | PrincipalPut
    | Noted
    | Done
)


_codec: Codec[Command, Result] = Codec(Command, Result)
encode_command: Callable[[Command], bytes] = _codec.encode_command
decode_command: Callable[[bytes], Command] = _codec.decode_command
encode_result: Callable[[Result | StockadeError], bytes] = _codec.encode_result
decode_result: Callable[[bytes], Result | StockadeError] = _codec.decode_result

__all__ = [
    "CloseSession",
    "Done",
    "FenceSession",
    "OpenSession",
    "RenewSession",
    "RenewSessions",
    "SessionState",
]
