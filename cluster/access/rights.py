"""Rights: each is a verb on the names of one kind. What no right allows is denied.

A right is written as it is configured and as a refusal names it: ``produce topic:orders``, ``read topic:orders-*`` (all
names that begin so), ``admin cluster`` (of which there is one); ``all`` is every right there is. The verbs are those of
Kafka's and Pulsar's access control where these have them; ``acquire`` and ``evict`` are what Stockade adds.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal, cast

import msgspec

from ...partition.errors import PermissionDenied
from ...partition.internal_names import LEDGER_TOPIC
from ..model import By
from .quotas import NO_QUOTA, Quota, Spending

Verb = Literal["read", "produce", "acquire", "evict", "trim", "own", "admin"]
"""``read``: see records, states and names. ``produce``: append, and be a named producer. ``acquire``: hold a topic's
writer slot. ``evict``: take a slot, a resource or a producer's name from another principal, or fence its holder.
``trim``: drop the oldest records. ``own``: own resources of a group, and commit its positions. ``admin``: create,
change and delete topics; on the cluster: nodes, replicas, leaders, and the list of sessions.
"""
Kind = Literal["topic", "group", "resource", "producer", "cluster"]
"""A resource's name is GROUP/RESOURCE. Rights on a group count for all of its resources."""

KINDS: dict[Verb, tuple[Kind, ...]] = {
    "read": ("topic", "group", "producer", "cluster"),
    "produce": ("topic", "producer"),
    "acquire": ("topic",),
    "evict": ("topic", "group", "resource", "producer"),
    "trim": ("topic",),
    "own": ("group", "resource"),
    "admin": ("topic", "cluster"),
}
"""On what each verb can be given."""
ALL = "all"
NAME_CHARACTERS_MAX = 512
"""Of the name in a right."""

_RIGHT = re.compile(r"(?P<verb>[a-z]+) (?P<kind>[a-z]+)(?::(?P<name>[^*\s]*)(?P<prefix>\*?))?\Z")


class Right(msgspec.Struct, frozen=True):
    """One verb on one name, or on all names that begin with ``name``. The cluster's name is empty."""

    verb: Verb
    kind: Kind
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        """As it is configured."""
        return f"{self.verb} {self.kind}" if self.kind == "cluster" else _written(self)


def _written(right: Right) -> str:
    return f"{right.verb} {right.kind}:{right.name}{'*' if right.is_prefix else ''}"


def parse(text: str) -> list[Right]:
    """The rights that a text gives: one, or with ``all`` every one. Raises ValueError with what is wrong."""
    if text == ALL:
        return [Right(verb, kind, "", is_prefix=True) for verb, kinds in KINDS.items() for kind in kinds]
    found = _RIGHT.match(text)
    if found is None:
        raise ValueError(f"{text!r} is not VERB KIND:NAME, VERB KIND:PREFIX*, or all")
    verb, kind, name = cast(Verb, found["verb"]), cast(Kind, found["kind"]), found["name"]
    if verb not in KINDS:
        raise ValueError(f"{text!r}: no verb {verb}; there are {', '.join(KINDS)}")
    if kind not in KINDS[verb]:
        raise ValueError(f"{text!r}: {verb} is a right on {', '.join(KINDS[verb])}")
    if (kind == "cluster") != (name is None):
        raise ValueError(f"{text!r}: a cluster has no name, everything else has one (* for all)")
    if name is not None and (len(name) > NAME_CHARACTERS_MAX or not (name or found["prefix"])):
        raise ValueError(f"{text!r}: a name has 1 to {NAME_CHARACTERS_MAX} characters (* for all)")
    return [Right(verb, kind, name or "", is_prefix=bool(found["prefix"]))]


