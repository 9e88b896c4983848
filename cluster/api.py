"""What a front (HTTP today) may ask of a node.

Every method raises subclasses of StockadeError only. A method that needs a leader raises NotLeaderOrFollower (with the
leader's base URL when known) where this node does not lead: the front then forwards the request to the leader, once.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

from ..partition.api.cluster import (
    BalancePlan,
    BalanceSettings,
    Cluster,
    ControllersPlan,
    NodeSetting,
    NotedBackup,
    PartitionCounts,
    Reassignment,
    RemovalPlan,
    Unready,
)
from ..partition.api.ownership import (
    Evicted,
    Grant,
    GroupList,
    OwnResult,
    Resource,
    SessionFenced,
    SessionInfo,
    SessionList,
    Ticket,
    TicketList,
)
from ..partition.api.producers import PartitionProducer, ProducerList, ProducerPair, ProducerStatus
from ..partition.api.records import PartitionContents, StageInfo
from ..partition.api.topics import Mode, Topic, TopicConfig, TopicPage, TopicSummary
from ..partition.commands import Appended, Offset, Token
from ..partition.log.interface import Slice
from ..partition.records.batch import Batch
from ..partition.state.fence import Tenure
from .access.administration import Principals
from .access.store import PrincipalTable
from .measures import Measures
from .model import NO_PRINCIPAL, By, Claim, CommittedPosition, Conditions, Leader, ReadGuard, Settle


class Partition(Protocol):
    """A partition as this node can reach it. ``config`` is the configuration of its topic."""

    topic: str
    topic_id: int
    partition: int
    config: TopicConfig

    @property
    def is_leading(self) -> bool:
        """Whether this node leads the partition, as far as it knows."""
        ...

    def leader(self) -> Leader:
        """The leader of the partition, as far as this node knows."""
        ...

    def tenure(self, grant_id: str) -> Tenure | None:
        """The tenure of a grant that holds the slot, or held it and is still remembered here; None for any other."""
        ...

    async def append(self, batch: Batch, conditions: Conditions) -> Appended:
        """Propose one validated batch and wait for the verdict of apply (SEMANTICS 5.8).

        ``fence_epoch`` is the ownership guard of a topic with a writer_group. Raises InvalidRequest for a
        ``message_id`` where there is no dedupe_window_ms.
        """
        ...

    def submit(self, batch: Batch, conditions: Conditions, settle: Settle) -> bool:
        """Like ``append``, without waiting: ``settle`` is called once, perhaps before this returns. Returns False if
        nothing was proposed and ``settle`` is not called: ``append`` first does what is missing, or refuses.
        """
        ...

    async def read(
        self,
        offset: Offset | None,
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        local: bool,
        guard: ReadGuard | None = None,
    ) -> Slice:
        """Committed batches from ``offset`` (None: log end); linearizable unless ``local`` (SEMANTICS 5.10).

        Waits up to ``max_wait_ms`` until ``min_bytes`` are there. ``offset`` -1 means log start. Raises NotOwner
        unless ``guard`` is the owner's, before and after the wait; OffsetOutOfRange, TieredStoreUnavailable.
        """
        ...

    async def read_tail(self, count: int) -> tuple[Slice, int]:
        """The first slice of the last ``count`` records, and topic_epoch; linearizable (SEMANTICS 5.12)."""
        ...

    async def find_offset(self, timestamp_ms: int | None) -> tuple[Offset, int | None, Offset, Offset]:
        """(offset, its timestamp, log_start, log_end) of the first record at or after ``timestamp_ms``; offset -1 if
        none. None asks for the first record with the greatest timestamp. Linearizable.
        """
        ...

    async def trim(
        self,
        before: Offset | None,
        *,
        topic_id: int | None,
        token: Token | None,
        principal: str = "",
        if_epoch: int | None = None,
        if_log_end: Offset | None = None,
    ) -> tuple[Offset, Offset]:
        """Drop the records below ``before`` (None: all); returns (log_start, log_end) after that (SEMANTICS 5.14).

        Raises PlanChanged unless topic_epoch is ``if_epoch`` and log_end is ``if_log_end`` (None: not compared).
        """
        ...

    async def begin_at(self, offset: Offset, *, topic_id: int | None, principal: str = "") -> tuple[Offset, Offset]:
        """Let a log that has never had a record begin at ``offset``; returns (log_start, log_end) after that. Raises
        OffsetMismatch, FeatureLevelTooLow.
        """
        ...

    async def position(self, group: str) -> CommittedPosition:
        """The group's committed position; linearizable."""
        ...

    async def commit_position(
        self, group: str, offset: Offset | None, metadata: str | None, fence_epoch: int | None, principal: str = ""
    ) -> None:
        """Commit the group's position; ``offset`` None forgets it, which needs feature level 2. Raises NotOwner,
        PermissionDenied, OffsetOutOfRange, FeatureLevelTooLow.
        """
        ...

    async def put_stage(
        self, name: str, digest: str, batch: Batch, *, ttl_ms: int, topic_id: int | None, principal: str = ""
    ) -> bool:
        """Store one validated batch beside the log as a stage; returns whether it is new. Raises StageAlreadyExists.

        From feature level 2 on only ``principal`` may keep, delete and append the stage ("": all may).
        """
        ...

    async def stages(self, prefix: str) -> list[StageInfo]:
        """The stages whose names begin with ``prefix``, in the order in which they were stored; linearizable."""
        ...

    async def change_stages(
        self,
        keep: list[str],
        delete: list[str],
        *,
        producer: tuple[int, int],
        topic_id: int | None,
        principal: str = "",
        evicts: bool = False,
    ) -> None:
        """Keep and delete stages: all or nothing. Raises NotFound, InvalidProducerEpoch if ``producer`` has another."""
        ...

    async def append_stage(
        self, name: str, received_ms: int, conditions: Conditions, *, evicts: bool = False
    ) -> tuple[Appended, int]:
        """Append a stage's batch, once; returns the verdict and the size of the batch in bytes. Raises as ``append``
        does, NotFound, and PermissionDenied for a stage of another principal, unless the caller ``evicts``.
        """
        ...

    async def fences(self) -> list[Tenure]:
        """The present tenures of the slot and a bounded number of past ones, the latest first; linearizable."""
        ...

    async def contents(self, most: int, tells: Callable[[str], bool]) -> PartitionContents:
        """The log's ends and bytes, and the ``most`` lowest positions of groups that ``tells`` allows; linearizable."""
        ...

    async def latest_producers(self, most: int) -> tuple[int, list[PartitionProducer]]:
        """The number of producers known here, and the ``most`` latest used of them, newest first; linearizable."""
        ...


