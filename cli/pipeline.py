"""`stockade pipeline`: load, export and audit with Spark, which has to be installed (`pip install stockade[spark]`)."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..client.admin import Client
from ..client.config import ClientConfig
from ..spark.pipelines.telling import shown
from .audit import audit
from .connection import connected
from .exits import REFUSED
from .manual import Manual
from .names import TOPIC
from .output import output_option, show_json, show_table
from .spark import cores_option, spark_session

FORMATS_IN = ["text", "json", "parquet", "table"]
FORMATS_OUT = ["parquet", "delta", "iceberg", "text"]


@click.group()
def pipeline() -> None:
    """Move and judge data at size, with Spark on this machine. Each is a script for spark-submit, too."""


pipeline.add_command(audit)


@pipeline.command(
    cls=Manual,
    short_help="Load files into a topic, every line exactly once.",
    examples=[
        ("Every line of every file of a folder", "stockade pipeline load examples/data logs"),
        ("On a cluster of Spark's", "spark-submit examples/pipeline_load.py --url http://HOST:7101 FOLDER TOPIC"),
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
    help="text: a record a line, any bytes. json: a record a line, checked to be JSON. parquet, and table (PATH is its"
    " name): columns key, value and headers; without a column value, each row becomes a JSON object.",
)
@click.option("--name", help="Of this load: under one name it is done once. Default: made of PATH, format and TOPIC.")
@cores_option
@output_option
@connected
async def load(
    config: ClientConfig, path: str, topic: str, form: str, name: str | None, cores: int | None, output: str
) -> None:
    """Load the files of PATH (a file, a folder, or a pattern that Spark understands) into TOPIC, exactly once."""
    if form != "table":
        _check_source(path)
    async with Client(config) as client:
        await client.topic(topic)  # a topic that is missing is told before Spark starts
    spark = spark_session("stockade load", cores)
    from ..spark.pipelines import load as loading  # noqa: PLC0415 (needs Spark)
    from ..spark.pipelines.watch import watched  # noqa: PLC0415

    chosen = name or loading.name_of(path, form, topic)
    with _refusals(), _bar() as bar:
        task = bar.add_task("tasks", total=None)
        with watched(spark, lambda done, total: bar.update(task, completed=done, total=total or None)):
            rows = loading.source(spark, path, form)
            loaded = loading.load(rows, topic, chosen, _options(config))
    facts = {"topic": topic, "name": chosen, **loaded._asdict()}
    _summary(facts, output)


@pipeline.command(
    cls=Manual,
    examples=[
        ("What is there and was not written yet", "stockade pipeline export logs out"),
        ("The files that a topic was loaded from", "stockade pipeline export logs copies --format text"),
        ("On a cluster of Spark's", "spark-submit examples/pipeline_export.py --url http://HOST:7101 TOPIC FOLDER"),
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
    help="parquet, or where they are installed delta and iceberg: by date, exactly once, in FOLDER/rows. text: the"
    " files that `load` made records of, byte for byte.",
)
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C; the next export continues there.")
@cores_option
@output_option
@connected
async def export(
    config: ClientConfig, topic: str, folder: str, form: str, cores: int | None, output: str, *, follow: bool
) -> None:
    """Write the records of TOPIC into files in FOLDER. Run again, it adds what came since."""
    if form == "text" and follow:
        raise click.UsageError("--follow has no meaning with --format text")
    _check_target(folder, form)
    async with Client(config) as client:
        partitions = (await client.topic(topic)).partitions
        bounds = [await client.offsets(topic, each.partition) for each in partitions]
    spark = spark_session("stockade export", cores)
    from ..spark.pipelines import export as exporting  # noqa: PLC0415 (needs Spark)

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
    """Options of the source and the sink that say how to reach a cluster."""
    given = {
        "url": ",".join(config.bootstrap),
        "authToken": config.token,
        "tlsCa": config.ca,
        "tlsCertificate": config.certificate,
        "tlsKey": config.key,
    }
    return {name: value for name, value in given.items() if value}


@contextmanager
def _refusals() -> Iterator[None]:
    """What Spark refuses is told in one line."""
    from ..spark.pipelines.refused import REFUSALS, why  # noqa: PLC0415 (needs Spark)

    try:
        yield
    except REFUSALS as error:
        click.echo(f"Error: {why(error)}", err=True)
        sys.exit(REFUSED)


def _bar() -> Progress:
    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    console = Console(stderr=True, highlight=False)
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal)


def _summary(facts: dict[str, Any], output: str) -> None:
    if output == "json":
        show_json(facts)
        return
    made = shown(facts)
    show_table(list(made), [list(made.values())])
