"""The course of a run as inline SVG: faults, throughput, latency, and holders of slots over time. Pure.

All panels share one time axis, so that a fault and its effect are one above the other.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import ceil, floor, log10

from ..history.observed import Grant, Observed, Place, Second, Strike, merged, quantile_ms
from .parts import round_up

Height = Callable[[float], float]
"""Maps a value to its y coordinate."""
Text = Callable[[float], str]
WIDTH, LEFT, RIGHT = 1080, 96, 12
LANE, PANEL, GAP, AXIS = 17, 110, 26, 24
BUCKETS_MAX = 300
LANES_MAX = 6
ROW = 20
CHARACTER = 6.2
"""Approximate width of a character. A label that does not fit into its bar is only in the tooltip."""
OWNERS = 8
"""Number of colours for holders."""
STEPS = (1, 2, 3, 6, 10)
"""Steps of the axes, which suit minutes as well as powers of ten."""

FAMILIES = {
    "kill": "process",
    "stall": "process",
    "rolling": "process",
    "toxic": "link",
    "proxy": "link",
    "partition": "network",
    "packet": "network",
    "link": "network",
    "power": "disk",
    "disk": "disk",
    "corrupt": "disk",
    "file": "resource",
    "memory": "resource",
    "cpu": "resource",
    "clock": "clock",
}
"""First word of a fault's name -> the CSS class of its bars; all others are operator's orders."""


def family(fault: str) -> str:
    """The CSS class of a fault."""
    return FAMILIES.get(fault.partition("-")[0], "order")


UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
"""Units of the time axis: length in seconds, and name."""


class Scale:
    """Maps seconds to x coordinates."""

    def __init__(self, from_s: float, to_s: float) -> None:
        self.from_s = from_s
        self.to_s: float = max(to_s, from_s + 0.1)

    def x(self, at_s: float) -> float:
        """The x coordinate of a time, clipped to the panel."""
        share = (min(max(at_s, self.from_s), self.to_s) - self.from_s) / (self.to_s - self.from_s)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    def axis(self, y: float) -> Iterator[str]:
        """Ticks below the last panel, at round numbers of seconds, minutes or hours."""
        span_s = self.to_s - self.from_s
        unit_s, unit = next((each for each in UNITS if span_s >= 10 * each[0]), UNITS[-1])
        step = unit_s * round_up(span_s / unit_s / 10, STEPS)
        for k in range(ceil(self.from_s / step), floor(self.to_s / step) + 1):
            x = self.x(k * step)
            yield f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="{y}"/>'
            yield f'<text class="tick" x="{x}" y="{y + 15}" text-anchor="middle">{k * step / unit_s:g} {unit}</text>'


def course(seen: Observed) -> str:
    """The SVG of a run: the panels of faults, throughput and latency, one above the other."""
    scale = Scale(0.0, seen.length_s)
    lanes = _lanes(seen.strikes)
    faults_height = max(len(lanes), 1) * LANE
    top = faults_height + GAP
    bottom = top + 2 * PANEL + GAP
    width_s, buckets = _buckets(seen)
    parts = [
        svg(bottom + AXIS, "Faults, records per second and latency over time"),
        *scale.axis(bottom),
        *_round_marks(seen, scale, bottom),
        *_shadows(seen, scale, top, bottom),
        f'<text class="tick" x="{LEFT - 6}" y="11" text-anchor="end">faults</text>',
        *(bar for row, strikes in enumerate(lanes) for strike in strikes for bar in _bar(seen, strike, row, scale)),
        *_throughput(buckets, width_s, scale, top),
        *_latency(buckets, width_s, scale, top + PANEL + GAP),
        "</svg>",
    ]
    return "\n".join(parts)


def ownership(seen: Observed, places: Sequence[Place], from_ns: int, to_ns: int) -> str:
    """The holders of each partition's slot over time, with their epochs."""
    scale = Scale(seen.at_s(from_ns), seen.at_s(to_ns))
    height = len(places) * ROW
    parts = [svg(height + AXIS, "Holders of slots over time"), *scale.axis(height)]
    for row, place in enumerate(places):
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{row * ROW + 14}" text-anchor="end">{_label(place)}</text>')
        parts.extend(_grants(seen, seen.grants[place], row, scale, to_ns))
    return "\n".join([*parts, "</svg>"])


def _lanes(strikes: Sequence[Strike]) -> list[list[Strike]]:
    """Each strike in the first free lane; in the last lane if none is free."""
    lanes: list[list[Strike]] = []
    for strike in sorted(strikes, key=lambda each: each.at_ns):
        free = next((lane for lane in lanes if lane[-1].healed_ns <= strike.at_ns), None)
        if free is None and len(lanes) < LANES_MAX:
            lanes.append(free := [])
        (lanes[-1] if free is None else free).append(strike)
    return lanes


def _bar(seen: Observed, strike: Strike, row: int, scale: Scale) -> Iterator[str]:
    x, end = scale.x(seen.at_s(strike.at_ns)), scale.x(seen.at_s(strike.healed_ns))
    width, y = max(end - x, 1.5), row * LANE
    length_s = (strike.healed_ns - strike.at_ns) / 1e9
    words = f"{strike.fault}: {strike.what} (at {seen.at_s(strike.at_ns):.1f} s, for {length_s:.1f} s)"
    yield f'<rect class="fault {family(strike.fault)}" x="{x}" y="{y}" width="{width:.1f}" height="{LANE - 3}" rx="2">'
    yield f"<title>{escape(words)}</title></rect>"
    if CHARACTER * len(strike.fault) < width:
        yield f'<text class="on" x="{x + 3}" y="{y + 11}">{escape(strike.fault)}</text>'


