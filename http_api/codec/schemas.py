"""Shapes of the JSON bodies that routes take, as the contract has them, and the one way to read them.

Strict: no unknown field, no other type, no value out of its range. Every reason names the field. Rules that
join several fields follow in the function that makes a service call of the body.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..cluster.model import Claim, Mode
from ..partition.commands import PRODUCER_EPOCH_MAX
from ..partition.errors import InvalidRequest, InvalidTransactionTimeout
from . import wire
from .parameters import INT64_MAX, PARTITION_MAX, TOPIC_NAME

TIMEOUT_MS_MAX = 900_000
"""Greatest timeout_ms of a producer."""

RESOURCE_BYTES_MAX = 1024
"""Longest name of a resource, in UTF-8."""

_SHOWN_MAX = 200  # characters of a text from outside
_PLACE = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

OrUnlimited = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
Name = Annotated[str, Meta(pattern=rf"^{TOPIC_NAME}\Z")]
"""Name of a topic or a group."""
Partition = Annotated[int, Meta(ge=0, le=PARTITION_MAX)]
Partitions = Literal["all"] | Annotated[list[Partition], Meta(min_length=1, max_length=10_000)]

_Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
_Natural = Annotated[int, Meta(ge=0, le=INT64_MAX)]
_Unsigned = Annotated[int, Meta(ge=0)]  # wire.parse lets no integer beyond 64 bits through
_ClientName = Annotated[str, Meta(min_length=1, max_length=249)]
_ResourceName = Annotated[str, Meta(min_length=1, max_length=RESOURCE_BYTES_MAX)]

_Shape = TypeVar("_Shape")


class NewSession(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/sessions."""

    client_id: _ClientName
    ttl_ms: _Positive = 10_000


class NewGrant(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/topics/{topic}/grants. ``wait_ms`` and ``ticket_ttl_ms`` speak of WaitForExclusive
    only.
    """

    partitions: Partitions
    mode: Mode
    producer_name: _ClientName
    resume_epoch: _Unsigned | UnsetType = UNSET
    topic_id: _Natural | UnsetType = UNSET
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0
    ticket_ttl_ms: _Positive | UnsetType = UNSET


class NewProducer(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/producers."""

    name: _ClientName | None = None
    producer_id: _Natural | UnsetType = UNSET
    producer_epoch: Annotated[int, Meta(ge=0, le=PRODUCER_EPOCH_MAX)] | UnsetType = UNSET
    timeout_ms: int = 60_000
    nonce: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET

    def check(self) -> None:
        """Rules beyond types and ranges. Raises InvalidTransactionTimeout too."""
        if self.name is not None:
            check_producer_name(self.name)
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


class ProducerFence(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/producer_fences."""

    name: _ClientName


class TrimBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST …/trim. ``before`` -1: up to the log's end."""

    before: OrUnlimited


class ClaimBody(msgspec.Struct, forbid_unknown_fields=True):
    """One resource to own."""

    resource: _ResourceName
    generation: _Unsigned | UnsetType = UNSET


class OwnBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/groups/{group}/own."""

    claims: Annotated[list[ClaimBody], Meta(min_length=1, max_length=10_000)]
    atomic: bool = True
    sever: Literal["session", "resource"] = "session"

    def made(self) -> list[Claim]:
        """The claims. Raises InvalidRequest for a resource that is too long, or claimed twice."""
        names = [claim.resource for claim in self.claims]
        check_resources("claims", names)
        return [Claim(claim.resource, given(claim.generation)) for claim in self.claims]


class NewPosition(msgspec.Struct, forbid_unknown_fields=True):
    """Body of PUT …/positions/{topic}/{partition}."""

    offset: _Natural
    metadata: Annotated[str, Meta(max_length=4096)] | UnsetType = UNSET
    fence_epoch: _Unsigned | UnsetType = UNSET


def chosen(partitions: Literal["all"] | list[int]) -> list[int] | None:
    """A set of partitions, None for all of them. Raises InvalidRequest when one occurs twice."""
    if partitions == "all":
        return None
    if len(set(partitions)) != len(partitions):
        raise InvalidRequest("partitions: a partition occurs twice")
    return list(partitions)


def check_producer_name(name: str) -> None:
    """Rules of producer names beyond their length. Raises InvalidRequest."""
    if name.isascii() and name.isdigit():
        raise InvalidRequest("name: at least one character must not be a digit")
    if "/" in name or _CONTROL.search(name):
        raise InvalidRequest("name: must not have '/' or control characters")


def check_resources(place: str, names: Sequence[str]) -> None:
    """Rules of names of resources. Raises InvalidRequest."""
    if any(not 1 <= len(name.encode()) <= RESOURCE_BYTES_MAX for name in names):
        raise InvalidRequest(f"{place}: a resource is not 1 to {RESOURCE_BYTES_MAX} bytes in UTF-8")
    if len(set(names)) < len(names):
        raise InvalidRequest(f"{place}: a resource occurs twice")


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
