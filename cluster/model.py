"""What a node tells about the cluster: plain values that the HTTP interface turns into its answers."""

from collections.abc import Callable
from typing import Literal

import msgspec

from ..partition.commands import Appended, Stamp, Token
from ..partition.errors import StockadeError

Mode = Literal["Shared", "Exclusive", "ExclusiveWithFencing", "WaitForExclusive"]


class TopicConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configuration of a topic; everything has a default. Units are in the names; -1 means unlimited."""

    durability: Literal["disk", "replicated"] = "disk"
    require_fence: bool = False
    writer_group: str | None = None
    strict_sequence: bool = False
    dedupe_window_ms: int = 0
    producer_ttl_ms: int = 86_400_000
    max_producers: int = 100_000
    retention_ms: int = -1
    retention_bytes: int = -1
    max_batch_bytes: int = 1_048_576


class Leader(msgspec.Struct, frozen=True):
    """Who leads a group, as far as this node knows: node id, base URL, term. None and 0 while unknown."""

    node_id: str | None
    url: str | None
    term: int


class PartitionInfo(msgspec.Struct, frozen=True):
    """One partition of a described topic."""

    partition: int
    leader: Leader
    replicas: list[str]
    topic_epoch: int | None = None
    slot_mode: Mode | None = None


class TopicInfo(msgspec.Struct, frozen=True):
    """A described topic; entry k of ``partitions`` is partition k."""

    name: str
    topic_id: int
    replication_factor: int
    sealed: bool
    config: TopicConfig
    partitions: list[PartitionInfo]


class TopicSummary(msgspec.Struct, frozen=True):
    """A line of the list of topics."""

    name: str
    topic_id: int
    partitions: int


class SessionInfo(msgspec.Struct, frozen=True):
    """A session. ``deadline_ms`` is on the cluster's lease clock, which stands still while there is no leader."""

    session: str
    client_id: str
    ttl_ms: int
    deadline_ms: int
    remaining_ms: int


class GrantInfo(msgspec.Struct, frozen=True):
    """A grant that is in force on every partition of its set. ``epochs`` has the fencing epoch of each partition."""

    grant: str
    topic: str
    topic_id: int
    mode: Mode
    producer_name: str
    partitions: list[int]
    epoch: int | None
    epochs: dict[str, int]


class TicketInfo(msgspec.Struct, frozen=True):
    """The place of an acquire that is not in force yet."""

    ticket: str
    state: Literal["waiting", "installing", "granted", "cancelled"]
    position: int | None
    topic: str
    partitions: list[int]
    grant: GrantInfo | None


class ProducerPair(msgspec.Struct, frozen=True):
    """Answer to InitProducerId."""

    producer_id: int
    producer_epoch: int
    name: str | None


class BatchStatus(msgspec.Struct, frozen=True):
    """A remembered batch of a producer on a partition."""

    first_seq: int
    last_seq: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class PartitionStatus(msgspec.Struct, frozen=True):
    """A producer as one partition knows it. ``last_seq`` -1: no batch of this epoch. ``batches``: oldest first."""

    topic: str
    partition: int
    producer_epoch: int
    last_seq: int
    last_offset: int | None
    batches: list[BatchStatus]


class ProducerStatus(msgspec.Struct, frozen=True):
    """A producer in the registry (``producer_epoch`` None: anonymous) and on the partitions that know it."""

    producer_id: int
    producer_epoch: int | None
    name: str | None
    partitions: list[PartitionStatus]


class Conditions(msgspec.Struct, frozen=True, gc=False):
    """What an append asks for, beside its batch (SEMANTICS 5.8)."""

    topic_id: int | None = None
    token: Token | None = None
    stamp: Stamp | None = None
    if_log_end: int | None = None
    message_id: str | None = None
    fence_epoch: int | None = None

    def __post_init__(self) -> None:
        """Raises AssertionError for a stamp that no replica could apply."""
        if self.stamp is not None:
            self.stamp.check()


Settle = Callable[[Appended | StockadeError | None], None]
"""Told what an append answers, or what it raises. None: nothing was stored, and who waits for the append gets it."""


class StageInfo(msgspec.Struct, frozen=True):
    """A stage of a partition. ``expires_in_ms`` None: it is kept. Offsets: where its records went, None before that."""

    stage: str
    records: int
    bytes: int
    digest: str
    kept: bool
    expires_in_ms: int | None
    base_offset: int | None
    last_offset: int | None


class ReadGuard(msgspec.Struct, frozen=True):
    """The reader owns the partition in this group, under this fence_epoch."""

    group: str
    fence_epoch: int


class Position(msgspec.Struct, frozen=True):
    """A group's committed position on a partition; None: none was committed."""

    offset: int | None
    metadata: str | None


class Claim(msgspec.Struct, frozen=True):
    """One resource that a session wants to own. ``generation`` None: what is free, or a renewal; 0: reset."""

    resource: str
    generation: int | None = None


class OwnResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Verdict on a claim, with what is in force now. ``code`` says why it was not granted."""

    resource: str
    granted: bool
    generation: int
    fence_epoch: int
    code: str | None = None


class ResourceInfo(msgspec.Struct, frozen=True):
    """A resource of a group. ``client_id`` is the owner's; the session id is never shown."""

    resource: str
    owned: bool
    client_id: str | None
    generation: int
    fence_epoch: int


class Evicted(msgspec.Struct, frozen=True):
    """A partition that was fenced on purpose: its epoch now, and the grants that ended."""

    partition: int
    epoch: int
    grants: list[str]


class NodeInfo(msgspec.Struct, frozen=True):
    """A member of the cluster, as this node sees it."""

    node_id: str
    url: str
    raft_address: str
    zone: str | None
    alive: bool
    draining: bool = False


class Reassignment(msgspec.Struct, frozen=True):
    """A partition's replicas move to these nodes."""

    topic: str
    partition: int
    replicas: list[str]


class ClusterInfo(msgspec.Struct, frozen=True):
    """The cluster, as this node sees it."""

    cluster_id: str
    node_id: str
    version: str
    controller: Leader
    nodes: list[NodeInfo]
    reassignments: list[Reassignment] = []
