"""One page about a demo run, as Markdown and as self-contained HTML. Pure: same run, same page."""

from collections.abc import Iterator, Sequence
from html import escape

import msgspec

from ..checkers.verdicts import Verdict
from ..history.timeline import Outage, Rate
from ..report.parts import Row, counted, document, html_table, markdown_table
from .plot import Mark, Pause, plot


class Killing(msgspec.Struct, frozen=True):
    """A leader that was killed with SIGKILL and came back."""

    node: str
    partition: int
    """The partition whose leader was picked."""
    at_s: float
    back_s: float
    """When the node was ready again."""
    outage: Outage
    failovers: int
    """Partitions that the node led and that have a leader of a newer term since."""


class Takeover(msgspec.Struct, frozen=True):
    """A stalled writer, its successor, and the outcomes of the zombie's writes."""

    partition: int
    stalled_s: float
    granted_s: float
    """When the successor held its grant."""
    resumed_s: float
    log_end: int
    """The log end that the successor found; its first record goes there."""
    late_acks: int
    """Writes from before the stall whose acknowledgement reached the zombie after SIGCONT."""
    attempts: int
    refused: int
    """Attempts after the resumption that were refused with PRODUCER_FENCED."""
    first_refusal_s: float | None
    """Seconds from SIGCONT to the first refusal; None if no write was refused."""
    certificates: dict[str, int]
    """How many refusals certified each outcome."""


class Run(msgspec.Struct, frozen=True):
    """The content of the page. Times are seconds since the first append."""

    source: str
    seed: int
    nodes: int
    partitions: int
    records: int
    bytes: int
    rounds: float
    batch_records: int
    seconds: float
    readback_s: float
    replicas: int
    records_compared: int
    killings: Sequence[Killing]
    takeover: Takeover
    verdicts: Sequence[Verdict]
    rates: Sequence[Rate]
    marks: Sequence[Mark]
    pauses: Sequence[Pause]
    """Times in which all writers waited at a gate until the previous fault was over."""

    @property
    def paused_s(self) -> float:
        return sum(pause.to_s - pause.from_s for pause in self.pauses)

    @property
    def violations(self) -> int:
        return sum(verdict.violations for verdict in self.verdicts)

    @property
    def failovers(self) -> int:
        """Partitions that got a new leader, over all kills."""
        return sum(killing.failovers for killing in self.killings)


class _Table(msgspec.Struct, frozen=True):
    title: str
    head: Row
    rows: Sequence[Row]
    note: str = ""


def markdown(run: Run) -> str:
    """The page without the plot."""
    blocks = [f"# {_title(run)}", _verdict(run)]
    for table in _tables(run):
        blocks += [f"## {table.title}", "\n".join(markdown_table(table.head, table.rows))]
        if table.note:
            blocks.append(table.note)
    return "\n\n".join(blocks) + "\n"


def html(run: Run) -> str:
    """The page with the plot; it loads nothing."""
    verdict_class = "bad" if run.violations else "good"
    body = [
        f"<h1>{escape(_title(run))}</h1>",
        f'<p class="verdict {verdict_class}">{escape(_verdict(run))}</p>',
        f"<figure>{plot(run.rates, run.marks, run.pauses, run.seconds)}"
        "<figcaption>Records acknowledged per second, with a mark for each fault. Grey: all writers wait at a gate "
        "until the previous fault is over.</figcaption></figure>",
    ]
    for table in _tables(run):
        body += [
            f"<h2>{escape(table.title)}</h2>",
            *html_table(table.head, [list(map(escape, row)) for row in table.rows]),
        ]
        if table.note:
            body.append(f"<p>{escape(table.note)}</p>")
    return document(_title(run), _STYLE, body)


def _title(run: Run) -> str:
    return f"Stockade demo: {run.records:,} records, {counted(len(run.killings), 'leader')} killed, one writer stalled"


def _verdict(run: Run) -> str:
    if run.violations:
        bad = ", ".join(verdict.checker for verdict in run.verdicts if verdict.violations)
        return f"FAILED: {counted(run.violations, 'violation')} ({bad})."
    return (
        f"Passed: every replica has all {run.records:,} records, byte for byte, in order, none lost or doubled; "
        f"{run.takeover.refused} of {run.takeover.attempts} writes of the zombie refused."
    )


def _tables(run: Run) -> Iterator[_Table]:
    yield _Table("The run", ("figure", "value"), list(_figures(run)))
    yield _kills(run)
    yield _Table("The stalled writer", ("event", ""), list(_takeover(run.takeover)))
    yield _Table(
        "Checkers",
        ("checker", "claim", "checked", "violations"),
        [(each.checker, each.claim, each.checked_words, f"{each.violations:,}") for each in run.verdicts],
        _first_violations(run),
    )


