"""Topics: configuration, description, list."""

from typing import Any, Literal

import msgspec

from ..config import PartitionConfig
from ..internal_names import INTERNAL_TOPIC_PREFIX, LEDGER_TOPIC

Mode = Literal["Shared", "Exclusive", "ExclusiveWithFencing", "WaitForExclusive"]
"""How a grant holds a partition's slot.

- ``Shared``: beside other Shared holders; refused while an exclusive grant holds it.
- ``Exclusive``: alone, or refused with ProducerBusy.
- ``ExclusiveWithFencing``: alone; present holders are evicted, and their tokens refused from then on.
- ``WaitForExclusive``: alone; waits in the queue until the slot is free.

The names are those of Pulsar's producer access modes (PIP 68).
"""


TOPIC_RETENTION_MS = 7 * 86_400_000
"""Retention by age of a new topic whose creator gives none, unless the cluster is configured otherwise."""


class TopicConfig(msgspec.Struct, frozen=True):
    """Configuration of a topic. Units are in the names: ``_ms`` milliseconds, ``_bytes`` bytes; -1 is no limit.

    - ``require_fence``: appends and trims without a fencing token are refused (FencingTokenRequired).
    - ``writer_group``: appends need the fence_epoch of this group for the resource ``<topic>/<partition>``.
    - ``strict_sequence``: a repeated batch older than the five remembered ones is refused as out of order (as Kafka
      does), not answered as a duplicate without an offset.
    - ``dedupe_window_ms``: how long a message id is remembered, at most one day; 0: message ids are refused.
    - ``producer_ttl_ms``: idle time after which a partition forgets a producer that no live grant is attached to.
    - ``max_producers``: producers that a partition remembers; beyond it the least recently used one is forgotten.
    - ``retention_ms``, ``retention_bytes``: age, and size of a partition, beyond which whole segments are dropped. A
      new topic gets the cluster's own retention (7 days, if not configured) when its creator gives neither; a whole
      TopicConfig gives both.
    - ``quota_bytes``: size of a partition, beyond which appends are refused (StorageQuotaExceeded) until a trim, or the
      retention, has made room. It counts the batches with records that are kept, wherever they are
      stored, and stages until they are appended.
    - ``local_retention_ms``, ``local_retention_bytes``: age, and size of a partition, beyond which whole segments lie
      in the nodes' tiered store alone, and are read from there; -1 for both: everything stays on the nodes' disks. What
      the retention does not keep goes from there, too.
    - ``max_batch_bytes``: the largest batch, as an uncompressed Arrow message; 1 KiB to 16 MiB.
    """

    require_fence: bool = False
    writer_group: str | None = None
    strict_sequence: bool = False
    dedupe_window_ms: int = 0
    producer_ttl_ms: int = 86_400_000
    max_producers: int = 100_000
    retention_ms: int = -1
    retention_bytes: int = -1
    max_batch_bytes: int = 1_048_576
    local_retention_ms: int = -1
    local_retention_bytes: int = -1
    quota_bytes: int = -1

    @property
    def is_tiered(self) -> bool:
        """Whether the topic has a local retention, so that older segments lie in the tiered store alone."""
        return self.local_retention_ms >= 0 or self.local_retention_bytes >= 0

    def of_partition(self, topic_id: int, *, sealed: bool) -> PartitionConfig:
        """The part of it that the verdicts of the topic's partitions depend on."""
        return PartitionConfig(
            topic_id,
            self.require_fence,
            self.strict_sequence,
            self.max_producers,
            self.producer_ttl_ms,
            self.dedupe_window_ms,
            self.writer_group,
            sealed,
        )


REPLICATION_FACTOR_DEFAULT = 3
"""Replicas of a partition, in a cluster of as many nodes or more, unless the creator of its topic asks for others."""
BATCH_BYTES_MAX = 16_777_216
"""Greatest max_batch_bytes of any topic."""
OF_LEVEL_2 = ("local_retention_ms", "local_retention_bytes", "quota_bytes")
"""Fields that nodes of older software refuse, whatever their value."""


