"""What the cluster answers to operators, as typed values. Fields that a newer server adds are ignored."""

from typing import Any

import msgspec

from .model import Mode, ProducerPair


class Tenure(msgspec.Struct, frozen=True):
    """One tenure of a partition's slot, or of a seat in it. Times are on the lease clock; until None: it holds."""

    grant: str
    mode: Mode
    epoch: int
    producer_name: str
    client_id: str | None
    operation: str
    since_ms: int
    until_ms: int | None
    end: str | None
    refused: int


class Fences(msgspec.Struct, frozen=True):
    """Who holds the slot of a partition and who held it, the latest first."""

    topic: str
    partition: int
    fences: list[Tenure]


class Trimmed(msgspec.Struct, frozen=True):
    """A partition's offsets after a trim."""

    topic: str
    partition: int
    log_start: int
    log_end: int


class Evicted(msgspec.Struct, frozen=True):
    """A partition that was fenced on purpose: its epoch now, and the grants that ended."""

    partition: int
    epoch: int
    grants: list[str]


class TopicFenced(msgspec.Struct, frozen=True):
    """All partitions that were fenced, ascending."""

    topic: str
    partitions: list[Evicted]


class HeldGrant(msgspec.Struct, frozen=True):
    """A grant of a session; ``epoch`` None: a Shared one. ``held_ms`` is on the lease clock."""

    grant: str
    topic: str
    mode: Mode
    producer_name: str
    epoch: int | None
    partitions: int
    held_ms: int


class ListedSession(msgspec.Struct, frozen=True):
    """A live session, without its id, which is a secret. ``resources``: how many it owns in groups."""

    client_id: str
    ttl_ms: int
    remaining_ms: int
    grants: list[HeldGrant]
    resources: int


class SessionList(msgspec.Struct, frozen=True):
    """The first of ``total`` sessions, ascending by client_id."""

    total: int
    sessions: list[ListedSession]


class ListedGroup(msgspec.Struct, frozen=True):
    """How many resources were ever owned in a group, and how many have an owner now."""

    group: str
    resources: int
    owned: int


class GroupList(msgspec.Struct, frozen=True):
    """The first of ``total`` groups, ascending."""

    total: int
    groups: list[ListedGroup]


class ProducerList(msgspec.Struct, frozen=True):
    """The first of ``total`` producers with names, ascending."""

    total: int
    producers: list[ProducerPair]


class ProducerPlace(msgspec.Struct, frozen=True):
    """A producer on one partition that knows it. ``last_seq`` -1: nothing of this epoch is stored."""

    topic: str
    partition: int
    producer_epoch: int
    last_seq: int
    last_offset: int | None
    batches: list[dict[str, Any]]


class ProducerStatus(msgspec.Struct, frozen=True):
    """A producer in the registry (``producer_epoch`` None: anonymous) and on the partitions that know it."""

    producer_id: int
    producer_epoch: int | None
    name: str | None
    partitions: list[ProducerPlace]


class RefusedWrite(msgspec.Struct, frozen=True):
    """A write that a node's partition refused. ``at_ms`` is the node's wall clock."""

    at_ms: int
    request: str
    topic: str
    partition: int
    code: str
    reason: str | None
    grant: str | None
    fence_epoch: int | None
    producer_id: int | None
    producer_epoch: int | None
    sequence: int | None


class RefusedWrites(msgspec.Struct, frozen=True):
    """The latest of one node, the latest first."""

    node_id: str
    refused_writes: list[RefusedWrite]
