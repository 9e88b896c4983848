"""How partitions are asked for, in words for the command line."""

import click

from ..client.model import Mode
from .manual import Adding

MODES: dict[str, Mode] = {
    "exclusive": "Exclusive",
    "wait": "WaitForExclusive",
    "fencing": "ExclusiveWithFencing",
}


def _mode(_: click.Context, __: click.Parameter, word: str) -> Mode:
    return MODES[word]


mode_option: Adding = click.option(
    "--mode",
    type=click.Choice(list(MODES)),
    default="exclusive",
    show_default=True,
    callback=_mode,
    help="exclusive: refused while somebody else owns one of them. wait: when its turn has come. fencing: take the"
    " place of whoever owns them.",
)
