"""`stockade chaos soak`: all faults and all workloads for a long time, over every setup that this machine can have."""

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path

import click
import msgspec
from rich.console import Console

from ..chaos.results import RUN, Summary
from .arena import why_not
from .chaos_figures import figures_of
from .exits import JUDGED, LOCAL
from .manual import Manual

LEG_S = 120.0
"""Of faults in one leg, a run of its own with a new cluster."""
LEG_S_MIN = 60.0
OVERHEAD = 0.6
"""A round also starts, drains, reads back and judges: of the time of a leg, faults get about so much."""


class Leg(msgspec.Struct, frozen=True):
    """A cluster to be struck: how it is started, and how many nodes it has."""

    setups: tuple[str, ...]
    nodes: int


LEGS = (Leg(("namespaces", "disks"), 4), Leg(("toxiproxy", "disks"), 3), Leg(("namespaces", "clocks"), 3))
"""Together they can have every fault of the catalogue."""
LEAST = Leg(("processes",), 3)
"""What every machine can have."""


@click.command(
    cls=Manual,
    short_help="All faults and workloads for a long time, in every setup.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        ("An hour", "stockade chaos soak --minutes 60 --results soak"),
    ],
)
@click.option("--seed", default=1, show_default=True, help="Of the first round; every round has the next one.")
@click.option(
    "--minutes", default=60.0, show_default=True, help="From beginning to end, with reading back and judging."
)
@click.option(
    "--results",
    default=Path("chaos-soak"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder in it for each leg, and the figures of all.",
)
def soak(seed: int, minutes: float, results: Path) -> None:
    """Run legs of some minutes, one after the other, each with another setup, and show the figures of all together.

    What this machine cannot have says what it needs.
    """
    console = Console(highlight=False)
    until_s = time.monotonic() + minutes * 60
    codes, folders = [], []
    for folder, leg, seconds in _plan(console, results, until_s):
        codes.append(_run(leg, seed, seconds, folder))
        if (folder / RUN).exists():
            folders.append(folder)
            seed += len(msgspec.json.decode((folder / RUN).read_bytes(), type=Summary).rounds)
        else:
            console.print(f"[bold red]{folder} has no verdict: its run ended with code {codes[-1]}[/]")
            seed += 1
    if folders:
        figures_of(folders)
    sys.exit(1 if 1 in codes else max(codes, default=2))


def _plan(console: Console, results: Path, until_s: float) -> Iterator[tuple[Path, Leg, float]]:
    """Legs until the time is over: the folder of each, and how long faults strike in it."""
    legs = list(_possible(console)) or [LEAST]
    for number, leg in zip(count(1), cycle(legs), strict=False):
        seconds = min(LEG_S, (until_s - time.monotonic()) * OVERHEAD)
        if number > 1 and seconds < LEG_S_MIN:
            return
        yield results / f"{number:02}-{'-'.join(leg.setups)}", leg, seconds


def _possible(console: Console) -> Iterator[Leg]:
    for leg in LEGS:
        reason = why_not(leg.setups)
        if reason is None:
            yield leg
        else:
            console.print(f"without {', '.join(leg.setups)}: {reason}", soft_wrap=True)


def _run(leg: Leg, seed: int, seconds: float, folder: Path) -> int:
    """In a process of its own, so that no leg can harm the next."""
    chosen = {"seed": seed, "minutes": seconds / 60, "nodes": leg.nodes, "setup": ",".join(leg.setups)}
    options = [word for name, value in chosen.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "stockade", "chaos", "run", *options, "--results", str(folder)]
    return subprocess.run(command, check=False).returncode  # noqa: S603