def as_request(config: TopicConfig) -> dict[str, Any]:
    """A whole configuration as the fields of a request, without those of OF_LEVEL_2 that are -1, for older nodes."""
    fields = msgspec.structs.asdict(config)
    return {name: value for name, value in fields.items() if name not in OF_LEVEL_2 or value != -1}


class SlotHolder(msgspec.Struct, frozen=True):
    """The grant that holds a slot, as other clients are told of it. ``producer_name`` and ``client_id`` are those that
    the holder gave.

    ``since_ms`` is on the cluster's lease clock: compare it only with another time on it. ``since_unix_ms`` is the same
    moment on the wall clock of the node that granted, in milliseconds since 1970; None: not known. ``expires_in_ms``:
    the holder's session ends after this time at most, unless it is renewed; None: not known. ``operation`` says how the
    grant got the slot (acquire, resume, promotion, eviction).
    """

    grant: str
    mode: Mode
    producer_name: str
    client_id: str | None
    since_ms: int
    since_unix_ms: int | None
    expires_in_ms: int | None
    operation: str


class PartitionState(msgspec.Struct, frozen=True):
    """One partition of a topic, as the answering node sees it.

    ``leader`` is a base URL, ``leader_node`` a node id; both None while no leader is known, ``leader_term`` is 0 then.
    ``replicas``: node ids. ``topic_epoch``: the fencing epoch in force. ``slot_mode``: the holder's mode, None while
    the slot is free. Both are None, too, when no replica could be asked. ``holder``: the exclusive holder of the slot.

    ``log_start`` and ``log_end`` are offsets, as the replica that was asked has applied them. ``lags``: by node id of
    each other replica, how many committed entries it lacks on its disk; None while the leader could not be asked.
    """

    partition: int
    leader: str | None
    leader_node: str | None
    leader_term: int
    replicas: list[str]
    topic_epoch: int | None = None
    slot_mode: Mode | None = None
    holder: SlotHolder | None = None
    log_start: int | None = None
    log_end: int | None = None
    lags: dict[str, int] | None = None


class Topic(msgspec.Struct, frozen=True):
    """A topic; ``partitions[k]`` is partition k.

    ``topic_id`` tells a topic from a deleted one of the same name. ``replication_factor`` is the number of replicas of
    a new partition: the number with which the topic was created or, once all its partitions were moved to another
    number of replicas, that one.
    """

    name: str
    topic_id: int
    replication_factor: int
    sealed: bool
    config: TopicConfig
    partitions: list[PartitionState]


class TopicPage(msgspec.Struct, frozen=True):
    """A topic with some of its partitions, ascending; ``total`` of them match the search."""

    name: str
    topic_id: int
    replication_factor: int
    sealed: bool
    config: TopicConfig
    total: int
    partitions: list[PartitionState]


class TopicSummary(msgspec.Struct, frozen=True):
    """A line of the list of topics. ``partitions`` is their number, ``held`` how many of them have an exclusive holder,
    ``single`` how many have one replica, and ``no_majority`` how many have no majority of theirs on nodes that the
    controller's leader reaches: they take no writes.

    A node of an older version does not tell the fields that have defaults.
    """

    name: str
    topic_id: int
    partitions: int
    replication_factor: int | None = None
    sealed: bool = False
    require_fence: bool | None = None
    held: int | None = None
    single: int | None = None
    no_majority: int | None = None

    @property
    def is_internal(self) -> bool:
        """Whether Stockade made the topic for itself."""
        return self.name == LEDGER_TOPIC or self.name.startswith(INTERNAL_TOPIC_PREFIX)


class TopicList(msgspec.Struct, frozen=True):
    """A page of topics, ascending by name. ``total`` topics match; together they have ``partitions``, of which ``held``
    have an exclusive holder, ``single`` one replica, and ``no_majority`` no majority of their replicas. A node of an
    older version does not tell these numbers.
    """

    topics: list[TopicSummary]
    total: int | None = None
    partitions: int | None = None
    held: int | None = None
    single: int | None = None
    no_majority: int | None = None
