"""`stockade chaos report`: the page about a run, from the folder that it left behind."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from ..chaos.campaign import Options
from ..chaos.results import HISTORY, RUN, Summary
from ..chaos.run_report import Run, write_report
from ..partition.version import VERSION
from .exits import LOCAL, USAGE
from .manual import Manual

REPORT = "report.html"
ALIKE_MAX = 100
"""Rounds whose command is shown."""


@click.command(
    cls=Manual,
    short_help="Write the page about a run again.",
    exits=LOCAL,
    means={USAGE: "Wrong usage, or the files cannot be read."},
    examples=[
        ("After a look at other rounds", "stockade chaos report chaos-7"),
    ],
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def report(folder: Path) -> None:
    """Write FOLDER/report.html again, from the history and run.json in FOLDER."""
    try:
        click.echo(make_report(folder))
    except (OSError, ValueError) as error:
        click.echo(f"no report can be made of {folder}: {error}", err=True)
        sys.exit(2)


def make_report(folder: Path) -> Path:
    """The page about the run whose results are in ``folder``; where it is. Raises OSError, ValueError."""
    summary = msgspec.json.decode((folder / RUN).read_bytes(), type=Summary)
    write_report(folder / REPORT, _run_of(summary), folder / HISTORY)
    return folder / REPORT


def replay_command(options: Options, setups: Sequence[str], nodes: int, seed: int) -> str:
    """What runs the round of this seed again."""
    faults = ",".join(options.faults) or "none"
    return (
        f"stockade chaos replay {seed} --workload {','.join(options.workloads)} --faults {faults} --nodes {nodes}"
        f" --setup {','.join(setups)} --round {options.faults_s:g}"
    ) + (f" --apart {options.apart_s:g}" if options.apart_s else "")


def _run_of(summary: Summary) -> Run:
    options, setups = summary.options, summary.setups
    counts = summary.counts
    minutes = options.rounds * options.faults_s / 60
    facts = [
        ("version", VERSION),
        ("cluster", f"{summary.nodes} nodes; setup {', '.join(setups)}"),
        ("workloads", ", ".join(options.workloads)),
        ("faults", ", ".join(options.faults) or "none"),
        ("time", f"{len(summary.rounds)} rounds, {minutes:.1f} minutes of faults, {summary.seconds:.0f} s in all"),
        ("operations", ", ".join(f"{counts.get(kind, 0):,} {name}" for kind, name in _KINDS.items())),
        ("checked", f"{summary.operations:,} operations; {summary.records:,} records of all replicas read back"),
    ]
    return Run(
        f"Chaos: {minutes:.0f} minutes of faults, seed {options.seed}",
        facts,
        summary.verdicts,
        {
            str(over.seed): replay_command(options, setups, summary.nodes, over.seed)
            for over in summary.rounds[:ALIKE_MAX]
        },
        [f"round {over.seed}: {failure}" for over in summary.rounds for failure in over.failures],
    )


_KINDS = {"invoke": "invoked", "ok": "acknowledged", "fail": "refused", "info": "of unknown outcome"}
