"""The page about a run of hours or days: what each node used over time, and whether it grows. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby, pairwise
from math import isnan

import msgspec

from ..endurance.samples import Rates, Sample, between, by_node
from ..endurance.trends import DESCRIPTORS, MEMORY, Bound, Trend, Verdict, descriptors, memory, trend
from ..history.observed import Strike
from .course import AXIS, GAP, PANEL, Scale, family, frame, svg
from .page import STYLE
from .parts import counted, document, html_table, round_up

Points = Sequence[tuple[float, float]]
"""Seconds since the start, and values; a value of NaN breaks the line."""
POINTS_MAX = 700
"""Most points of a line, and one more for each restart; with more samples, each point is the mean of several of one
process.
"""
MIB = 1024 * 1024
COLOURS = ("#2f6fab", "#d1495b", "#2c8a57", "#b87800", "#7b5ea7", "#2a9d8f", "#5b8c5a", "#b5739d", "#e07a3f")
BROKEN = float("nan")
ADDED = ".n { fill: none; stroke-width: 1.3; }"
STEPS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
"""Steps of the axes."""
WORDS: dict[Verdict, tuple[str, str]] = {
    "grows": ("bad", "grows"),
    "steady": ("good", "does not grow"),
    "undecided": ("odd", "may grow or not: the run, or the time between its faults, is too short to tell"),
}


class Endurance(msgspec.Struct, frozen=True):
    """The content of the page. ``facts``: (name, value) about the run, and about what was done besides."""

    title: str
    start_ns: int
    samples: Sequence[Sample]
    strikes: Sequence[Strike]
    facts: Sequence[tuple[str, str]]
    examples: Sequence[str]
    """Some of the violations, in words."""
    violations: int
    failures: Sequence[str] = ()


class Judged(msgspec.Struct, frozen=True):
    """The trends of one node's memory and descriptors."""

    node: str
    memory: Trend
    descriptors: Trend


def judged(samples: Sequence[Sample]) -> list[Judged]:
    """The trends of each node."""
    return [Judged(node, trend(own, memory), trend(own, descriptors)) for node, own in by_node(samples).items()]


def verdict(found: Sequence[Judged]) -> tuple[Verdict, Verdict]:
    """The verdicts about memory and about descriptors: of each, the worst of all nodes."""
    return _worst([each.memory.verdict(MEMORY) for each in found]), _worst(
        [each.descriptors.verdict(DESCRIPTORS) for each in found]
    )


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    order: tuple[Verdict, ...] = ("grows", "undecided", "steady")
    return next((each for each in order if each in verdicts), "undecided")


def page(run: Endurance) -> str:
    """One HTML file that loads nothing."""
    found = judged(run.samples)
    body = [
        f"<h1>{escape(run.title)}</h1>",
        *_verdicts(run, found),
        f"<figure>{picture(run)}{_legend(run.samples)}</figure>",
        "<h2>Growth</h2>",
        *html_table(("node", "", "an hour", "interval", "lives", "hours", "verdict"), _rows(found)),
        "<p>A straight line through the means of each minute, with one slope for all lives of a node (a life: from the "
        "start of a process to its end) and a height for each; the first 15 minutes of a life are "
        "left out. The interval is three standard errors to each side.</p>",
        "<h2>The run</h2>",
        *html_table(("", ""), ((escape(name), escape(value)) for name, value in run.facts)),
    ]
    return document(run.title, STYLE + ADDED, body)


def _verdicts(run: Endurance, found: Sequence[Judged]) -> Iterator[str]:
    yield _headline("Memory", {each.node: each.memory for each in found}, MEMORY, _mib)
    yield _headline("The number of descriptors", {each.node: each.descriptors for each in found}, DESCRIPTORS, _count)
    kind = "bad" if run.violations else "good"
    checked = counted(run.violations, "violation") if run.violations else "No violation"
    yield f'<p class="verdict {kind}">{checked} found by the checkers of the rounds.</p>'
    for example in run.examples[:20]:
        yield f'<p class="verdict bad">{escape(example)}</p>'
    for failure in run.failures[:20]:
        yield f'<p class="verdict odd">The harness: {escape(failure)}</p>'


def _headline(name: str, trends: Mapping[str, Trend], bound: Bound, text: Callable[[float], str]) -> str:
    """The worst verdict, the nodes that have it, and each node's slope."""
    worst = _worst([each.verdict(bound) for each in trends.values()])
    kind, words = WORDS[worst]
    nodes = ", ".join(node for node, each in trends.items() if each.verdict(bound) == worst)
    slopes = ", ".join(f"{node} {text(each.slope)}" for node, each in trends.items() if each.slope is not None)
    figures = f" In an hour: {slopes}." if slopes else ""
    return f'<p class="verdict {kind}">{name}{f" of {escape(nodes)}" if nodes else ""} {words}.{escape(figures)}</p>'


def _mib(value: float) -> str:
    return f"{value / MIB:+.2f} MiB"


def _count(value: float) -> str:
    return f"{value:+.2f}"


def _rows(found: Sequence[Judged]) -> Iterator[Sequence[str]]:
    for each in found:
        yield _row(each.node, "memory", each.memory, MEMORY, _mib)
        yield _row("", "descriptors", each.descriptors, DESCRIPTORS, _count)


