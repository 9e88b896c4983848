"""What one round has shown. Pure.

In a round a first writer, the zombie to be, stores a record; a second one takes the partition over and stores another;
the first one writes once more; the second one closes with a last record; then the log is read up to that one.

A proof needs all of it: the zombie held the partition, its late write came to the partition under the second writer's
grant and was refused there with PRODUCER_FENCED, with the certificate that nothing of it is stored; and the log, as far
as the closing record that was written after that refusal, has no record of a zombie. A zombie's record in the log, or
an answer that says that one was stored, is a violation, whatever else is known. Everything else is neither: an unknown
outcome says nothing, and a read that is not complete does not either.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

Judged = Literal["proof", "violation", "unproven"]


class Late(msgspec.Struct, frozen=True):
    """What the zombie was answered. ``code`` None: its write was stored, at ``offset``. ``fields``: the refusal's."""

    code: str | None
    offset: int | None = None
    fields: Mapping[str, Any] = {}
    is_known: bool = True
    """False: the outcome is unknown."""


class Round(msgspec.Struct, frozen=True):
    """What was done and seen. ``grant`` and ``epoch`` are the second writer's. ``first`` and ``last``: the offsets of
    the zombie's first record and of the closing one. ``offsets``: those that were read, ascending; ``own``: of the
    records of this round's rightful writes, by the name of each; ``zombies``: of records that a zombie wrote late.
    """

    partition: int
    grant: str
    epoch: int
    takeover_s: float
    late: Late
    first: int
    last: int
    offsets: Sequence[int]
    own: Mapping[str, int]
    zombies: Sequence[int]


class Verdict(msgspec.Struct, frozen=True):
    """``why``: for people; ``reason``: few words, for a metric."""

    judged: Judged
    reason: str
    why: str


OWN = ("first", "taken", "closing")
"""The rightful writes of a round, in their order."""


def judge(seen: Round) -> Verdict:
    """Whether it is a proof, a violation, or neither."""
    if seen.zombies:
        return _violated(f"a zombie's record is stored at offset {seen.zombies[0]} of partition {seen.partition}")
    if seen.late.code is None and seen.late.is_known:
        return _violated(f"a zombie's write was answered as stored at offset {seen.late.offset}")
    if seen.late.is_known and seen.late.fields.get("outcome", {}).get("state") == "committed":
        return _violated("a refusal certifies that the zombie's write is stored")
    return _missing(seen) or Verdict("proof", "proof", f"refused under epoch {seen.epoch}, and not stored")


def _missing(seen: Round) -> Verdict | None:
    """What a proof lacks; first of the answer, then of the log."""
    late, holder = seen.late, seen.late.fields.get("holder") or {}
    if not late.is_known:
        return _unproven("unknown outcome", f"the outcome of the zombie's write is unknown ({late.code})")
    if late.code != "PRODUCER_FENCED":
        return _unproven("another refusal", f"the zombie's write was refused with {late.code}")
    if (late.fields.get("current_epoch"), holder.get("grant")) != (seen.epoch, seen.grant):
        return _unproven("another holder", "the refusal does not name the writer that took over")
    if late.fields.get("outcome", {}).get("state") != "absent":
        return _unproven("no certificate", "the refusal does not certify that nothing is stored")
    own = [seen.own.get(name) for name in OWN]
    if list(seen.offsets) != list(range(seen.first, seen.last + 1)) or own != sorted(seen.own.values()):
        return _unproven("not read", f"the round's records were not read from {seen.first} to {seen.last}")
    return None


def _violated(why: str) -> Verdict:
    return Verdict("violation", "violation", why)


def _unproven(reason: str, why: str) -> Verdict:
    return Verdict("unproven", reason, why)
