"""`stockade chaos`: break a cluster on purpose, again and again, and see that nothing acknowledged is lost."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import click
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..chaos.disks import DiskFailed, LoopDisk, why_not
from ..chaos.history import History
from ..chaos.rounds import Options, Result, Strike, run_rounds
from ..chaos.scene import ScenarioFailed
from ..chaos.strikes import CutPower, KillNodes
from ..chaos.waiting import NotInTime
from ..partition.errors import StockadeError
from .chaos_check import check, faults
from .chaos_figures import figures
from .chaos_report import report
from .chaos_run import replay, run
from .chaos_soak import soak
from .exits import JUDGED, LOCAL
from .local_cluster import ClusterFailed, LocalCluster
from .manual import Manual

DISK_BYTES = 2 << 30
"""Of each node's disk, when its power is to be cut; taken from the folder's disk as it fills."""


@click.group(short_help="Break a cluster of its own; check that it kept every promise.")
def chaos() -> None:
    """Break a cluster on purpose, and check that it kept every promise."""


for _command in (run, replay, soak, check, report, figures, faults):
    chaos.add_command(_command)


@chaos.command(
    cls=Manual,
    short_help="Strike a cluster of its own again and again; judge its answers.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        ("Twenty times, drawn by seed 7", "stockade chaos rounds --rounds 20 --seed 7"),
        ("Power cuts (root)", "stockade chaos rounds --fault power --rounds 50 --history power.jsonl"),
    ],
)
@click.option(
    "--fault",
    type=click.Choice(["kill", "power"]),
    default="kill",
    show_default=True,
    help="kill: SIGKILL of nodes drawn by lot. power: all nodes lose power at once (root; ext4 in files).",
)
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(1), help="How often to strike.")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(3, 9), help="Nodes of the cluster started.")
@click.option("--partitions", default=6, show_default=True, type=click.IntRange(1, 64), help="Each has one writer.")
@click.option(
    "--record-bytes",
    default=100,
    show_default=True,
    type=click.IntRange(16, 100_000),
    help="Longer records make checkpoints and the recycling of logs more frequent.",
)
@click.option("--seed", default=1, show_default=True, help="Draws what is struck, and when.")
@click.option("--settings", default="", help="Lines of TOML for every node's configuration.")
@click.option(
    "--history",
    default=Path("rounds.history.jsonl"),
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Every operation and every strike, one a line.",
)
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), help="Folder for the nodes' data, kept afterwards."
)
def rounds(
    fault: str,
    rounds: int,
    nodes: int,
    partitions: int,
    record_bytes: int,
    seed: int,
    settings: str,
    history: Path,
    keep: Path | None,
) -> None:
    """Strike a cluster of its own ROUNDS times under load, then read every replica back and judge."""
    console = Console(highlight=False)
    options = Options(rounds, seed, partitions, record_bytes=record_bytes)
    try:
        with ExitStack() as stack:
            folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stockade-chaos-")))
            strike, listing = stack.enter_context(_cluster(fault, folder, nodes, settings))
            written = stack.enter_context(History.create(history))
            bar = stack.enter_context(_bar(console))
            task = bar.add_task("rounds", total=rounds, struck="")
            result = uvloop.run(
                run_rounds(
                    listing, options, strike, written, lambda k, what: bar.update(task, completed=k, struck=what)
                )
            )
    except (ClusterFailed, DiskFailed, ScenarioFailed, NotInTime, StockadeError) as error:
        console.print(f"[bold red]the rounds could not be carried out:[/] {error}")
        sys.exit(2)
    _print(console, result)
    console.print(f"history: {history}")
    sys.exit(1 if result.violations else 0)


def _bar(console: Console) -> Progress:
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    return Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[struck]}"), console=console
    )


@contextmanager
def _cluster(fault: str, folder: Path, nodes: int, settings: str) -> Iterator[tuple[Strike, Path]]:
    """A running cluster, what strikes it, and its ``cluster.json``."""
    local = LocalCluster(folder, nodes, port_base=0, restart=fault == "kill", settings=settings)
    with ExitStack() as stack:
        strike: Strike = KillNodes()
        if fault == "power":
            strike = _power(local, _disks(stack, local))
        with local:
            yield strike, folder / "cluster.json"


def _disks(stack: ExitStack, local: LocalCluster) -> list[LoopDisk]:
    reason = why_not()
    if reason is not None:
        raise DiskFailed(reason)
    images = Path(tempfile.mkdtemp(prefix="stockade-disks-", dir=local.data.parent))
    stack.callback(shutil.rmtree, images)
    disks = [LoopDisk(images / f"{node.name}.ext4", node.data, DISK_BYTES) for node in local.nodes]
    for disk in disks:
        stack.callback(disk.unmount)
        disk.make()
    return disks


def _power(local: LocalCluster, disks: list[LoopDisk]) -> CutPower:
    def cut() -> None:
        for disk in disks:
            disk.cut()
        local.kill_all()

    def restore() -> None:
        for disk in disks:
            disk.unmount()
            disk.mount()
        local.start_all()

    return CutPower(cut, restore)


def _print(console: Console, result: Result) -> None:
    table = Table(title="checkers")
    table.add_column("checker")
    table.add_column("violations", justify="right")
    table.add_column("claim")
    for verdict in result.verdicts:
        table.add_row(verdict.checker, str(verdict.violations), verdict.claim)
    console.print(table)
    for failure in result.failures:
        console.print(f"[red]a writer was refused:[/] {failure}")
    for verdict in result.verdicts:
        for example in verdict.examples:
            console.print(f"[red]{verdict.checker}:[/] {example}")
    worst = sorted(max(each.outage_s.values()) for each in result.rounds)
    console.print(
        f"{len(worst)} rounds in {result.seconds:.0f} s, {result.records:,} records acknowledged; slowest partition not"
        f" writable: median {median(worst):.2f} s, 95 % {worst[int(len(worst) * 0.95)]:.2f} s, max {worst[-1]:.2f} s"
    )
