"""`stockade chaos run` and `stockade chaos replay`: a cluster of its own, workloads, faults, and the verdict."""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
import uvloop
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..chaos.campaign import Options, Outcome, Status, possible
from ..chaos.campaign import run as run_campaign
from ..chaos.disks import DiskFailed
from ..chaos.faults.catalogue import CATALOGUE
from ..chaos.history import History
from ..chaos.network.commands import NetworkFailed
from ..chaos.proxies import ProxyError
from ..chaos.results import HISTORY, Summary
from ..chaos.scene import ScenarioFailed
from ..chaos.waiting import NotInTime
from ..chaos.workloads.catalogue import BY_NAME_ONLY, WORKLOADS
from ..partition.errors import StockadeError
from .arena import SETUPS, LocalArena, local_arena
from .chaos_check import show
from .chaos_report import make_report, replay_command
from .exits import JUDGED, LOCAL
from .local_cluster import ClusterFailed
from .manual import Manual

REFRESH_S = 0.25
APART_S_MAX = 3600.0
NONE, ALL = "none", "all"
CONTROL = "control"
"""All workloads, and no fault at all: what fails here is not a fault's doing."""

_FAILED = (ClusterFailed, DiskFailed, NetworkFailed, ProxyError, NotInTime, ScenarioFailed, StockadeError)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What run and replay have in common."""
    for option in reversed(
        [
            click.option("--workload", default=ALL, show_default=True, help="Names with commas, all, or control."),
            click.option("--faults", "faulty", default=ALL, show_default=True, help="Names, with commas, all or none."),
            click.option("--nodes", default=3, show_default=True, type=click.IntRange(3, 9), help="How many."),
            click.option("--setup", default="processes", show_default=True, help=f"Of {', '.join(SETUPS)}."),
            click.option(
                "--round", "round_s", default=60.0, show_default=True, help="Seconds of faults in each round."
            ),
            click.option(
                "--apart",
                "apart_s",
                default=0.0,
                show_default=True,
                type=click.FloatRange(0, APART_S_MAX),
                help="Seconds between strikes, one at a time then: for figures of a fault alone. 0: they may overlap.",
            ),
            click.option(
                "--results",
                type=click.Path(file_okay=False, path_type=Path),
                help="Folder for what the run leaves behind.  [default: chaos-SEED]",
            ),
            click.option("--keep", is_flag=True, help="Keep the nodes' data in the results, too."),
        ]
    ):
        command = option(command)
    return command


class How(NamedTuple):
    """The options that run and replay have in common, as they were given."""

    workload: str
    faulty: str
    nodes: int
    setup: str
    round_s: float
    apart_s: float
    results: Path | None
    keep: bool


@click.command(
    cls=Manual,
    short_help="Break a cluster of its own while clients work, and judge.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        ("Everything that can be broken here, for a minute", "stockade chaos run"),
        ("One fault, one kind of work", "stockade chaos run --workload slots --faults stall-producer --seed 7"),
        ("No fault at all: what fails here no fault has done", "stockade chaos run --workload control"),
    ],
)
@click.option("--seed", default=1, show_default=True, help="Decides faults and what clients do; round k has SEED+k-1.")
@click.option("--minutes", default=1.0, show_default=True, help="How long faults strike, over all rounds.")
@_options
def run(seed: int, minutes: float, **how: Any) -> None:
    """Break a cluster of its own while clients work, read every replica back, and judge.

    Names of workloads and faults are separated by commas; `stockade chaos faults` lists faults and what they need.
    The results have the history of all that was asked and answered, what the replicas held, and report.html.
    """
    _carry_out(seed, minutes * 60, How(**how))


@click.command(
    cls=Manual,
    short_help="Run the round of a seed again.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        (
            "As `chaos run` printed it",
            "stockade chaos replay 7 --workload slots --faults stall-producer",
        ),
    ],
)
@click.argument("seed", type=int)
@_options
def replay(seed: int, **how: Any) -> None:
    """Run the round of SEED again: the same faults at the same times, the same choices of every client.

    Give the other options as they were; run.json has them. What comes out otherwise than before is what no seed
    decides: in which order processes, disks and packets get their turn, who is elected, and so whom a fault finds
    leading.
    """
    _carry_out(seed, 0.0, How(**how))


def _carry_out(seed: int, seconds: float, how: How) -> None:
    console = Console(highlight=False)
    is_control = how.workload == CONTROL
    workloads = _chosen(WORKLOADS, ALL if is_control else how.workload, "--workload")
    faults = [] if is_control or how.faulty in (NONE, CONTROL) else _chosen(CATALOGUE, how.faulty, "--faults")
    always = [] if is_control or how.faulty == NONE else _brought(workloads)
    setups = _chosen(dict.fromkeys(SETUPS), how.setup, "--setup")
    options = Options(workloads, faults, seed, seconds or how.round_s, how.round_s, always, how.apart_s)
    folder = how.results or Path(f"chaos-{seed}")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        judged, options = _run(console, options, setups, how.nodes, folder, keep=how.keep, is_all=how.faulty == ALL)
    except _FAILED as error:
        console.print(f"[bold red]the run could not be carried out:[/] {error}", soft_wrap=True)
        sys.exit(2)
    for failure in judged.failures:
        console.print(f"[yellow]{failure}[/]", soft_wrap=True)
    console.print(f"results: {folder}; again: {replay_command(options, setups, how.nodes, seed)}", soft_wrap=True)
    sys.exit(1 if judged.judged.violations else 2 if judged.failures else 0)


def _run(
    console: Console, options: Options, setups: Sequence[str], nodes: int, folder: Path, *, keep: bool, is_all: bool
) -> tuple[Outcome, Options]:
    with ExitStack() as stack:
        data = folder / "data" if keep else Path(stack.enter_context(_scratch()))
        arena = stack.enter_context(local_arena(data, nodes, setups, keep=keep))
        history = stack.enter_context(History.create(folder / HISTORY))
        status = Status(history, options.rounds)
        outcome, options = uvloop.run(_watched(console, options, arena, history, status, folder, is_all=is_all))
    Summary.of(options, setups, nodes, outcome, dict(history.counts)).write(folder)
    show(console, outcome.judged)
    console.print(f"report: {make_report(folder)}", soft_wrap=True)
    slowest = max((over.recovered_s for over in outcome.rounds), default=0.0)
    rounds = f"{len(outcome.rounds)} rounds in {outcome.seconds:.0f} s"
    console.print(f"{rounds}; writable again after at most {slowest:.1f} s")
    return outcome, options


def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stockade-chaos-", ignore_cleanup_errors=True)


async def _watched(
    console: Console,
    options: Options,
    arena: LocalArena,
    history: History,
    status: Status,
    folder: Path,
    *,
    is_all: bool,
) -> tuple[Outcome, Options]:
    chosen, impossible = possible(arena, options.faults)
    for name, why in impossible.items():
        if not is_all:
            raise ClusterFailed(f"{name}: {why}")
    if impossible:
        console.print(f"not in this setup: {', '.join(impossible)} (stockade chaos faults)", soft_wrap=True)
    options = msgspec.structs.replace(options, faults=chosen, always=possible(arena, options.always)[0])
    running = asyncio.create_task(run_campaign(options, arena, history, status, folder))
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            judged = status.judged
            while not running.done():
                live.update(_line(status), refresh=True)
                if judged is not status.judged and not console.is_terminal:  # a file gets a line a round
                    judged = status.judged
                    console.print(_line(status), soft_wrap=True)
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(running), REFRESH_S)
        return await running, options
    finally:
        await arena.close()


def _line(status: Status) -> Text:
    counts = status.history.counts
    broken = "; ".join(status.broken()) or "nothing"
    violations = status.judged.violations
    return Text.assemble(
        f"round {status.round}/{status.rounds} {status.doing}  broken: ",
        (broken, "bold red" if status.broken() else "green"),
        f"  operations: {counts['invoke']:,} invoked, {counts['ok']:,} ok, {counts['fail']:,} failed, "
        f"{counts['info']:,} unknown, {status.judged.operations:,} checked",
        (f", {violations:,} VIOLATIONS" if violations else "", "bold red"),
    )


def _chosen(catalogue: Any, names: str, option: str) -> list[str]:
    if names == ALL:
        return [name for name in catalogue if name not in BY_NAME_ONLY]
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in catalogue]
    if unknown or not wanted:
        problem = f"{', '.join(unknown) or 'nothing'}: choose from {', '.join(catalogue)}"
        raise click.BadParameter(problem, param_hint=option)
    return wanted


def _brought(workloads: Sequence[str]) -> list[str]:
    return [fault for name in workloads for fault in WORKLOADS[name].brings]
