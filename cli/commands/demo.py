"""`stockade demo`: the proof on real input, on a cluster of its own or on one that runs."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..chaos.demo import Options, plan, run_demo
from ..chaos.history import History
from ..chaos.report import Run, html, markdown
from ..chaos.scene import ScenarioFailed
from ..chaos.streams import DataError
from ..chaos.waiting import NotInTime
from ..partition.errors import StockadeError
from .exits import LOCAL, REFUSED, USAGE
from .local_cluster import ClusterFailed, LocalCluster
from .manual import Manual

REPLICAS = 3
"""Of each partition, where there are so many nodes."""


@click.command(
    cls=Manual,
    short_help="Prove it: kill leaders and stall writers on real input.",
    exits=LOCAL,
    means={REFUSED: "A promise was broken: the report says which.", USAGE: "The demo could not be carried out."},
    examples=[
        ("On the example data", "stockade demo --data examples/data"),
        ("On a cluster that runs on this machine", "stockade demo --data logs --cluster data/cluster.json"),
    ],
)
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of text files; each gets a partition.",
)
@click.option("--records", default=500_000, show_default=True, type=click.IntRange(1), help="Records over all files.")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(3, 9), help="Nodes of the cluster started.")
@click.option(
    "--cluster", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="cluster.json of a running cluster."
)
@click.option(
    "--report",
    default=Path("demo-report"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="Report, without suffix.",
)
@click.option("--seed", default=1, show_default=True, help="Draws what is killed and stalled.")
def demo(data: Path, records: int, nodes: int, cluster: Path | None, report: Path, seed: int) -> None:
    """Write DATA through exclusive producers while leaders are killed and a writer is replaced in its sleep.

    Then every replica is read back and compared. Writes REPORT.md, REPORT.html and REPORT.history.jsonl. Exit code 1
    after a violation, 2 when the demo could not be carried out.
    """
    console = Console(highlight=False)
    options = Options(data, records, seed)
    try:
        streams = plan(options)
        report.parent.mkdir(parents=True, exist_ok=True)
        with (
            _listing(cluster, nodes, console) as listing,
            _Watched(console, records) as audience,
            History.create(report.with_suffix(".history.jsonl")) as history,
        ):
            run = uvloop.run(run_demo(listing, options, streams, history, audience))
    except (ClusterFailed, DataError, ScenarioFailed, NotInTime, StockadeError) as error:
        console.print(f"[bold red]the demo could not be carried out:[/] {error}")
        sys.exit(2)
    _write(report, run)
    console.print(markdown(run), markup=False)
    console.print(f"report: {report.with_suffix('.md')}, {report.with_suffix('.html')}")
    sys.exit(1 if run.violations else 0)


@contextmanager
def _listing(cluster: Path | None, nodes: int, console: Console) -> Iterator[Path]:
    if cluster is not None:
        yield cluster
        return
    with tempfile.TemporaryDirectory(prefix="stockade-demo-") as folder:
        local = LocalCluster(Path(folder), nodes, port_base=0)
        console.print(f"starting {nodes} nodes in {folder}")
        with local:
            yield Path(folder) / "cluster.json"


def _write(report: Path, run: Run) -> None:
    report.with_suffix(".md").write_text(markdown(run), encoding="utf-8")
    report.with_suffix(".html").write_text(html(run), encoding="utf-8")


class _Watched:
    """Shows a run: two bars, and a line for everything that happens."""

    def __init__(self, console: Console, records: int) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )
        self._writing = self._progress.add_task("written", total=records)
        self._reading: TaskID | None = None
        self._records = records
        self._began_s = time.monotonic()

    def __enter__(self) -> "_Watched":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, text: str) -> None:
        """A line above the bars."""
        self._progress.console.print(f"[cyan]{time.monotonic() - self._began_s:6.1f} s[/]  {text}")

    def written(self, records: int) -> None:
        """The first bar."""
        self._progress.update(self._writing, completed=records)

    def read(self, records: int) -> None:
        """The second bar, which appears with the first call."""
        if self._reading is None:
            self._reading = self._progress.add_task("read back", total=REPLICAS * self._records)
        self._progress.update(self._reading, completed=records)