class Sessions(Protocol):
    """Sessions, and the grants and tickets that end with them (SEMANTICS 5.2, 6.3). They belong to the principal that
    opened the session: every method but ``open_session`` and ``fence_session`` raises PermissionDenied for another.
    """

    async def open_session(self, client_id: str, ttl_ms: int, by: By = NO_PRINCIPAL) -> SessionInfo:
        """Open a session; a ttl outside the range that the cluster allows is moved to its nearest bound."""
        ...

    async def renew_session(self, session: str, by: By = NO_PRINCIPAL) -> SessionInfo:
        """Give the session its full ttl from now on. Raises UnknownSession, SessionExpired."""
        ...

    async def close_session(self, session: str, by: By = NO_PRINCIPAL) -> None:
        """End the session; answers when its slots are cleared. Idempotent."""
        ...

    async def fence_session(
        self,
        handle: str,
        *,
        reason: str | None = None,
        if_grants: str | None = None,
        if_resources: int | None = None,
        by: By = NO_PRINCIPAL,
    ) -> SessionFenced:
        """End the session with this handle, of any principal, on an operator's order; answers when its slots are
        cleared. Raises NotFound, InvalidRequest, PlanChanged, FeatureLevelTooLow.
        """
        ...

    async def acquire(
        self,
        topic: str,
        session: str,
        partitions: Sequence[int] | None,
        mode: Mode,
        producer_name: str,
        *,
        resume_epoch: int | None,
        topic_id: int | None,
        ticket_ttl_ms: int | None = None,
        by: By = NO_PRINCIPAL,
    ) -> Grant | Ticket:
        """Acquire all of ``partitions`` (None: all of the topic) or none. Returns a ticket if the grant is not in force
        on all of them within 5 s, or while the acquire waits in the queue (WaitForExclusive).
        """
        ...

    async def get_ticket(self, ticket: str, session: str, wait_ms: int, by: By = NO_PRINCIPAL) -> Ticket:
        """A ticket, held back up to ``wait_ms``. Raises NotFound, ProducerFenced, UnknownSession, SessionExpired."""
        ...

    async def cancel_ticket(
        self, ticket: str, session: str, by: By = NO_PRINCIPAL, *, or_release: bool = False
    ) -> Ticket:
        """Cancel a ticket; an unknown one counts as ``cancelled``. If it has become a grant, in force or not, returns
        that; with ``or_release``, releases the grant. Raises ProducerFenced (not_holder).
        """
        ...

    async def release(self, grant: str, session: str, by: By = NO_PRINCIPAL) -> None:
        """End the grant; answers when its slots are cleared. Idempotent. Raises ProducerFenced (not_holder)."""
        ...


