"""`stockade chaos figures`: the table of figures over as many runs as there are."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from ..chaos.history import Event
from ..chaos.results import HISTORY, RUN, Summary
from ..chaos.soak_figures import Soak
from .exits import JUDGED, LOCAL
from .manual import Manual


@click.command(
    cls=Manual,
    short_help="One table of figures over several runs.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        ("Of every leg of a soak", "stockade chaos figures soak/*"),
    ],
)
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
def figures(folders: Sequence[Path]) -> None:
    """Show the figures of all runs whose results are in FOLDERS together, as Markdown."""
    try:
        soaked = figures_of(folders)
    except (OSError, ValueError) as error:
        click.echo(f"no figures can be had: {error}", err=True)
        sys.exit(2)
    sys.exit(1 if soaked.violations else 0)


def figures_of(folders: Sequence[Path]) -> Soak:
    """Print the figures of these runs. Raises OSError, ValueError."""
    soaked = Soak()
    decoder = msgspec.json.Decoder(Event)
    for folder in folders:
        summary = msgspec.json.decode((folder / RUN).read_bytes(), type=Summary)
        with (folder / HISTORY).open("rb") as lines:
            soaked.add(summary, map(decoder.decode, lines))
    click.echo("\n".join(soaked.lines()))
    return soaked
