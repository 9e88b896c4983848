"""``stockade.zip`` is enough: where nothing but pyspark and pyarrow is installed, a job reads and writes with it, and
executors that are processes of their own get it from Spark.
"""

from pathlib import Path

import pytest
from integration.api import Topic

from stockade.spark.package import write_zip

from .surroundings import bare_python, environment, spark_home, submit

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

JOB = """\
import os
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

    yield os.getcwd(), stockade.__file__


# A barrier: both tasks run at once, each on an executor of its own.
for folder, home in spark.sparkContext.parallelize([0, 1], 2).barrier().mapPartitions(homes).collect():
    print("home", folder, home)
"""


def test_a_job_reads_and_writes_with_the_zip_alone_on_two_executors(url: str, tmp_path: Path) -> None:
    python, package, job = bare_python(tmp_path / "venv"), tmp_path / "stockade.zip", tmp_path / "job.py"
    write_zip(package)
    job.write_text(JOB)
    topic = Topic(url, "zipped")
    topic.create(partitions=2)
    words = ("--master", "local-cluster[2,1,1024]", "--py-files", package, job, url, topic.name)
    home = spark_home(tmp_path / "spark")
    rows, *homes = submit(*words, env=environment(python, SPARK_HOME=home)).splitlines()
    assert rows == "rows 100 100"
    folders = [Path(home.split()[1]) for home in homes]
    assert len(set(folders)) == 2
    for folder, line in zip(folders, homes, strict=True):
        assert folder.is_relative_to(tmp_path / "spark" / "work")
        assert (folder / line.split()[2]).is_relative_to(folder / package.name)
