"""How facts are shown: a table for people, one JSON document or a line for each for programs.

Nothing is decorated unless standard output is a terminal; NO_COLOR is obeyed. JSON has the names and units of the
HTTP interface (docs/openapi.yaml), and fields may be added, never renamed.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table

from .manual import Adding

_Function = TypeVar("_Function", bound=Callable[..., object])


def output_option(function: _Function) -> _Function:
    """Adds --output to a command; its parameter is ``output``."""
    option = click.option(
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="table: for people. json: one document on one line, with the names and units of the HTTP interface.",
    )
    return option(function)


yes_option: Adding = click.option("--yes", is_flag=True, help="Do not ask. Without a terminal nothing is asked anyway.")


def confirm(question: str, yes: bool) -> None:
    """Ask whoever sits at the terminal. Ends the command when the answer is no."""
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def show_json(facts: object) -> None:
    """One line."""
    click.echo(msgspec.json.encode(facts).decode())


def told(facts: object, text: str, output: str) -> None:
    """What was done: ``facts`` for programs, ``text`` for people."""
    if output == "json":
        show_json(facts)
    else:
        click.echo(text)


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns aligned with blanks: easy to read, and to cut with other tools.

    On a terminal that is too narrow long cells are folded; nothing is left out.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    text = table(headings, cells)
    if not sys.stdout.isatty():
        click.echo(text)
        return
    console = Console(highlight=False)
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading, *column in zip(headings, *cells, strict=True):
        narrow = max(map(len, [heading, *column])) <= console.width // (len(headings) + 1)
        shown.add_column(heading, overflow="fold", no_wrap=narrow)
    for row in cells:
        shown.add_row(*row)
    console.print(shown, markup=False)


def show_rest(number: int) -> None:
    """Say how many rows a list that --prefix narrows has not shown, if there are any."""
    if number > 0:
        click.echo(f"and {number:,} more; --prefix chooses")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The table as it is without a terminal."""
    cells = [[str(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on standard error that work is under way, if that is a terminal."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def seconds(milliseconds: int) -> str:
    """A time for people: ``7.3 s``, ``12 min``, ``5.2 h``, ``3.1 d``."""
    for unit, size, until in (("s", 1_000, 120), ("min", 60_000, 120), ("h", 3_600_000, 48)):
        if milliseconds / size < until:
            return f"{milliseconds / size:.1f} {unit}"
    return f"{milliseconds / 86_400_000:.1f} d"


def count(number: int, noun: str) -> str:
    """``1 topic``, ``2 topics``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def numbers(values: Sequence[int], most: int = 12) -> str:
    """``0-3,7``: ascending numbers, runs together; cut after ``most`` runs."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1][-1:] = [runs[-1][-1], value] if len(runs[-1]) == 1 else [value]
        else:
            runs.append([value])
    shown = ",".join("-".join(map(str, run)) for run in runs[:most])
    return shown + (",…" if len(runs) > most else "")
