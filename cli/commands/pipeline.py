"""`stockade pipeline`: load, export and audit with Spark, which must be installed (`pip install 'stockade[spark]'`).

Modules that need Spark are imported when a command runs, so that its help works without Spark.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ...client.api.client import Client
from ...client.config import ClientConfig
from ...spark.pipelines.audit.findings import Audited
from ...spark.pipelines.audit.page import page
from ...spark.pipelines.reporting import shown
from ...spark.sink.options import sink_name
from ..ui.completion_names import TOPIC
from ..ui.connection import with_config
from ..ui.exits import LOCAL, REFUSED
from ..ui.manual import Adding, Manual
from ..ui.output import output_option, show_json, show_table, waiting
from ..ui.parameters import WholeNumber

cores_option: Adding = click.option(
    "--cores", type=WholeNumber(1), help="Cores of this machine that Spark uses. Default: all."
)
WITHOUT_SPARK = "Spark is not installed ({}): pip install 'stockade[spark]'"
WITHOUT_JAVA = "Spark needs Java 17 or newer: install it, or set JAVA_HOME to where it is"


def spark_session(name: str, cores: int | None) -> Any:
    """A local Spark session. Raises ClickException without Spark or Java."""
    try:
        from ...spark.pipelines.session import session  # noqa: PLC0415 (needs Spark)
    except ImportError as error:
        raise click.ClickException(WITHOUT_SPARK.format(error)) from error
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise click.ClickException(WITHOUT_JAVA)
    with waiting("starting Spark"):
        return session(name, cores)


@click.command(
    cls=Manual,
    short_help="Check a chaos history against the stored logs.",
    exits=LOCAL,
    means={1: "A checker found a violation; or a rehearsal did not find exactly the planted faults."},
    examples=[
        (
            "The results of a chaos run",
            "stockade pipeline audit run/history.parquet run/logs.parquet --html audit.html",
        ),
        (
            "Plant a fault of every kind among ten million events, and find each",
            "stockade pipeline audit --rehearse 10000000",
        ),
        ("On a Spark cluster", "spark-submit examples/pipeline_audit.py HISTORY LOGS"),
    ],
)
@click.argument("history", required=False)
@click.argument("logs", required=False)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a summary page to this file.")
@click.option(
    "--rehearse",
    type=WholeNumber(1_000),
    help="Instead of HISTORY and LOGS: make up a history of this many events with a fault of every kind, and check"
    " that the audit finds each.",
)
@cores_option
def audit(history: str | None, logs: str | None, html: Path | None, rehearse: int | None, cores: int | None) -> None:
    """Check HISTORY and LOGS, the Parquet files of `stockade chaos run`, with the checkers of `stockade chaos` but
    byte-exact, order and slot-history, and with phantom beside them.
    """
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
        html.write_text(page(audited, history or made_up, logs or made_up, expected), encoding="utf-8")
        click.echo(f"summary: {html}")
    _print(audited, expected)
    found = {each.checker: each.violations for each in audited.findings if each.violations}
    sys.exit(0 if found == (expected or {}) else 1)


def _rehearsed(spark: Any, events: int, folder: str) -> dict[str, int]:
    """Write a made-up history and logs with planted faults into a folder; return the number of faults by checker."""
    from ...spark.pipelines.audit import planted, rehearsal  # noqa: PLC0415 (needs Spark)

    with waiting(f"making up {events:,} events"):
        size = rehearsal.size_of(events)
        faults = planted.plant(size)
        planted.with_events(spark, rehearsal.history(spark, size), faults).write.parquet(f"{folder}/history.parquet")
        planted.with_rows(spark, rehearsal.logs(spark, size), faults).write.parquet(f"{folder}/logs.parquet")
    return dict(faults.expected)


def _audited(spark: Any, history: str, logs: str) -> Audited:
    from ...spark.pipelines.audit import audit as auditing  # noqa: PLC0415 (needs Spark)

    with _bar("{task.description:14}") as bar:
        task = bar.add_task("", total=len(auditing.PASSES) + 1)

        def on_pass(name: str) -> None:
            bar.update(task, description=name, advance=0 if name == "evidence" else 1)

        try:
            return auditing.audit(spark, history, logs, on_pass)
        except auditing.NoEvidence as error:
            raise click.UsageError(str(error)) from None


def _print(audited: Audited, expected: dict[str, int] | None) -> None:
    rows = [
        (
            each.checker,
            each.checked_words,
            f"{each.violations:,}",
            *([] if expected is None else [f"{expected.get(each.checker, 0):,}"]),
            each.claim,
        )
        for each in audited.findings
    ]
    planted = [] if expected is None else ["PLANTED"]
    show_table(["CHECKER", "CHECKED", "VIOLATIONS", *planted, "CLAIM"], rows)
    for finding in audited.findings:
        for violation in finding.examples if expected is None else ():
            click.echo(f"{finding.checker}: {violation.place}: {violation.what}")
    counts = ", ".join(f"{count:,} {name}" for name, count in audited.counts.items())
    click.echo(f"{counts}; judged in {sum(audited.seconds.values()):.1f} s")


def _sink_name(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    try:
        return None if text is None else sink_name("it", text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


FORMATS_IN = ["text", "json", "parquet", "table"]
FORMATS_OUT = ["parquet", "delta", "text"]


@click.group()
def pipeline() -> None:
    """Load, export and audit large data with Spark on this machine. Each command is a script for spark-submit, too."""


pipeline.add_command(audit)


@pipeline.command(
    cls=Manual,
    short_help="Load files into a topic, every line exactly once.",
    examples=[
        ("Every line of every file of a folder", "stockade pipeline load FOLDER logs"),
        ("Some files of a folder", "stockade pipeline load 'examples/data/*.log' logs"),
        ("On a Spark cluster", "spark-submit examples/pipeline_load.py --url http://HOST:7101 FOLDER TOPIC"),
    ],
)
@click.argument("path")
@click.argument("topic", type=TOPIC)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS_IN),
    default="text",
    show_default=True,
    help="text: each line is a record, any bytes. json: each line is a record and must be JSON. parquet, and table"
    " (PATH is its name): columns key, value and headers; without a column value, each row becomes a JSON object.",
)
@click.option(
    "--name",
    callback=_sink_name,
    help="Name of this load; loads with the same name are done once. Default: made of PATH, format and TOPIC.",
)
@cores_option
@output_option
@with_config
async def load(
    config: ClientConfig, path: str, topic: str, form: str, name: str | None, cores: int | None, output: str
) -> None:
    """Load the files of PATH (a file, a folder, or a pattern that Spark understands) into TOPIC, exactly once.

    text and json take every file of a folder, also .gitattributes and _SUCCESS. If a file cannot be taken, as one in a
    sub-folder, the command names it and loads nothing. parquet leaves out names that begin with . or _, as Spark does.
    """
    if form != "table":
        _check_source(path)
    async with Client(config) as client:
        await client.topic(topic)  # a missing topic is reported before Spark starts
    spark = spark_session("stockade load", cores)
    from ...spark.pipelines import load as loading  # noqa: PLC0415 (needs Spark)
    from ...spark.pipelines.reporting import watched  # noqa: PLC0415

    with _refusals(), _bar() as bar:
        chosen = name or loading.name_of(spark, path, form, topic)
        task = bar.add_task("tasks", total=None)
        with watched(spark, lambda done, total: bar.update(task, completed=done, total=total or None)):
            rows = loading.source(spark, path, form)
            loaded = loading.load(rows, topic, chosen, _options(config))
    if loaded.already_loaded:
        click.echo(loading.ALREADY_LOADED.format(chosen), err=True)
    _summary({"topic": topic, "name": chosen, **loaded._asdict()}, output)


@pipeline.command(
    cls=Manual,
    examples=[
        ("Records that were not exported yet", "stockade pipeline export logs out"),
        ("The files that a topic was loaded from", "stockade pipeline export logs copies --format text"),
        ("On a Spark cluster", "spark-submit examples/pipeline_export.py --url http://HOST:7101 TOPIC FOLDER"),
    ],
)
@click.argument("topic", type=TOPIC)
@click.argument("folder")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS_OUT),
    default="parquet",
    show_default=True,
    help="parquet, and delta (if installed): rows by date, exactly once, in FOLDER/rows. text: the files that `load`"
    " has read, byte for byte.",
)
@click.option("--follow", is_flag=True, help="Export new records until Ctrl-C; the next export continues there.")
@cores_option
@output_option
@with_config
async def export(
    config: ClientConfig, topic: str, folder: str, form: str, cores: int | None, output: str, *, follow: bool
) -> None:
    """Write the records of TOPIC into files in FOLDER. The next run adds the records that came since."""
    if form == "text" and follow:
        raise click.UsageError("--follow has no meaning with --format text")
    _check_target(folder, form)
    async with Client(config) as client:
        partitions = (await client.topic(topic)).partitions
        bounds = [await client.offsets(topic, each.partition) for each in partitions]
    spark = spark_session("stockade export", cores)
    from ...spark.pipelines import export as exporting  # noqa: PLC0415 (needs Spark)

    options = _options(config)
    with _refusals(), _bar() as bar:
        task = bar.add_task("records", total=None if follow else sum(each.log_end - each.log_start for each in bounds))
        if form == "text":
            done = exporting.restore(spark, topic, Path(folder), options)
        else:
            done = exporting.export(
                spark,
                topic,
                folder,
                options,
                form=form,
                follow=follow,
                on_batch=lambda rows: bar.update(task, completed=rows),
            )
    _summary({"topic": topic, "folder": folder, **done._asdict()}, output)


def _check_source(path: str) -> None:
    if "://" not in path and not set(path) & set("*?[{") and not Path(path).exists():
        raise click.UsageError(f"there is no file or folder {path}")


def _check_target(folder: str, form: str) -> None:
    if "://" in folder:
        if form == "text":
            raise click.UsageError("--format text writes into a folder of this machine")
    elif Path(folder).exists() and not Path(folder).is_dir():
        raise click.UsageError(f"{folder} is not a folder")


def _options(config: ClientConfig) -> dict[str, str]:
    """The options with which Spark's source and sink reach the cluster."""
    given = {
        "url": ",".join(config.bootstrap),
        "authToken": None if config.token_file else config.token,
        "authTokenFile": config.token_file,
        "tlsCa": config.ca,
        "tlsCertificate": config.certificate,
        "tlsKey": config.key,
    }
    return {name: value for name, value in given.items() if value}


@contextmanager
def _refusals() -> Iterator[None]:
    """Print a refusal of Spark or of the cluster in one line, and end with REFUSED."""
    from ...spark.pipelines.export import REFUSALS, why  # noqa: PLC0415 (needs Spark)

    try:
        yield
    except REFUSALS as error:
        click.echo(f"Error: {why(error)}", err=True)
        sys.exit(REFUSED)


def _bar(text: str = "{task.description}") -> Progress:
    columns = [SpinnerColumn(), TextColumn(text), BarColumn(), MofNCompleteColumn()]
    console = Console(stderr=True, highlight=False)
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal)


def _summary(facts: dict[str, Any], output: str) -> None:
    if output == "json":
        show_json(facts)
        return
    made = shown(facts)
    show_table(list(made), [list(made.values())])
