"""A streaming query that copies a topic into another, never twice in the same way: rows go to other tasks and
partitions, in another order, whenever a micro-batch is computed again.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from dying_sink import DyingSource
from integration.api import Topic
from pyspark.sql import functions

from .topics import load

PARTITIONS = 2


class Copy:
    """The query, its checkpoint, and what it shall die of: ``plan`` is the name of that folder. A run that may outlive
    its end needs one of its own.
    """

    def __init__(
        self, spark: Any, source: Topic, target: Topic, folder: Path, plan: str = "plan", **options: Any
    ) -> None:
        self._spark, self._source, self._target = spark, source, target
        self.plan = folder / plan
        self.plan.mkdir(exist_ok=True)
        self.checkpoint = folder / "checkpoint"
        self._options = {"url": target.node, "topic": target.name, "plan": str(self.plan), **options}
        spark.dataSource.register(DyingSource)

    def start(self, rows_per_batch: int) -> Any:
        """Run until everything there is was copied."""
        reading = {"url": self._source.node, "subscribe": self._source.name, "startingOffsets": "earliest"}
        frame = self._spark.readStream.format("stockade").options(**reading)
        frame = frame.option("maxOffsetsPerTrigger", rows_per_batch).load()
        shuffled = frame.withColumn("r", functions.rand()).repartition(2, "r")
        rows = shuffled.select("key", "value", (functions.rand() * PARTITIONS).cast("int").alias("partition"))
        writer = rows.writeStream.format("dying").options(**self._options)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()

    def run(self, rows_per_batch: int = 100) -> bool:
        """Whether it came to the end, and did not die."""
        query = self.start(rows_per_batch)
        try:
            query.awaitTermination()
        except Exception as error:
            if query.exception() is None:
                raise
            # Spark gives its Python processes ten seconds to start, however busy the machine is.
            return "failed to connect back" in str(error) and self.run(rows_per_batch)
        return True

    def dies_at(self, request: str) -> None:
        """The next commit does not survive this request of its own: for what, which, before or after it."""
        (self.plan / "died").unlink(missing_ok=True)
        (self.plan / "commit").write_text(request)

    def survives(self) -> None:
        """Nothing dies any more."""
        (self.plan / "commit").unlink(missing_ok=True)

    @property
    def died(self) -> bool:
        return (self.plan / "died").exists()

    def died_of(self) -> str:
        """What the request was for; empty if nothing died."""
        return (self.plan / "died").read_text() if self.died else ""

    def wrong(self) -> tuple[list[Any], list[Any]]:
        """Values that are missing in the target, and those that are there too often."""
        want, got = (_values(self._spark, topic) for topic in (self._source, self._target))
        return sorted(want - got), sorted(got - want)


def _values(spark: Any, topic: Topic) -> Counter[Any]:
    return Counter(bytes(row.value) for row in load(spark, topic).select("value").collect())
