"""The parts of every report: an HTML document, tables in HTML and Markdown, round numbers for axes. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import floor, log10

Row = Sequence[str]


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 fault, 1,000 faults."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def document(title: str, style: str, body: Iterable[str]) -> str:
    """One HTML file that loads nothing. ``body``: HTML, joined by line feeds."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{style}</style>'
    lines = "\n".join(body)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{lines}\n</body></html>\n'


def html_table(head: Row, rows: Iterable[Row]) -> Iterator[str]:
    """The lines of an HTML table. ``head`` is text, the cells of ``rows`` are HTML."""
    yield "<table><thead><tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr></thead><tbody>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
    yield "</tbody></table>"


def markdown_table(head: Row, rows: Iterable[Row]) -> Iterator[str]:
    """The lines of a Markdown table. Cells are text."""
    for row in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def round_up(value: float, steps: Sequence[float] = (1, 2, 2.5, 5, 10)) -> float:
    """The next of ``steps`` times a power of ten, so that an axis has round numbers. ``steps`` end with 10."""
    power = 10 ** floor(log10(max(value, 0.01)))
    return float(next(step * power for step in steps if value <= step * power * 1.0001))
