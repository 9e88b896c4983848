"""A driver that may be killed: copies a topic into another as ``copying`` has it, and ends.

python -m tests.spark.killed_driver MASTER FOLDER PLAN SOURCE TARGET NODE: FOLDER has the
checkpoint, and a folder PLAN with what it dies of. It leads a process group of its own, which is what gets the SIGKILL.
"""

import os
import sys
from pathlib import Path

from integration.api import Topic
from pyspark.sql import SparkSession

from .copying import Copy

ROWS_PER_BATCH = 40
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.executor.memory": "512m",
}
"""A task is run again elsewhere as soon as half of them are done and it takes longer."""


def main() -> None:
    """Copy what there is."""
    master, folder, plan, source, target, node = sys.argv[1:]
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "FATAL",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    if (Path(folder) / plan / "slow").exists():
        settings |= SPECULATION
    spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    copying = Copy(spark, Topic(node, source), Topic(node, target), Path(folder), plan)
    (copying.plan / "group").write_text(str(os.getpgrp()))
    ended = copying.run(ROWS_PER_BATCH)
    spark.stop()
    sys.exit(0 if ended else 3)


if __name__ == "__main__":
    main()
