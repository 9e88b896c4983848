"""The verdict on one round. Pure.

In a round the first writer, later the zombie, stores a record; a second writer takes the partition over and stores a
record; the first writer writes once more; the second writer stores a closing record; then the log is read up to it.

A proof needs all of these: the zombie held the partition; its late write came to the partition under the second
writer's grant, and was refused there with PRODUCER_FENCED and a certificate that nothing of it is stored; and the log,
up to the closing record, which was written after that refusal, has no record of a zombie. A zombie's record in the log,
or an answer that says that one was stored, is a violation, whatever else is known. All other rounds are unproven: an
unknown outcome shows nothing, nor does an incomplete read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

Judged = Literal["proof", "violation", "unproven"]


class Late(msgspec.Struct, frozen=True):
    """The answer to the zombie's late write. ``code`` None: it was stored, at ``offset``; ``fields``: those of the
    refusal.
    """

    code: str | None
    offset: int | None = None
    fields: Mapping[str, Any] = {}
    is_known: bool = True
    """Whether the outcome of the write is known."""


class Round(msgspec.Struct, frozen=True):
    """The facts of one round. ``grant`` and ``epoch``: the second writer's. ``first`` and ``last``: the offsets of the
    zombie's first record and of the closing record. ``offsets``: the offsets read between them, ascending; ``own``: the
    offsets of this round's rightful records, by role; ``zombies``: the offsets of records that a zombie wrote late.
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
    """The verdict on a round. ``reason``: a few words, for the label of a metric; ``why``: a sentence."""

    judged: Judged
    reason: str
    why: str


OWN = ("first", "taken", "closing")
"""The roles of a round's rightful records, in the order in which they are written."""


def judge(seen: Round) -> Verdict:
    """The verdict on a round: a proof, a violation, or unproven."""
    if seen.zombies:
        return _violated(f"a zombie's record is stored at offset {seen.zombies[0]} of partition {seen.partition}")
    if seen.late.code is None and seen.late.is_known:
        return _violated(f"a zombie's write was answered as stored at offset {seen.late.offset}")
    if seen.late.is_known and seen.late.fields.get("outcome", {}).get("state") == "committed":
        return _violated("a refusal certifies that the zombie's write is stored")
    return _missing(seen) or Verdict("proof", "proof", f"refused under epoch {seen.epoch}, and not stored")


def _missing(seen: Round) -> Verdict | None:
    """What is missing for a proof, in the answer or else in the log; None if it is complete."""
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
