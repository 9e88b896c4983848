"""`stockade chaos`: the group of chaos commands, and `stockade chaos rounds`, crashes under a steady load."""

import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import click
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ...chaos.crash_rounds.rounds import CrashFault, CutPower, KillNodes, Options, Result, run_rounds
from ...chaos.history.history import History
from ...chaos.system.disks import DiskFailed, LoopDisk
from ...chaos.system.waiting import NotInTime
from ...partition.errors import StockadeError
from ..local_cluster.cluster import ClusterFailed, LocalCluster
from ..ui.exits import JUDGED, LOCAL
from ..ui.manual import Manual
from ..ui.output import count, stdout_console, without_warnings_of_the_client
from ..ui.parameters import WholeNumber
from .arena import mounted_disks
from .endurance import endurance
from .results import check, faults, figures, report, show_verdicts
from .run import replay, run
from .soak import soak


@click.group(short_help="Break a test cluster; check what clients saw.")
@click.pass_context
def chaos(context: click.Context) -> None:
    """Start a cluster, break it on purpose while clients work, and check every answer and every replica.

    Begin with `stockade chaos run`. Checkers look for lost, doubled and reordered records, and for two writers at once.
    """
    _ = context.with_resource(without_warnings_of_the_client())
    _ = context.with_resource(_sigterm_as_ctrl_c())


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Inside the block SIGTERM, with which a CI ends a job that takes too long, has the effect of Ctrl-C: the command
    stops its nodes and removes its disks and folders. Where Ctrl-C is ignored, as in the background of a script,
    SIGTERM ends the command at once.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


for _command in (run, replay, soak, endurance, check, report, figures, faults):
    chaos.add_command(_command)


@chaos.command(
    cls=Manual,
    short_help="Crash a test cluster in rounds under a steady load.",
    exits=LOCAL,
    means=JUDGED,
    examples=[
        ("Twenty crashes, chosen by seed 7", "stockade chaos rounds --rounds 20 --seed 7"),
        ("Power cuts (root)", "stockade chaos rounds --fault power --rounds 50 --history power.jsonl"),
    ],
)
@click.option(
    "--fault",
    type=click.Choice(["kill", "power"]),
    default="kill",
    show_default=True,
    help="kill: SIGKILL for nodes chosen at random. power: all nodes lose power at once (needs root; ext4 in files).",
)
@click.option("--rounds", default=20, show_default=True, type=WholeNumber(1), help="How many crashes.")
@click.option(
    "--nodes", default=3, show_default=True, type=WholeNumber(3, 9), help="Nodes of the cluster that it starts."
)
@click.option(
    "--partitions", default=6, show_default=True, type=WholeNumber(1, 64), help="Partitions; each has one writer."
)
@click.option(
    "--record-bytes",
    default=100,
    show_default=True,
    type=WholeNumber(16, 100_000),
    help="Bytes of a record. Longer records make checkpoints and the recycling of logs more frequent.",
)
@click.option("--seed", default=1, show_default=True, help="Seed of the random choices: which nodes crash, and when.")
@click.option("--settings", default="", help="Lines of TOML for every node's configuration.")
@click.option(
    "--history",
    default=Path("rounds.history.jsonl"),
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the history: each operation and each crash on a line.",
)
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), help="Folder for the nodes' data, which is then kept."
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
    """Start a cluster, crash nodes ROUNDS times under load, read every replica back, and check all answers.

    Each crash comes after every partition has acknowledged an append since the previous one.
    """
    console = stdout_console()
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
    except (ClusterFailed, DiskFailed, NotInTime, StockadeError) as error:
        console.print(f"[bold red]the rounds could not be carried out:[/] {error}")
        sys.exit(2)
    _print(console, result)
    console.print(f"history: {history}")
    sys.exit(1 if result.violations else 0)


def _bar(console: Console) -> Progress:
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    return Progress(
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[struck]}"),
        console=console,
        disable=not console.is_terminal,
    )


@contextmanager
def _cluster(fault: str, folder: Path, nodes: int, settings: str) -> Iterator[tuple[CrashFault, Path]]:
    """Run a cluster during the block; yields the fault that crashes it, and the path of its ``cluster.json``."""
    local = LocalCluster(folder, nodes, port_base=0, restart=fault == "kill", settings=settings)
    with ExitStack() as stack:
        strike: CrashFault = KillNodes()
        if fault == "power":
            strike = _power(local, list(mounted_disks(stack, local).values()))
        with local:
            yield strike, folder / "cluster.json"


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
    show_verdicts(console, result.verdicts)
    for failure in result.failures:
        console.print(f"[red]a writer was refused:[/] {failure}")
    worst = sorted(max(each.outage_s.values()) for each in result.rounds)
    console.print(
        f"{count(len(worst), 'round')} in {result.seconds:.0f} s, {result.records:,} records acknowledged; slowest"
        f" partition not writable: median {median(worst):.2f} s, 95 % {worst[int(len(worst) * 0.95)]:.2f} s,"
        f" max {worst[-1]:.2f} s"
    )
