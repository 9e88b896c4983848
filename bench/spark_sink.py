"""How fast Spark writes into a three-node cluster on this machine, exactly once: records of 100 bytes.

python bench/spark_sink.py --records 1000000 --repeats 3

Prints a line a run: records a second of wall time, from the start of the write until all rows are in the topic. The
first run warms Spark up. ``--keys`` gives every row a key of its own.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.client.blocking.writer import BlockingWriter

VALUE_BYTES = 100


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--keys", action="store_true")
    wanted = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder), port_base=0) as cluster:
        measure(cluster.nodes[0].url, wanted)


def measure(url: str, wanted: argparse.Namespace) -> None:
    """Write all rows once to warm up, and ``repeats`` times, each time into a topic of its own; print the rates."""
    spark = session()
    rows = made(spark, wanted.records, wanted.keys).cache()
    rows.count()
    writer = BlockingWriter(url)
    for number in range(wanted.repeats + 1):
        topic = f"sink-{number}"
        writer.create_topic(topic, wanted.partitions, {})
        began = time.perf_counter()
        rows.write.format("stockade").options(url=url, topic=topic, sink=topic).mode("append").save()
        took = time.perf_counter() - began
        print(f"run {number}: {wanted.records / took:,.0f} records/s ({took:.1f} s)", flush=True)  # noqa: T201
    writer.close()
    spark.stop()


def made(spark: Any, records: int, with_keys: bool) -> Any:
    """``records`` rows with values of VALUE_BYTES, and with a key each if ``with_keys``."""
    from pyspark.sql import functions  # noqa: PLC0415 (after the environment is set)

    number = functions.col("id").cast("string")
    columns = [functions.lpad(number, VALUE_BYTES, "x").cast("binary").alias("value")]
    if with_keys:
        columns.append(number.cast("binary").alias("key"))
    return spark.range(0, records, 1, 2).select(*columns)


def session() -> Any:
    """A Spark session that runs two tasks at a time."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 (after the environment is set)

    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


if __name__ == "__main__":
    main()