class Topics(Protocol):
    """The catalog of topics."""

    async def list_topics(self) -> list[TopicSummary]:
        """All topics, ascending by name; linearizable."""
        ...

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None,
        config: TopicConfig,
        by: By = NO_PRINCIPAL,
        *,
        leaves_retention: bool = False,
    ) -> tuple[Topic, bool]:
        """Create a topic, unless it exists; returns it, and whether it is new, when every partition has a leader.

        ``leaves_retention``: the creator leaves the retention to the cluster; that of ``config`` does not count.
        """
        ...

    async def change_topic(
        self,
        name: str,
        topic_id: int | None,
        *,
        partitions: int | None,
        seal: bool,
        config: Mapping[str, Any],
        by: By = NO_PRINCIPAL,
    ) -> Topic:
        """Replace the values that are given; ``config`` has fields of TopicConfig. Raises InvalidRequest for fewer
        partitions, UnknownTopicOrPartition, InconsistentTopicId.
        """
        ...

    async def delete_topic(
        self, name: str, topic_id: int | None, if_grants: str | None = None, by: By = NO_PRINCIPAL
    ) -> None:
        """Delete a topic with its logs, slots and epochs; the grants on it end. Raises PlanChanged if ``if_grants`` is
        not the digest of those grants (None: not compared).
        """
        ...


class Resources(Protocol):
    """Resources of groups (SEMANTICS 6.4), and fences that an operator orders."""

    async def own(
        self,
        group: str,
        session: str,
        claims: Sequence[Claim],
        *,
        atomic: bool,
        sever: Literal["session", "resource"],
        unwritable: Sequence[str] = (),
        by: By = NO_PRINCIPAL,
    ) -> list[OwnResult]:
        """Claim resources; returns the verdicts, in the order of ``claims``, when every partition that is a claimed
        resource knows its new fence_epoch. ``unwritable``: topics that the caller may not acquire. Raises
        GenerationFenced (atomic: with ``results``), UnknownSession, SessionExpired, PermissionDenied.
        """
        ...

    async def disown(
        self, group: str, session: str, resources: Sequence[str], by: By = NO_PRINCIPAL
    ) -> list[OwnResult]:
        """Give resources up. Raises NotOwner when another session owns one of them, and changes nothing then."""
        ...

    async def list_resources(self, group: str) -> list[Resource]:
        """The resources of the group, owned or free, ascending; linearizable, each by itself if more than 2,000."""
        ...

    async def fence_topic(
        self,
        topic: str,
        partitions: Sequence[int] | None,
        topic_id: int | None,
        reason: str | None,
        if_grants: Sequence[str] | None = None,
        by: By = NO_PRINCIPAL,
    ) -> list[Evicted]:
        """End every grant on these partitions (None: all) as ExclusiveWithFencing would, without a new holder: epochs
        rise, and the next ticket in the queue is promoted. Answers when the fences are in force: one item a partition,
        ascending. Raises PlanChanged unless exactly the grants ``if_grants`` would end (None: not compared).
        """
        ...


class Producers(Protocol):
    """The registry of producers (SEMANTICS 6.5)."""

    async def init_producer(
        self, name: str | None, pair: tuple[int, int] | None, nonce: str | None, by: By = NO_PRINCIPAL
    ) -> ProducerPair:
        """InitProducerId; answers when the epoch is installed on every partition where the name is enrolled."""
        ...

    async def get_producer(self, key: int | str) -> ProducerStatus:
        """A producer, by id or name; linearizable on every partition that knows it. Raises NotFound."""
        ...

    async def fence_producer(self, name: str, by: By = NO_PRINCIPAL) -> ProducerPair:
        """Raise the epoch of a name (SEMANTICS 5.15); returns the new pair, in force everywhere. Raises NotFound."""
        ...


