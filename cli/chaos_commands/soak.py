"""`stockade chaos soak`: many chaos runs in turn, with all workloads, all faults, and every setup of this machine."""

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path

import click
import msgspec
from rich.console import Console

from ...chaos.harness.results import RUN, Summary
from ...chaos.workloads.catalogue import BY_NAME_ONLY
from ..ui.exits import JUDGED, LOCAL
from ..ui.manual import Manual
from ..ui.output import stdout_console
from .arena import why_not
from .results import figures_of
from .run import ALL

RUN_S = 120.0
"""Seconds of faults in one run; each run has a new cluster."""
RUN_S_MIN = 60.0
OVERHEAD = 0.6
"""The share of a run's time in which faults strike; the rest is for starting, draining, reading back and checking."""


class SoakRun(msgspec.Struct, frozen=True):
    """One kind of run: the setups and the number of nodes of its cluster, and its workload."""

    setups: tuple[str, ...]
    nodes: int
    workload: str = ALL


RUNS = (SoakRun(("namespaces", "disks"), 4), SoakRun(("toxiproxy", "disks"), 3), SoakRun(("namespaces", "clocks"), 3))
"""Together these setups allow every fault of the catalogue."""
FALLBACK = SoakRun(("processes",), 3)
"""A setup that every machine allows."""
ALONE = tuple(SoakRun(("processes",), 3, name) for name in sorted(BY_NAME_ONLY))
"""Runs of the workloads that leave no room for others, each in a cluster of its own."""


@click.command(
    cls=Manual,
    short_help="Run all workloads and faults for a long time.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        ("An hour", "stockade chaos soak --minutes 60 --results soak"),
    ],
)
@click.option(
    "--seed", default=1, show_default=True, help="Seed of the first round; each further round has the next seed."
)
@click.option("--minutes", default=60.0, show_default=True, help="Total minutes, with reading back and checking.")
@click.option(
    "--results",
    default=Path("chaos-soak"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the results: a folder in it for each run.",
)
def soak(seed: int, minutes: float, results: Path) -> None:
    """Run chaos for two minutes of faults at a time, each time with another setup or with a workload that needs the
    cluster for itself (rush), in turn, and print the figures over all runs.

    The command names the setups that this machine does not allow, and what they need.
    """
    console = stdout_console()
    until_s = time.monotonic() + minutes * 60
    codes, folders = [], []
    for folder, each, seconds in _plan(console, results, until_s):
        codes.append(_run(each, seed, seconds, folder))
        if (folder / RUN).exists():
            folders.append(folder)
            seed += len(msgspec.json.decode((folder / RUN).read_bytes(), type=Summary).rounds)
        else:
            console.print(f"[bold red]{folder} has no verdict: its run ended with code {codes[-1]}[/]")
            seed += 1
    if folders:
        figures_of(folders)
    sys.exit(1 if 1 in codes else 2 if any(codes) or not folders else 0)


def _plan(console: Console, results: Path, until_s: float) -> Iterator[tuple[Path, SoakRun, float]]:
    """The runs until ``until_s`` (monotonic): the folder of each, its kind, and its seconds of faults."""
    runs = [*(list(_possible(console)) or [FALLBACK]), *ALONE]
    for number, each in zip(count(1), cycle(runs), strict=False):
        seconds = min(RUN_S, (until_s - time.monotonic()) * OVERHEAD)
        if number > 1 and seconds < RUN_S_MIN:
            return
        words = each.setups if each.workload == ALL else [*each.setups, each.workload]
        yield results / f"{number:02}-{'-'.join(words)}", each, seconds


def _possible(console: Console) -> Iterator[SoakRun]:
    for each in RUNS:
        reason = why_not(each.setups)
        if reason is None:
            yield each
        else:
            console.print(f"skipped setup {', '.join(each.setups)}: {reason}", soft_wrap=True)


def _run(each: SoakRun, seed: int, seconds: float, folder: Path) -> int:
    """Carry a run out in a process of its own, so that no run can harm the next; returns its exit code."""
    chosen = {
        "seed": seed,
        "minutes": seconds / 60,
        "nodes": each.nodes,
        "setup": ",".join(each.setups),
        "workload": each.workload,
    }
    options = [word for name, value in chosen.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "stockade", "chaos", "run", *options, "--results", str(folder)]
    # A list of words, no shell. In a session of its own: Ctrl-C in the terminal reaches only this process.
    with subprocess.Popen(command, start_new_session=True) as running:  # noqa: S603  # nosec B603
        try:
            return running.wait()
        except KeyboardInterrupt:
            running.terminate()  # it stops nodes and unmounts disks, for longer than `subprocess.run` would wait
            raise
