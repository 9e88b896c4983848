"""`stockade pipeline audit`: every checker at size, and a rehearsal that proves them on planted faults."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..spark.pipelines.findings import Audited
from ..spark.pipelines.page import page
from .exits import LOCAL
from .manual import Manual
from .output import waiting
from .spark import cores_option, spark_session


@click.command(
    cls=Manual,
    short_help="Judge what clients saw against what is stored.",
    exits=LOCAL,
    means={1: "Something is violated; or a rehearsal did not find exactly what was planted."},
    examples=[
        (
            "What a run of chaos left behind",
            "stockade pipeline audit run/history.parquet run/logs.parquet --html audit.html",
        ),
        (
            "See that it finds a fault of every kind among ten million events",
            "stockade pipeline audit --rehearse 10000000",
        ),
        ("On a cluster of Spark's", "spark-submit examples/pipeline_audit.py HISTORY LOGS"),
    ],
)
@click.argument("history", required=False)
@click.argument("logs", required=False)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="File for a summary page.")
@click.option(
    "--rehearse",
    type=click.IntRange(1_000),
    help="Instead: make up a history of so many events with a fault of every kind, and see that each is found.",
)
@cores_option
def audit(history: str | None, logs: str | None, html: Path | None, rehearse: int | None, cores: int | None) -> None:
    """Judge HISTORY and LOGS (the Parquet files of `stockade chaos run`) with every checker."""
    if (rehearse is None) == (history is None or logs is None) or (rehearse is not None and history is not None):
        raise click.UsageError("give HISTORY and LOGS, or --rehearse")
    for path in (history, logs):
        if path is not None and "://" not in path and not Path(path).exists():
            raise click.UsageError(f"there is no file or folder {path}")
    if html is not None and not html.absolute().parent.is_dir():
        raise click.UsageError(f"--html: there is no folder {html.parent}")
    spark = spark_session("stockade audit", cores)
    with tempfile.TemporaryDirectory(prefix="stockade-audit-") as folder:
        expected = None if rehearse is None else _rehearsed(spark, rehearse, folder)
        audited = _audited(spark, history or f"{folder}/history.parquet", logs or f"{folder}/logs.parquet")
    if html is not None:
        made_up = f"made up by a rehearsal of {rehearse or 0:,} events"
        html.write_text(page(audited, history or made_up, logs or made_up), encoding="utf-8")
        click.echo(f"summary: {html}")
    _print(audited, expected)
    found = {each.checker: each.violations for each in audited.findings if each.violations}
    sys.exit(0 if found == (expected or {}) else 1)


def _rehearsed(spark: Any, events: int, folder: str) -> dict[str, int]:
    """Write a made-up history and logs into a folder; what is wrong with them, by checker."""
    from ..spark.pipelines import planted, rehearsal  # noqa: PLC0415 (needs Spark)

    with waiting(f"making up {events:,} events"):
        size = rehearsal.size_of(events)
        faults = planted.plant(size)
        planted.with_events(spark, rehearsal.history(spark, size), faults).write.parquet(f"{folder}/history.parquet")
        planted.with_rows(spark, rehearsal.logs(spark, size), faults).write.parquet(f"{folder}/logs.parquet")
    return dict(faults.expected)


def _audited(spark: Any, history: str, logs: str) -> Audited:
    from ..spark.pipelines import audit as auditing  # noqa: PLC0415 (needs Spark)

    columns = [SpinnerColumn(), TextColumn("{task.description:14}"), BarColumn(), MofNCompleteColumn()]
    console = Console(stderr=True, highlight=False)
    shown = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal)
    with shown as bar:
        task = bar.add_task("", total=len(auditing.PASSES) + 1)

        def on_pass(name: str) -> None:
            bar.update(task, description=name, advance=0 if name == "evidence" else 1)

        try:
            return auditing.audit(spark, history, logs, on_pass)
        except auditing.NoEvidence as error:
            raise click.UsageError(str(error)) from None


def _print(audited: Audited, expected: dict[str, int] | None) -> None:
    console = Console(highlight=False)
    table = Table(title="checkers")
    table.add_column("checker", no_wrap=True)
    table.add_column("violations", justify="right")
    if expected is not None:
        table.add_column("planted", justify="right")
    table.add_column("claim")
    for each in audited.findings:
        planted = [] if expected is None else [f"{expected.get(each.checker, 0):,}"]
        table.add_row(each.checker, f"{each.violations:,}", *planted, each.claim)
    console.print(table)
    for finding in audited.findings:
        for violation in finding.examples if expected is None else ():
            click.echo(f"{finding.checker}: {violation.topic}/{violation.partition}: {violation.what}")
    counts = ", ".join(f"{count:,} {name}" for name, count in audited.counts.items())
    click.echo(f"{counts}; judged in {sum(audited.seconds.values()):.1f} s")
