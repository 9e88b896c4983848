"""Shapes of the JSON bodies that routes take, as the contract has them, and the one way to read them.

Strict: no unknown field, no other type, no value out of its range. Every reason names the field. Rules that
join several fields follow in the function that makes a service call of the body.
"""

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..cluster.config import is_address
from ..cluster.model import Mode, TopicConfig
from ..partition.commands import PRODUCER_EPOCH_MAX
from ..partition.errors import InvalidRequest, InvalidTransactionTimeout
from . import wire
from .parameters import INT64_MAX, PARTITION_MAX, TOPIC_NAME

TIMEOUT_MS_MAX = 900_000
"""Greatest timeout_ms of a producer."""

_SHOWN_MAX = 200  # characters of a text from outside
_PLACE = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
_Natural = Annotated[int, Meta(ge=0, le=INT64_MAX)]
_OrUnlimited = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
_Unsigned = Annotated[int, Meta(ge=0)]  # wire.parse lets no integer beyond 64 bits through
_Name = Annotated[str, Meta(min_length=1, max_length=249)]
_TopicName = Annotated[str, Meta(pattern=rf"^{TOPIC_NAME}\Z")]
_Partition = Annotated[int, Meta(ge=0, le=PARTITION_MAX)]

_NodeId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,249}\Z")]

_BASE_URL = re.compile(r"https?://[^/\s]+/?\Z")
_Shape = TypeVar("_Shape")


class ConfigBody(msgspec.Struct, forbid_unknown_fields=True):
    """Configuration of a new topic."""

    durability: Literal["disk", "replicated"] = "disk"
    require_fence: bool = False
    writer_group: _TopicName | None = None
    strict_sequence: bool = False
    dedupe_window_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 0
    producer_ttl_ms: Annotated[int, Meta(ge=1000, le=INT64_MAX)] = 86_400_000
    max_producers: Annotated[int, Meta(ge=1, le=1_000_000)] = 100_000
    retention_ms: _OrUnlimited = -1
    retention_bytes: _OrUnlimited = -1
    max_batch_bytes: Annotated[int, Meta(ge=1024, le=16_777_216)] = 1_048_576

    def checked(self) -> TopicConfig:
        """The configuration, refused where it asks for what this version cannot do.

        ``producer_ttl_ms`` is accepted although it does nothing yet: this version never forgets a producer by
        age.
        """
        for name, offered in _ONLY.items():
            if getattr(self, name) != offered:
                only = wire.dump(offered).decode()
                raise InvalidRequest(f"config.{name}: this version can only do {only}")
        return TopicConfig(**msgspec.structs.asdict(self))


_ONLY = {"durability": "disk", "writer_group": None, "dedupe_window_ms": 0, "retention_ms": -1, "retention_bytes": -1}
"""Fields of a configuration that have one possible value in this version."""


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/topics."""

    name: _TopicName
    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 1
    replication_factor: Annotated[int, Meta(ge=1, le=7)] | UnsetType = UNSET
    config: ConfigBody = msgspec.field(default_factory=ConfigBody)

    def check(self) -> None:
        """Rules beyond types and ranges."""
        if self.name in (".", ".."):
            raise InvalidRequest("name: must not be '.' or '..'")
        if self.replication_factor is not UNSET and self.replication_factor % 2 == 0:
            raise InvalidRequest("replication_factor: must be odd")


class NewSession(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/sessions."""

    client_id: _Name
    ttl_ms: _Positive = 10_000


