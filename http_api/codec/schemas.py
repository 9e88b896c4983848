"""The JSON bodies of requests as in the contract: fields, types, ranges. JSON bodies are read through these alone.

Reading is strict: an unknown field, another type, or a value out of range is refused with InvalidRequest, which names
the field. Rules over several fields are in the ``check`` methods. The shapes of answers are in partition/api.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, structs

from ...cluster.access.principals import (
    CERTIFICATES_MAX,
    RIGHTS_MAX,
    SUBJECTS_MAX,
    TOKENS_MAX,
    PrincipalToken,
    from_unix_ms,
)
from ...cluster.access.quotas import NO_QUOTA, Quota
from ...cluster.config import is_address, is_base_url
from ...cluster.controller.backups import NAME_CHARACTERS_MAX, PLACE_CHARACTERS_MAX
from ...cluster.controller.topology.replica_assignment import CONTROLLERS_MAX
from ...cluster.model import Claim
from ...partition.api.cluster import BalanceMode, CopyPace, MovesAtOnce, NotedBackup, StableMs, UsedPercent
from ...partition.api.records import NEWS_PARTITIONS_MAX
from ...partition.api.topics import BATCH_BYTES_MAX, Mode, TopicConfig
from ...partition.commands import OFFSET_BEGIN_MAX, PRODUCER_EPOCH_MAX
from ...partition.errors import InvalidRequest
from ...partition.places.urls import place_fault
from .json_codec import explain, or_none
from .parameters import INT64_MAX, PARTITION_MAX, TOPIC_NAME

RESOURCE_BYTES_MAX = 1024
"""Longest name of a resource, in bytes of UTF-8."""

UNIX_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999, since 1970."""

_CONTROL_CHARACTERS = r"\x00-\x1f\x7f-\x9f"
_CONTROL = re.compile(f"[{_CONTROL_CHARACTERS}]")

OrUnlimited = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
Name = Annotated[str, Meta(pattern=rf"^{TOPIC_NAME}\Z")]
"""Name of a group."""
TopicName = Annotated[str, Meta(pattern=rf"^(?!\.{{1,2}}\Z){TOPIC_NAME}\Z")]
Partition = Annotated[int, Meta(ge=0, le=PARTITION_MAX)]
Partitions = Literal["all"] | Annotated[list[Partition], Meta(min_length=1, max_length=10_000)]

_Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
_Natural = Annotated[int, Meta(ge=0, le=INT64_MAX)]
_Unsigned = Annotated[int, Meta(ge=0)]  # json_codec.parse lets no integer beyond 64 bits through
_PLAIN = rf"^[^{_CONTROL_CHARACTERS}]*\Z"
"""What operators read in a line of a log or of a table: a line end in it would begin another line."""
_ClientName = Annotated[str, Meta(min_length=1, max_length=249, pattern=_PLAIN)]
_ProducerName = Annotated[str, Meta(min_length=1, max_length=249)]
_Reason = Annotated[str, Meta(min_length=1, max_length=200, pattern=_PLAIN)]
_ResourceName = Annotated[str, Meta(min_length=1, max_length=RESOURCE_BYTES_MAX)]