class Members(Protocol):
    """Nodes, and where replicas are. Each call answers when its decision is committed, not when it is carried out."""

    async def add_node(
        self, node_id: str, url: str, raft_address: str, zone: str | None, by: By = NO_PRINCIPAL
    ) -> None:
        """Make a node known, so that it may register. Idempotent. Raises InvalidRequest, ThrottlingQuotaExceeded."""
        ...

    async def remove_node(self, node_id: str, if_plan: str | None = None, by: By = NO_PRINCIPAL) -> None:
        """Begin to move everything away from a node; when that is done, it is no member any more. Raises NotFound,
        NotEnoughReplicas; PlanChanged, if the digest of ``removal`` is not ``if_plan`` (None: in any case).
        """
        ...

    async def remove_zone(self, zone: str, if_plan: str | None = None, by: By = NO_PRINCIPAL) -> None:
        """Begin to remove all nodes of a zone (a machine) at once: nothing moves from one of them to another. Raises
        NotFound, NotEnoughReplicas, PlanChanged.
        """
        ...

    async def removal(self, node_id: str | None, zone: str | None) -> RemovalPlan:
        """The plan of the removal of a node, or of a zone's nodes, as of now; changes nothing. Linearizable. Raises
        NotFound, NotEnoughReplicas.
        """
        ...

    async def raise_feature_level(self, level: int, by: By = NO_PRINCIPAL) -> None:
        """Let the cluster use what this feature level brought; a level that it has already changes nothing. No node
        with older software can be a member any more. Raises InvalidRequest, FeatureUpdateFailed.
        """
        ...

    async def reassign(
        self, topic: str, partition: int, replicas: Sequence[str], by: By = NO_PRINCIPAL
    ) -> Reassignment:
        """Begin to move a partition to these nodes, in place of any move under way. Raises UnknownTopicOrPartition,
        NotFound (a node), InvalidRequest.
        """
        ...

    async def balance_plan(self) -> BalancePlan:
        """The plan that brings the cluster into balance; changes nothing. Raises InvalidRequest (the feature level)."""
        ...

    async def balance(self, if_plan: str, by: By = NO_PRINCIPAL) -> BalancePlan:
        """Begin the whole plan, in any mode. Raises PlanChanged (its digest is not ``if_plan``), FeatureLevelTooLow."""
        ...

    async def change_balance(self, changes: Mapping[str, object], by: By = NO_PRINCIPAL) -> BalanceSettings:
        """Change the settings that are named; returns all of them. Raises InvalidRequest, FeatureLevelTooLow."""
        ...

    async def controllers_plan(self, node_ids: Sequence[str] | None) -> ControllersPlan:
        """The plan of ``choose_controllers``. Raises NotFound (a node), InvalidRequest, FeatureLevelTooLow."""
        ...

    async def note_backup(self, made: NotedBackup, by: By = NO_PRINCIPAL) -> list[NotedBackup]:
        """Note a backup as the last of its place; returns ``backups``. Raises FeatureLevelTooLow, InvalidRequest."""
        ...

    async def backups(self) -> list[NotedBackup]:
        """The last backup of each place, the newest first; linearizable."""
        ...

    async def choose_controllers(
        self, node_ids: Sequence[str] | None, if_plan: str | None = None, by: By = NO_PRINCIPAL
    ) -> None:
        """Begin to move the controller group to these nodes, where it stays; None: the cluster spreads it by itself.
        Raises NotFound (a node), InvalidRequest, PlanChanged, FeatureLevelTooLow.
        """
        ...


class Lists(Protocol):
    """Linearizable reads of the controller: the first ``most`` of the names that begin with ``prefix``, ascending."""

    async def list_sessions(
        self, prefix: str, most: int, *, holding: bool = False, handle: str | None = None
    ) -> SessionList:
        """Live sessions, by client_id. ``holding``: those with a grant or a resource. ``handle``: that one alone."""
        ...

    async def list_groups(self, prefix: str, most: int) -> GroupList:
        """Groups, by name."""
        ...

    async def list_producers(self, prefix: str, most: int, *, internal: bool) -> ProducerList:
        """Producers with names, by name; ``internal``: also those that drew their names themselves."""
        ...

    async def list_tickets(self, topic: str, partition: int | None, most: int) -> TicketList:
        """The tickets that wait for a topic, in the order of the queue; with ``partition``, only those whose sets have
        it. Raises UnknownTopicOrPartition.
        """
        ...


