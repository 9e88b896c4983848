"""Throughput over time as an inline SVG, with a mark for everything the nemesis did. Pure."""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

import msgspec

from .timeline import Rate

WIDTH, HEIGHT = 900, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 74, 34
LABEL_ROWS = 4
"""Labels of marks take turns in so many rows, so that neighbours do not cover each other."""
TICKS = 5


class Mark(msgspec.Struct, frozen=True):
    """Something that happened at ``at_s``. ``kind`` is a CSS class: fault, heal or takeover."""

    at_s: float
    label: str
    kind: str


def plot(rates: Sequence[Rate], marks: Sequence[Mark], seconds: float) -> str:
    """An SVG element that takes its colours from the page (classes ``area``, ``line``, ``grid``, ``mark``)."""
    top = _round_up(max((rate.per_s for rate in rates), default=1.0))
    scale = _Scale(max(seconds, 0.1), top)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Records acknowledged per second over time">',
        *_grid(scale),
        *_curve(rates, scale),
        *(part for row, mark in enumerate(marks) for part in _mark(mark, row % LABEL_ROWS, scale)),
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
        per_s, at_s = scale.per_s * k / TICKS, scale.seconds * k / TICKS
        y = scale.y(per_s)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{per_s:,.0f}</text>')
        parts.append(
            f'<text class="tick" x="{scale.x(at_s)}" y="{HEIGHT - 12}" text-anchor="middle">{at_s:.0f} s</text>'
        )
    return parts


def _curve(rates: Sequence[Rate], scale: _Scale) -> list[str]:
    if not rates:
        return []
    ends = [rate.at_s for rate in rates[1:]] + [scale.seconds]
    steps = [
        f"{scale.x(at)},{scale.y(rate.per_s)}"
        for rate, end in zip(rates, ends, strict=True)
        for at in (rate.at_s, min(end, scale.seconds))
    ]
    floor_y = scale.y(0)
    area = f"{scale.x(0)},{floor_y} {' '.join(steps)} {scale.x(scale.seconds)},{floor_y}"
    return [f'<polygon class="area" points="{area}"/>', f'<polyline class="line" points="{" ".join(steps)}"/>']


def _mark(mark: Mark, row: int, scale: _Scale) -> list[str]:
    x, y = scale.x(mark.at_s), 14 + row * 15
    anchor = "end" if x > WIDTH * 0.7 else "start"
    shift = -5 if anchor == "end" else 5
    return [
        f'<line class="mark {mark.kind}" x1="{x}" x2="{x}" y1="{y - 8}" y2="{HEIGHT - BOTTOM}"/>',
        f'<text class="label {mark.kind}" x="{x + shift}" y="{y}" text-anchor="{anchor}">{escape(mark.label)}</text>',
    ]


def _round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 or 10 times a power of ten, so that the ticks are round numbers."""
    power = 10 ** floor(log10(max(value, 1.0)))
    return float(next(step * power for step in (1, 2, 2.5, 5, 10) if ceil(value) <= step * power))
