"""Who could write to a partition at an offset, by the ledger. Pure.

The controller's decisions about slots have an order; a *place* is a number in it. A fence install brings a partition to
a place. The partition reports it (`slot.installed`) with its log's end at that time, and with its previous place. So
between the log ends of two consecutive installs the slot was as the decisions up to the first install's place say: held
by the grants that were made at that place or before, and not ended by then.

A report can be lost when a leader dies, and the next report comes without it. Then the previous place in that report is
not the place of the report before it, and each decision between these two places may have been in force for some of the
offsets. That is no violation, since epochs do not fall along the log; the answer names these grants as possible.

When the ledger's topic takes no entries for long, entries are left out, and a `ledger.gap` tells when. An answer that
a left-out entry could change is `unknown`. One answer cannot change: an exclusive grant was the only holder at the
place of its own decision, up to an install that names that place as its previous one.

In a free or shared slot the topic's configuration decides whether callers without a token were refused. No entry tells
at which offset a partition began to act by a changed configuration. So a fence counts as required only where every
configuration that the topic had until then requires one.

Grants from before the ledger's first entry may be in no entry. For a place of that time the ledger knows the holder
only if that was an exclusive grant that still held the slot when the ledger began.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec

from ...partition.api.ledger import LedgerEntry, is_within

ENDS = frozenset({"grant.end"})
MADE = frozenset({"grant", "grant.held", "grant.grow"})
DECISIONS = MADE | ENDS


class Writer(msgspec.Struct, frozen=True):
    """A grant that could write. ``entry``: number of the entry that made it; ``end_entry``: of the one that ended it
    (None: it still holds). Times in ms since 1970.
    """

    grant: str
    mode: str
    epoch: int | None
    principal: str
    producer_name: str
    client_id: str
    since_ms: int
    until_ms: int | None
    reason: str | None
    ended_by: str | None
    entry: int
    end_entry: int | None


class CouldWrite(msgspec.Struct, frozen=True):
    """The answer. ``who``: ``grants``, those of ``writers`` and no other caller; ``any``, every caller with the right
    to produce, at some of these offsets at least, unless ``why`` says that the ledger does not tell; ``none``, the slot
    was free and the topic required a fencing token all the time; ``unknown``, the ledger does not tell. The answer
    holds for the offsets ``from_offset <= offset < until_offset`` (None: not known, or up to now). ``possible``: grants
    that may have been in force at some of these offsets, because a report was lost or is still to come, or because they
    held the slot when the ledger began; ``possibly_any``: the slot may have been free or shared at some of them, and
    the topic required no fencing token. ``writer_group``: the group in which the writer had to own the partition (None:
    none, or not at all of these offsets). ``proof``: numbers of the entries on which the answer rests.
    """

    topic: str
    topic_id: int
    partition: int
    offset: int
    who: Literal["grants", "any", "none", "unknown"]
    why: str
    from_offset: int | None
    until_offset: int | None
    writers: list[Writer] = []
    possible: list[Writer] = []
    possibly_any: bool = False
    proof: list[int] = []
    writer_group: str | None = None


class Rules(msgspec.Struct, frozen=True):
    """The rules for writers in all configurations that a topic had until an install. ``fence``: whether a fencing token
    was required: True or False if all configurations agree, None if not. ``is_told``: whether the ledger has any
    configuration. ``writer_group``: that of all of them; None if they differ. ``entries``: the numbers of the entries
    that changed ``fence``.
    """

    fence: bool | None
    is_told: bool
    writer_group: str | None
    entries: list[int]

    @property
    def is_guarded(self) -> bool:
        """Whether the topic required a fencing token all the time."""
        return self.fence is True


def incarnation(entries: Iterable[LedgerEntry]) -> int | None:
    """The greatest topic id in these entries, that of the latest topic; None if they have none."""
    return max((entry.topic_id for entry in entries if entry.topic_id is not None), default=None)


def who_could_write(
    entries: Sequence[LedgerEntry],
    topic: str,
    topic_id: int,
    partition: int,
    offset: int,
    *,
    first: int,
    gaps: Sequence[LedgerEntry] = (),
) -> CouldWrite:
    """Who could write to ``offset``. ``entries``: those about this topic name, ascending; ``gaps``: all entries that
    tell of left-out entries; ``first``: the number of the ledger's first entry.
    """
    mine = [entry for entry in entries if entry.topic_id == topic_id]
    here = [entry for entry in mine if is_within(partition, entry.partitions)]
    installs = [entry for entry in here if entry.act == "slot.installed" and _log_end(entry) is not None]
    place = next((entry for entry in reversed(installs) if (_log_end(entry) or 0) <= offset), None)
    later = next((entry for entry in installs if (_log_end(entry) or 0) > offset), None)
    rules = _rules(mine, later)
    found = CouldWrite(
        topic,
        topic_id,
        partition,
        offset,
        who="unknown",
        why="",
        from_offset=None if place is None else _log_end(place),
        until_offset=None if later is None else _log_end(later),
        proof=[entry.number for entry in (place, later) if entry is not None],
        writer_group=rules.writer_group,
    )
    relevant = [gap for gap in gaps if later is None or int((gap.after or {})["first_index"]) <= later.index]
    if relevant and not _is_certain(here, place, later, relevant):
        left_out = sum(int((gap.after or {})["left_out"]) for gap in relevant)
        why = f"the ledger left out {left_out} entries of that time or before, while its topic took nothing"
        return _with(found, (gap.number for gap in relevant), why=why)
    if lost := _without_offset(here, place, later):
        why = "the partition did not know at which offset a fence took effect that was installed then"
        return _with(found, lost, why=why)
    if place is None:
        return _before_any(found, mine, here, later, rules, first)
    return _at(found, mine, here, place, later, rules, first)


def _is_certain(
    here: Sequence[LedgerEntry], place: LedgerEntry | None, later: LedgerEntry | None, gaps: Sequence[LedgerEntry]
) -> bool:
    """Whether no left-out entry could change the answer: an exclusive grant made ``place``, and ``later`` names it as
    its previous place; or without ``later``, every gap ended before that grant.
    """
    if place is None:
        return False
    made = [each for each in here if each.act in MADE and _order(each) == _order(place) and not _is_of_many(each)]
    if later is not None:
        return bool(made) and (later.after or {}).get("previous") == _order(place)
    return any(all(int((gap.after or {})["last_index"]) < each.index for gap in gaps) for each in made)


def _at(
    found: CouldWrite,
    mine: Sequence[LedgerEntry],
    here: Sequence[LedgerEntry],
    place: LedgerEntry,
    later: LedgerEntry | None,
    rules: Rules,
    first: int,
) -> CouldWrite:
    """The answer for offsets between the installs ``place`` and ``later`` (None: up to now)."""
    writers = _holding(here, up_to=_order(place))
    found = _with_possible(found, here, _order(place), later, is_guarded=rules.is_guarded)
    numbers = (number for each in writers for number in (each.entry, each.end_entry) if number)
    found = _with(found, numbers, writers=writers)
    if writers and not _is_shared(writers):
        return _with(found, who="grants", why="it held the slot alone: every other token was refused")
    if not (_creation(mine) or (writers and not rules.is_guarded) or _is_known(here, _order(place), first)):
        possible = list({each.grant: each for each in (*writers, *found.possible)}.values())
        why = "what was decided about the slot then is older than the ledger's first entry"
        return _with(found, why=why, writers=[], possible=possible, possibly_any=not rules.is_guarded)
    if not writers:
        return _open(found, rules, "none", "the slot was free")
    return _open(found, rules, "grants", "the slot was shared, by these")


def _is_known(here: Iterable[LedgerEntry], place: int, first: int) -> bool:
    """Whether the ledger has every grant that held the slot at this place, although the topic is older than the ledger,
    or its first entries are gone.
    """
    for each in here:
        if each.act in DECISIONS and _order(each) <= place:
            # An exclusive grant holds alone: after its end the slot has no holder. A ledger begins with an entry for
            # every grant that holds then, and has an entry for every later change.
            told = each.before if each.act in ENDS else each.after
            is_alone = (told or {}).get("mode") != "Shared"
            if is_alone or (first == 1 and each.act != "grant.held"):
                return True
    return False


def _before_any(
    found: CouldWrite,
    mine: Sequence[LedgerEntry],
    here: Sequence[LedgerEntry],
    later: LedgerEntry | None,
    rules: Rules,
    first: int,
) -> CouldWrite:
    """The answer for an offset below that of the first known install."""
    created = _creation(mine)
    if created is not None:
        found = _with(found, [created.number], from_offset=0)
        found = _with_possible(found, here, 0, later, is_guarded=rules.is_guarded)
        return _open(found, rules, "none", "no grant had been installed there yet")
    why = f"the topic is older than the ledger, whose first entry is {first}"
    last = None if later is None else _order(later)
    made = [each for each in here if each.act == "grant.held" and (last is None or _order(each) < last)]
    if not made:
        return _with(found, why=why)
    # Earlier offsets may be of earlier grants. Reports from before the ledger's first entry are not in it, so the
    # previous place that an install names excludes no grant here.
    found = _with_possible(found, here, -1, later, is_guarded=rules.is_guarded)
    held = {writer.grant: writer for writer in (_writer(here, each) for each in made)}
    possible = held | {each.grant: each for each in found.possible}
    why = f"{why}: these held the slot when it began, since an offset that is not known"
    numbers = (each.entry for each in held.values())
    return _with(found, numbers, why=why, possible=list(possible.values()), possibly_any=not rules.is_guarded)


def _creation(mine: Iterable[LedgerEntry]) -> LedgerEntry | None:
    """The entry of the topic's creation; None if the ledger does not have it."""
    return next((each for each in mine if each.act == "topic.create" and each.outcome == "done"), None)


