"""Throughput over time as an inline SVG, with a mark for everything the nemesis did. Pure."""

from collections.abc import Sequence
from html import escape
from math import floor, log10

import msgspec

from .timeline import Rate

WIDTH, HEIGHT = 900, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 74, 34
LABEL_ROWS = 4
CHARACTER_WIDTH = 7
"""Of a label, about: labels that would cover each other go into different rows, as far as there are rows."""
TICKS = 5


class Mark(msgspec.Struct, frozen=True):
    """Something that happened at ``at_s``. ``kind`` is a CSS class: fault, heal or takeover."""

    at_s: float
    label: str
    kind: str


class Pause(msgspec.Struct, frozen=True):
    """Time in which nobody wanted to write."""

    from_s: float
    to_s: float


def plot(rates: Sequence[Rate], marks: Sequence[Mark], pauses: Sequence[Pause], seconds: float) -> str:
    """An SVG element that takes its colours from the page (classes ``area``, ``line``, ``grid``, ``mark``, ``pause``).

    ``seconds``: where the curve ends.
    """
    top = _round_up(max((rate.per_s for rate in rates), default=1.0))
    scale = _Scale(max([seconds, 0.1, *(mark.at_s for mark in marks)]), top)
    rows = _rows(marks, scale)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Records acknowledged per second over time">',
        *(_pause(pause, scale) for pause in pauses),
        *_grid(scale),
        *_curve(rates, seconds, scale),
        *(part for mark, row in zip(marks, rows, strict=True) for part in _mark(mark, row, scale)),
        "</svg>",
    ]
    return "\n".join(parts)


class _Scale(msgspec.Struct, frozen=True):
    seconds: float
    per_s: float

    def x(self, at_s: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * at_s / self.seconds, 1)

    def y(self, per_s: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * per_s / self.per_s, 1)


def _grid(scale: _Scale) -> list[str]:
    parts = []
    for k in range(TICKS + 1):
        per_s = scale.per_s * k / TICKS
        y = scale.y(per_s)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{per_s:,.0f}</text>')
    step = _round_up(scale.seconds / TICKS)
    for k in range(int(scale.seconds / step) + 1):
        x = scale.x(k * step)
        parts.append(f'<text class="tick" x="{x}" y="{HEIGHT - 12}" text-anchor="middle">{k * step:g} s</text>')
    return parts


def _pause(pause: Pause, scale: _Scale) -> str:
    x, width = scale.x(pause.from_s), round(scale.x(pause.to_s) - scale.x(pause.from_s), 1)
    box = f'x="{x}" y="{TOP}" width="{width}" height="{HEIGHT - TOP - BOTTOM}"'
    return f'<rect class="pause" {box}><title>the writers wait</title></rect>'


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


def _mark(mark: Mark, row: int, scale: _Scale) -> list[str]:
    x, y = scale.x(mark.at_s), 14 + row * 15
    anchor, shift = ("end", -5) if _leans_left(mark, scale) else ("start", 5)
    return [
        f'<line class="mark {mark.kind}" x1="{x}" x2="{x}" y1="{y - 8}" y2="{HEIGHT - BOTTOM}"/>',
        f'<text class="label {mark.kind}" x="{x + shift}" y="{y}" text-anchor="{anchor}">{escape(mark.label)}</text>',
    ]


def _leans_left(mark: Mark, scale: _Scale) -> bool:
    return scale.x(mark.at_s) + _width(mark) > WIDTH


def _width(mark: Mark) -> float:
    return CHARACTER_WIDTH * (len(mark.label) + 1)


def _rows(marks: Sequence[Mark], scale: _Scale) -> list[int]:
    """The first row in which each label covers no other; the last one when there is none."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(LABEL_ROWS)]
    rows = []
    for mark in marks:
        x = scale.x(mark.at_s)
        start, end = (x - _width(mark), x) if _leans_left(mark, scale) else (x, x + _width(mark))
        fitting = (row for row, spans in enumerate(taken) if all(end < a or b < start for a, b in spans))
        row = next(fitting, LABEL_ROWS - 1)
        taken[row].append((start, end))
        rows.append(row)
    return rows


def _round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 or 10 times a power of ten, so that the ticks are round numbers."""
    power = 10 ** floor(log10(max(value, 0.01)))
    return float(next(step * power for step in (1, 2, 2.5, 5, 10) if value <= step * power))
