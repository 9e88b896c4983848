"""Plots as SVG inside the page: no script, nothing from elsewhere. Pure."""

from collections.abc import Iterator, Sequence
from html import escape
from math import log1p

from .findings import Finding, Slot, Timeline

WIDTH, HEIGHT, LEFT, BOTTOM = 1000, 240, 64, 26
KINDS = (("ok", "acknowledged"), ("fail", "refused, no effect"), ("info", "outcome unknown"))


def course(timeline: Timeline) -> Iterator[str]:
    """Operations a second over the time of the run, stacked by how they ended; what the nemesis did as lines."""
    if not timeline.slots:
        return
    most = max(map(sum, timeline.slots)) or 1
    length_s = timeline.slot_s * len(timeline.slots)
    yield '<h2>The run</h2><div class="legend">'
    yield from (f'<span><i class="{kind}"></i>{label}</span>' for kind, label in KINDS)
    yield '<span><i class="mark"></i>what the nemesis did</span></div>'
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Operations a second over time">'
    yield from _axes(most / timeline.slot_s, length_s)
    step = (WIDTH - LEFT) / len(timeline.slots)
    for number, slot in enumerate(timeline.slots):
        yield from _column(slot, LEFT + number * step, step, most)
    for at_s, what in timeline.marks:
        x = LEFT + (WIDTH - LEFT) * at_s / length_s
        yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{HEIGHT - BOTTOM}"><title>{at_s:.1f} s '
        yield f"{escape(what)}</title></line>"
    yield "</svg>"


def by_checker(findings: Sequence[Finding]) -> Iterator[str]:
    """How many violations each checker found: one bar each, lengths by their logarithm."""
    broken = [each for each in findings if each.violations]
    if not broken:
        return
    height = 24 * len(broken)
    longest = max(log1p(each.violations) for each in broken)
    yield f'<h2>Violations by checker</h2><svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Violations">'
    for number, each in enumerate(broken):
        y = 24 * number
        width = log1p(each.violations) / longest * (WIDTH - 300)
        yield f'<text x="170" y="{y + 16}" text-anchor="end">{escape(each.checker)}</text>'
        yield f'<rect class="info" x="180" y="{y + 4}" width="{width:.1f}" height="16" rx="3"/>'
        yield f'<text x="{190 + width:.1f}" y="{y + 16}">{each.violations:,}</text>'
    yield "</svg>"


def _axes(most_per_s: float, length_s: float) -> Iterator[str]:
    base = HEIGHT - BOTTOM
    for part in (0, 0.5, 1):
        y = base - part * (base - 12)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{part * most_per_s:,.0f}/s</text>'
        x = LEFT + part * (WIDTH - LEFT)
        anchor = {0: "start", 0.5: "middle", 1: "end"}[part]
        yield f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{part * length_s:,.0f} s</text>'


def _column(slot: Slot, x: float, width: float, most: int) -> Iterator[str]:
    y = float(HEIGHT - BOTTOM)
    for (kind, label), count in zip(KINDS, slot, strict=True):
        height = count / most * (HEIGHT - BOTTOM - 12)
        y -= height
        if count:
            size = f'width="{max(width - 0.5, 0.5):.1f}" height="{height:.1f}"'
            yield f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}>'
            yield f"<title>{count:,} {label}</title></rect>"