class NewGrant(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/topics/{topic}/grants. ``wait_ms`` and ``ticket_ttl_ms`` speak of WaitForExclusive
    only.
    """

    partitions: Literal["all"] | Annotated[list[_Partition], Meta(min_length=1, max_length=10_000)]
    mode: Mode
    producer_name: _Name
    resume_epoch: _Unsigned | UnsetType = UNSET
    topic_id: _Natural | UnsetType = UNSET
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0
    ticket_ttl_ms: _Positive | UnsetType = UNSET

    def check(self) -> None:
        """Rules beyond types and ranges."""
        if self.mode not in ("Exclusive", "ExclusiveWithFencing"):
            raise InvalidRequest(f"mode: this version knows Exclusive and ExclusiveWithFencing, not {self.mode} yet")
        if len(set(self.partitions)) != len(self.partitions) and self.partitions != "all":
            raise InvalidRequest("partitions: a partition occurs twice")


class NewProducer(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/producers."""

    name: _Name | None = None
    producer_id: _Natural | UnsetType = UNSET
    producer_epoch: Annotated[int, Meta(ge=0, le=PRODUCER_EPOCH_MAX)] | UnsetType = UNSET
    timeout_ms: int = 60_000
    nonce: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET

    def check(self) -> None:
        """Rules beyond types and ranges. Raises InvalidTransactionTimeout too."""
        if self.name is not None:
            if self.name.isascii() and self.name.isdigit():
                raise InvalidRequest("name: at least one character must not be a digit")
            if "/" in self.name or _CONTROL.search(self.name):
                raise InvalidRequest("name: must not have '/' or control characters")
        if (self.producer_id is UNSET) != (self.producer_epoch is UNSET):
            missing = "producer_id" if self.producer_id is UNSET else "producer_epoch"
            raise InvalidRequest(f"{missing}: missing; producer_id and producer_epoch come both or not at all")
        if not 1 <= self.timeout_ms <= TIMEOUT_MS_MAX:
            raise InvalidTransactionTimeout(max=TIMEOUT_MS_MAX)

    def pair(self) -> tuple[int, int] | None:
        """The caller's own pair."""
        if self.producer_id is UNSET or self.producer_epoch is UNSET:
            return None
        return self.producer_id, self.producer_epoch


class MemberChange(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/members. Addresses and zone belong to ``add`` alone."""

    action: Literal["add", "remove"]
    node_id: _NodeId
    url: str | UnsetType = UNSET
    raft_address: str | UnsetType = UNSET
    zone: str | UnsetType | None = UNSET

    def addresses(self) -> tuple[str, str]:
        """Base URL and host:port of a node to add. Raises InvalidRequest."""
        if self.url is UNSET or not _BASE_URL.match(self.url):
            raise InvalidRequest("url: not http://host:port")
        if self.raft_address is UNSET or not is_address(self.raft_address):
            raise InvalidRequest("raft_address: not host:port")
        return self.url.rstrip("/"), self.raft_address

    def check_remove(self) -> None:
        """Raises InvalidRequest when there is what only a node to add has."""
        for name in ("url", "raft_address", "zone"):
            if getattr(self, name) is not UNSET:
                raise InvalidRequest(f"{name}: only with the action add")


class Reassignment(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/reassignments."""

    topic: _TopicName
    partition: _Partition
    replicas: Annotated[list[_NodeId], Meta(min_length=1, max_length=7)]

    def check(self) -> None:
        """Rules beyond types and ranges."""
        if len(set(self.replicas)) != len(self.replicas):
            raise InvalidRequest("replicas: a node occurs twice")
        if len(self.replicas) % 2 == 0:
            raise InvalidRequest("replicas: their number must be odd")


class LeaderTransfer(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/leaders; topic and partition null: the controller group."""

    topic: _TopicName | None
    partition: _Partition | None
    node_id: str | UnsetType = UNSET

    def check(self) -> None:
        """Rules beyond types and ranges."""
        if (self.topic is None) != (self.partition is None):
            raise InvalidRequest("partition: null exactly when topic is null")


def given(value: _Shape | UnsetType) -> _Shape | None:
    """An optional field's value, None when it was absent."""
    return None if value is UNSET else value


def parse(body: bytes) -> Any:
    """The JSON value of a body. Raises InvalidRequest."""
    try:
        return wire.parse(body)
    except wire.NotJson as error:
        raise InvalidRequest(f"body: {error}") from error


def read(body: bytes, shape: type[_Shape]) -> _Shape:
    """A JSON body as ``shape``. Raises InvalidRequest."""
    try:
        return msgspec.convert(parse(body), shape)
    except msgspec.ValidationError as error:
        place, problem = explain(error)
        raise InvalidRequest(f"{place or 'body'}: {problem}") from error


def explain(error: msgspec.ValidationError) -> tuple[str, str]:
    """(field, what is wrong with it) of a value that does not have its shape; the field is "" for the value
    itself.
    """
    text = str(error)
    place = _PLACE.search(text)
    problem = _PLACE.sub("", text).replace("orjson.Fragment", "number that is no 64-bit integer")
    return (place.group(1)[:_SHOWN_MAX] if place else ""), problem[:_SHOWN_MAX]