def _figures(run: Run) -> Iterator[Row]:
    files, rounds = counted(run.partitions, "file"), f"{run.rounds:.1f} rounds"
    yield "data", f"{run.source}: {files}, {rounds}, {run.bytes / 1e6:.1f} MB of lines"
    nodes, partitions = counted(run.nodes, "node"), counted(run.partitions, "partition")
    yield "cluster", f"{nodes}, {partitions}, {run.replicas // run.partitions} replicas each"
    yield "records", f"{run.records:,}, {run.batch_records} a batch, one exclusive producer a partition"
    yield "time to write", f"{run.seconds:.1f} s, faults included: {run.records / run.seconds:,.0f} records/s"
    yield "of it waiting", f"{run.paused_s:.1f} s, in which all writers waited at a gate until a fault was over"
    yield "failovers", f"{counted(run.failovers, 'partition')} got a new leader in {counted(len(run.killings), 'kill')}"
    yield "read back", f"{run.records_compared:,} records of {run.replicas} replicas in {run.readback_s:.1f} s"
    yield "seed", str(run.seed)


def _kills(run: Run) -> _Table:
    head = ("killed", "at", "led", "not writable, of those it led", "not writable, all partitions", "ready again after")
    rows = [
        (
            f"{killing.node}, leader of partition {killing.partition}",
            f"{killing.at_s:.1f} s",
            counted(len(killing.outage.led), "partition"),
            _spread(killing.outage, led_only=True),
            _spread(killing.outage, led_only=False),
            f"{killing.back_s - killing.at_s:.1f} s",
        )
        for killing in run.killings
    ]
    note = "Not writable: the longest time without an acknowledgement while appends were open."
    return _Table("Leaders killed with SIGKILL", head, rows, note)


def _spread(outage: Outage, *, led_only: bool) -> str:
    return f"max {outage.worst_s(led_only=led_only):.2f} s, median {outage.median_s(led_only=led_only):.2f} s"


def _takeover(takeover: Takeover) -> Iterator[Row]:
    stalled = f"at {takeover.stalled_s:.1f} s, for {takeover.resumed_s - takeover.stalled_s:.2f} s"
    yield "stalled with SIGSTOP", f"writer of partition {takeover.partition} {stalled}"
    granted = takeover.granted_s - takeover.stalled_s
    yield "taken over", f"ExclusiveWithFencing granted {granted:.2f} s later, log found at {takeover.log_end:,}"
    late = (
        f"; {takeover.late_acks} acknowledgements from before the stall reached it late" if takeover.late_acks else ""
    )
    first = takeover.first_refusal_s
    refusal = "never refused" if first is None else f"first refusal {first:.3f} s after"
    yield "resumed with SIGCONT", f"at {takeover.resumed_s:.1f} s; {refusal}{late}"
    yield "zombie's writes", f"{takeover.attempts} tried, {takeover.refused} refused with PRODUCER_FENCED"
    certificates = ", ".join(f"{count} {state}" for state, count in sorted(takeover.certificates.items()))
    yield "outcome certificates", f"{certificates or 'none'}; each compared with the final log"


def _first_violations(run: Run) -> str:
    return " · ".join(f"{v.checker}: {v.examples[0]}" for v in run.verdicts if v.examples)


_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #667085; --line: #d8dde6; --page: #fff; --curve: #2f6fab;
  --fault: #c2372b; --heal: #2c8a57; --takeover: #8b5a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e9f0; --soft: #98a2b3; --line: #343c4a; --page: #14181f;
  --curve: #6fb1ee; --fault: #ff7b6e; --heal: #5fcf94; --takeover: #e6b455; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 58rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
.verdict { padding: .6rem .8rem; border-left: 4px solid; } .good { border-color: var(--heal); }
.bad { border-color: var(--fault); }
figure { margin: 1.2rem 0; } figcaption, p { color: var(--soft); } .verdict { color: var(--ink); }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top;
  padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); } th { color: var(--soft); font-weight: 500; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); } .tick { fill: var(--soft); } .area { fill: var(--curve); opacity: .18; }
.pause { fill: var(--soft); opacity: .16; }
.line { fill: none; stroke: var(--curve); stroke-width: 1.5; } .mark { stroke-dasharray: 3 3; }
.label { paint-order: stroke; stroke: var(--page); stroke-width: 3px; }
.mark.fault { stroke: var(--fault); } .mark.heal { stroke: var(--heal); } .mark.takeover { stroke: var(--takeover); }
.label.fault { fill: var(--fault); } .label.heal { fill: var(--heal); } .label.takeover { fill: var(--takeover); }
"""
