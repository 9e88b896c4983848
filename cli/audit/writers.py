"""Who could write to a partition at an offset, by the ledger. Pure.

A partition comes to a place in the order of decisions by an install, and reports where its log ended then, and at which
place it was before. So between the offsets of two installs that follow one another, the slot was what the decisions up
to the first one's place say: who held a grant that was made at that place or before, and not ended by then.

A report can be lost, when a leader dies, and the next one overtakes it. Then the next report's place before is not the
one that was reported last, and each decision between the two may have been in force for some of these offsets. That is
no violation, since epochs along the log do not fall; the answer names them as possible.

While the ledger's topic took nothing for long, entries were left out, and `ledger.gap` tells when. An answer that an
entry of that time could change is unknown. One cannot: at a place that an exclusive grant made, it was the only holder,
up to the install that says that it came right after that place.

Whether a free or shared slot kept callers without a token out, the topic's configuration decides. No entry tells at
which offset a partition began to act by a change of it. So a fence counts as required where every configuration that
the topic had until then requires one.

Before the ledger began, grants came and went that no entry tells. Of a place of that time the ledger knows the holder
only where that was an exclusive grant that held the slot still when the ledger began.
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
    """A grant that could write. ``entry`` made it, ``end_entry`` ended it (None: it holds still). Times in ms since
    1970.
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
    """The answer. ``who``: ``grants``, those of ``writers`` and no others; ``any``, every caller with the right to
    produce, at some of these offsets at least, unless ``why`` says that the ledger does not tell; ``none``, the slot
    was free and the topic wanted a fencing token all the time; ``unknown``, the ledger does not reach back so far. The
    same held for the offsets ``from_offset <= offset < until_offset`` (None: not known, or up to now). ``possible``:
    grants that may have been in force at some of these offsets, because a report was lost or is still to come, or
    because they held the slot when the ledger began; ``possibly_any``: the slot may have been free or shared meanwhile,
    while the topic wanted no fencing token. ``writer_group``: the writer had to own the partition in this group (None:
    in none, or not at all of these offsets). ``proof``: numbers of entries.
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
    """What the configurations that a topic had until then say of its writers. ``fence``: whether a fencing token was
    required: True or False, by all of them; None: some required one. ``is_told``: whether the ledger has any.
    ``writer_group``: the one of all of them. ``entries``: the numbers of those that changed ``fence``.
    """

    fence: bool | None
    is_told: bool
    writer_group: str | None
    entries: list[int]

    @property
    def is_guarded(self) -> bool:
        """Whether no caller without a token was let in."""
        return self.fence is True


def incarnation(entries: Iterable[LedgerEntry]) -> int | None:
    """The latest topic id that these entries are about."""
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
    """``entries``: of this topic, ascending; ``gaps``: all that tell of entries that were left out; ``first``: the
    number of the first entry that the ledger has.
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
    """Whether no entry that was left out could change the answer."""
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
    """The slot was as decided up to ``place``; nothing ``later`` was installed yet."""
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
    """Whether the ledger has every grant that held a slot at this place, of a topic that is older than the ledger, or
    whose first entries are gone.
    """
    for each in here:
        if each.act in DECISIONS and _order(each) <= place:
            # An exclusive grant holds alone: after its end the slot has no holder. When the ledger begins, it tells of
            # every grant that holds, and afterwards of every change.
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
    """No install is known from before this offset."""
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
    # Earlier offsets are of earlier grants. Reports from before the beginning are not in the ledger, so an install that
    # says what it came right after excludes nothing here.
    found = _with_possible(found, here, -1, later, is_guarded=rules.is_guarded)
    held = {writer.grant: writer for writer in (_writer(here, each) for each in made)}
    possible = held | {each.grant: each for each in found.possible}
    why = f"{why}: these held the slot when it began, since an offset that is not known"
    numbers = (each.entry for each in held.values())
    return _with(found, numbers, why=why, possible=list(possible.values()), possibly_any=not rules.is_guarded)


def _creation(mine: Iterable[LedgerEntry]) -> LedgerEntry | None:
    """The topic's; None: the ledger does not have it."""
    return next((each for each in mine if each.act == "topic.create" and each.outcome == "done"), None)


def _open(found: CouldWrite, rules: Rules, guarded: Literal["grants", "none"], why: str) -> CouldWrite:
    """The slot kept no caller out; ``guarded`` is the answer where a fencing token was required."""
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
    """Installs between these two of which nothing says where they took effect."""
    low, high = (0 if place is None else place.number), (None if later is None else later.number)
    lost = [each.number for each in here if each.act == "slot.installed" and _log_end(each) is None]
    return [number for number in lost if low < number and (high is None or number < high)]


def _holding(here: Sequence[LedgerEntry], up_to: int) -> list[Writer]:
    """Grants made at this place in the order of decisions or before, and not ended by then."""
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
    """With what may have been in force after ``place`` and before the ``later`` install: nothing, if that one says that
    it came right after it.
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
    """Of all configurations up to the ``later`` install: a partition may act by a change long after it was decided,
    and what was decided after a report took effect at a later offset.
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
