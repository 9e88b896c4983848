"""Topics as a stream: what Spark asks of a source of micro-batches, answered by progress.py."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from . import progress
from .options import ReadOptions
from .ranges import Topics, available, split
from .tasks import client_of, read_task, tasks_of
from .topics import Found, look, starts


class StockadeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Offsets are progress.Progress. The reader that plans lives on the driver; a copy without state reads."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Topics | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        with closing(client_of(self._options)) as client:
            seen = look(client, self._options.selection).seen
            return progress.beginning(starts(client, self._options, seen), seen)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxOffsetsPerTrigger``."""
        rows_max = self._options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is the end, also of partitions and topics that come later."""
        self._target = self._look().seen

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; ``start`` when there is nothing to read."""
        seen = self._target if self._target is not None else self._look().seen
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return progress.advance(start, seen, rows_max, fail=self._options.fail_on_data_loss)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The logs' ends, for the query's progress."""
        return progress.ends(self._look().seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The same for the same offsets, however often they are read, while the logs have the records."""
        ranges = progress.ranges(start, end)
        if not ranges:
            return []
        found = self._look()
        there = available(ranges, found.seen, fail=self._options.fail_on_data_loss)
        pieces = split(there, self._options.min_partitions)
        return [InputPartition(task) for task in tasks_of(pieces, found.leaders, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_task(partition.value, self._options, to_arrow_schema(self._schema, timezone="UTC"))

    def _look(self) -> Found:
        """A topic that is missing is data loss, which progress.py and ranges.py judge."""
        with closing(client_of(self._options)) as client:
            return look(client, self._options.selection, must_exist=False)
