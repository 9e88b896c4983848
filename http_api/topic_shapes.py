"""Shapes of the JSON bodies that speak of topics: their definition, and what may be changed of it."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..cluster.model import TopicConfig
from ..partition.errors import InvalidRequest
from .parameters import INT64_MAX
from .shapes import Name, OrUnlimited, Partitions

_Durability = Literal["disk", "replicated"]
_Window = Annotated[int, Meta(ge=0, le=86_400_000)]
_Ttl = Annotated[int, Meta(ge=1000, le=INT64_MAX)]
_Producers = Annotated[int, Meta(ge=1, le=1_000_000)]
_BatchBytes = Annotated[int, Meta(ge=1024, le=16_777_216)]
_PartitionCount = Annotated[int, Meta(ge=1, le=10_000)]


class ConfigBody(msgspec.Struct, forbid_unknown_fields=True):
    """Configuration of a new topic."""

    durability: _Durability = "disk"
    require_fence: bool = False
    writer_group: Name | None = None
    strict_sequence: bool = False
    dedupe_window_ms: _Window = 0
    producer_ttl_ms: _Ttl = 86_400_000
    max_producers: _Producers = 100_000
    retention_ms: OrUnlimited = -1
    retention_bytes: OrUnlimited = -1
    max_batch_bytes: _BatchBytes = 1_048_576

    def made(self) -> TopicConfig:
        """The configuration."""
        return TopicConfig(**msgspec.structs.asdict(self))


class ConfigPatch(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What shall be another configuration."""

    durability: _Durability | UnsetType = UNSET
    require_fence: bool | UnsetType = UNSET
    writer_group: Name | UnsetType | None = UNSET
    strict_sequence: bool | UnsetType = UNSET
    dedupe_window_ms: _Window | UnsetType = UNSET
    producer_ttl_ms: _Ttl | UnsetType = UNSET
    max_producers: _Producers | UnsetType = UNSET
    retention_ms: OrUnlimited | UnsetType = UNSET
    retention_bytes: OrUnlimited | UnsetType = UNSET
    max_batch_bytes: _BatchBytes | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        """The fields that are there."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/topics."""

    name: Name
    partitions: _PartitionCount = 1
    replication_factor: Annotated[int, Meta(ge=1, le=7)] | UnsetType = UNSET
    config: ConfigBody = msgspec.field(default_factory=ConfigBody)

    def check(self) -> None:
        """Rules beyond types and ranges."""
        if self.name in (".", ".."):
            raise InvalidRequest("name: must not be '.' or '..'")
        if self.replication_factor is not UNSET and self.replication_factor % 2 == 0:
            raise InvalidRequest("replication_factor: must be odd")


class TopicPatch(msgspec.Struct, forbid_unknown_fields=True):
    """Body of PATCH /v1/topics/{topic}."""

    partitions: _PartitionCount | UnsetType = UNSET
    sealed: bool | UnsetType = UNSET
    config: ConfigPatch | UnsetType = UNSET

    def check(self) -> None:
        """Rules beyond types and ranges."""
        if self.sealed is False:
            raise InvalidRequest("sealed: there is no unsealing")
        if self.partitions is UNSET and self.sealed is UNSET and self.config is UNSET:
            raise InvalidRequest("body: says nothing that shall be")


class TopicFence(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/topics/{topic}/fence."""

    partitions: Partitions
    reason: Annotated[str, Meta(min_length=1, max_length=200)] | UnsetType = UNSET
