"""Sessions and what they own: grants on partitions, tickets in the wait queue, resources of groups."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal

import msgspec

from .topics import Mode

Sever = Literal["session", "resource"]
"""What an owner loses when another session takes a resource over.

``session``: all grants and resources that its session holds. ``resource``: this resource alone.
"""


class SessionInfo(msgspec.Struct, frozen=True):
    """A session. ``session`` is its id, a secret. ``ttl_ms`` is the time to live in force.

    ``deadline_ms`` is on the cluster's lease clock, which stands still while there is no leader: compare it only with
    another deadline_ms. ``remaining_ms``: time left when the answer was made.
    """

    session: str
    client_id: str
    ttl_ms: int
    deadline_ms: int
    remaining_ms: int


class Grant(msgspec.Struct, frozen=True):
    """A grant that is in force on every partition of its set.

    ``epoch`` is the fencing epoch, the same on each partition of an exclusive grant; None for a Shared one. ``epochs``
    has the fencing epoch of each partition; its keys are partition numbers as text.
    """

    grant: str
    topic: str
    topic_id: int
    mode: Mode
    producer_name: str
    partitions: list[int]
    epoch: int | None
    epochs: dict[str, int]


class Ticket(msgspec.Struct, frozen=True):
    """The place of an acquire in the wait queue, until it is in force.

    ``waiting``: in the queue, ``position`` tickets before it (0: next). ``installing``: decided, not yet in force on
    every partition. ``granted``: in force, see ``grant``. ``cancelled``: out of the queue.
    """

    ticket: str
    state: Literal["waiting", "installing", "granted", "cancelled"]
    position: int | None
    topic: str
    partitions: list[int]
    grant: Grant | None


class CancelledTicket(msgspec.Struct, frozen=True):
    """The last state of a ticket that was to be cancelled: ``granted`` or ``installing`` when that came first."""

    ticket: str
    state: Literal["waiting", "installing", "granted", "cancelled"]
    grant: Grant | None


class Evicted(msgspec.Struct, frozen=True):
    """A partition after an operator's fence: its new fencing epoch, and the ids of the grants that ended."""

    partition: int
    epoch: int
    grants: list[str]


class TopicFenced(msgspec.Struct, frozen=True):
    """The partitions that an operator fenced, ascending."""

    topic: str
    partitions: list[Evicted]


class FenceTenure(msgspec.Struct, frozen=True):
    """One tenure of a partition's slot: a grant that held it. Times are on the lease clock.

    ``since_unix_ms`` is its beginning on the wall clock of the node that granted, in milliseconds since 1970; None: not
    known. ``until_ms`` None: it holds the slot now. ``operation`` says how the grant got the slot, ``end`` why the
    tenure ended. ``refused``: writes under its token that were refused after its end. It could write at the offsets
    ``from_offset <= offset < until_offset``; None: not known, or it holds the slot now.
    """

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
    since_unix_ms: int | None = None
    from_offset: int | None = None
    until_offset: int | None = None


class Fences(msgspec.Struct, frozen=True):
    """The tenures of a partition's slot, the latest first; a bounded number of them."""

    topic: str
    partition: int
    fences: list[FenceTenure]


class OwnResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verdict on one claim, with generation and fence_epoch in force now.

    ``code``: why it was refused, GENERATION_FENCED or NOT_OWNER; None when granted.
    """

    resource: str
    granted: bool
    generation: int
    fence_epoch: int
    code: str | None = None


class OwnAnswer(msgspec.Struct, frozen=True):
    """Verdicts in the order of the claims."""

    group: str
    results: list[OwnResult]


class Resource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resource of a group. ``client_id`` and ``handle`` are those of the owner's session, None without an owner; a
    node of an older release tells no handle.

    ``fence_epoch`` grows with every owner and never goes down.
    """

    resource: str
    owned: bool
    client_id: str | None
    generation: int
    fence_epoch: int
    handle: str | None = None


class Resources(msgspec.Struct, frozen=True):
    """Every resource ever owned in a group, ascending."""

    group: str
    resources: list[Resource]


class Position(msgspec.Struct, frozen=True):
    """The next offset that a group reads from a partition; ``offset`` None: the group has committed none."""

    group: str
    topic: str
    partition: int
    offset: int | None
    metadata: str | None


class HeldGrant(msgspec.Struct, frozen=True):
    """A grant of a listed session. ``partitions`` is their number; ``held_ms`` is on the lease clock.

    ``epoch`` None: a Shared grant.
    """

    grant: str
    topic: str
    mode: Mode
    producer_name: str
    epoch: int | None
    partitions: int
    held_ms: int


class ListedSession(msgspec.Struct, frozen=True):
    """A live session without its id, which is a secret. ``resources``: how many resources of groups it owns. ``handle``
    names the session to an operator, and in the ledger; "": a node of an older release does not tell it.
    """

    client_id: str
    ttl_ms: int
    remaining_ms: int
    grants: list[HeldGrant]
    resources: int
    handle: str = ""


class SessionList(msgspec.Struct, frozen=True):
    """The first of ``total`` sessions, ascending by client_id."""

    total: int
    sessions: list[ListedSession]


class SessionFenced(msgspec.Struct, frozen=True):
    """A session that an operator ended: the ids of the grants that it had, and how many resources it owned."""

    handle: str
    client_id: str
    grants: list[str]
    resources: int


class ListedGroup(msgspec.Struct, frozen=True):
    """A group: how many resources were ever owned in it, and how many have an owner now."""

    group: str
    resources: int
    owned: int


class GroupList(msgspec.Struct, frozen=True):
    """The first of ``total`` groups, ascending by name."""

    total: int
    groups: list[ListedGroup]


class ListedTicket(msgspec.Struct, frozen=True):
    """A place in the wait queue, without its id. ``partitions`` is their number; ``expires_in_ms`` None: it waits as
    long as its session lives.
    """

    producer_name: str
    client_id: str
    partitions: int
    expires_in_ms: int | None


class TicketList(msgspec.Struct, frozen=True):
    """The first of ``total`` tickets, in the order of the queue."""

    total: int
    tickets: list[ListedTicket]


def grants_digest(grants: Iterable[str]) -> str:
    """A digest of the ids of grants, given in any order, by which a request names all of them in few bytes: the BLAKE2b
    hash (8 bytes, in hexadecimal digits) of the ids in ascending order, each followed by a line feed.
    """
    text = "".join(f"{grant}\n" for grant in sorted(grants))
    return blake2b(text.encode(), digest_size=8).hexdigest()
