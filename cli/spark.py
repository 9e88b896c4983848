"""The Spark session of a command, or why there is none."""

import os
import shutil
from typing import Any

import click

from .manual import Adding
from .output import waiting

cores_option: Adding = click.option(
    "--cores", type=click.IntRange(1), help="Cores of this machine to use. Default: all."
)
WITHOUT_SPARK = "Spark is not installed ({}): pip install 'stockade[spark]'"
WITHOUT_JAVA = "Spark needs Java 17 or newer: install it, or set JAVA_HOME to where it is"


def spark_session(name: str, cores: int | None) -> Any:
    """A local session."""
    try:
        from ..spark.pipelines.session import session  # noqa: PLC0415 (needs Spark)
    except ImportError as error:
        raise click.ClickException(WITHOUT_SPARK.format(error)) from error
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise click.ClickException(WITHOUT_JAVA)
    with waiting("starting Spark"):
        return session(name, cores)
