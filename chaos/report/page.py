"""The page about a run: one HTML file that loads nothing, with the verdict first."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

import msgspec

from ..checkers.verdicts import Verdict
from ..history.history import Event
from ..history.observed import Observed, Place
from .course import course, family, ownership
from .figures import Effect, OfFault, Spread, by_fault, effects, published
from .parts import counted, document, html_table

ROWS_MAX = 12
"""Partitions shown for a round: those with the most grants."""
ROUNDS_SHOWN_MAX = 12
STRIKES_SHOWN_MAX = 500
NOTHING = "-"
"""Shown where there is no value."""


class Run(msgspec.Struct, frozen=True):
    """The content of the page beside the history."""

    title: str
    facts: Sequence[tuple[str, str]]
    """(name, value) about the run and its cluster."""
    verdicts: Sequence[Verdict]
    replays: Mapping[str, str]
    """For each round's seed the command that repeats it."""
    failures: Sequence[str] = ()
    """Failures of the harness."""

    @property
    def violations(self) -> int:
        return sum(verdict.violations for verdict in self.verdicts)


def write_report(path: Path, run: Run, history: Path) -> None:
    """Write the page about a run whose events are in ``history``. Raises ValueError, OSError."""
    decoder = msgspec.json.Decoder(Event)
    with history.open("rb") as lines:
        seen = Observed.of(map(decoder.decode, lines))
    path.write_text(page(run, seen), encoding="utf-8")


def page(run: Run, seen: Observed) -> str:
    found = effects(seen)
    body = [
        f"<h1>{escape(run.title)}</h1>",
        _verdict(run, seen),
        "<figure>" + course(seen) + _legend() + "</figure>",
        "<h2>Figures</h2>",
        *html_table(("figure", "bar", "n", "p50", "max", ""), _figure_rows(seen, found)),
        "<h2>Not writable, by fault</h2>",
        *html_table(
            ("fault", "strikes", "p50", "max", "alone", "p50 alone", "max alone", "healed to writable p50", "max"),
            _fault_rows(by_fault(found)),
        ),
        "<p>For each strike, the longest time in which a partition had appends in flight and acknowledged none. Strikes"
        " overlap; “alone” counts those while nothing else was broken.</p>",
        "<h2>Checkers</h2>",
        *html_table(("", "checker", "claim", "checked", "violations"), _verdict_rows(run.verdicts)),
        *_examples(run),
        "<h2>Holders of slots</h2>",
        *_owners(seen),
        "<h2>Strikes</h2>",
        *_strikes(seen, found),
        "<h2>How to repeat a round</h2>",
        *html_table(
            ("seed", "command"), ((seed, f"<code>{escape(line)}</code>") for seed, line in run.replays.items())
        ),
        "<h2>The run</h2>",
        *html_table(("", ""), ((escape(name), escape(value)) for name, value in run.facts)),
    ]
    return document(run.title, STYLE, body)


def _verdict(run: Run, seen: Observed) -> str:
    checked = sum(second.ok + second.failed + second.unknown for second in seen.seconds.values())
    faults = {strike.fault for strike in seen.strikes}
    struck = f"{counted(len(seen.strikes), 'strike')} of {counted(len(faults), 'fault')}" if faults else "no fault"
    if run.violations:
        bad = ", ".join(f"{each.checker} ({each.violations:,})" for each in run.verdicts if each.violations)
        words, kind = f"{counted(run.violations, 'violation')}: {bad}.", "bad"
    else:
        words, kind = f"No violation: {counted(checked, 'append')} under {struck}.{_unchecked(run)}", "good"
    trouble = "".join(f'<p class="verdict odd">The harness: {escape(each)}</p>' for each in run.failures[:20])
    return f'<p class="verdict {kind}">{escape(words)}</p>{trouble}'


def _unchecked(run: Run) -> str:
    """The checkers that found nothing to check: their silence says nothing."""
    idle = [each.checker for each in run.verdicts if not each.checked and not each.violations]
    return f" Nothing to check for {', '.join(idle)}." if idle else ""


