"""The ledger: the entries about who could write, and about the acts of administrators."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Literal

import msgspec

NO_HASH = "0" * 64
"""The ``previous`` of the first entry."""
Outcome = Literal["done", "unchanged", "refused", "intended", "unknown"]
"""``unchanged``: there was nothing to do. ``refused``: nothing was changed, ``code`` says why. ``intended``: a node is
about to ask a partition; a later entry with this one's number in ``intent`` has the outcome. ``unknown``: the outcome
is not known.
"""


class LedgerEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry, as the ledger stores it: the record of entry k has this as JSON, at offset k - 1, without the fields
    that have their defaults.

    ``number`` counts from 1. ``previous`` is the SHA-256 of the bytes of the entry before it, in hexadecimal: so the
    entries are a chain. ``index`` is the index of the deciding command in the controller's log. ``at_ms`` is the wall
    clock of the node that proposed the command, in milliseconds since 1970, or if it did not say, that of the command
    before; ``clock_ms`` is the lease clock. ``principal`` None: the cluster itself acted (a session ended, a partition
    installed a fence); empty: a caller without a principal. ``request`` is the id of the caller's request, ``client``
    the address that it came from. ``name`` is the object of the act, if that is not a topic. ``partitions``: numbers
    and ranges, as in 0-3,7. A session is named by `session_handle`.
    """

    number: int
    previous: str
    index: int
    at_ms: int
    clock_ms: int
    act: str
    outcome: Outcome
    principal: str | None
    request: str
    client: str
    topic: str | None = None
    topic_id: int | None = None
    partitions: str = ""
    name: str | None = None
    intent: int | None = None
    code: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class HashedEntry(LedgerEntry, frozen=True, omit_defaults=False):
    """An entry with the SHA-256 of its bytes."""

    hash: str = ""


class LedgerPage(msgspec.Struct, frozen=True):
    """A page of entries, ascending. The ledger has the entries ``first <= number < end``. ``next`` is the number to ask
    from for more; equal to ``end`` when there are no more yet.
    """

    first: int
    end: int
    next: int
    entries: list[HashedEntry]


def encode_entry(entry: LedgerEntry) -> bytes:
    """The bytes of an entry: equal on every replica, and for ever, since they are hashed."""
    return msgspec.json.encode(entry)


def entry_hash(entry: bytes) -> str:
    """The hash of an entry: ``previous`` of the next one."""
    return hashlib.sha256(entry).hexdigest()


def session_handle(session: str) -> str:
    """The name of a session in the ledger: its id is a secret of 128 random bits, which this does not tell."""
    return hashlib.sha256(session.encode()).hexdigest()[:16]


def ranges(partitions: Iterable[int]) -> str:
    """Ascending numbers in short: 0-3,7."""
    numbers = list(partitions)
    starts = [0, *(place for place, (one, two) in enumerate(pairwise(numbers), 1) if two != one + 1), len(numbers)]
    runs = [(numbers[start], numbers[end - 1]) for start, end in pairwise(starts) if start < end]
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def is_within(partition: int, text: str) -> bool:
    """Whether ``text``, as ``ranges`` writes it, contains this partition number."""
    return any(low <= partition <= high for low, high in _runs(text))


def _runs(text: str) -> Iterator[tuple[int, int]]:
    for run in filter(None, text.split(",")):
        low, _, high = run.partition("-")
        yield int(low), int(high or low)
