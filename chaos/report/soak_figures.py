"""The published tables over one run or several, as Markdown."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ..checkers.verdicts import Verdict
from ..harness.judging import Judgement
from ..harness.results import Summary
from ..history.history import Event
from ..history.observed import Observed
from .figures import Effect, OfFault, Spread, by_fault, effects, fencing_ms, table_of
from .parts import counted, markdown_table

NOTHING = "-"
"""Shown where there is no value."""
ANOMALIES = (
    ("anomalies of any kind", ()),
    ("acknowledged records lost", ("lost-write",)),
    ("records stored twice", ("duplicate",)),
    ("zombie appends accepted", ("zombie", "slot-history", "epoch-uniqueness")),
    ("false outcome certificates", ("outcome-certificate",)),
)
"""Figures that count violations: (name, checkers); no checkers means all."""


class Soak:
    """Aggregates runs, added one by one, for the tables."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self.counts: Counter[str] = Counter()
        self.rounds: int = 0
        self.operations: int = 0
        self.records: int = 0
        self.seconds: float = 0.0
        self.strikes: Counter[str] = Counter()
        self._found: list[Effect] = []
        self._fencing_ms: list[float] = []

    def add(self, summary: Summary, events: Iterable[Event]) -> None:
        seen = Observed.of(events)
        self._found += effects(seen)
        self._fencing_ms += fencing_ms(seen)
        self.strikes.update(strike.fault for strike in seen.strikes)
        self.counts.update(summary.counts)
        self.rounds += len(summary.rounds)
        self.operations += summary.operations
        self.records += summary.records
        self.seconds += summary.seconds
        self.verdicts = [*Judgement(self.verdicts).plus(Judgement(summary.verdicts)).verdicts]

    @property
    def violations(self) -> int:
        return sum(verdict.violations for verdict in self.verdicts)

    def lines(self) -> Iterator[str]:
        """The tables, in Markdown."""
        rounds, strikes = counted(self.rounds, "round"), counted(self.strikes.total(), "strike")
        yield f"{rounds} in {self.seconds / 60:.1f} minutes; {self.operations:,} operations checked; {strikes} of " + (
            f"{counted(len(self.strikes), 'fault')}; {self.records:,} records read back."
        )
        yield from ("", *markdown_table(("figure", "bar", "value", "n", "max"), self._figures()))
        yield from ("", *markdown_table(_FAULT_HEAD, map(_fault_row, by_fault(self._found))))
        yield from ("", *markdown_table(("checker", "checked", "violations"), map(_verdict_row, self.verdicts)))

    def _figures(self) -> Iterator[Sequence[str]]:
        for name, checkers in ANOMALIES:
            counted = [each for each in self.verdicts if not checkers or each.checker in checkers]
            yield name, "0", str(sum(each.violations for each in counted)), f"{self.operations:,}", NOTHING
        for figure in table_of(self._found, self._fencing_ms):
            spread = figure.value
            yield (
                figure.name,
                figure.bar,
                _value(spread.p50, figure.unit),
                str(spread.count),
                _value(spread.max, figure.unit),
            )


_FAULT_HEAD = ("fault", "strikes", "not writable p50", "max", "alone", "p50 alone", "max alone", "healed to writable")


def _fault_row(row: OfFault) -> Sequence[str]:
    spreads = (row.worst_s, row.alone_s)
    whole, alone = ((_value(each.p50, "s"), _value(each.max, "s")) for each in spreads)
    return row.fault, str(row.strikes), *whole, str(row.alone), *alone, _both(row.back_s)


def _verdict_row(verdict: Verdict) -> Sequence[str]:
    return verdict.checker, verdict.checked_words, f"{verdict.violations:,}"


def _both(spread: Spread) -> str:
    return f"{_value(spread.p50, 's')}, max {_value(spread.max, 's')}"


def _value(value: float | None, unit: str) -> str:
    return NOTHING if value is None else f"{value:.2f} {unit}"
