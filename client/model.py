"""What the cluster answers, as typed values. Fields that a newer server adds are ignored."""

from typing import Literal

import msgspec

Mode = Literal["Shared", "Exclusive", "ExclusiveWithFencing", "WaitForExclusive"]


class TopicConfig(msgspec.Struct, frozen=True):
    """Configuration of a topic; units are in the names, -1 means unlimited."""

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


class PartitionState(msgspec.Struct, frozen=True):
    """One partition of a topic. ``leader`` is a base URL; None while there is no leader."""

    partition: int
    leader: str | None
    leader_node: str | None
    leader_term: int
    replicas: list[str]
    topic_epoch: int | None = None
    slot_mode: Mode | None = None


class Topic(msgspec.Struct, frozen=True):
    """A topic; entry k of ``partitions`` is partition k. ``topic_id`` tells incarnations of a name apart."""

    name: str
    topic_id: int
    replication_factor: int
    sealed: bool
    config: TopicConfig
    partitions: list[PartitionState]


class TopicSummary(msgspec.Struct, frozen=True):
    """A line of the list of topics. ``partitions`` is their number."""

    name: str
    topic_id: int
    partitions: int


class TopicList(msgspec.Struct, frozen=True):
    """Answer of the list, ascending by name."""

    topics: list[TopicSummary]


class SessionState(msgspec.Struct, frozen=True):
    """A session. ``deadline_ms`` is on the cluster's lease clock: compare it only with another one."""

    session: str
    client_id: str
    ttl_ms: int
    deadline_ms: int
    remaining_ms: int


class Grant(msgspec.Struct, frozen=True):
    """A grant in force. ``epochs`` has the fencing epoch of each partition, its number written as text."""

    grant: str
    topic: str
    topic_id: int
    mode: Mode
    producer_name: str
    partitions: list[int]
    epoch: int | None
    epochs: dict[str, int]


class Ticket(msgspec.Struct, frozen=True):
    """The place of an acquire that is not in force yet; ``grant`` is there once it is."""

    ticket: str
    state: Literal["waiting", "installing", "granted", "cancelled"]
    position: int | None
    topic: str
    partitions: list[int]
    grant: Grant | None


class ProducerPair(msgspec.Struct, frozen=True):
    """Identity to write with: producer id and its epoch."""

    producer_id: int
    producer_epoch: int
    name: str | None


class AppendAnswer(msgspec.Struct, frozen=True):
    """Where a batch is. Offsets are None for a duplicate that is stored but not remembered in detail."""

    topic: str
    partition: int
    base_offset: int | None
    last_offset: int | None
    duplicate: bool
    log_start: int
    timestamp_ms: int | None
    leader_term: int


class Offsets(msgspec.Struct, frozen=True):
    """Answer to a question for an offset; ``offset`` is -1 when no record qualifies."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    log_start: int
    log_end: int


class TailRecord(msgspec.Struct, frozen=True):
    """A record of the tail with who wrote it. Text, or base64 where the bytes are not valid UTF-8."""

    offset: int
    timestamp_ms: int
    writer_epoch: int
    key: str | None = None
    value: str | None = None
    key_base64: str | None = None
    value_base64: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    sequence: int | None = None


class Tail(msgspec.Struct, frozen=True):
    """The last records of a partition, ascending: how a writer finds out where it stands after an error."""

    topic: str
    partition: int
    log_start: int
    log_end: int
    topic_epoch: int
    records: list[TailRecord]


class Owned(msgspec.Struct, frozen=True):
    """The verdict on one claim. ``code`` says why it was refused."""

    resource: str
    granted: bool
    generation: int
    fence_epoch: int
    code: str | None = None


class OwnAnswer(msgspec.Struct, frozen=True):
    """Verdicts in the order of the claims."""

    group: str
    results: list[Owned]


class Resource(msgspec.Struct, frozen=True):
    """A resource of a group; ``client_id`` is that of its owner's session."""

    resource: str
    owned: bool
    client_id: str | None
    generation: int
    fence_epoch: int


class Resources(msgspec.Struct, frozen=True):
    """Every resource ever owned in a group, ascending."""

    group: str
    resources: list[Resource]


class Position(msgspec.Struct, frozen=True):
    """Where a group goes on in a partition; ``offset`` None: it never committed."""

    group: str
    topic: str
    partition: int
    offset: int | None
    metadata: str | None = None


class Controller(msgspec.Struct, frozen=True):
    """Who leads the controller group."""

    leader: str | None
    leader_node: str | None
    leader_term: int


class Node(msgspec.Struct, frozen=True):
    """A member of the cluster as the answering node sees it."""

    node_id: str
    url: str
    zone: str | None
    alive: bool
    raft_address: str | None = None
    draining: bool = False


class Move(msgspec.Struct, frozen=True):
    """The replicas of a partition are on their way to these nodes."""

    topic: str
    partition: int
    replicas: list[str]


class Cluster(msgspec.Struct, frozen=True):
    """The cluster as the answering node sees it."""

    cluster_id: str
    node_id: str
    version: str
    controller: Controller
    nodes: list[Node]
    reassignments: list[Move] = []
