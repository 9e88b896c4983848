"""``spark.read.format("stockade")``: a topic as a DataFrame, with the columns of Spark's Kafka connector.

The driver plans ranges of offsets; tasks fetch them as Arrow through the client and hand Arrow on.
What can be decided without Spark is in options, ranges, fetch and columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..client.blocking import BlockingClient
from ..client.config import BOOTSTRAP_URLS_MAX
from .columns import COLUMNS, HEADERS, rows
from .fetch import read_range
from .options import ReadOptions, parse_read_options
from .ranges import Range, plan


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
        with closing(BlockingClient(self._options.urls)) as client:
            topics = [client.topic(name) for name in self._options.topics]
            ends = {
                topic.name: {each.partition: client.offsets(topic.name, each.partition) for each in topic.partitions}
                for topic in topics
            }
        leaders = {(topic.name, each.partition): each.leader for topic in topics for each in topic.partitions}
        return [InputPartition((wanted, self._nodes(leaders, wanted))) for wanted in plan(self._options, ends)]

    def _nodes(self, leaders: Mapping[tuple[str, int], str | None], wanted: Range) -> tuple[str, ...]:
        """Whom a task asks, in this order: the leader that holds its records, then everybody else we know of."""
        known = [leaders[wanted.topic, wanted.partition], *leaders.values(), *self._options.urls]
        return tuple(dict.fromkeys(url for url in known if url))[:BOOTSTRAP_URLS_MAX]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range. Without any ranges Spark asks once for the rows of None."""
        if partition.value is None:
            return
        wanted, nodes = partition.value
        target = to_arrow_schema(self._schema, timezone="UTC")
        with closing(BlockingClient(nodes)) as client:
            for offset, batch in read_range(client, wanted):
                yield rows(target, wanted, offset, batch)
