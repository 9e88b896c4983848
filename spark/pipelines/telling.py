"""What a pipeline says when it is a script: its progress as lines, what it came to as a table. Needs no library."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

PROGRESS_S = 2.0
"""Between two lines of progress."""


def tell(line: str) -> None:
    """A line of the result, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Progress:
    """Lines on standard error: not more often than every PROGRESS_S, and none twice."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._told, self._told_at = "", time.monotonic()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Tell how far it is, if it is time."""
        line = f"{done:,} {self._what}" if total is None else f"{done:,} of {total:,} {self._what}"
        if done and line != self._told and time.monotonic() >= self._told_at + PROGRESS_S:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
            self._told, self._told_at = line, time.monotonic()


def shown(facts: Mapping[str, Any]) -> dict[str, str]:
    """Facts as people read them; with ``rows`` and ``seconds`` also rows a second."""
    made = {name: f"{each:,.1f}" if isinstance(each, float) else str(each) for name, each in facts.items()}
    if facts["seconds"]:
        made["rows/s"] = f"{facts['rows'] / facts['seconds']:,.0f}"
    return made


def summary(facts: Mapping[str, Any]) -> None:
    """Tell the facts as a table of one row."""
    made = shown(facts)
    table(list(made), [list(made.values())])


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Tell rows in columns as wide as they need."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in (header, ["-" * width for width in widths], *rows):
        tell("  ".join(each.ljust(width) for each, width in zip(line, widths, strict=True)).rstrip())
