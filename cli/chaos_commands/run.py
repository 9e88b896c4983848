"""`stockade chaos run` and `stockade chaos replay`: start a cluster, run workloads under faults, print the verdicts."""

import asyncio
import functools
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

from ...chaos.faults.catalogue import CATALOGUE
from ...chaos.harness.campaign import Options, Outcome, Status, possible
from ...chaos.harness.campaign import run as run_campaign
from ...chaos.harness.results import HISTORY, Summary
from ...chaos.history.history import History
from ...chaos.system.disks import DiskFailed
from ...chaos.system.hosts import NetworkFailed
from ...chaos.system.proxies import ProxyError
from ...chaos.system.waiting import NotInTime
from ...chaos.workloads.catalogue import BY_NAME_ONLY, WORKLOADS
from ...partition.errors import StockadeError
from ..local_cluster.cluster import ClusterFailed
from ..ui.exits import JUDGED, LOCAL
from ..ui.manual import Adding, Manual
from ..ui.output import count, stdout_console
from ..ui.parameters import Number, WholeNumber
from .arena import SETUPS, LocalArena, local_arena
from .needs import refusal
from .results import make_report, replay_command, show

REFRESH_S = 0.25
APART_S_MAX = 3600.0
NONE, ALL = "none", "all"
CONTROL = "control"
"""The workloads of ALL without any fault: a violation here has no fault as its cause."""

_FAILED = (ClusterFailed, DiskFailed, NetworkFailed, ProxyError, NotInTime, StockadeError)