def _legend() -> str:
    names = {
        "process": "process",
        "link": "connection",
        "network": "network",
        "disk": "disk",
        "resource": "resource",
        "clock": "clock",
        "order": "operator",
    }
    keys = "".join(f'<span><i class="key {kind}"></i>{name}</span>' for kind, name in names.items())
    curves = '<span><i class="key k50"></i>p50</span><span><i class="key k99"></i>p99</span>'
    dots = '<span><i class="key dot"></i>unknown outcomes</span>'
    return f'<figcaption class="legend">{keys}{curves}{dots}<span>dashed: a round begins</span></figcaption>'


def _figure_rows(seen: Observed, found: Sequence[Effect]) -> Iterator[Sequence[str]]:
    for figure in published(seen, found):
        value = figure.value
        p50, most = _amount(value.p50, figure.unit), _amount(value.max, figure.unit)
        yield escape(figure.name), escape(figure.bar), f"{value.count:,}", p50, most, f"<small>{figure.note}</small>"


def _fault_rows(rows: Sequence[OfFault]) -> Iterator[Sequence[str]]:
    for row in rows:
        name = f'<i class="key {family(row.fault)}"></i>{escape(row.fault)}'
        yield name, f"{row.strikes:,}", *_two(row.worst_s), f"{row.alone:,}", *_two(row.alone_s), *_two(row.back_s)


def _two(spread: Spread) -> tuple[str, str]:
    return _amount(spread.p50, "s"), _amount(spread.max, "s")


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return NOTHING
    if unit == "appends":
        return f"{value:,.0f}"
    return f"{value:,.2f} {unit}" if unit != "ms" else f"{value:,.1f} ms"


def _verdict_rows(verdicts: Sequence[Verdict]) -> Iterator[Sequence[str]]:
    for each in sorted(verdicts, key=lambda verdict: -verdict.violations):
        mark = '<b class="yes">✓</b>' if each.checked else ""
        if each.violations:
            mark = '<b class="no">✗</b>'
        yield mark, escape(each.checker), escape(each.claim), each.checked_words, f"{each.violations:,}"


def _examples(run: Run) -> Iterator[str]:
    for verdict in run.verdicts:
        if verdict.examples:
            lines = "".join(f"<li>{escape(example)}</li>" for example in verdict.examples)
            yield f"<details open><summary>{escape(verdict.checker)}</summary><ul>{lines}</ul></details>"


def _owners(seen: Observed) -> Iterator[str]:
    """The slots of each round; if there are many rounds, of those with most grants."""
    if not seen.grants:
        yield "<p>No client asked for a slot.</p>"
        return
    bounds = [at_ns for at_ns, _ in seen.rounds] or [seen.start_ns]
    spans = list(zip(bounds, [*bounds[1:], seen.end_ns], [seed for _, seed in seen.rounds] or [""], strict=True))
    shown = sorted(spans, key=lambda span: -sum(len(seen.grants[p]) for p in _places(seen, span[0], span[1])))
    kept = sorted(shown[:ROUNDS_SHOWN_MAX])
    for number, (from_ns, to_ns, seed) in enumerate(kept):
        places = _places(seen, from_ns, to_ns)[:ROWS_MAX]
        if places:
            grants = sum(len(seen.grants[place]) for place in places)
            title = f"round of seed {escape(seed)}: {counted(grants, 'grant')} on {counted(len(places), 'partition')}"
            state = " open" if number == 0 else ""
            yield f"<details{state}><summary>{title}</summary>{ownership(seen, places, from_ns, to_ns)}</details>"
    if len(shown) > len(kept):
        yield f"<p>The {len(kept)} rounds with most changes, of {len(shown)}.</p>"


def _places(seen: Observed, from_ns: int, to_ns: int) -> list[Place]:
    within = [place for place, grants in seen.grants.items() if from_ns <= grants[0].at_ns <= to_ns]
    return sorted(within, key=lambda place: -len(seen.grants[place]))


