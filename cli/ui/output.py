"""How commands print facts: a table for people; one JSON document, or one on each line, for programs.

Output has colours only on a terminal, and NO_COLOR turns them off. JSON has the names and units of the HTTP interface
(docs/openapi.yaml); fields may be added, never renamed.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...client.api.tail import TailRecord
from ...client.consumer.records import ConsumedRecord
from ...partition.api.records import text_or_base64
from .manual import Adding

_Function = TypeVar("_Function", bound=Callable[..., object])


def _as_json(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.params["output"] = "json"


json_option: Adding = click.option(
    "--json", is_flag=True, expose_value=False, callback=_as_json, help="The same as --output json."
)
"""Needs an eager option ``output`` beside it, whose value it sets to json."""


@contextmanager
def without_warnings_of_the_client(part: str = "") -> Iterator[None]:
    """Silence the client's warnings during the block, for commands that stop nodes on purpose: these do not answer.
    ``part``: only those of one package of the client (``.producer``), whose failures the command tells itself.
    """
    log = logging.getLogger(f"stockade.client{part}")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def output_option(function: _Function) -> _Function:
    """Add --output, and its short form --json, to a command; its parameter is ``output``."""
    output = click.option(
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        is_eager=True,
        help="table: for people. json: one document on one line, with the names and units of the HTTP interface.",
    )
    return output(json_option(function))


def stdout_console() -> Console:
    """A console on standard output for progress and prose. It wraps lines and has colours only on a terminal."""
    return Console(highlight=False, emoji=False, soft_wrap=not sys.stdout.isatty())


yes_option: Adding = click.option("--yes", is_flag=True, help="Do not ask. Without a terminal the command never asks.")


def confirm(question: str, yes: bool) -> None:
    """Ask the question if standard input is a terminal and ``yes`` is False. Ends the command when the answer is no."""
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def show_json(facts: object) -> None:
    """Print one document on one line."""
    click.echo(msgspec.json.encode(facts).decode())


def record_object(record: ConsumedRecord | TailRecord) -> dict[str, object]:
    """A record with the fields of the HTTP interface's JSON."""
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **text_or_base64("key", record.key),
        **text_or_base64("value", record.value),
        "headers": [{"key": name, **text_or_base64("value", value)} for name, value in record.headers],
    }


def show_result(facts: object, text: str, output: str) -> None:
    """Print the result of a command: ``facts`` as JSON, or ``text`` for people."""
    if output == "json":
        show_json(facts)
    else:
        click.echo(text)


GAP = 2
"""Blanks between two columns."""
WORD_MAX = 20
"""Characters of a word that a table keeps whole. A longer one is a name or an address, and is folded."""


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, is_first: bool = True) -> None:
    """Print columns aligned with blanks, which other tools can cut. A narrow terminal folds cells between words; one
    that is too narrow for that has a line for each cell. Without ``is_first`` the rows continue a table whose headings
    were shown.
    """
    if not sys.stdout.isatty():
        lines = table(headings, rows).splitlines()
        click.echo("\n".join(lines if is_first else lines[1:]))
        return
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    console = Console(highlight=False, emoji=False)
    widths = _widths([headings, *cells], console.width)
    if widths is None:
        blocks = [_block(headings, row) for row in cells] or [table(headings, [])]
        click.echo("\n\n".join(blocks if is_first else ["", *blocks]).removeprefix("\n"))
        return
    shown = Table(box=None, pad_edge=False, show_header=is_first, header_style="bold", padding=(0, GAP, 0, 0))
    for heading, width in zip(headings, widths, strict=True):
        shown.add_column(heading, overflow="fold", width=width)
    for row in cells:
        shown.add_row(*map(Text, row))
    console.print(shown)


def _block(headings: Sequence[str], row: Sequence[str]) -> str:
    first, *others = zip(headings, row, strict=True)
    return table(first, others)


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """The widths of the columns of ``rows`` that fit into ``room``, the widest ones cut down first; None if they do
    not, unless words are cut.
    """
    columns = list(zip(*rows, strict=True))
    widths = [min(room, max(map(cell_len, column))) for column in columns]
    words = [max(cell_len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    least = [min(word, WORD_MAX) for word in words]
    room -= GAP * (len(columns) - 1)
    while sum(widths) > room:
        spare = [(width, place) for place, width in enumerate(widths) if width > least[place]]
        if not spare:
            return None
        widths[max(spare)[1]] -= 1
    return widths


def one_line(text: str) -> str:
    """The text with each character that does not print as itself escaped: a name that a client chose would otherwise
    make rows of its own, or send commands to the terminal.
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def show_rest(number: int) -> None:
    """Print how many rows of a list were left out, if any were."""
    for line in rest(number):
        click.echo(f"{line}; --prefix chooses")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The table as text with aligned columns."""
    cells = [[one_line(str(cell)) for cell in row] for row in (headings, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    lines = ((" " * GAP).join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show ``what`` with a spinner on standard error during the block, if that is a terminal."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def count(number: int, noun: str) -> str:
    """``1 topic``, ``2 topics``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rest(number: int) -> list[str]:
    """The words for ``number`` things that a list leaves out: one text, or none if it leaves out nothing."""
    return [f"and {number:,} more"] if number > 0 else []


def some(things: Sequence[object], most: int) -> str:
    """``a, b and 3 more``: at most ``most`` of the things, and how many are left out."""
    return " ".join([", ".join(map(str, things[:most])), *rest(len(things) - most)])


RUNS_MAX = 12


def numbers(values: Sequence[int]) -> str:
    """Ascending numbers as ``0-3,7``: each run of consecutive numbers as one range, at most RUNS_MAX of them."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1][-1:] = [runs[-1][-1], value] if len(runs[-1]) == 1 else [value]
        else:
            runs.append([value])
    shown = ",".join("-".join(map(str, run)) for run in runs[:RUNS_MAX])
    return shown + (",…" if len(runs) > RUNS_MAX else "")
