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
from .exits import JUDGED, LOCAL, USAGE
from .manual import Manual
from .output import output_option, show_json, show_table


@click.command(
    cls=Manual,
    short_help="Judge what a run left behind again.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        ("What a run left behind", "stockade chaos check chaos-7/history.jsonl"),
        (
            "Which promises were broken",
            "stockade chaos check chaos-7/history.jsonl --output json | jq '.verdicts[] | select(.violations > 0)'",
        ),
    ],
)
@click.argument("history", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_option
def check(history: Path, output: str) -> None:
    """Judge the HISTORY of a run again, by the logs.parquet and run.json beside it.

    A part of the run is in memory at a time, never all.
    """
    console = Console(highlight=False)
    began_s = time.monotonic()
    try:
        judged = judge_again(history)
    except (OSError, ValueError) as error:
        click.echo(f"Error: {history} cannot be judged: {error}", err=True)
        sys.exit(USAGE)
    if output == "json":
        show_json(judged)
    else:
        show(console, judged)
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        console.print(f"{time.monotonic() - began_s:.1f} s, at most {peak_mib:.0f} MiB of memory")
    sys.exit(1 if judged.violations else 0)


@click.command(
    cls=Manual,
    short_help="What can be broken here, and what the rest needs.",
    exits=LOCAL,
    examples=[
        ("All of them", "stockade chaos faults"),
        (
            "Those that need nothing",
            "stockade chaos faults --output json | jq '.faults[] | select(.needs == \"--setup processes\")'",
        ),
    ],
)
@output_option
def faults(output: str) -> None:
    """What can be broken, and what each fault needs on this machine."""
    found = [{"fault": fault.name, "about": fault.about, "needs": needs(fault)} for fault in CATALOGUE.values()]
    if output == "json":
        show_json({"faults": found, "setups": list(SETUPS)})
        return
    show_table(["FAULT", "WHAT IT DOES", "NEEDS"], [tuple(each.values()) for each in found])
    click.echo(f"Setups: {', '.join(SETUPS)}; several with commas, as in --setup toxiproxy,disks")


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
