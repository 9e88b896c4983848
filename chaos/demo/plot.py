"""Throughput of a demo run over time as an inline SVG, with a mark for each fault. Pure."""

from collections.abc import Sequence
from html import escape

import msgspec

from ..history.timeline import Rate
from ..report.parts import round_up

WIDTH, CURVE_HEIGHT = 900, 192
LEFT, RIGHT, BOTTOM = 64, 16, 34
FIRST_ROW, ROW, LABEL_ROWS_MIN = 14, 15, 4
"""Labels stand above the curve in rows, one more where a label would meet another one or the line of its mark."""
CHARACTER_WIDTH = 7
"""Approximate pixels of a character."""
TICKS = 5


class Mark(msgspec.Struct, frozen=True):
    """An event at ``at_s``, in seconds. ``kind`` is a CSS class: fault, heal or takeover."""

    at_s: float
    label: str
    kind: str


class Pause(msgspec.Struct, frozen=True):
    """A time in which all writers waited at a gate."""

    from_s: float
    to_s: float


def plot(rates: Sequence[Rate], marks: Sequence[Mark], pauses: Sequence[Pause], seconds: float) -> str:
    """An SVG element that takes its colours from the page (classes ``area``, ``line``, ``grid``, ``mark``, ``pause``).

    ``seconds``: where the curve ends.
    """
    per_s = round_up(max((rate.per_s for rate in rates), default=1.0))
    length_s = max([seconds, 0.1, *(mark.at_s for mark in marks)])
    labels = _labels(marks, length_s)
    rows = max([LABEL_ROWS_MIN, *(label.row + 1 for label in labels)])
    scale = _Scale(length_s, per_s, FIRST_ROW + ROW * rows)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {scale.height}" role="img" aria-label="Records acknowledged per second over time">',
        *(_pause(pause, scale) for pause in pauses),
        *_grid(scale),
        *_curve(rates, seconds, scale),
        *(_line(label, scale) for label in labels),
        *(_words(label) for label in labels),
        "</svg>",
    ]
    return "\n".join(parts)


class _Scale(msgspec.Struct, frozen=True):
    seconds: float
    per_s: float
    top: int
    """The y coordinate of the curve's frame, below the rows of labels."""

    @property
    def height(self) -> int:
        return self.top + CURVE_HEIGHT + BOTTOM

    def x(self, at_s: float) -> float:
        return _x(at_s, self.seconds)

    def y(self, per_s: float) -> float:
        return round(self.top + CURVE_HEIGHT * (1 - per_s / self.per_s), 1)


def _x(at_s: float, seconds: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * at_s / seconds, 1)


class _Label(msgspec.Struct, frozen=True):
    """A mark's label in its row; ``start`` to ``end`` is where its words are."""

    mark: Mark
    x: float
    start: float
    end: float
    row: int = 0

    def is_clear_of(self, other: "_Label") -> bool:
        """Whether neither covers the other's words, nor draws its line, from its row down, through them."""
        if self.row == other.row:
            return self.end < other.start or other.end < self.start
        upper, lower = (self, other) if self.row < other.row else (other, self)
        return not lower.start < upper.x < lower.end


def _labels(marks: Sequence[Mark], seconds: float) -> list[_Label]:
    """Each label in the first row in which it is clear of those before it; below all of them if there is none."""
    placed: list[_Label] = []
    for mark in marks:
        x, width = _x(mark.at_s, seconds), CHARACTER_WIDTH * (len(mark.label) + 1)
        start = x - width if x + width > WIDTH else x
        tried = [_Label(mark, x, start, start + width, row) for row in range(len(marks))]
        placed.append(next((label for label in tried if all(map(label.is_clear_of, placed))), tried[len(placed)]))
    return placed


def _grid(scale: _Scale) -> list[str]:
    parts = []
    for k in range(TICKS + 1):
        per_s = scale.per_s * k / TICKS
        y = scale.y(per_s)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{per_s:,.0f}</text>')
    step = round_up(scale.seconds / TICKS)
    for k in range(int(scale.seconds / step) + 1):
        x = scale.x(k * step)
        parts.append(f'<text class="tick" x="{x}" y="{scale.height - 12}" text-anchor="middle">{k * step:g} s</text>')
    return parts


def _pause(pause: Pause, scale: _Scale) -> str:
    x, width = scale.x(pause.from_s), round(scale.x(pause.to_s) - scale.x(pause.from_s), 1)
    box = f'x="{x}" y="{scale.top}" width="{width}" height="{CURVE_HEIGHT}"'
    return f'<rect class="pause" {box}><title>all writers wait at a gate</title></rect>'


def _curve(rates: Sequence[Rate], seconds: float, scale: _Scale) -> list[str]:
    if not rates:
        return []
    ends = [rate.at_s for rate in rates[1:]] + [seconds]
    steps = [
        f"{scale.x(at)},{scale.y(rate.per_s)}"
        for rate, end in zip(rates, ends, strict=True)
        for at in (rate.at_s, min(end, seconds))
    ]
    floor_y = scale.y(0)
    area = f"{scale.x(0)},{floor_y} {' '.join(steps)} {scale.x(seconds)},{floor_y}"
    return [f'<polygon class="area" points="{area}"/>', f'<polyline class="line" points="{" ".join(steps)}"/>']


def _line(label: _Label, scale: _Scale) -> str:
    place = f'x1="{label.x}" x2="{label.x}" y1="{_baseline(label) - 8}" y2="{scale.top + CURVE_HEIGHT}"'
    return f'<line class="mark {label.mark.kind}" {place}/>'


def _words(label: _Label) -> str:
    anchor, shift = ("end", -5) if label.start < label.x else ("start", 5)
    place = f'x="{label.x + shift}" y="{_baseline(label)}" text-anchor="{anchor}"'
    return f'<text class="label {label.mark.kind}" {place}>{escape(label.mark.label)}</text>'


def _baseline(label: _Label) -> int:
    return FIRST_ROW + label.row * ROW
