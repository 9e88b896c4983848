"""``format("stockade")``: topics as DataFrames, with the columns of Spark's Kafka connector.

The driver plans ranges of offsets; tasks fetch the ranges as Arrow from the partitions' leaders, and hand Arrow to
Spark. Code that needs no Spark is in source/ and sink/.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from .options import short
from .sink.writer import batch_writer, stream_writer
from .source.filters import AcceptedFilters
from .source.planning.options import ReadOptions, parse_any_options, parse_read_options
from .source.planning.ranges import split
from .source.rows.columns import schema_text
from .source.stream import StockadeStreamReader
from .source.tasks import client_of, read_task, tasks_of
from .source.topics import look, planned


class StockadeSource(DataSource):  # type: ignore[misc]
    """The data source. docs/spark.md has its options."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "stockade"

    @short
    def schema(self) -> str:
        """The columns of Spark's Kafka connector; ``headers`` and the record's origin on request."""
        options = parse_any_options(self.options)
        return schema_text(options.include_headers, options.include_origin)

    @short
    def reader(self, schema: StructType) -> "StockadeBatchReader":
        """A reader of one batch query."""
        options = parse_read_options(self.options, "batch")
        # Spark refuses every query of a reader with pushFilters while its own setting for them is off.
        kind = FilteringBatchReader if options.filter_pushdown else StockadeBatchReader
        return kind(options, schema)

    @short
    def streamReader(self, schema: StructType) -> StockadeStreamReader:  # noqa: N802
        """A reader of one streaming query."""
        return StockadeStreamReader(parse_read_options(self.options, "stream"), schema)

    @short
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of one batch."""
        return batch_writer(self.options, schema, overwrite)

    @short
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A writer of one streaming query."""
        return stream_writer(self.options, schema, overwrite)


class StockadeBatchReader(DataSourceReader):  # type: ignore[misc]
    """Reads the records that the topics hold now. Spark plans it on the driver, and pickles it for every task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filters = AcceptedFilters()

    @short
    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each range of offsets. Log ends are read now: later records are not part of the query."""
        with closing(client_of(self._options)) as client:
            client.connect()
            found = look(client, self._options.selection)
            ranges = planned(client, self._options, found.seen, self._filters)
        pieces = split(ranges, self._options.min_partitions)
        return [InputPartition(task) for task in tasks_of(pieces, found)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range. When there are no ranges, Spark calls this once, with a partition of value None."""
        if partition.value is None:
            return iter(())
        return read_task(partition.value, self._options, to_arrow_schema(self._schema, timezone="UTC"))


class FilteringBatchReader(StockadeBatchReader):
    """A batch reader with filters (option ``filterPushdown``, with ``spark.sql.python.filterPushdown.enabled``)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Accept filters; return those that Spark must still apply."""
        return [each for each in filters if not self._take(each)]

    def _take(self, each: Filter) -> bool:
        column, value = getattr(each, "attribute", ()), getattr(each, "value", None)
        return self._filters.take(type(each).__name__, column, value)
