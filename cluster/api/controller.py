"""What a front may ask of the controller group: a protocol for each of its services."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from ...partition.api.cluster import (
    BalancePlan,
    BalanceSettings,
    ControllersPlan,
    NotedBackup,
    Reassignment,
    RemovalPlan,
)
from ...partition.api.ownership import (
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
from ...partition.api.principals import IssuedToken, PrincipalInfo, PrincipalList
from ...partition.api.producers import ProducerList, ProducerPair, ProducerStatus
from ...partition.api.topics import Mode, Topic, TopicConfig, TopicSummary
from ..access.principals import Principal, PrincipalToken
from ..access.quotas import NO_QUOTA, Quota
from ..model import NO_PRINCIPAL, By, Claim


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
        """Announce a node, so that it may register. Idempotent. Raises InvalidRequest, ThrottlingQuotaExceeded."""
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


class Principals(Protocol):
    """The replicated principals. A change returns when every node that can be reached acts by it. ``by``: the caller.
    Every change raises InvalidRequest when it would lock its caller out.
    """

    async def list_principals(self, prefix: str, most: int, configured: Iterable[Principal]) -> PrincipalList:
        """The first ``most`` principals whose names have this prefix, ascending, with those of this node's
        configuration (``configured``).
        """
        ...

    async def get_principal(self, name: str) -> PrincipalInfo:
        """The principal of this name. Raises NotFound."""
        ...

    async def put_principal(
        self,
        name: str,
        rights: Sequence[str],
        certificates: Sequence[str],
        tokens: Sequence[PrincipalToken] | None,
        *,
        subjects: Sequence[str] = (),
        quota: Quota = NO_QUOTA,
        opens: bool,
        by: By,
    ) -> tuple[PrincipalInfo, bool]:
        """Create or replace a principal; returns it, and whether it is new. ``tokens`` None: it keeps its tokens.
        ``opens``: the cluster is open to every caller, which this ends. Raises InvalidRequest, ThrottlingQuotaExceeded.
        """
        ...

    async def delete_principal(self, name: str, by: By) -> None:
        """Delete a principal; the objects that it made still belong to its name. Raises NotFound."""
        ...

    async def add_token(self, name: str, digest: str | None, expires: datetime | None, by: By) -> IssuedToken:
        """Add a token. ``digest``: the hash of one that the caller made; None: make one. Raises NotFound,
        InvalidRequest.
        """
        ...

    async def delete_token(self, name: str, token: str, by: By) -> None:
        """Delete the token with the id ``token``. Raises NotFound, InvalidRequest."""
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
