"""The result of an audit. Without Spark."""

from typing import NamedTuple


class Violation(NamedTuple):
    """One violation, in words."""

    checker: str
    topic: str | None
    partition: int | None
    offset: int | None
    what: str

    @property
    def place(self) -> str:
        """The place: TOPIC/PARTITION, TOPIC for a violation of a topic as a whole, or ``everywhere``."""
        where = [str(each) for each in (self.topic, self.partition) if each is not None]
        return "/".join(where) or "everywhere"


class Finding(NamedTuple):
    """The result of one checker."""

    checker: str
    claim: str
    violations: int
    examples: list[Violation]
    checked: int = 0
    """Number of operations or records that the checker examined."""

    @property
    def checked_words(self) -> str:
        """``checked`` as text: ``nothing to check`` for 0, because a verdict on nothing is no good news."""
        return f"{self.checked:,}" if self.checked or self.violations else "nothing to check"


class Slot(NamedTuple):
    """The number of operations that began in one slot of time, by how they ended."""

    ok: int
    fail: int
    info: int


class Timeline(NamedTuple):
    """The run in slots of ``slot_s`` seconds, and the events of the nemesis: (seconds since the start, event)."""

    slot_s: float
    slots: list[Slot]
    marks: list[tuple[float, str]]


class Audited(NamedTuple):
    """The result of an audit. ``seconds`` is by pass; pass ``evidence`` reads the files and pairs the operations."""

    findings: list[Finding]
    counts: dict[str, int]
    seconds: dict[str, float]
    timeline: Timeline = Timeline(1.0, [], [])

    @property
    def violations(self) -> int:
        """Violations of all checkers together."""
        return sum(each.violations for each in self.findings)