def _shadows(seen: Observed, scale: Scale, top: float, bottom: float) -> Iterator[str]:
    for strike in seen.strikes:
        x, end = scale.x(seen.at_s(strike.at_ns)), scale.x(seen.at_s(strike.healed_ns))
        yield f'<rect class="shadow" x="{x}" y="{top}" width="{max(end - x, 1):.1f}" height="{bottom - top}"/>'


def _round_marks(seen: Observed, scale: Scale, bottom: float) -> Iterator[str]:
    for at_ns, seed in seen.rounds[1:]:
        x = scale.x(seen.at_s(at_ns))
        yield f'<line class="round" x1="{x}" x2="{x}" y1="0" y2="{bottom}"><title>seed {escape(seed)}</title></line>'


def _buckets(seen: Observed) -> tuple[float, list[Second]]:
    width = max(1, ceil(seen.length_s / BUCKETS_MAX))
    count = int(seen.length_s // width) + 1
    groups: list[list[Second]] = [[] for _ in range(count)]
    for number, second in seen.seconds.items():
        groups[min(number // width, count - 1)].append(second)
    return float(width), [merged(group) for group in groups]


def _throughput(buckets: Sequence[Second], width_s: float, scale: Scale, top: float) -> Iterator[str]:
    rates = [bucket.records / width_s for bucket in buckets]
    most = round_up(max([*rates, 1.0]), STEPS)
    floor_y = top + PANEL
    yield from frame("records/s", [0, most / 2, most], lambda value: floor_y - PANEL * value / most, _number)
    points = [
        f"{scale.x(at)},{floor_y - PANEL * rate / most:.1f}"
        for k, rate in enumerate(rates)
        for at in (k * width_s, (k + 1) * width_s)
    ]
    if points:
        start, end = scale.x(0), scale.x(len(rates) * width_s)
        yield f'<polygon class="area" points="{start},{floor_y} {" ".join(points)} {end},{floor_y}"/>'
        yield f'<polyline class="line" points="{" ".join(points)}"/>'
    for k, bucket in enumerate(buckets):
        if bucket.unknown:
            words = f"{bucket.unknown} of unknown outcome, {bucket.failed} refused"
            yield f'<circle class="unknown" cx="{scale.x((k + 0.5) * width_s)}" cy="{floor_y}" r="2">'
            yield f"<title>{words}</title></circle>"


def _latency(buckets: Sequence[Second], width_s: float, scale: Scale, top: float) -> Iterator[str]:
    curves = {
        name: [quantile_ms(bucket.latencies, share) for bucket in buckets]
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }
    known = [value for curve in curves.values() for value in curve if value is not None] or [1.0]
    low, high = floor(log10(min(known))), max(ceil(log10(max(known))), floor(log10(min(known))) + 1)

    def y(value: float) -> float:
        return round(top + PANEL - PANEL * (log10(value) - low) / (high - low), 1)

    yield from frame("latency", [10.0**k for k in range(low, high + 1)], y, _milliseconds)
    for name, curve in curves.items():
        for points in _runs(curve, width_s, scale, y):
            yield f'<polyline class="{name}" points="{points}"/>'


def _runs(curve: Sequence[float | None], width_s: float, scale: Scale, y: Height) -> Iterator[str]:
    """The curve in pieces: there is no latency while nothing is acknowledged."""
    run: list[str] = []
    for k, value in enumerate([*curve, None]):
        if value is not None:
            run += [f"{scale.x(k * width_s)},{y(value)}", f"{scale.x((k + 1) * width_s)},{y(value)}"]
        elif run:
            yield " ".join(run)
            run = []


def frame(name: str, values: Sequence[float], y: Height, text: Text) -> Iterator[str]:
    """The grid and the labels of a panel, with these values on its axis."""
    yield f'<text class="name" x="{LEFT}" y="{y(values[-1]) - 6}">{name}</text>'
    for value in values:
        at = y(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>'
        yield f'<text class="tick" x="{LEFT - 6}" y="{at + 4}" text-anchor="end">{text(value)}</text>'


def _grants(seen: Observed, grants: Sequence[Grant], row: int, scale: Scale, to_ns: int) -> Iterator[str]:
    ordered = sorted(grants, key=lambda grant: grant.epoch)
    ends = [grant.at_ns for grant in ordered[1:]] + [to_ns]
    for grant, end_ns in zip(ordered, ends, strict=True):
        x, end = scale.x(seen.at_s(grant.at_ns)), scale.x(seen.at_s(max(end_ns, grant.at_ns)))
        words = f"epoch {grant.epoch}: {grant.owner}, granted at {seen.at_s(grant.at_ns):.2f} s"
        colour = sum(grant.owner.partition(".")[0].encode()) % OWNERS
        box = f'x="{x}" y="{row * ROW + 1}" width="{max(end - x, 1):.1f}" height="{ROW - 4}"'
        yield f'<rect class="owner o{colour}" {box}><title>{escape(words)}</title></rect>'
        label = f"{grant.epoch} {grant.owner}"
        fitting = next((text for text in (label, str(grant.epoch)) if CHARACTER * len(text) + 4 < end - x), None)
        if fitting:
            yield f'<text class="on" x="{x + 3}" y="{row * ROW + 13}">{escape(fitting)}</text>'


def _label(place: Place) -> str:
    return escape(f"{place[0].partition('-')[0]}/{place[1]}")


def svg(height: float, about: str) -> str:
    """The beginning of a picture, which ``</svg>`` ends."""
    return f'<svg viewBox="0 -14 {WIDTH} {height + 14:.0f}" role="img" aria-label="{about}">'


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _milliseconds(value: float) -> str:
    return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms"
