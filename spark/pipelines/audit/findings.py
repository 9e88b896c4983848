"""What an audit comes to."""

from typing import NamedTuple


class Violation(NamedTuple):
    """One, in words."""

    checker: str
    topic: str | None
    partition: int | None
    offset: int | None
    what: str


class Finding(NamedTuple):
    """What one checker found."""

    checker: str
    claim: str
    violations: int
    examples: list[Violation]


class Slot(NamedTuple):
    """Operations that began in a piece of the run's time, by how they ended."""

    ok: int
    fail: int
    info: int


class Timeline(NamedTuple):
    """The run in slots of ``slot_s`` seconds, and what the nemesis did: (seconds from the start, what)."""

    slot_s: float
    slots: list[Slot]
    marks: list[tuple[float, str]]


class Audited(NamedTuple):
    """The result of an audit. ``seconds`` by pass; reading and pairing is ``evidence``."""

    findings: list[Finding]
    counts: dict[str, int]
    seconds: dict[str, float]
    timeline: Timeline = Timeline(1.0, [], [])

    @property
    def violations(self) -> int:
        """Of all checkers together."""
        return sum(each.violations for each in self.findings)
