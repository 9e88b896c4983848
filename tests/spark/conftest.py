"""One cluster and one Spark session for all Spark tests: each takes seconds to start."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from integration.api import CALM
from pyspark.sql import SparkSession
from sources import ROOT

from stockade.cli.local_cluster.cluster import LocalCluster


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node of a cluster of three."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), port_base=0, settings=CALM) as cluster:
        yield cluster.nodes[0].url


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with two tasks at a time, tried up to four times. Its workers are this Python, with all it finds."""
    with pytest.MonkeyPatch.context() as patch:
        if (home := ROOT / ".tools" / "java").exists():
            patch.setenv("JAVA_HOME", str(home))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        }
        session = SparkSession.builder.master("local[2,4]").config(map=settings).getOrCreate()
        yield session
        session.stop()