class Ledger(Protocol):
    """Acts that no controller decides, in the ledger (controller/ledger.py)."""

    def act(
        self, act: str, topic: str | None, partition: int | None, wanted: dict[str, Any], by: By
    ) -> AbstractAsyncContextManager[dict[str, Any]]:
        """Around an act: the ledger records its intent before the block begins, and its outcome when the block ends,
        with what the block puts into the dictionary. Raises LeaderNotAvailable and LedgerFull: the block did not begin.
        """
        ...


class ControllerApi(Protocol):
    """The services of the controller group. Only its leader answers; other members raise NotLeaderOrFollower."""

    @property
    def sessions(self) -> Sessions: ...

    @property
    def topics(self) -> Topics: ...

    @property
    def resources(self) -> Resources: ...

    @property
    def producers(self) -> Producers: ...

    @property
    def members(self) -> Members: ...

    @property
    def lists(self) -> Lists: ...

    @property
    def principals(self) -> Principals: ...


class Service(Protocol):
    """A node, as its fronts see it."""

    node_id: str

    @property
    def ledger(self) -> Ledger: ...

    def at_controller(self) -> ControllerApi:
        """The services of the controller group. Raises NotLeaderOrFollower where this node holds no replica of it."""
        ...

    def cluster(self) -> Cluster:
        """The cluster as this node sees it; asks no other node."""
        ...

    def counts(self) -> PartitionCounts:
        """Counts of the partitions that this node holds."""
        ...

    def unready(self) -> list[Unready]:
        """What the node is not ready for, with the reasons, the weightiest first; empty when it knows a controller
        leader and its replicas are loaded.
        """
        ...

    async def measures(self, *, names: bool = False) -> Measures:
        """The node's own numbers as they are now, for a monitor. ``names``: also those of consumer groups and topics,
        which take some milliseconds of the loop where there are many.
        """
        ...

    def controller(self) -> Leader:
        """The leader of the controller group, as far as this node knows."""
        ...

    @property
    def follow_principals(self) -> Callable[[Callable[[PrincipalTable], None]], None]:
        """Registers a function to call with the controller's principals: now, and whenever newer ones are known."""
        ...

    @property
    def leadership_news(self) -> int:
        """The number of changes of leaders of which this node has learned."""
        ...

    async def await_leadership_news(self, seen: int, timeout_s: float) -> None:
        """Return when ``leadership_news`` is no longer ``seen``, or after ``timeout_s`` seconds."""
        ...

    def held(self, topic: str, partition: int) -> Partition | None:
        """The partition if this node holds a replica of it. None: ``partition`` says where to ask."""
        ...

    async def partition(self, topic: str, partition: int, topic_id: int | None) -> Partition:
        """The partition as this node can reach it. Raises UnknownTopicOrPartition, InconsistentTopicId, and
        NotLeaderOrFollower when another node must be asked.
        """
        ...

    def settings(self) -> list[NodeSetting]:
        """The settings that this node runs with, ascending by name."""
        ...

    def node_at(self, url: str) -> str | None:
        """The id of the other member of the cluster that has this base URL."""
        ...

    async def open_stream(self, node_id: str, protocol: asyncio.Protocol) -> None:
        """Give ``protocol`` an authenticated connection to the front of another node. Raises OSError: nothing of the
        protocol was sent.
        """
        ...

    def accept_streams(self, accept: Callable[[str], asyncio.Protocol | None]) -> None:
        """Serve the connections that other nodes open to this front: ``accept`` makes a protocol for a node id."""
        ...

    async def get_topic(self, name: str, topic_id: int | None = None) -> Topic:
        """A topic with its leaders; asks the controller if this node knows no such topic, or none with ``topic_id``."""
        ...

    async def get_topic_page(self, name: str, first: int, most: int, find: str) -> TopicPage:
        """A topic with ``most`` of its partitions, from the ``first`` on, of those whose number, leader or writer
        contains ``find``. Raises UnknownTopicOrPartition.
        """
        ...

    async def transfer_leader(
        self, topic: str | None, partition: int | None, node_id: str | None, by: By = NO_PRINCIPAL
    ) -> Leader:
        """Let another replica lead a partition (both None: the controller group); answers when it does.

        ``node_id`` None: any other. Raises UnknownTopicOrPartition, NotFound (it is no voter), NotEnoughReplicas
        (there is no other), RequestTimedOut.
        """
        ...
