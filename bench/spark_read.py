"""How fast Spark reads records of 100 bytes from three nodes on this machine, to ``count()``, two tasks at a time.

python bench/spark_read.py --records 2000000 --repeats 5

Prints a line a run: records a second of wall time, as the source hands rows on (Arrow), beside the same source handing
on tuples. They take turns; the first run of each warms Spark up and is not counted. Ends with the medians and their
ratio.
"""

# ruff: noqa: T201 (it prints a table)

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from stockade.cli.local_cluster.cluster import LocalCluster
from stockade.client.blocking.writer import BlockingWriter
from stockade.partition.records.batch import SCHEMA
from stockade.spark.data_source import StockadeSource

VALUE_BYTES = 100
BATCH_ROWS = 4_000
TOPIC = "read"


class Tuples(DataSource):  # type: ignore[misc]
    """Stockade's source, except that every row becomes a tuple."""

    @classmethod
    def name(cls) -> str:
        """The name of the source for ``format``."""
        return "tuples"

    def schema(self) -> str:
        """The schema of Stockade's source."""
        return StockadeSource(self.options).schema()

    def reader(self, schema: StructType) -> Any:
        """The reader of Stockade's source, with another ``read``."""
        return TupleReader(StockadeSource(self.options).reader(schema))


class TupleReader(DataSourceReader):  # type: ignore[misc]
    """Hands rows on to Spark one by one, as tuples."""

    def __init__(self, arrow: Any) -> None:
        self._arrow = arrow

    def partitions(self) -> Any:
        """The partitions of Stockade's reader."""
        return self._arrow.partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a partition as tuples."""
        for batch in self._arrow.read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=4)
    wanted = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder), port_base=0) as cluster:
        url = cluster.nodes[0].url
        fill(url, wanted.records, wanted.partitions)
        measure(url, wanted.records, wanted.repeats)


def fill(url: str, records: int, partitions: int) -> None:
    """Create the topic, and append ``records`` to it."""
    writer = BlockingWriter(url)
    writer.create_topic(TOPIC, partitions, {})
    pair = writer.init_producer(None, "bench")
    for number, start in enumerate(range(0, records, BATCH_ROWS)):
        values = [f"{row:0>{VALUE_BYTES}}".encode() for row in range(start, min(start + BATCH_ROWS, records))]
        sequence = number // partitions * BATCH_ROWS
        writer.append(TOPIC, number % partitions, stream(values), pair, sequence)
    writer.close()


def stream(values: list[bytes]) -> bytes:
    """Values as an Arrow stream of one batch, as producers send it."""
    columns = [
        pa.array(values, field.type) if field.name == "value" else pa.nulls(len(values), field.type) for field in SCHEMA
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as made:
        made.write_batch(pa.record_batch(columns, schema=SCHEMA))
    return bytes(sink.getvalue())


def measure(url: str, records: int, repeats: int) -> None:
    """Let the sources take turns; print the rate of each run, the medians and their ratio."""
    spark = session()
    spark.dataSource.register(Tuples)
    speeds: dict[str, list[float]] = {"stockade": [], "tuples": []}
    for number in range(repeats + 1):
        for kind, speed in speeds.items():
            began = time.perf_counter()
            counted = spark.read.format(kind).options(url=url, subscribe=TOPIC).load().count()
            took = time.perf_counter() - began
            assert counted == records, counted
            print(f"run {number}, {kind:8}: {records / took:10,.0f} records/s ({took:.2f} s)", flush=True)
            if number:
                speed.append(records / took)
    middle = {kind: median(each) for kind, each in speeds.items()}
    ratio = middle["stockade"] / middle["tuples"]
    print(f"median: {middle['stockade']:,.0f} records/s, tuples {middle['tuples']:,.0f}, {ratio:.1f} times as fast")
    spark.stop()


def session() -> Any:
    """A Spark session that runs two tasks at a time."""
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


if __name__ == "__main__":
    main()
