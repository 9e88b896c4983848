"""Aggregates a history for reports in one pass, because a run of an hour does not fit into memory.

Times are those of the history.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from math import log

import msgspec

from .history import Event
from .timeline import NS, Span, longest_gap_ns

Place = tuple[str, int]
"""Topic and partition."""
_STEP = log(1.1)
"""Latencies are counted in classes that are ten percent wide."""
HELD_UP = frozenset(
    (
        "CLUSTER_UNREACHABLE",
        "INSUFFICIENT_STORAGE",
        "LEADER_NOT_AVAILABLE",
        "NOT_ENOUGH_REPLICAS",
        "NOT_LEADER_OR_FOLLOWER",
        "REQUEST_TIMED_OUT",
        "THROTTLING_QUOTA_EXCEEDED",
    )
)
"""Refusals of appends that say nothing of who may write: the partition takes none at the moment."""
MARGIN_NS = 30 * NS
"""A fault counts as the cause of an outage up to this long after its healing."""


class Strike(msgspec.Struct):
    """One strike of the nemesis. ``nodes`` has the nodes, or the client, that were struck; ``healed_ns`` is the end of
    the run if it was not healed.
    """

    number: int
    fault: str
    what: str
    nodes: list[str]
    at_ns: int
    healed_ns: int = 0


class Grant(msgspec.Struct, frozen=True):
    """A client received the answer that it holds a partition's slot."""

    at_ns: int
    epoch: int
    owner: str


class Refusal(msgspec.Struct, frozen=True):
    """An append that was refused because of a higher epoch."""

    place: Place
    process: str
    epoch: int
    invoked_ns: int
    ended_ns: int


class Second(msgspec.Struct):
    """The appends that ended in one second, by outcome; ``records`` are those acknowledged."""

    records: int = 0
    ok: int = 0
    failed: int = 0
    unknown: int = 0
    latencies: Counter[int] = msgspec.field(default_factory=Counter)
    """Number of acknowledged appends by class of latency."""


class Spans:
    """Appends of one partition, in order of their answers."""

    def __init__(self) -> None:
        self.invoked: array[int] = array("q")
        self.ended: array[int] = array("q")

    def add(self, invoked_ns: int, ended_ns: int) -> None:
        """Add an append, which was answered at ``ended_ns``. A history has events of child processes late."""
        at = len(self.ended)
        if at and ended_ns < self.ended[-1]:
            at = bisect_right(self.ended, ended_ns)
        self.invoked.insert(at, invoked_ns)
        self.ended.insert(at, ended_ns)

    def near(self, since_ns: int, until_ns: int) -> list[Span]:
        """The spans that end in [since_ns, until_ns), the last one before them, and the first one after them."""
        first = max(0, bisect_left(self.ended, since_ns) - 1)
        last = bisect_left(self.ended, until_ns)
        return list(zip(self.invoked[first : last + 1], self.ended[first : last + 1], strict=True))

    def first_end(self, since_ns: int) -> int | None:
        """The time of the first answer at or after ``since_ns``; None if there is none."""
        at = bisect_left(self.ended, since_ns)
        return self.ended[at] if at < len(self.ended) else None


