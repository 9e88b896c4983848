"""Commands about finished runs, `stockade chaos check|report|figures`, and `stockade chaos faults`, the catalogue."""

import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console

from ...chaos.checkers.verdicts import Verdict
from ...chaos.faults.catalogue import CATALOGUE
from ...chaos.harness.campaign import Options
from ...chaos.harness.judging import Judgement
from ...chaos.harness.results import HISTORY, RUN, Summary, judge_again
from ...chaos.history.history import Event
from ...chaos.report.page import Run, write_report
from ...chaos.report.soak_figures import Soak
from ...partition.version import VERSION
from ..ui.exits import JUDGED, LOCAL, USAGE
from ..ui.manual import Manual
from ..ui.output import count, output_option, show_json, show_table, stdout_console
from .arena import SETUPS
from .needs import needs

REPORT = "report.html"
MINUTES_FROM_S = 120
"""Times from this length on are shown in minutes."""
ALIKE_MAX = 100
"""Rounds for which the page shows the command that replays them, at most."""


@click.command(
    cls=Manual,
    short_help="Write the page about a run again.",
    exits=LOCAL,
    means={USAGE: "Wrong usage, or files that cannot be read."},
    examples=[
        ("With the present version of the page", "stockade chaos report chaos-7"),
    ],
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def report(folder: Path) -> None:
    """Write FOLDER/report.html again, from the history and run.json in FOLDER."""
    try:
        click.echo(make_report(folder))
    except (OSError, ValueError) as error:
        click.echo(f"Error: cannot make a report of {folder}: {error}", err=True)
        sys.exit(2)


def make_report(folder: Path) -> Path:
    """Write the page about the run whose results are in ``folder``; return its path. Raises OSError, ValueError."""
    summary = msgspec.json.decode((folder / RUN).read_bytes(), type=Summary)
    write_report(folder / REPORT, _run_of(summary), folder / HISTORY)
    return folder / REPORT


def replay_command(options: Options, setups: Sequence[str], nodes: int, seed: int) -> str:
    """The command line that runs the round of this seed again."""
    faults = ",".join(options.faults) or "none"
    return (
        f"stockade chaos replay {seed} --workload {','.join(options.workloads)} --faults {faults} --nodes {nodes}"
        f" --setup {','.join(setups)} --round {options.faults_s:g}"
    ) + (f" --apart {options.apart_s:g}" if options.apart_s else "")


def _run_of(summary: Summary) -> Run:
    options, setups = summary.options, summary.setups
    counts = summary.counts
    seconds = options.rounds * options.faults_s
    faulty = f"{seconds:.0f} s" if seconds < MINUTES_FROM_S else f"{seconds / 60:,.1f} minutes"
    facts = [
        ("version", VERSION),
        ("cluster", f"{summary.nodes} nodes; setup {', '.join(setups)}"),
        ("workloads", ", ".join(options.workloads)),
        ("faults", ", ".join(options.faults) or "none"),
        ("time", f"{count(len(summary.rounds), 'round')}, {faulty} of faults, {summary.seconds:.0f} s in all"),
        ("operations", ", ".join(f"{counts.get(kind, 0):,} {name}" for kind, name in _KINDS.items())),
        ("checked", f"{summary.operations:,} operations; {summary.records:,} records of all replicas read back"),
    ]
    return Run(
        f"Chaos: {faulty} of faults, seed {options.seed}",
        facts,
        summary.verdicts,
        {
            str(over.seed): replay_command(options, setups, summary.nodes, over.seed)
            for over in summary.rounds[:ALIKE_MAX]
        },
        [f"round {over.seed}: {failure}" for over in summary.rounds for failure in over.failures],
    )


_KINDS = {"invoke": "invoked", "ok": "acknowledged", "fail": "refused", "info": "of unknown outcome"}


@click.command(
    cls=Manual,
    short_help="Check the results of a run again.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        ("The results of a run", "stockade chaos check chaos-7/history.jsonl"),
        (
            "Which checkers found violations",
            "stockade chaos check chaos-7/history.jsonl --output json | jq '.verdicts[] | select(.violations > 0)'",
        ),
    ],
)
@click.argument("history", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_option
def check(history: Path, output: str) -> None:
    """Check the HISTORY of a run again, against logs.parquet and run.json in the same folder.

    The command holds one partition in memory at a time.
    """
    console = stdout_console()
    began_s = time.monotonic()
    try:
        judged = judge_again(history)
    except (OSError, ValueError) as error:
        click.echo(f"Error: cannot check {history}: {error}", err=True)
        sys.exit(USAGE)
    if not judged.operations:
        click.echo(f"Error: cannot check {history}: no operation on a partition is in it", err=True)
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
    short_help="List the faults, and what each needs here.",
    exits=LOCAL,
    examples=[
        ("All faults", "stockade chaos faults"),
        (
            "Faults that can strike on this machine",
            "stockade chaos faults --output json | jq '.faults[] | select(.lacks == null)'",
        ),
    ],
)
@output_option
def faults(output: str) -> None:
    """List the faults that `stockade chaos run` can inject, the options each needs, and what this machine lacks for it.

    In JSON, `lacks` is null for a fault that can strike here.
    """
    found = [(fault, needs(fault)) for fault in CATALOGUE.values()]
    if output == "json":
        told = [
            {"fault": fault.name, "about": fault.about, "needs": wanted.options, "lacks": wanted.lacks}
            for fault, wanted in found
        ]
        show_json({"faults": told, "setups": list(SETUPS)})
        return
    rows = [(fault.name, fault.about, wanted.options, wanted.lacks or "-") for fault, wanted in found]
    show_table(["FAULT", "WHAT IT DOES", "NEEDS", "LACKING HERE"], rows)
    click.echo(f"Setups: {', '.join(SETUPS)}. Combine them with commas: --setup toxiproxy,disks")


def show(console: Console, judged: Judgement) -> None:
    """Print the verdicts of a run, and how much was judged."""
    show_verdicts(console, judged.verdicts)
    console.print(f"{judged.operations:,} operations checked, {judged.records:,} records of all replicas compared")


def show_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """Print the table of all checkers, and examples of the violations that they found."""
    rows = [(each.checker, each.checked_words, f"{each.violations:,}", each.claim) for each in verdicts]
    show_table(["CHECKER", "CHECKED", "VIOLATIONS", "CLAIM"], rows)
    for verdict in verdicts:
        for example in verdict.examples:
            console.print(f"[red]{verdict.checker}:[/] {example}", soft_wrap=True)


@click.command(
    cls=Manual,
    short_help="Print one table of figures over several runs.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        ("Over every run of a soak", "stockade chaos figures soak/*"),
    ],
)
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
def figures(folders: Sequence[Path]) -> None:
    """Print one table of figures over all runs whose results are in FOLDERS, as Markdown."""
    try:
        soaked = figures_of(folders)
    except (OSError, ValueError) as error:
        click.echo(f"Error: cannot make figures: {error}", err=True)
        sys.exit(2)
    sys.exit(1 if soaked.violations else 0)


def figures_of(folders: Sequence[Path]) -> Soak:
    """Print the figures over the runs in these folders, and return them. Raises OSError, ValueError."""
    soaked = Soak()
    decoder = msgspec.json.Decoder(Event)
    for folder in folders:
        summary = msgspec.json.decode((folder / RUN).read_bytes(), type=Summary)
        with (folder / HISTORY).open("rb") as lines:
            soaked.add(summary, map(decoder.decode, lines))
    click.echo("\n".join(soaked.lines()))
    return soaked