def _open(found: CouldWrite, rules: Rules, guarded: Literal["grants", "none"], why: str) -> CouldWrite:
    """The answer for a free or shared slot; ``guarded``: ``who``, if the topic required a fencing token."""
    if rules.is_guarded:
        return _with(found, who=guarded, why=f"{why}, and the topic requires a fencing token")
    why = f"{why}: every caller with the right to produce could write"
    if not rules.is_told:
        why += ", unless the topic required a fencing token, which the ledger does not tell"
    elif rules.fence is None:
        why += " while the topic required no fencing token; at which offset that changed, the ledger does not tell"
    return _with(found, rules.entries, who="any", why=why)


def _with(found: CouldWrite, proof: Iterable[int] = (), **fields: Any) -> CouldWrite:
    return msgspec.structs.replace(found, **fields, proof=sorted({*found.proof, *proof}))


def _without_offset(here: Iterable[LedgerEntry], place: LedgerEntry | None, later: LedgerEntry | None) -> list[int]:
    """Numbers of the installs between these two whose report has no log end: their offset is not known."""
    low, high = (0 if place is None else place.number), (None if later is None else later.number)
    lost = [each.number for each in here if each.act == "slot.installed" and _log_end(each) is None]
    return [number for number in lost if low < number and (high is None or number < high)]