class Observed:
    """The aggregates of one run, from all its events in order."""

    def __init__(self) -> None:
        self.start_ns: int = 0
        self.end_ns: int = 0
        self.rounds: list[tuple[int, str]] = []
        """(beginning in ns, seed) of each round."""
        self.strikes: list[Strike] = []
        self.skipped: Counter[str] = Counter()
        self.seconds: dict[int, Second] = {}
        self.spans: dict[Place, Spans] = {}
        """Acknowledged appends."""
        self.unacknowledged: dict[Place, Spans] = {}
        """Appends that were refused, or whose outcome is unknown."""
        self.held_up: dict[Place, Spans] = {}
        """Those of them with an unknown outcome, or a refusal of HELD_UP."""
        self.grants: dict[Place, list[Grant]] = {}
        self.refusals: list[Refusal] = []
        self._open: dict[int, Event] = {}
        self._struck: dict[tuple[int, int], Strike] = {}

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Observed":
        """Aggregate a whole history. A strike that was not healed lasts until its end."""
        seen = cls()
        for event in events:
            seen.take(event)
        for strike in seen.strikes:
            strike.healed_ns = strike.healed_ns or seen.end_ns
        return seen

    def take(self, event: Event) -> None:
        self.start_ns = self.start_ns or event.t_mono_ns
        self.end_ns = max(self.end_ns, event.t_mono_ns)
        if event.process == "nemesis":
            self._note(event)
        elif event.type == "invoke":
            if event.f in ("append", "acquire"):
                self._open[event.i] = event
        elif event.of is not None:
            invoked = self._open.pop(event.of, None)
            if invoked is not None and invoked.partition is not None:
                self._ended(invoked, event, (invoked.topic or "", invoked.partition))

    def at_s(self, t_ns: int) -> float:
        """Seconds since the first event."""
        return (t_ns - self.start_ns) / NS

    @property
    def length_s(self) -> float:
        """Seconds of the whole run."""
        return self.at_s(self.end_ns)

    def outages_s(self, since_ns: int, until_ns: int) -> dict[Place, float]:
        """For each partition that was written in this time, or could not be: the longest time in which appends were in
        flight and none was acknowledged.
        """
        found = {}
        for place in self.spans.keys() | self.held_up.keys():
            acknowledged, tried = (
                each[place].near(since_ns, until_ns) if place in each else [] for each in (self.spans, self.held_up)
            )
            if any(invoked < until_ns and ended > since_ns for invoked, ended in (*acknowledged, *tried)):
                found[place] = longest_gap_ns(acknowledged, since_ns, until_ns, tried) / NS
        return found

    def was_asked(self, place: Place, since_ns: int, until_ns: int) -> bool:
        """Whether an append to the partition was in flight in this time, whatever became of it."""
        near = (spans[place].near(since_ns, until_ns) for spans in (self.spans, self.unacknowledged) if place in spans)
        return any(invoked < until_ns and ended >= since_ns for found in near for invoked, ended in found)

    def _note(self, event: Event) -> None:
        if event.f == "round":
            self.rounds.append((event.t_mono_ns, event.value or ""))
        elif event.f == "skip":
            self.skipped[event.value or ""] += 1
        elif event.f == "strike" and event.count is not None:
            nodes = event.node.split(",") if event.node else []
            strike = Strike(event.count, event.value or "", event.error or "", nodes, event.t_mono_ns)
            self.strikes.append(strike)
            self._struck[len(self.rounds), event.count] = strike
        elif event.f == "heal" and event.count is not None:
            struck = self._struck.pop((len(self.rounds), event.count), None)
            if struck is not None:
                struck.healed_ns = event.t_mono_ns

    def _ended(self, invoked: Event, end: Event, place: Place) -> None:
        if invoked.f == "acquire":
            if end.type == "ok" and end.epoch is not None:
                self.grants.setdefault(place, []).append(Grant(end.t_mono_ns, end.epoch, end.process))
            return
        second = self.seconds.setdefault(int(self.at_s(end.t_mono_ns)), Second())
        if end.type == "ok":
            second.ok += 1
            second.records += invoked.count or 0
            second.latencies[latency_class(end.t_mono_ns - invoked.t_mono_ns)] += 1
            self.spans.setdefault(place, Spans()).add(invoked.t_mono_ns, end.t_mono_ns)
        else:
            self.unacknowledged.setdefault(place, Spans()).add(invoked.t_mono_ns, end.t_mono_ns)
            if end.type == "info" or end.error in HELD_UP:
                self.held_up.setdefault(place, Spans()).add(invoked.t_mono_ns, end.t_mono_ns)
            second.failed += end.type == "fail"
            second.unknown += end.type == "info"
        if end.error == "PRODUCER_FENCED" and invoked.epoch is not None:
            self.refusals.append(Refusal(place, invoked.process, invoked.epoch, invoked.t_mono_ns, end.t_mono_ns))


def latency_class(ns: int) -> int:
    """The class of a latency: class k is from 1.1**k to 1.1**(k + 1) µs, and class 0 has the shorter latencies, too."""
    return int(log(max(ns, 1_000) / 1_000) / _STEP)


def class_ms(number: int) -> float:
    """The upper end of class ``number``, in ms."""
    return float(1.1 ** (number + 1) / 1_000)


def quantile_ms(latencies: Counter[int], share: float) -> float | None:
    """The quantile ``share`` (0 to 1), in ms, as the upper end of its class; None without latencies."""
    wanted = share * latencies.total()
    for number in sorted(latencies):
        wanted -= latencies[number]
        if wanted <= 0:
            return class_ms(number)
    return None


def merged(seconds: Iterable[Second]) -> Second:
    """The sums of several seconds, as one."""
    whole = Second()
    for second in seconds:
        whole.records += second.records
        whole.ok += second.ok
        whole.failed += second.failed
        whole.unknown += second.unknown
        whole.latencies.update(second.latencies)
    return whole


def between(seen: Observed, since_ns: int, until_ns: int) -> Iterator[Second]:
    """The seconds from ``since_ns`` to ``until_ns``, both included, in which appends ended."""
    for number in range(int(seen.at_s(since_ns)), int(seen.at_s(until_ns)) + 1):
        if number in seen.seconds:
            yield seen.seconds[number]
