"""The Spark session of a pipeline: the one that spark-submit made, or a local one."""

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ..data_source import StockadeSource

LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.memory": "6g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.log.level": "ERROR",
}
"""Settings of a local session. Under spark-submit, the settings given there apply instead."""
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
PARTITIONS_PER_CORE = 4
"""Partitions of a shuffle for each core under spark-submit, unless set: Spark's default of 200 suits larger data."""


def session(name: str, cores: int | None = None) -> Any:
    """The active session, otherwise one as spark-submit sets it up, otherwise a local one on ``cores`` (None: all)."""
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM and this process
        return _submitted(SparkSession.builder.appName(name).getOrCreate())
    _let_workers_find_us()
    builder = SparkSession.builder.appName(name).master(f"local[{cores or '*'}]")
    return builder.config(map=LOCAL).getOrCreate()


def _submitted(spark: Any) -> Any:
    """Register the data source and set PYTHONPATH: Spark does not look for data sources in --py-files, and the process
    that plans a stream's batches does not get these files.
    """
    spark.sparkContext.environment["PYTHONPATH"] = _import_path()
    spark.dataSource.register(StockadeSource)
    context = spark.sparkContext
    if not context.getConf().contains(SHUFFLE_PARTITIONS):
        spark.conf.set(SHUFFLE_PARTITIONS, str(PARTITIONS_PER_CORE * context.defaultParallelism))
    return spark


def _import_path() -> str:
    """The folder, or ``stockade.zip``, from which this package is imported."""
    return str(Path(__file__).absolute().parents[3])


def _let_workers_find_us() -> None:
    """Let the Python workers of a local session run this Python and find this package."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([_import_path(), *filter(None, known)]))
