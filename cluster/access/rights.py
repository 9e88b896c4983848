"""Rights: each is a verb on the names of one kind. An action that no right allows is denied.

The configuration and refusals write rights alike: ``produce topic:orders``, ``read topic:orders-*`` (all names with
this prefix), ``admin cluster`` (which has no name); ``all`` stands for every right. The verbs are those of Kafka's and
Pulsar's access control where these have them; Stockade adds ``acquire`` and ``evict``.
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
"""The kinds on which each verb can be given."""
ALL = "all"
NAME_CHARACTERS_MAX = 512
"""Length of the name in a right."""

_RIGHT = re.compile(r"(?P<verb>[a-z]+) (?P<kind>[a-z]+)(?::(?P<name>[^*\s]*)(?P<prefix>\*?))?\Z")


class Right(msgspec.Struct, frozen=True):
    """One verb on one name, or on all names that begin with ``name``. The cluster's name is empty."""

    verb: Verb
    kind: Kind
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        """The right in the form of the configuration: VERB KIND:NAME, VERB KIND:PREFIX*, or VERB cluster."""
        return f"{self.verb} {self.kind}" if self.kind == "cluster" else _written(self)


def _written(right: Right) -> str:
    return f"{right.verb} {right.kind}:{right.name}{'*' if right.is_prefix else ''}"


def parse(text: str) -> list[Right]:
    """The rights that a text gives: one, or all of them for ``all``. Raises ValueError, which says what is wrong."""
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
    """A set of rights; the time of a lookup depends on the number of prefixes, not on that of names."""

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
        """Whether a right gives that verb on that name; for a resource, a right on its group is enough. The ledger's
        topic can only be read, and only with ``admin cluster``.
        """
        if name == LEDGER_TOPIC and kind == "topic":
            return verb == "read" and self.allow("admin", "cluster", "")
        key = (verb, kind)
        if name in self._names.get(key, ()) or name.startswith(self._prefixes.get(key, ())):
            return True
        return kind == "resource" and self.allow(verb, "group", name.partition("/")[0])

    def allow_any(self, kind: Kind, name: str) -> bool:
        """Whether a right gives any verb on that name."""
        return any(self.allow(verb, kind, name) for verb in KINDS)

    def allow_some(self, verb: Verb, kind: Kind) -> bool:
        """Whether a right gives that verb on any name of that kind."""
        key = (verb, kind)
        return key in self._names or key in self._prefixes


def rights_of(texts: Iterable[str]) -> Rights:
    """The rights that these texts give. Raises ValueError, which says what is wrong."""
    return Rights(right for text in texts for right in parse(text))


def lacks(by: By, right: str, why: str) -> PermissionDenied:
    """The refusal of a request for which ``by`` lacks ``right``; ``why`` says why the right is needed."""
    name = f"principal {by.principal}" if by.principal else "a caller without a principal"
    return PermissionDenied(f"{name} lacks the right: {right} ({why})")


class Caller:
    """The maker of a request, with its rights and its spending. ``principal`` is the name to which the objects that it
    makes belong; empty: they belong to no principal, as in a cluster without principals.
    """

    def __init__(self, name: str, rights: Sequence[str], principal: str, quota: Quota = NO_QUOTA) -> None:
        """``name``: how refusals call the caller. ``rights`` are parsed when they are first asked for."""
        self.spending: Spending = Spending(name, quota, is_principals=bool(principal))
        self.name: str = name
        self.rights: Sequence[str] = rights
        self.principal: str = principal

    @cached_property
    def _rights(self) -> Rights:
        return rights_of(self.rights)

    def may(self, verb: Verb, kind: Kind, name: str) -> bool:
        """Whether the caller has the right."""
        return self._rights.allow(verb, kind, name)

    def require(self, verb: Verb, kind: Kind, name: str) -> None:
        """Raises PermissionDenied, which names the right, unless the caller has it."""
        if not self._rights.allow(verb, kind, name):
            if name == LEDGER_TOPIC and kind == "topic" and verb != "read":
                raise PermissionDenied(f"{LEDGER_TOPIC} keeps the ledger: no right allows to {verb} there")
            right = "admin cluster" if (name, kind) == (LEDGER_TOPIC, "topic") else Right(verb, kind, name)
            raise PermissionDenied(f"{self.name} lacks the right: {right}")

    def by(self, kind: Kind, *names: str, most: int | None = None) -> By:
        """The caller as commands carry it: its principal, whether it may ``evict`` on all of these names, and ``most``,
        the bound of its quota.
        """
        return By(self.principal, all(self._rights.allow("evict", kind, name) for name in names), most)

    def may_see(self, kind: Kind, name: str) -> bool:
        """Whether the caller has any right on a name: one that may only append to a topic may also know the number of
        its partitions.
        """
        return self._rights.allow_any(kind, name)

    def require_sight(self, kind: Kind, name: str) -> None:
        """Raises PermissionDenied unless the caller has any right on a name."""
        if not self._rights.allow_any(kind, name):
            right = "admin cluster" if (name, kind) == (LEDGER_TOPIC, "topic") else Right("read", kind, name)
            raise PermissionDenied(f"{self.name} lacks the right: {right}")

    def require_some(self, verb: Verb, kind: Kind) -> None:
        """Raises PermissionDenied unless the caller has the right on any name of this kind. For requests whose object
        is named only later.
        """
        if not self._rights.allow_some(verb, kind):
            raise PermissionDenied(f"{self.name} lacks the right: {verb} {kind}:NAME, for any NAME")
