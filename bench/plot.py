"""Pictures of the figures: SVG by hand, which shows as it is in light and in dark pages, without a library. Pure."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from figures import Quartiles

WIDTH, HEIGHT = 860, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 50, 50
LABEL_PX_MIN = 16
"""Least distance between the labels of two lines, in pixels."""
COLORS = ("#0f766e", "#d97706", "#b45309", "#7c3aed", "#a855f7", "#db2777", "#2563eb", "#64748b")
COLORS_DARK = ("#2dd4bf", "#fbbf24", "#f59e0b", "#a78bfa", "#d8b4fe", "#f472b6", "#60a5fa", "#94a3b8")

Lines = Mapping[str, Mapping[int, Quartiles]]
"""For each line, by its name: the quartiles of the figure, by number of partitions."""


def plot(title: str, unit: str, lines: Lines) -> str:
    """Lines over the number of partitions, with the quartiles as whiskers; each line has its name at its end."""
    counts = sorted({count for line in lines.values() for count in line})
    top_value = _round_up(max(each.high for line in lines.values() for each in line.values()))
    place = {count: LEFT + number * _step(counts) for number, count in enumerate(counts)}

    def height(value: float) -> float:
        return HEIGHT - BOTTOM - value / top_value * (HEIGHT - TOP - BOTTOM)

    def point(count: int, value: Quartiles) -> tuple[float, Quartiles]:
        return place[count], Quartiles(*map(height, value))

    parts = [f'<text x="{LEFT}" y="24" class="title">{escape(title)}, {escape(unit)}</text>']
    for number in range(5):
        value = top_value * number / 4
        y = height(value)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>')
    for count, x in place.items():
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{count}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 8}">partitions</text>')
    for number, line in enumerate(lines.values()):
        parts += _line(number % len(COLORS), [point(count, line[count]) for count in sorted(line)])
        if len(line) == 1 and len(counts) > 1:
            parts.append(_level(number % len(COLORS), height(next(iter(line.values())).median)))
    parts += _labels({name: height(line[max(line)].median) for name, line in lines.items()})
    return _svg(title, parts)


def short(value: float) -> str:
    """A number on an axis: 125k."""
    return f"{value / 1000:.4g}k" if value >= 1000 else f"{value:.3g}"


def _step(counts: Sequence[int]) -> float:
    return (WIDTH - LEFT - RIGHT) / max(len(counts) - 1, 1)


def _round_up(value: float) -> float:
    """The least number not below ``value`` that suits the top of an axis of four steps."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(factor * unit for factor in (1, 1.2, 1.6, 2, 3, 4, 6, 8, 10) if factor * unit >= value)


def _line(color: int, points: Sequence[tuple[float, Quartiles]]) -> list[str]:
    """``points``: x, and the quartiles as y."""
    path = " ".join(f"{x:.1f},{middle:.1f}" for x, (_, middle, _) in points)
    parts = [f'<polyline points="{path}" class="line c{color}"/>']
    for x, (low, middle, high) in points:
        parts.append(f'<line x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}" class="whisker c{color}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{middle:.1f}" r="3.5" class="dot f{color}"/>')
    return parts


def _level(color: int, y: float) -> str:
    """A dashed line across the plot, for a system that was measured at one number of partitions only."""
    return f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" class="line level c{color}"/>'


def _labels(ends: Mapping[str, float]) -> list[str]:
    """Names at the ends of their lines, moved up where they would cover each other or the axis."""
    parts, lowest = [], float(HEIGHT - BOTTOM)
    colors = {name: number % len(COLORS) for number, name in enumerate(ends)}
    for name in sorted(ends, key=lambda name: -ends[name]):
        y = min(ends[name], lowest)
        lowest = y - LABEL_PX_MIN
        x = WIDTH - RIGHT + 12
        parts.append(f'<text x="{x}" y="{y + 4:.1f}" class="name f{colors[name]}">{escape(name)}</text>')
    return parts


def _svg(title: str, parts: Sequence[str]) -> str:
    def style(colors: Sequence[str]) -> str:
        return "".join(f".c{n}{{stroke:{color}}}.f{n}{{fill:{color}}}" for n, color in enumerate(colors))

    sheet = (
        "text{font:13px sans-serif;fill:#334155}.title{font-weight:600;font-size:15px}.name{font-weight:600}"
        ".grid{stroke:#94a3b8;stroke-opacity:.35}.line{fill:none;stroke-width:2}.level{stroke-dasharray:5 5}"
        ".whisker{stroke-width:1.5;opacity:.6}"
        f"{style(COLORS)}"
        f"@media (prefers-color-scheme:dark){{text{{fill:#cbd5e1}}{style(COLORS_DARK)}}}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{sheet}</style>", *parts, "</svg>\n"])