def _strikes(seen: Observed, found: Sequence[Effect]) -> Iterator[str]:
    rows = [
        (
            f"{seen.at_s(each.strike.at_ns):.1f} s",
            f'<i class="key {family(each.strike.fault)}"></i>{escape(each.strike.fault)}',
            escape(each.strike.what),
            f"{(each.strike.healed_ns - each.strike.at_ns) / 1e9:.1f} s",
            f"{each.worst_s:.2f} s",
            _amount(each.back_s, "s"),
        )
        for each in found[:STRIKES_SHOWN_MAX]
    ]
    rest = f"; the first {STRIKES_SHOWN_MAX} are listed" if len(found) > STRIKES_SHOWN_MAX else ""
    skipped = ", ".join(f"{name} {count}" for name, count in seen.skipped.most_common())
    found_none = f"; skipped, without a target or after a failure: {escape(skipped)}" if skipped else ""
    yield f"<details><summary>{counted(len(found), 'strike')}{rest}{found_none}</summary>"
    yield from html_table(("at", "fault", "what", "for", "not writable", "healed to writable"), rows)
    yield "</details>"


STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #667085; --line: #dfe3ea; --page: #fff; --curve: #2f6fab;
  --bad: #c2372b; --good: #2c8a57; --odd: #b87800; --process: #d1495b; --link: #edae49; --network: #e07a3f;
  --disk: #7b5ea7; --resource: #b5739d; --clock: #2a9d8f; --order: #5b8c5a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e9f0; --soft: #98a2b3; --line: #333b48; --page: #14181f;
  --curve: #6fb1ee; --bad: #ff7b6e; --good: #5fcf94; --odd: #e6b455; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 70rem;
  margin: 1.6rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .6rem; } h2 { font-size: 1.08rem; margin: 1.8rem 0 .3rem; }
.verdict { padding: .5rem .8rem; border-left: 5px solid; font-size: 1.08rem; margin: .4rem 0; }
.verdict.good { border-color: var(--good); } .verdict.bad { border-color: var(--bad); }
.verdict.odd { border-color: var(--odd); font-size: .95rem; }
figure { margin: 1rem 0; } p, small, summary { color: var(--soft); } .verdict { color: var(--ink); }
summary { cursor: pointer; margin: .3rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .22rem .7rem .22rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; white-space: nowrap; } code { font-size: .86rem; }
svg { width: 100%; height: auto; font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); } .tick { fill: var(--soft); } .name { fill: var(--ink); font-weight: 600; }
.area { fill: var(--curve); opacity: .2; } .line, .p50 { fill: none; stroke: var(--curve); stroke-width: 1.4; }
.p99 { fill: none; stroke: var(--bad); stroke-width: 1.2; } .unknown { fill: var(--odd); }
.shadow { fill: var(--soft); opacity: .07; } .round { stroke: var(--soft); stroke-dasharray: 2 3; }
.fault { opacity: .92; } .on { fill: #fff; font-size: 10px; pointer-events: none; }
.process { fill: var(--process); background: var(--process); } .link { fill: var(--link); background: var(--link); }
.network { fill: var(--network); background: var(--network); } .disk { fill: var(--disk); background: var(--disk); }
.resource { fill: var(--resource); background: var(--resource); }
.clock { fill: var(--clock); background: var(--clock); }
.order { fill: var(--order); background: var(--order); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; color: var(--soft); font-size: .88rem; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
.k50 { background: var(--curve); } .k99 { background: var(--bad); }
.dot { background: var(--odd); border-radius: 50%; width: .5em; height: .5em; vertical-align: middle; }
.yes { color: var(--good); } .no { color: var(--bad); } .owner { opacity: .88; }
.o0 { fill: #4878a8; } .o1 { fill: #c44e52; } .o2 { fill: #55a868; } .o3 { fill: #8172b3; } .o4 { fill: #b8860b; }
.o5 { fill: #3a9aa8; } .o6 { fill: #b5653b; } .o7 { fill: #7a7a7a; }
"""
