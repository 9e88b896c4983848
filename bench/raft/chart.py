"""A picture of the figures: one SVG, written by hand, so that no library is needed to look at it."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, BAR, GAP, LEFT = 900, 18, 6, 320
"""Pixels."""
PICTURES = {
    "throughput": ("commits a second", "commits_per_s", ("size", "in_flight"), "{} B x {}"),
    "nosync": ("commits a second without fdatasync", "commits_per_s", ("size", "in_flight"), "{} B x {}"),
    "groups": ("commits a second, 100 B", "commits_per_s", ("groups", "in_flight"), "{} groups, {} in flight"),
    "idle": ("CPU % of a node, idle", "cpu_percent", ("groups",), "{} groups"),
    "failover": ("failover, p50 in ms", "p50_ms", ("groups", "cause"), "{} groups, {}"),
    "memory": ("RSS in MB", "rss_mb", ("commits",), "{} commits"),
}


def draw(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The SVG: a block of bars for each section that has results."""
    parts: list[str] = []
    top = 20
    for section, (title, key, names, label) in PICTURES.items():
        rows = [(label.format(*(row[name] for name in names)), float(row[key])) for row in results.get(section, ())]
        if rows:
            parts.append(f'<text x="10" y="{top}" font-weight="bold">{escape(f"{section}: {title}")}</text>')
            parts += _bars(rows, top + 12)
            top += 12 + len(rows) * (BAR + GAP) + 40
    style = 'font-family="sans-serif" font-size="13"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" {style}>\n{body}\n</svg>\n'


def _bars(rows: Sequence[tuple[str, float]], top: int) -> list[str]:
    longest = max(value for _, value in rows) or 1.0
    parts = []
    for number, (label, value) in enumerate(rows):
        y = top + number * (BAR + GAP)
        width = (WIDTH - LEFT - 120) * value / longest
        text_y = y + BAR - 4
        parts += [
            f'<text x="{LEFT - 10}" y="{text_y}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="#4878a8"/>',
            f'<text x="{LEFT + width + 6:.1f}" y="{text_y}">{value:,.6g}</text>',
        ]
    return parts