class Rights:
    """Many rights, looked up in a time that depends on the number of prefixes, not of names."""

    def __init__(self, rights: Iterable[Right]) -> None:
        self._names: dict[tuple[Verb, Kind], set[str]] = {}
        self._prefixes: dict[tuple[Verb, Kind], tuple[str, ...]] = {}
        for right in rights:
            key = (right.verb, right.kind)
            if right.is_prefix:
                self._prefixes[key] = (*self._prefixes.get(key, ()), right.name)
            else:
                self._names.setdefault(key, set()).add(right.name)

    def allow(self, verb: Verb, kind: Kind, name: str) -> bool:
        """Whether one of them is that verb on that name; a resource's group counts, too. Who may read the ledger's
        topic has ``admin cluster``, and no right allows anything else there.
        """
        if name == LEDGER_TOPIC and kind == "topic":
            return verb == "read" and self.allow("admin", "cluster", "")
        key = (verb, kind)
        if name in self._names.get(key, ()) or name.startswith(self._prefixes.get(key, ())):
            return True
        return kind == "resource" and self.allow(verb, "group", name.partition("/")[0])

    def allow_any(self, kind: Kind, name: str) -> bool:
        """Whether one of them is any verb on that name."""
        return any(self.allow(verb, kind, name) for verb in KINDS)

    def allow_some(self, verb: Verb, kind: Kind) -> bool:
        """Whether one of them is that verb on any name of that kind."""
        key = (verb, kind)
        return key in self._names or key in self._prefixes


def rights_of(texts: Iterable[str]) -> Rights:
    """Raises ValueError with what is wrong."""
    return Rights(right for text in texts for right in parse(text))


def lacks(by: By, right: str, why: str) -> PermissionDenied:
    """The refusal of a request that takes over what another principal has, without the right to."""
    name = f"principal {by.principal}" if by.principal else "a caller without a principal"
    return PermissionDenied(f"{name} lacks the right: {right} ({why})")


class Caller:
    """The principal that makes a request. ``principal`` is its name, which what it makes belongs to; empty: what it
    makes belongs to no principal, as all does in a cluster without principals.
    """

    def __init__(self, name: str, rights: Sequence[str], principal: str, quota: Quota = NO_QUOTA) -> None:
        """``name`` is what refusals call it. The rights are read when they are first asked for."""
        self.spending: Spending = Spending(name, quota, is_principals=bool(principal))
        self.name: str = name
        self.rights: Sequence[str] = rights
        self.principal: str = principal

    @cached_property
    def _rights(self) -> Rights:
        return rights_of(self.rights)

    def may(self, verb: Verb, kind: Kind, name: str) -> bool:
        """Whether it has the right."""
        return self._rights.allow(verb, kind, name)

    def require(self, verb: Verb, kind: Kind, name: str) -> None:
        """Raises PermissionDenied, which names the right, unless it has it."""
        if not self._rights.allow(verb, kind, name):
            if name == LEDGER_TOPIC and kind == "topic" and verb != "read":
                raise PermissionDenied(f"{LEDGER_TOPIC} keeps the ledger: no right allows to {verb} there")
            right = "admin cluster" if (name, kind) == (LEDGER_TOPIC, "topic") else Right(verb, kind, name)
            raise PermissionDenied(f"{self.name} lacks the right: {right}")

    def by(self, kind: Kind, *names: str, most: int | None = None) -> By:
        """The caller, for a command that may take over the objects of these names, and whether it may ``evict`` all of
        them. ``most`` is of the quota.
        """
        return By(self.principal, all(self._rights.allow("evict", kind, name) for name in names), most)

    def may_see(self, kind: Kind, name: str) -> bool:
        """Whether it has any right on a name: who may append to a topic may know how many partitions it has."""
        return self._rights.allow_any(kind, name)

    def require_sight(self, kind: Kind, name: str) -> None:
        """Raises PermissionDenied unless it has any right on a name."""
        if not self._rights.allow_any(kind, name):
            right = "admin cluster" if (name, kind) == (LEDGER_TOPIC, "topic") else Right("read", kind, name)
            raise PermissionDenied(f"{self.name} lacks the right: {right}")

    def require_some(self, verb: Verb, kind: Kind) -> None:
        """For what names its object only later. Raises PermissionDenied unless it has the right on any name."""
        if not self._rights.allow_some(verb, kind):
            raise PermissionDenied(f"{self.name} lacks the right: {verb} on any {kind}")
