"""`stockade chaos check` and `stockade chaos faults`: judge what a run left behind; say what can be broken here."""

import resource
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ..chaos.faults.catalogue import CATALOGUE
from ..chaos.judging import Judgement
from ..chaos.results import judge_again
from .arena import SETUPS, needs


@click.command()
@click.argument("history", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def check(history: Path) -> None:
    """Judge the HISTORY of a run again, by the logs.parquet and run.json beside it.

    Exit code 1 after a violation, 2 when the files cannot be read. A part of the run is in memory at a time, never all.
    """
    console = Console(highlight=False)
    began_s = time.monotonic()
    try:
        judged = judge_again(history)
    except (OSError, ValueError) as error:
        console.print(f"[bold red]cannot be judged:[/] {error}")
        sys.exit(2)
    show(console, judged)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"{time.monotonic() - began_s:.1f} s, at most {peak_mib:.0f} MiB of memory")
    sys.exit(1 if judged.violations else 0)


@click.command()
def faults() -> None:
    """What can be broken, and what each fault needs."""
    table = Table("fault", "what it does", "needs")
    for fault in CATALOGUE.values():
        table.add_row(fault.name, fault.about, needs(fault))
    console = Console()
    console.print(table)
    console.print(f"Setups: {', '.join(SETUPS)}; several with commas, as in --setup toxiproxy,disks")


def show(console: Console, judged: Judgement) -> None:
    """The table of all checkers, and what they found."""
    table = Table("checker", "checked", "violations", "claim")
    table.columns[1].justify = table.columns[2].justify = "right"
    for verdict in judged.verdicts:
        style = "bold red" if verdict.violations else None
        table.add_row(verdict.checker, f"{verdict.checked:,}", f"{verdict.violations:,}", verdict.claim, style=style)
    console.print(table)
    for verdict in judged.verdicts:
        for example in verdict.examples:
            console.print(f"[red]{verdict.checker}:[/] {example}", soft_wrap=True)
    console.print(f"{judged.operations:,} operations judged, {judged.records:,} records of all replicas compared")