def _row(node: str, what: str, found: Trend, bound: Bound, text: Callable[[float], str]) -> Sequence[str]:
    slope = "-" if found.slope is None else text(found.slope)
    interval = "-" if found.slope is None else f"{text(found.low)} to {text(found.high)}"
    lives, hours = str(found.lives), f"{found.hours:.2f}"
    return escape(node), what, slope, interval, lives, hours, WORDS[found.verdict(bound)][1]


def picture(run: Endurance) -> str:
    """All panels, one above the other, over one time axis with the faults."""
    end_ns = max((each.at_ns for each in run.samples), default=run.start_ns)
    scale = Scale(0.0, (end_ns - run.start_ns) / 1e9)
    panels = list(_panels(run))
    bottom = len(panels) * (PANEL + GAP)
    parts = [svg(bottom + AXIS, "What the nodes used over time"), *scale.axis(bottom)]
    for strike in run.strikes:
        x, end = (scale.x((at - run.start_ns) / 1e9) for at in (strike.at_ns, strike.healed_ns))
        words = escape(f"{strike.fault}: {strike.what}")
        parts.append(
            f'<rect class="shadow {family(strike.fault)}" x="{x}" y="0" width="{max(end - x, 1):.1f}"'
            f' height="{bottom}"><title>{words}</title></rect>'
        )
    for number, (name, lines, text) in enumerate(panels):
        parts.extend(_panel(name, lines, text, scale, number * (PANEL + GAP) + GAP))
    return "\n".join([*parts, "</svg>"])


def _panels(run: Endurance) -> Iterator[tuple[str, Mapping[str, Points], Callable[[float], str]]]:
    """Each panel: its name, the line of each node, and the function that writes a value."""
    nodes = by_node(run.samples)

    def read(value: Callable[[Sample], float | None]) -> Mapping[str, Points]:
        return {node: _line(run.start_ns, [(each, value(each)) for each in own]) for node, own in nodes.items()}

    def rate(value: Callable[[Rates], float | None]) -> Mapping[str, Points]:
        found = {}
        for node, own in nodes.items():
            pairs = [(after, between(before, after)) for before, after in pairwise(own)]
            values = [(after, None if rates is None else value(rates)) for after, rates in pairs]
            found[node] = _line(run.start_ns, values)
        return found

    yield "memory", read(lambda each: memory(each) / MIB), lambda value: f"{value:,.0f} MiB"
    yield "descriptors", read(descriptors), lambda value: f"{value:,.0f}"
    yield "log and segments on disk", read(_disk_mib), lambda value: f"{value:,.0f} MiB"
    yield "records appended here, a second", rate(lambda each: each.records_per_s), lambda value: f"{value:,.0f}"
    yield "99 % of appends within", rate(lambda each: each.append_s), lambda value: f"{value * 1000:,.0f} ms"
    yield "event loop held, of the time", rate(lambda each: each.stalled_share * 100), lambda value: f"{value:.3g} %"
    yield "partitions led", read(lambda each: each.leads), lambda value: f"{value:,.0f}"


def _disk_mib(each: Sample) -> float | None:
    return None if each.disk_bytes is None else each.disk_bytes / MIB


def _line(start_ns: int, values: Sequence[tuple[Sample, float | None]]) -> Points:
    """The line of one node's values, broken where its process ended, or the value is not known."""
    step = max(1, -(-len(values) // POINTS_MAX))
    points: list[tuple[float, float]] = []
    for _, life in groupby(values, lambda pair: pair[0].pid):
        own = list(life)
        if points:
            points.append(((own[0][0].at_ns - start_ns) / 1e9, BROKEN))
        for first in range(0, len(own), step):
            group = own[first : first + step]
            known = [value for _, value in group if value is not None]
            at_s = (group[0][0].at_ns - start_ns) / 1e9
            points.append((at_s, sum(known) / len(known) if known else BROKEN))
    return points


def _panel(
    name: str, lines: Mapping[str, Points], text: Callable[[float], str], scale: Scale, top: float
) -> Iterator[str]:
    values = [value for line in lines.values() for _, value in line if not isnan(value)]
    most = round_up(max([*values, 0.01]), STEPS)
    floor_y = top + PANEL - GAP
    yield from frame(name, [0.0, most / 2, most], lambda value: floor_y - (PANEL - GAP) * value / most, text)
    for number, line in enumerate(lines.values()):
        colour = COLOURS[number % len(COLOURS)]
        for run in _unbroken(line):
            points = " ".join(
                f"{scale.x(at)},{floor_y - (PANEL - GAP) * min(value / most, 1.0):.1f}" for at, value in run
            )
            yield f'<polyline class="n" stroke="{colour}" points="{points}"/>'


def _unbroken(line: Points) -> Iterator[Points]:
    run: list[tuple[float, float]] = []
    for point in [*line, (0.0, BROKEN)]:
        if not isnan(point[1]):
            run.append(point)
        elif run:
            yield run
            run = []


def _legend(samples: Sequence[Sample]) -> str:
    keys = "".join(
        f'<span><i class="key" style="background:{COLOURS[number % len(COLOURS)]}"></i>{escape(node)}</span>'
        for number, node in enumerate(by_node(samples))
    )
    return f'<figcaption class="legend">{keys}<span>shadows: faults</span></figcaption>'
