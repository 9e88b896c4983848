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
"""

from collections.abc import Iterable, Sequence
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
    produce; ``none``, the slot was free and the topic wants a fencing token; ``unknown``, the ledger does not reach
    back so far. The same held for the offsets ``from_offset <= offset < until_offset`` (None: not known, or up to now).
    ``possible``: grants that may have been in force at some of these offsets, because a report was lost or is still to
    come; ``possibly_any``: the slot may have been free or shared meanwhile. ``proof``: numbers of entries.
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
    config = _config(mine, place)
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
        writer_group=config.get("writer_group"),
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
        return _before_any(found, mine, here, later, config, first)
    return _at(found, here, place, later, config, first)


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
    here: Sequence[LedgerEntry],
    place: LedgerEntry,
    later: LedgerEntry | None,
    config: dict[str, Any],
    first: int,
) -> CouldWrite:
    """The slot was as decided up to ``place``; nothing ``later`` was installed yet."""
    writers = _holding(here, up_to=_order(place))
    is_guarded = bool(config.get("require_fence", False))
    found = _with_possible(found, here, _order(place), later, is_guarded=is_guarded)
    numbers = (number for each in writers for number in (each.entry, each.end_entry) if number)
    found = _with(found, numbers, writers=writers)
    if _is_shared(writers):
        if is_guarded:
            return _with(found, who="grants", why="these shared the slot, and the topic requires a fencing token")
        return _with(found, who="any", why="the slot was shared, which keeps no caller out")
    if writers:
        return _with(found, who="grants", why="it held the slot alone: every other token was refused")
    orders = {_order(each) for each in here if each.act in DECISIONS or each.act == "topic.fence"}
    if _order(place) not in orders and first > 1:
        return _with(found, why="what was decided about the slot then is older than the ledger's first entry")
    return _free(found, config, "the slot was free")


def _before_any(
    found: CouldWrite,
    mine: Sequence[LedgerEntry],
    here: Sequence[LedgerEntry],
    later: LedgerEntry | None,
    config: dict[str, Any],
    first: int,
) -> CouldWrite:
    """No install is known from before this offset."""
    made = [each for each in here if each.act in MADE]
    held = [_writer(here, each) for each in made if each.act == "grant.held"]
    if held:
        why = "held when the ledger began; the ledger does not know since which offset"
        return _with(found, (each.entry for each in held), who="grants", why=why, writers=held)
    created = next((each for each in mine if each.act == "topic.create" and each.outcome == "done"), None)
    if created is None:
        return _with(found, why=f"the topic is older than the ledger, whose first entry is {first}")
    found = _with(found, [created.number], from_offset=0)
    found = _with_possible(found, here, 0, later, is_guarded=bool(config.get("require_fence", False)))
    return _free(found, config, "no grant had been installed there yet")


def _free(found: CouldWrite, config: dict[str, Any], why: str) -> CouldWrite:
    if config.get("require_fence", False):
        return _with(found, who="none", why=f"{why}, and the topic requires a fencing token")
    return _with(found, who="any", why=f"{why}: every caller with the right to produce could write")


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


def _config(mine: Sequence[LedgerEntry], place: LedgerEntry | None) -> dict[str, Any]:
    """The topic's configuration, as the ledger knows it last before a place, or at all."""
    told = [each for each in mine if each.act in {"topic.create", "topic.change"} and (each.after or {}).get("config")]
    before = [each for each in told if place is None or each.number < place.number]
    chosen = (before or told)[-1:]
    return dict((chosen[0].after or {})["config"]) if chosen else {}


def _order(entry: LedgerEntry) -> int:
    return int((entry.after or {}).get("order") or 0)


def _log_end(entry: LedgerEntry) -> int | None:
    found: int | None = (entry.after or {}).get("log_end")
    return found


def _grant(entry: LedgerEntry) -> str:
    told = entry.before if entry.act in ENDS else entry.after
    return str((told or {}).get("grant"))