def _holding(here: Sequence[LedgerEntry], up_to: int) -> list[Writer]:
    """The grants that were made at the place ``up_to`` or before, and had not ended by then."""
    live: dict[str, LedgerEntry] = {}
    for entry in here:
        if entry.act in DECISIONS and _order(entry) <= up_to:
            if entry.act in MADE and not _is_of_many(entry):
                live = {_grant(entry): entry}
            elif entry.act in MADE:
                live.setdefault(_grant(entry), entry)
            else:
                live.pop(_grant(entry), None)
    return [_writer(here, entry) for entry in live.values()]


def _with_possible(
    found: CouldWrite, here: Sequence[LedgerEntry], place: int, later: LedgerEntry | None, *, is_guarded: bool
) -> CouldWrite:
    """``found`` with the grants that may have been in force after ``place`` and before the install ``later``: none, if
    ``later`` names ``place`` as its previous place.
    """
    if later is not None and (later.after or {}).get("previous") == place:
        return found
    last = None if later is None else _order(later)
    decided = {each.index: _order(each) for each in here if each.act in DECISIONS or each.act == "topic.fence"}
    between = [order for order in decided.values() if order > place and (last is None or order < last)]
    states = [_holding(here, up_to=order) for order in between]
    possible = {writer.grant: writer for state in states for writer in state}
    is_open = not is_guarded and any(not state or _is_shared(state) for state in states)
    return _with(found, possible=list(possible.values()), possibly_any=is_open)


def _is_of_many(made: LedgerEntry) -> bool:
    return (made.after or {}).get("mode") == "Shared"


def _is_shared(writers: Sequence[Writer]) -> bool:
    return bool(writers) and all(each.mode == "Shared" for each in writers)


def _writer(here: Sequence[LedgerEntry], made: LedgerEntry) -> Writer:
    end = next((each for each in here if each.act in ENDS and _grant(each) == _grant(made)), None)
    grant = made.after or {}
    return Writer(
        grant=str(grant.get("grant")),
        mode=str(grant.get("mode")),
        epoch=grant.get("epoch"),
        principal=str(grant.get("principal") or ""),
        producer_name=str(grant.get("producer_name")),
        client_id=str(grant.get("client_id") or ""),
        since_ms=made.at_ms,
        until_ms=None if end is None else end.at_ms,
        reason=None if end is None else (end.after or {}).get("reason"),
        ended_by=None if end is None else end.principal,
        entry=made.number,
        end_entry=None if end is None else end.number,
    )


def _rules(mine: Iterable[LedgerEntry], later: LedgerEntry | None) -> Rules:
    """The rules in all configurations up to the install ``later``. Earlier ones count, since a partition may act by a
    change long after its decision; those behind ``later`` do not, since they took effect at higher offsets.
    """
    configs: list[tuple[int, dict[str, Any]]] = []
    for each in mine:
        if each.act in {"topic.create", "topic.change"} and (after := (each.after or {}).get("config")):
            if not configs and (before := (each.before or {}).get("config")):
                configs.append((0, before))
            if later is None or each.number < later.number:
                configs.append((each.number, after))
    fences = [bool(config.get("require_fence", False)) for _, config in configs]
    groups = {config.get("writer_group") for _, config in configs}
    changed = [number for (number, _), (was, fence) in zip(configs[1:], pairwise(fences), strict=True) if was != fence]
    return Rules(
        fence=None if changed else any(fences),
        is_told=bool(configs),
        writer_group=groups.pop() if len(groups) == 1 else None,
        entries=changed,
    )


def _order(entry: LedgerEntry) -> int:
    return int((entry.after or {}).get("order") or 0)


def _log_end(entry: LedgerEntry) -> int | None:
    found: int | None = (entry.after or {}).get("log_end")
    return found


def _grant(entry: LedgerEntry) -> str:
    told = entry.before if entry.act in ENDS else entry.after
    return str((told or {}).get("grant"))
