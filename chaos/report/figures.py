"""The published figures of a run: how long each fault kept clients from writing. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from ..history.observed import MARGIN_NS, Observed, Place, Strike, between, merged, quantile_ms
from ..history.timeline import NS

KILLED_LEADER = ("kill-leader", "kill-one")
STALLED_LEADER = ("stall-leader",)
FOLLOWER_LOST = ("kill-follower", "stall-follower")
BEFORE_NS = 10 * NS
"""Time before a fault with which its effect is compared."""


class Spread(msgspec.Struct, frozen=True):
    """Number, median and maximum of some values; None without values."""

    count: int
    p50: float | None
    max: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(len(values), median(values), max(values)) if values else cls(0, None, None)


class Effect(msgspec.Struct, frozen=True):
    """The effect of one strike. ``is_alone``: nothing else was broken then, or shortly before."""

    strike: Strike
    is_alone: bool
    worst_s: float
    """The longest time in which a partition took no writes."""
    back_s: float | None
    """Seconds from the healing until the last partition acknowledged its first append. Of a partition that acknowledged
    none before the effect ended, though it was asked to, the time until then. None if none was asked.
    """
    failed: int
    unknown: int
    p99_ratio: float | None
    """p99 latency during the strike, divided by that before."""


class OfFault(msgspec.Struct, frozen=True):
    """All strikes of one fault."""

    fault: str
    strikes: int
    alone: int
    worst_s: Spread
    """Over all strikes, each by its worst partition."""
    alone_s: Spread
    """The same over strikes that were alone."""
    back_s: Spread


class Figure(msgspec.Struct, frozen=True):
    """A row of the published table."""

    name: str
    bar: str
    value: Spread
    unit: str
    note: str = ""


def effects(seen: Observed) -> list[Effect]:
    """The effect of each strike, in order."""
    return [_effect(seen, strike) for strike in seen.strikes]


def by_fault(found: Sequence[Effect]) -> list[OfFault]:
    """The strikes grouped by fault, worst fault first."""
    groups: dict[str, list[Effect]] = defaultdict(list)
    for effect in found:
        groups[effect.strike.fault].append(effect)
    rows = [
        OfFault(
            fault,
            len(each),
            sum(effect.is_alone for effect in each),
            Spread.of([effect.worst_s for effect in each]),
            Spread.of([effect.worst_s for effect in each if effect.is_alone]),
            Spread.of([effect.back_s for effect in each if effect.back_s is not None]),
        )
        for fault, each in groups.items()
    ]
    return sorted(rows, key=lambda row: -(row.worst_s.max or 0))


def published(seen: Observed, found: Sequence[Effect]) -> list[Figure]:
    """The table of figures of one run."""
    return table_of(found, list(fencing_ms(seen)))


def table_of(found: Sequence[Effect], latencies_ms: Sequence[float]) -> list[Figure]:
    """The table of figures, over all runs that these come from. Figures about one fault count only strikes that were
    alone.
    """
    alone = [effect for effect in found if effect.is_alone]
    killed = [effect.worst_s for effect in alone if effect.strike.fault in KILLED_LEADER]
    stalled = [effect.worst_s for effect in alone if effect.strike.fault in STALLED_LEADER]
    lost = [effect for effect in alone if effect.strike.fault in FOLLOWER_LOST]
    ratios = [effect.p99_ratio for effect in lost if effect.p99_ratio is not None]
    healed = [effect.back_s for effect in alone if effect.back_s is not None]
    note = "strikes while nothing else was broken"
    return [
        Figure("writable again after kill -9 of a leader", "p50 1.5 s, max 3 s", Spread.of(killed), "s", note),
        Figure("writable again after a leader's stall", "max 3 s", Spread.of(stalled), "s", note),
        Figure(
            "follower lost: failed and unknown appends",
            "0",
            Spread.of([float(each.failed + each.unknown) for each in lost]),
            "appends",
            f"{note}; refusals because of contention count, too",
        ),
        Figure("follower lost: p99 against the time before", "at most 2", Spread.of(ratios), "times", note),
        Figure(
            "heal to writable",
            "3 s",
            Spread.of(healed),
            "s",
            f"{note}; of a partition that was not back at the next strike, or after 30 s, the time until then",
        ),
        Figure(
            "fencing latency: from the grant (or the old holder's resumption) to the old holder's first refusal",
            "one round trip after resume",
            Spread.of(latencies_ms),
            "ms",
            "from when the refused append was sent, if that was later",
        ),
    ]


def fencing_ms(seen: Observed) -> Iterator[float]:
    """For each replaced holder that wrote on: milliseconds to its first refusal, from the newer grant, the sending of
    the refused append, or the last resumption of this client, if it was stalled, whichever is latest.
    """
    stalls = [strike for strike in seen.strikes if strike.fault == "stall-producer"]
    counted: set[tuple[Place, str, int]] = set()
    for refusal in seen.refusals:
        key = (refusal.place, refusal.process, refusal.epoch)
        newer = [grant.at_ns for grant in seen.grants.get(refusal.place, ()) if grant.epoch > refusal.epoch]
        if key in counted or not newer or min(newer) > refusal.ended_ns:
            continue
        counted.add(key)
        client = refusal.process.partition(".")[0]
        resumed = (s.healed_ns for s in stalls if client in s.nodes and s.healed_ns <= refusal.ended_ns)
        since = max(min(newer), refusal.invoked_ns, *resumed)
        yield (refusal.ended_ns - since) / 1e6


def _effect(seen: Observed, strike: Strike) -> Effect:
    until_ns = _judged_until(seen, strike)
    outages = seen.outages_s(strike.at_ns, until_ns)
    before = merged(between(seen, strike.at_ns - BEFORE_NS, strike.at_ns - NS))
    during = merged(between(seen, strike.at_ns, strike.healed_ns))
    was, became = quantile_ms(before.latencies, 0.99), quantile_ms(during.latencies, 0.99)
    return Effect(
        strike,
        _is_alone(seen, strike),
        max(outages.values(), default=0.0),
        _back_s(seen, strike, until_ns),
        during.failed,
        during.unknown,
        became / was if was and became else None,
    )


def _judged_until(seen: Observed, strike: Strike) -> int:
    """When the effect of a strike ends: with the round, with the next strike after the healing, or MARGIN_NS after the
    healing, whichever is first.
    """
    ends = [at_ns for at_ns, _ in seen.rounds if at_ns > strike.at_ns]
    nexts = [other.at_ns for other in seen.strikes if other.at_ns > strike.healed_ns]
    return min([*ends, *nexts, strike.healed_ns + MARGIN_NS, seen.end_ns])


def _is_alone(seen: Observed, strike: Strike) -> bool:
    return not any(
        other is not strike and other.at_ns < strike.healed_ns and other.healed_ns + 3 * NS > strike.at_ns
        for other in seen.strikes
    )


def _back_s(seen: Observed, strike: Strike, until_ns: int) -> float | None:
    """``Effect.back_s`` of a strike whose effect ends at ``until_ns``."""
    waits = []
    for place, spans in seen.spans.items():
        if seen.was_asked(place, strike.healed_ns, until_ns):
            first = spans.first_end(strike.healed_ns)
            waits.append((min(first or until_ns, until_ns) - strike.healed_ns) / NS)
    return max(waits, default=None)