_OPTIONS: list[Adding] = [
    click.option(
        "--workload",
        default=ALL,
        show_default=True,
        help="Names separated by commas; all (without rush, which leaves others no room); or control: all, no faults.",
    ),
    click.option("--faults", "faulty", default=ALL, show_default=True, help="Names separated by commas, all, or none."),
    click.option("--nodes", default=3, show_default=True, type=WholeNumber(3, 9), help="Nodes of the cluster."),
    click.option(
        "--setup",
        default="processes",
        show_default=True,
        help=f"How the cluster is started: {', '.join(SETUPS)}.",
    ),
    click.option("--round", "round_s", default=60.0, show_default=True, help="Seconds of faults in each round."),
    click.option(
        "--apart",
        "apart_s",
        default=0.0,
        show_default=True,
        type=Number(0, APART_S_MAX),
        help="Seconds between faults, which then come one at a time: for figures of each. 0: they may overlap.",
    ),
    click.option(
        "--results",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder for the results.  [default: chaos-SEED]",
    ),
    click.option("--keep", is_flag=True, help="Also keep the nodes' data in the results."),
]


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that run and replay have in common."""
    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


class RunOptions(NamedTuple):
    """The values of the options that run and replay have in common."""

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
    short_help="Break a test cluster while clients work; check all.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        ("All faults that this machine allows, for a minute", "stockade chaos run"),
        ("One fault, one workload", "stockade chaos run --workload slots --faults stall-producer --seed 7"),
        ("Without faults: a violation here is not caused by one", "stockade chaos run --workload control"),
    ],
)
@click.option(
    "--seed", default=1, show_default=True, help="Seed of faults and of what clients do; round k has seed SEED+k-1."
)
@click.option("--minutes", default=1.0, show_default=True, help="Minutes of faults, over all rounds.")
@_options
def run(seed: int, minutes: float, **options: Any) -> None:
    """Start a cluster, inject faults while clients work, read every replica back, and check all answers.

    `stockade chaos faults` lists the faults and what each needs. The results have the history of all requests and
    answers, the logs of all replicas, and report.html.
    """
    _carry_out(seed, minutes * 60, RunOptions(**options))


@click.command(
    cls=Manual,
    short_help="Repeat the round of a seed.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        (
            "The command that `chaos run` has printed",
            "stockade chaos replay 7 --workload slots --faults stall-producer",
        ),
    ],
)
@click.argument("seed", type=int)
@_options
def replay(seed: int, **options: Any) -> None:
    """Repeat the round of SEED: the same faults at the same times, the same choices of every client.

    Give the other options as they were; run.json has them. No seed decides the order in which processes, disks and
    packets get their turn, nor which node is elected; so the same fault may meet another leader.
    """
    _carry_out(seed, 0.0, RunOptions(**options))


def _carry_out(seed: int, seconds: float, given: RunOptions) -> None:
    console = stdout_console()
    is_control = given.workload == CONTROL
    workloads = chosen(WORKLOADS, ALL if is_control else given.workload, "--workload")
    faults = [] if is_control or given.faulty in (NONE, CONTROL) else chosen(CATALOGUE, given.faulty, "--faults")
    always = [] if is_control or given.faulty == NONE else _brought(workloads)
    setups = chosen(dict.fromkeys(SETUPS), given.setup, "--setup")
    if given.faulty != ALL:
        _refuse_impossible(faults, setups, given.nodes)
    options = Options(workloads, faults, seed, seconds or given.round_s, given.round_s, always, given.apart_s)
    if faults and not options.strikes:
        problem = (
            f"no round of {options.faults_s:g} s has time for a strike: use a longer --round, or a shorter --apart"
        )
        raise click.BadParameter(problem, param_hint="--faults")
    folder = given.results or Path(f"chaos-{seed}")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        judged, options = _run(
            console, options, setups, given.nodes, folder, keep=given.keep, is_all=given.faulty == ALL
        )
    except _FAILED as error:
        console.print(f"[bold red]the run could not be carried out:[/] {error}", soft_wrap=True)
        sys.exit(2)
    for failure in judged.failures:
        console.print(f"[yellow]{failure}[/]", soft_wrap=True)
    unstruck = judged.never_struck
    for fault in unstruck:
        console.print(f"[yellow]{fault}[/]", soft_wrap=True)
    is_as_planned = not judged.failures and (given.faulty == ALL or not unstruck)
    console.print(f"results: {folder}; again: {replay_command(options, setups, given.nodes, seed)}", soft_wrap=True)
    sys.exit(1 if judged.judged.violations else 0 if is_as_planned else 2)


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
    slowest = [over.recovered_s for over in outcome.rounds if over.recovered_s is not None]
    back = f"writable again after at most {max(slowest, default=0.0):.1f} s"
    if unrecovered := len(outcome.rounds) - len(slowest):
        back = f"not everywhere writable again after {count(unrecovered, 'round')}"
    console.print(f"{count(len(outcome.rounds), 'round')} in {outcome.seconds:.0f} s; {back}")
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
        console.print(f"impossible in this setup: {', '.join(impossible)} (see stockade chaos faults)", soft_wrap=True)
    options = msgspec.structs.replace(options, faults=chosen, always=possible(arena, options.always)[0])
    running = asyncio.create_task(run_campaign(options, arena, history, status, folder))
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            judged = status.judged
            while not running.done():
                live.update(_line(status), refresh=True)
                if (
                    judged is not status.judged and not console.is_terminal
                ):  # output to a file gets one line for each round
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


def chosen(catalogue: Any, names: str, option: str) -> list[str]:
    if names == ALL:
        return [name for name in catalogue if name not in BY_NAME_ONLY]
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in catalogue]
    if unknown or not wanted:
        problem = f"{', '.join(unknown) or 'nothing'}: choose from {', '.join(catalogue)}"
        raise click.BadParameter(problem, param_hint=option)
    return wanted


def _refuse_impossible(faults: Sequence[str], setups: Sequence[str], nodes: int) -> None:
    """Raises BadParameter if some of the faults cannot strike such a cluster; it names all of these and their needs."""
    refusals = [refusal(CATALOGUE[name], setups, nodes) for name in faults]
    if any(refusals):
        raise click.BadParameter("; ".join(filter(None, refusals)), param_hint="--faults")


def _brought(workloads: Sequence[str]) -> list[str]:
    return [fault for name in workloads for fault in WORKLOADS[name].brings]
