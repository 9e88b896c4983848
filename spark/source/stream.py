"""Topics as a stream of micro-batches; progress.py decides which records each micro-batch has."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ...client.blocking.reader import BlockingClient
from ..options import short
from .planning import progress
from .planning.options import ReadOptions
from .planning.ranges import Topics, available, split
from .tasks import client_of, read_task, tasks_of
from .topics import Found, look, starts


class StockadeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The reader of a streaming query. What Spark calls an offset is a ``progress.Progress``. One reader plans on the
    driver; tasks read with copies that have no state.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Topics | None = None
        self._was_connected = False

    @short
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The first offsets of a query without a checkpoint."""
        with closing(self._client()) as client:
            seen = look(client, self._options.selection).seen
            begins = starts(client, self._options, seen)
            if self._target is not None:
                # Spark took the target before it asked for this start. A start at the newer log end would lie beyond
                # that target, as if the log had lost records.
                self._target = look(client, self._options.selection).seen
            return progress.beginning(begins, seen)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that the option ``maxOffsetsPerTrigger`` sets."""
        rows_max = self._options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Make the present log ends the end of the query, which ignores later partitions and topics."""
        self._target = self._look().seen

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; ``start`` if there is nothing to read."""
        seen = self._target if self._target is not None else self._look().seen
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return progress.advance(start, seen, rows_max, fail=self._options.fail_on_data_loss)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The present log ends, which Spark reports in the query's progress."""
        return progress.ends(self._look().seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks that read the records between two offsets: the same records each time, while the logs have them."""
        ranges = progress.ranges(start, end)
        if not ranges:
            return []
        found = self._look()
        there = available(ranges, found.seen, fail=self._options.fail_on_data_loss)
        pieces = split(there, self._options.min_partitions)
        return [InputPartition(task) for task in tasks_of(pieces, found)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_task(partition.value, self._options, to_arrow_schema(self._schema, timezone="UTC"))

    def _look(self) -> Found:
        """The topics as they are now. A missing topic is left out: progress.py and ranges.py treat it as data loss."""
        with closing(self._client()) as client:
            return look(client, self._options.selection, must_exist=False)

    def _client(self) -> BlockingClient:
        """A client. The query's first one raises ClusterUnreachable soon if no node answers; the requests of later ones
        wait up to ``delivery_timeout_ms``.
        """
        client = client_of(self._options)
        if not self._was_connected:
            client.connect()
            self._was_connected = True
        return client
