"""Rows of figures: printed as a table as they come, kept for the files."""

# ruff: noqa: T201  # it prints tables

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """How much is measured: a load lasts ``seconds``, and is repeated ``runs`` times; ``short`` is a few rows, once."""

    seconds: float = 3.0
    runs: int = 3
    short: bool = False
    minutes: float = 6.0
    """How long a row of `flapping` watches for elections, which must not happen."""
    commits: int = 3_000_000
    """The number of commands that come and go while memory is watched."""


@dataclass(frozen=True)
class Column:
    """A column: the key in a row, its heading with the unit, and how a figure is written."""

    key: str
    heading: str
    form: str = ".0f"

    def write(self, row: Mapping[str, Any]) -> str:
        """The figure of a row, or a dash."""
        value = row.get(self.key)
        text = "-" if value is None else value if isinstance(value, str) else format(value, self.form)
        return text.rjust(max(len(self.heading), 9))


class Table:
    """Prints its heading at once, and each row when it is known."""

    def __init__(self, title: str, columns: Sequence[Column]) -> None:
        self.rows: list[Row] = []
        self._columns = columns
        print(f"\n{title}")
        print("  ".join(column.heading.rjust(9) for column in columns), flush=True)

    def add(self, row: Row) -> None:
        """Keep a row, and print it."""
        self.rows.append(row)
        print("  ".join(column.write(row) for column in self._columns), flush=True)


def medians(runs: int, measure: Callable[[], Mapping[str, float]]) -> Row:
    """Measure ``runs`` times; return the median of each figure."""
    results = [measure() for _ in range(runs)]
    return {key: median(result[key] for result in results) for key in results[0]}
