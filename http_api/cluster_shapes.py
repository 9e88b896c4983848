"""Shapes of the JSON bodies that speak of nodes, replicas and leaders."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..cluster.config import is_address
from ..partition.errors import InvalidRequest
from .shapes import Name, Partition

_NodeId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,249}\Z")]

_BASE_URL = re.compile(r"https?://[^/\s]+/?\Z")


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

    topic: Name
    partition: Partition
    replicas: Annotated[list[_NodeId], Meta(min_length=1, max_length=7)]

    def check(self) -> None:
        """Rules beyond types and ranges."""
        if len(set(self.replicas)) != len(self.replicas):
            raise InvalidRequest("replicas: a node occurs twice")
        if len(self.replicas) % 2 == 0:
            raise InvalidRequest("replicas: their number must be odd")


class LeaderTransfer(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /v1/cluster/leaders; topic and partition null: the controller group."""

    topic: Name | None
    partition: Partition | None
    node_id: str | UnsetType = UNSET

    def check(self) -> None:
        """Rules beyond types and ranges."""
        if (self.topic is None) != (self.partition is None):
            raise InvalidRequest("partition: null exactly when topic is null")
