"""``stockade.zip`` is enough: where nothing but pyspark and pyarrow is installed, a job reads and writes with it."""

from pathlib import Path

import pytest
from integration.api import Topic

from stockade.spark.package import write_zip

from .surroundings import bare_python, environment, submit

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

JOB = """\
import sys
from pyspark.sql import SparkSession
from pyspark_stockade import DefaultSource

url, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(DefaultSource)
rows = spark.range(100).selectExpr("cast(id as string) as value").repartition(2)
rows.write.format("stockade").options(url=url, topic=topic, sink=topic).mode("append").save()
read = spark.read.format("stockade").options(url=url, subscribe=topic).load()
print("rows", read.count(), read.select("value").distinct().count())


def homes(_):
    import stockade

    yield stockade.__file__


print("home", *spark.sparkContext.parallelize([0], 1).mapPartitions(homes).collect())
"""


def test_a_job_reads_and_writes_with_the_zip_alone(url: str, tmp_path: Path) -> None:
    python, package, job = bare_python(tmp_path / "venv"), tmp_path / "stockade.zip", tmp_path / "job.py"
    write_zip(package)
    job.write_text(JOB)
    topic = Topic(url, "zipped")
    topic.create(partitions=2)
    words = ("--master", "local[2]", "--py-files", package, job, url, topic.name)
    rows, home = submit(*words, env=environment(python)).splitlines()
    assert rows == "rows 100 100"
    assert "stockade.zip" in home
