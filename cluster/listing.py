"""What there is in a cluster, counted and listed for operators: part of service.Service.

Lists are ascending, of the names that begin with a prefix, and cut after so many; ``total`` counts all of them.
"""

from typing import Protocol

import msgspec

from .model import ProducerPair


class HeldGrant(msgspec.Struct, frozen=True):
    """A grant of a session, and for how long it has been held on the lease clock. ``epoch`` None: a Shared one."""

    grant: str
    topic: str
    mode: str
    producer_name: str
    epoch: int | None
    partitions: int
    held_ms: int


class ListedSession(msgspec.Struct, frozen=True):
    """A live session. Its id is a secret, and not here. ``resources``: how many it owns in groups."""

    client_id: str
    ttl_ms: int
    remaining_ms: int
    grants: list[HeldGrant]
    resources: int


class ListedGroup(msgspec.Struct, frozen=True):
    """A group in which something was owned: how many resources it knows, and how many have an owner."""

    group: str
    resources: int
    owned: int


class SessionList(msgspec.Struct, frozen=True):
    """By client_id."""

    total: int
    sessions: list[ListedSession]


class GroupList(msgspec.Struct, frozen=True):
    """By name."""

    total: int
    groups: list[ListedGroup]


class ProducerList(msgspec.Struct, frozen=True):
    """Producers with names, by name."""

    total: int
    producers: list[ProducerPair]


class Listing(Protocol):
    """Linearizable reads of the controller."""

    async def list_sessions(self, prefix: str, most: int) -> SessionList:
        """Live sessions whose client_id begins so."""
        ...

    async def list_groups(self, prefix: str, most: int) -> GroupList:
        """Groups whose names begin so."""
        ...

    async def list_producers(self, prefix: str, most: int) -> ProducerList:
        """Producers whose names begin so."""
        ...