class NewSession(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/sessions."""

    client_id: _ClientName
    ttl_ms: _Positive = 10_000


class NewGrant(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/topics/{topic}/grants. ``wait_ms`` and ``ticket_ttl_ms``: with WaitForExclusive only."""

    partitions: Partitions
    mode: Mode
    producer_name: _ClientName
    resume_epoch: _Unsigned | UnsetType = UNSET
    topic_id: _Natural | UnsetType = UNSET
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0
    ticket_ttl_ms: _Positive | UnsetType = UNSET


class NewProducer(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/producers."""

    name: _ProducerName | None = None
    producer_id: _Natural | UnsetType = UNSET
    producer_epoch: Annotated[int, Meta(ge=0, le=PRODUCER_EPOCH_MAX)] | UnsetType = UNSET
    nonce: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET

    def check(self) -> None:
        """Check the rules beyond types and ranges. Raises InvalidRequest."""
        if self.name is not None:
            check_producer_name(self.name)
        if (self.producer_id is UNSET) != (self.producer_epoch is UNSET):
            missing = "producer_id" if self.producer_id is UNSET else "producer_epoch"
            raise InvalidRequest(f"{missing}: missing; producer_id and producer_epoch come both or not at all")

    def pair(self) -> tuple[int, int] | None:
        """The producer id and epoch that the caller has already; None: it has none."""
        if self.producer_id is UNSET or self.producer_epoch is UNSET:
            return None
        return self.producer_id, self.producer_epoch


class ProducerFence(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/producer_fences."""

    name: _ProducerName


class TrimBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST …/trim. ``before`` -1: up to the log's end."""

    before: OrUnlimited
    if_epoch: _Natural | UnsetType = UNSET
    if_log_end: _Natural | UnsetType = UNSET


class BeginBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST …/begin."""

    offset: Annotated[int, Meta(ge=0, le=OFFSET_BEGIN_MAX)]


class PositionBody(msgspec.Struct, forbid_unknown_fields=True):
    """One position of a NewsBody: the next offset to read."""

    partition: Partition
    offset: _Natural


class NewsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/topics/{topic}/news."""

    positions: Annotated[list[PositionBody], Meta(min_length=1, max_length=NEWS_PARTITIONS_MAX)]
    topic_id: _Natural | UnsetType = UNSET
    max_wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0


class ClaimBody(msgspec.Struct, forbid_unknown_fields=True):
    """One claim of an OwnBody."""

    resource: _ResourceName
    generation: _Unsigned | UnsetType = UNSET


class OwnBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/groups/{group}/own."""

    claims: Annotated[list[ClaimBody], Meta(min_length=1, max_length=10_000)]
    atomic: bool = True
    sever: Literal["session", "resource"] = "session"

    def made(self) -> list[Claim]:
        """The claims as the controller takes them. Raises InvalidRequest for a resource that is too long, or occurs
        twice.
        """
        names = [claim.resource for claim in self.claims]
        check_resources("claims", names)
        return [Claim(claim.resource, or_none(claim.generation)) for claim in self.claims]


class NewPosition(msgspec.Struct, forbid_unknown_fields=True):
    """Body of PUT …/positions/{topic}/{partition}."""

    offset: _Natural
    metadata: Annotated[str, Meta(max_length=4096)] | UnsetType = UNSET
    fence_epoch: _Unsigned | UnsetType = UNSET


def check_producer_name(name: str) -> None:
    """Check the characters of a producer's name. Raises InvalidRequest."""
    if name.isascii() and name.isdigit():
        raise InvalidRequest("name: at least one character must not be a digit")
    if "/" in name or _CONTROL.search(name):
        raise InvalidRequest("name: must not have '/' or control characters")


def check_resources(place: str, names: Sequence[str]) -> None:
    """Check the length and uniqueness of names of resources. Raises InvalidRequest, which names the field ``place``."""
    if any(not 1 <= len(name.encode()) <= RESOURCE_BYTES_MAX for name in names):
        raise InvalidRequest(f"{place}: a resource is not 1 to {RESOURCE_BYTES_MAX} bytes in UTF-8")
    if len(set(names)) < len(names):
        raise InvalidRequest(f"{place}: a resource occurs twice")


_PartitionCount = Annotated[int, Meta(ge=1, le=10_000)]

_CONFIG_VALUES: dict[str, Any] = {
    "writer_group": Name | None,
    "dedupe_window_ms": Annotated[int, Meta(ge=0, le=86_400_000)],
    "producer_ttl_ms": Annotated[int, Meta(ge=1000, le=INT64_MAX)],
    "max_producers": Annotated[int, Meta(ge=1, le=1_000_000)],
    "retention_ms": OrUnlimited,
    "retention_bytes": OrUnlimited,
    "local_retention_ms": OrUnlimited,
    "local_retention_bytes": OrUnlimited,
    "quota_bytes": OrUnlimited,
    "max_batch_bytes": Annotated[int, Meta(ge=1024, le=BATCH_BYTES_MAX)],
}
"""Types of the fields of TopicConfig that have a range; the other fields take any value of their type."""

ConfigChanges: type[msgspec.Struct] = msgspec.defstruct(
    "ConfigChanges",
    [(each.name, _CONFIG_VALUES.get(each.name, each.type) | UnsetType, UNSET) for each in structs.fields(TopicConfig)],
    forbid_unknown_fields=True,
)
"""A topic's configuration in a request: any subset of the fields of TopicConfig, each in its range."""

CONFIG_FAULTS_MAX = 20
"""Most faults of one configuration that its refusal names."""


def read_config(given: dict[str, Any]) -> dict[str, Any]:
    """The given fields of TopicConfig by name, checked. Raises InvalidRequest, which names up to CONFIG_FAULTS_MAX
    faults.
    """
    config, faults = {}, []
    for name, value in given.items():
        try:
            config[name] = getattr(msgspec.convert({name: value}, ConfigChanges), name)
        except msgspec.ValidationError as error:
            place, problem = explain(error)
            faults.append(f"{f'config.{place}' if place else 'config'}: {problem}")
    if faults:
        more = len(faults) - CONFIG_FAULTS_MAX
        raise InvalidRequest("; ".join(faults[:CONFIG_FAULTS_MAX]) + (f"; and {more} more" if more > 0 else ""))
    return config


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/topics."""

    name: TopicName
    partitions: _PartitionCount = 1
    replication_factor: Annotated[int, Meta(ge=1, le=7)] | UnsetType = UNSET
    config: dict[str, Any] = {}

    def check(self) -> None:
        """Check the rules beyond types and ranges. Raises InvalidRequest."""
        if self.replication_factor is not UNSET and self.replication_factor % 2 == 0:
            raise InvalidRequest("replication_factor: must be odd")


class TopicPatch(msgspec.Struct, forbid_unknown_fields=True):
    """Body of PATCH /v1/topics/{topic}."""

    partitions: _PartitionCount | UnsetType = UNSET
    sealed: bool | UnsetType = UNSET
    config: dict[str, Any] | UnsetType = UNSET

    def check(self) -> None:
        """Check the rules beyond types and ranges. Raises InvalidRequest."""
        if self.sealed is False:
            raise InvalidRequest("sealed: a sealed topic cannot be opened again")
        if self.partitions is UNSET and self.sealed is UNSET and self.config is UNSET:
            raise InvalidRequest("body: names nothing to change")


class TopicFence(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/topics/{topic}/fence."""

    partitions: Partitions
    reason: _Reason | UnsetType = UNSET
    if_grants: Annotated[list[str], Meta(max_length=10_000)] | UnsetType = UNSET


class SessionFence(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/session_fences."""

    handle: Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]
    reason: _Reason | UnsetType = UNSET
    if_grants: Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")] | UnsetType = UNSET
    if_resources: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType = UNSET


_NodeId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,249}\Z")]


class MemberChange(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/members. ``add`` takes a node with its addresses and zone; ``remove`` takes a node or a
    zone, and alone takes ``dry_run`` and ``if_plan``.
    """

    action: Literal["add", "remove"]
    node_id: _NodeId | UnsetType = UNSET
    url: str | UnsetType = UNSET
    raft_address: str | UnsetType = UNSET
    zone: str | UnsetType | None = UNSET
    dry_run: bool = False
    if_plan: str | UnsetType = UNSET

    def coming(self) -> tuple[str, str, str]:
        """The id, base URL and Raft address (host:port) of the node to add. Raises InvalidRequest."""
        if self.dry_run or self.if_plan is not UNSET:
            raise InvalidRequest("dry_run, if_plan: only with the action remove")
        if self.node_id is UNSET:
            raise InvalidRequest("node_id: missing")
        if self.url is UNSET or not is_base_url(url := self.url.rstrip("/")):
            raise InvalidRequest("url: not http://host:port")
        if self.raft_address is UNSET or not is_address(self.raft_address):
            raise InvalidRequest("raft_address: not host:port")
        return self.node_id, url, self.raft_address

    def leaving(self) -> tuple[Literal["node", "zone"], str]:
        """The kind and name of what to remove: a node, or a zone with all its nodes. Raises InvalidRequest."""
        for name in ("url", "raft_address"):
            if getattr(self, name) is not UNSET:
                raise InvalidRequest(f"{name}: only with the action add")
        if self.node_id is not UNSET and self.zone is UNSET:
            return "node", self.node_id
        if self.node_id is UNSET and isinstance(self.zone, str):
            return "zone", self.zone
        raise InvalidRequest("node_id, zone: one of them says what to remove")


class Reassignment(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/reassignments."""

    topic: TopicName
    partition: Partition
    replicas: Annotated[list[_NodeId], Meta(min_length=1, max_length=7)]

    def check(self) -> None:
        """Check the rules beyond types and ranges. Raises InvalidRequest."""
        if len(set(self.replicas)) != len(self.replicas):
            raise InvalidRequest("replicas: a node occurs twice")
        if len(self.replicas) % 2 == 0:
            raise InvalidRequest("replicas: their number must be odd")


class FeatureLevel(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/feature_level."""

    level: Annotated[int, Meta(ge=1, le=65_535)]


class LeaderTransfer(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/leaders; topic and partition null: the controller group."""

    topic: TopicName | None
    partition: Partition | None
    node_id: str | UnsetType = UNSET

    def check(self) -> None:
        """Check the rules beyond types and ranges. Raises InvalidRequest."""
        if (self.topic is None) != (self.partition is None):
            raise InvalidRequest("topic, partition: both null (the controller) or neither")


class BackupNote(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/backups."""

    place: Annotated[str, Meta(min_length=1, max_length=PLACE_CHARACTERS_MAX)]
    name: Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
    cut_ms: _Natural
    took_ms: _Natural
    topics: _Natural
    records: _Natural
    bytes: _Natural

    def noted(self) -> NotedBackup:
        """The backup as the controller stores it and all see it who may see the cluster. Raises InvalidRequest."""
        fault = place_fault(self.place)
        if fault is not None:
            raise InvalidRequest(f"place: {fault}")
        return NotedBackup(**structs.asdict(self))


class BalanceOrder(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/balance."""

    if_plan: Annotated[str, Meta(min_length=1, max_length=64)]


class BalanceChange(msgspec.Struct, forbid_unknown_fields=True):
    """Body of PATCH /v1/cluster/balance: the settings that change; their bounds are those of BalanceSettings."""

    mode: BalanceMode | UnsetType = UNSET
    moves_at_once: MovesAtOnce | UnsetType = UNSET
    copy_bytes_per_s: CopyPace | UnsetType = UNSET
    stable_ms: StableMs | UnsetType = UNSET
    disk_used_percent_max: UsedPercent | UnsetType = UNSET

    def changes(self) -> dict[str, object]:
        """The given settings by name. Raises InvalidRequest when there is none."""
        found = {name: value for name, value in structs.asdict(self).items() if value is not UNSET}
        if not found:
            raise InvalidRequest("body: names nothing to change")
        return found


class ControllersChoice(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/controllers; ``node_ids`` null: the cluster spreads them by itself."""

    node_ids: Annotated[list[_NodeId], Meta(min_length=1, max_length=CONTROLLERS_MAX)] | None
    dry_run: bool = False
    if_plan: str | UnsetType = UNSET

    def check(self) -> None:
        """Check the rules beyond types and ranges. Raises InvalidRequest."""
        if self.dry_run and self.if_plan is not UNSET:
            raise InvalidRequest("dry_run, if_plan: one of them at most")


class TokenHash(msgspec.Struct, forbid_unknown_fields=True):
    """A token of a principal, as `stockade principals token` prints its hash."""

    hash: Annotated[str, Meta(max_length=200)]
    expires_ms: Annotated[int, Meta(ge=1, le=UNIX_MS_MAX)] | UnsetType | None = UNSET

    def made(self) -> PrincipalToken:
        """The token as the controller stores it."""
        return PrincipalToken(self.hash, from_unix_ms(or_none(self.expires_ms)))


class PrincipalBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of PUT /v1/principals/{principal}."""

    rights: Annotated[list[Annotated[str, Meta(min_length=1, max_length=600)]], Meta(max_length=RIGHTS_MAX)]
    certificates: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=1024)]], Meta(max_length=CERTIFICATES_MAX)
    ] = []
    tokens: Annotated[list[TokenHash], Meta(max_length=TOKENS_MAX)] | UnsetType = UNSET
    subjects: Annotated[list[Annotated[str, Meta(min_length=1, max_length=320)]], Meta(max_length=SUBJECTS_MAX)] = []
    quota: Quota = NO_QUOTA


class NewPrincipalToken(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/principals/{principal}/tokens."""

    hash: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    expires_ms: Annotated[int, Meta(ge=1, le=UNIX_MS_MAX)] | UnsetType | None = UNSET
