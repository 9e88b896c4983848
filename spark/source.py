"""``spark.read.format("stockade")``: a topic as a DataFrame, with the columns of Spark's Kafka connector.

The driver plans ranges of offsets; tasks fetch them as Arrow through the client and hand Arrow on.
What can be decided without Spark is in options, ranges, fetch and columns.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..client.blocking import BlockingClient
from .columns import COLUMNS, HEADERS, rows
from .fetch import read_range
from .options import ReadOptions, parse_read_options
from .ranges import plan


class StockadeSource(DataSource):  # type: ignore[misc]
    """The data source. Options: options.ReadOptions."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "stockade"

    def schema(self) -> str:
        """The columns of Spark's Kafka connector; ``headers`` on request."""
        return f"{COLUMNS}, {HEADERS}" if parse_read_options(self.options).include_headers else COLUMNS

    def reader(self, schema: StructType) -> "StockadeBatchReader":
        """A reader of one query."""
        return StockadeBatchReader(parse_read_options(self.options), schema)


class StockadeBatchReader(DataSourceReader):  # type: ignore[misc]
    """Reads what the topics hold now. Planned on the driver, pickled, and then used by every task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One for each range of offsets. The log ends are read now; rows appended later are not part of the query."""
        with BlockingClient(self._options.url) as client:
            ends = {
                topic: {
                    each.partition: client.offsets(topic, each.partition) for each in client.topic(topic).partitions
                }
                for topic in self._options.topics
            }
        return [InputPartition(each) for each in plan(self._options, ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range. Without any ranges Spark asks once for the rows of None."""
        if partition.value is None:
            return
        target = to_arrow_schema(self._schema, timezone="UTC")
        with BlockingClient(self._options.url) as client:
            for offset, batch in read_range(client, partition.value):
                yield rows(target, partition.value, offset, batch)
