"""`stockade demo`: writes real files while leaders are killed, and checks every replica byte by byte."""

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

from ...chaos.demo.context import ScenarioFailed
from ...chaos.demo.demo import Options, plan, run_demo
from ...chaos.demo.report import Run, html, markdown
from ...chaos.history.history import History
from ...chaos.streams.stream import DataError
from ...chaos.system.waiting import NotInTime
from ...partition.api.topics import REPLICATION_FACTOR_DEFAULT
from ...partition.errors import StockadeError
from ..local_cluster.cluster import ClusterFailed, LocalCluster
from ..ui.exits import LOCAL, REFUSED, USAGE
from ..ui.manual import Manual
from ..ui.output import stdout_console, without_warnings_of_the_client
from ..ui.parameters import WholeNumber


@click.command(
    cls=Manual,
    short_help="Kill leaders and stall a writer; check every record.",
    exits=LOCAL,
    means={REFUSED: "A checker found a violation; the report names it.", USAGE: "The demo could not be carried out."},
    examples=[
        ("On the example data", "stockade demo --data examples/data"),
        ("On a cluster that already runs on this machine", "stockade demo --data logs --cluster data/cluster.json"),
    ],
)
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of text files; each file gets a partition.",
)
@click.option("--records", default=500_000, show_default=True, type=WholeNumber(1), help="Records over all files.")
@click.option(
    "--nodes", default=3, show_default=True, type=WholeNumber(3, 9), help="Nodes of the cluster that it starts."
)
@click.option(
    "--cluster",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="cluster.json of a running cluster, in place of a new one.",
)
@click.option(
    "--report",
    default=Path("demo-report"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="Path of the report, without suffix.",
)
@click.option("--seed", default=1, show_default=True, help="Seed of the random choices: what is killed and stalled.")
def demo(data: Path, records: int, nodes: int, cluster: Path | None, report: Path, seed: int) -> None:
    """Write the files of DATA through exclusive producers; kill leaders and replace a stalled producer meanwhile.

    Then read every replica back and compare it with the files, byte by byte. The demo writes REPORT.md, REPORT.html and
    REPORT.history.jsonl.
    """
    if report.is_dir():
        raise click.UsageError(f"--report: {report} is a folder; name a file in it, without suffix")
    _ = click.get_current_context().with_resource(without_warnings_of_the_client())
    console = stdout_console()
    options = Options(data, records, seed)
    try:
        streams = plan(options)
        report.parent.mkdir(parents=True, exist_ok=True)
        with (
            History.create(_file(report, ".history.jsonl")) as history,
            _listing(cluster, nodes, console) as listing,
            _ProgressDisplay(console, records) as listener,
        ):
            run = uvloop.run(run_demo(listing, options, streams, history, listener))
        _write(report, run)
    except (ClusterFailed, DataError, ScenarioFailed, NotInTime, StockadeError, OSError) as error:
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        console.print(f"[bold red]the demo could not be carried out:[/] {why}", soft_wrap=True)
        sys.exit(2)
    click.echo(markdown(run))
    console.print(f"report: {_file(report, '.md')}, {_file(report, '.html')}")
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
    _file(report, ".md").write_text(markdown(run), encoding="utf-8")
    _file(report, ".html").write_text(html(run), encoding="utf-8")


def _file(report: Path, suffix: str) -> Path:
    """The report's file with this suffix. A name such as ``run-1.5`` keeps its point, and ``run.md`` means ``run``."""
    return report.with_name(report.name.removesuffix(".md").removesuffix(".html") + suffix)


class _ProgressDisplay:
    """Shows a run: progress bars of records written and read back, and a line for each step."""

    def __init__(self, console: Console, records: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._writing = self._progress.add_task("written", total=records)
        self._reading: TaskID | None = None
        self._records = records
        self._began_s = time.monotonic()

    def __enter__(self) -> "_ProgressDisplay":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, text: str) -> None:
        self._progress.console.print(f"[cyan]{time.monotonic() - self._began_s:6.1f} s[/]  {text}")

    def written(self, records: int) -> None:
        self._progress.update(self._writing, completed=records)

    def read(self, records: int) -> None:
        """Update the second bar, which appears with the first call."""
        if self._reading is None:
            self._reading = self._progress.add_task("read back", total=REPLICATION_FACTOR_DEFAULT * self._records)
        self._progress.update(self._reading, completed=records)
