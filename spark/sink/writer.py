"""``writeStream.format("stockade")`` and ``write.format("stockade")``: what Spark calls, in tasks and on the driver.

Spark runs ``write`` in a task and ``commit`` in a process of the driver's, each on a copy of the writer; the copies
communicate by commit messages.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ...client.blocking.reader import BlockingClient
from ...client.blocking.writer import BlockingWriter
from .committer import NAMED_BATCH, SinkCommitter, append_all, discard, stage_prefix
from .history import Piece
from .options import WriteOptions, parse_write_options
from .rows import COLUMNS, check_names, check_types
from .staging import append_rows, stage_rows

_BATCH_ID, _QUERY_ID, _RUN_ID = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"
_FIRST = "0"
"""Number of a checkpoint's first micro-batch. Nothing was written before it, so an outage interrupts nothing."""


@dataclass
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """The commit message of a task: the pieces that it has staged, the query and run to which they belong, and the
    nodes that it knows (base URLs), since Spark starts a process for each commit.
    """

    query: str
    run: str
    task: int
    pieces: tuple[Piece, ...]
    nodes: tuple[str, ...]


class StockadeStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes micro-batches, each exactly once.

    A query that begins must not wait long for a cluster that is not there; a query that runs must wait for its cluster
    to come back. Spark sets up each micro-batch like the first one, so only the batch's number tells the two apart.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        context = TaskContext.get()
        query, run = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_RUN_ID)
        task = context.partitionId()
        if context.getLocalProperty(_BATCH_ID) == _FIRST:
            connect(self._options)
        with closing(writer_of(self._options)) as writer:
            if not self._options.is_exactly_once:
                append_rows(iterator, writer, self._options.topic, task)
                return Staged(query, run, task, (), ())
            prefix = f"{stage_prefix(self._options.sink or query)}{context.getLocalProperty(_BATCH_ID)}~"
            pieces = stage_rows(iterator, writer, self._options.topic, prefix, task)
            return Staged(query, run, task, pieces, writer.nodes)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Decide on the stages of the batch, unless it was decided before, and carry the decision out."""
        staged = _in_order(messages)
        if not staged or not self._options.is_exactly_once:
            return
        options, query, run = self._options, staged[0].query, staged[0].run
        with closing(writer_of(options, staged)) as writer:
            committer = SinkCommitter(writer, options.sink or query, query, run, takeover=options.takeover)
            committer.commit(batchId, _pieces(staged))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete the stages of the tasks, if one task failed: Spark repeats the batch, with other stages."""
        _discard(self._options, messages)


class StockadeBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes one batch. With a sink's name, the batch is written exactly once, however often the job runs."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        task = TaskContext.get().partitionId()
        with closing(writer_of(self._options)) as writer:
            if not self._options.is_exactly_once:
                append_rows(iterator, writer, self._options.topic, task)
                return Staged(NAMED_BATCH, self._job, task, (), ())
            prefix = f"{stage_prefix(self._options.sink or self._job)}0~"
            pieces = stage_rows(iterator, writer, self._options.topic, prefix, task)
            return Staged(NAMED_BATCH, self._job, task, pieces, writer.nodes)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append the staged rows to their topics."""
        if not self._options.is_exactly_once:
            return
        staged = _in_order(messages)
        pieces = _pieces(staged)
        with closing(writer_of(self._options, staged)) as writer:
            if self._options.sink is None:
                append_all(writer, pieces, self._job)
            else:
                SinkCommitter(writer, self._options.sink, NAMED_BATCH, self._job).commit(0, pieces)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the stages of the tasks, if one task failed."""
        _discard(self._options, messages)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StockadeStreamWriter:
    """A writer of one streaming query. Raises OptionsError, and ValueError for a schema that cannot be written, or if
    the query would ``overwrite`` its result at each trigger.

    Spark asks for a writer for each micro-batch, so this function does not connect.
    """
    if overwrite:
        raise ValueError('a topic cannot be overwritten: use outputMode("append")')
    parsed = parse_write_options(options, "stream")
    _check_schema(parsed, schema)
    return StockadeStreamWriter(parsed)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StockadeBatchWriter:
    """A writer of one batch. Raises as stream_writer, and ClusterUnreachable."""
    if overwrite:
        raise ValueError('a topic cannot be overwritten: use mode("append")')
    parsed = parse_write_options(options, "batch")
    _check_schema(parsed, schema)
    connect(parsed)
    return StockadeBatchWriter(parsed)


def connect(options: WriteOptions) -> None:
    """Raises ClusterUnreachable if no node answers, sooner than the first request would."""
    with closing(BlockingClient(options.urls, options.access)) as client:
        client.connect()


def _check_schema(options: WriteOptions, schema: StructType) -> None:
    """Raises ValueError for a needed column that is missing or has another case, or for one of a type that cannot be
    written.
    """
    written = {*COLUMNS} - ({"topic"} if options.topic is not None else set())
    check_names(schema.fieldNames(), written)
    needed = ["value"] if options.topic is not None else ["value", "topic"]
    missing = [name for name in needed if name not in schema.fieldNames()]
    if missing:
        raise ValueError(f"there must be a column {missing[0]}; the columns are {', '.join(schema.fieldNames())}")
    chosen = StructType([field for field in schema.fields if field.name in written])
    check_types(to_arrow_schema(chosen, timezone="UTC"))


def writer_of(options: WriteOptions, staged: Sequence[Staged] = ()) -> BlockingWriter:
    """A writer to the cluster of the options, which also knows the nodes that tasks know."""
    writer = BlockingWriter(options.urls, options.access)
    writer.learn(node for each in staged for node in each.nodes)
    return writer


def _discard(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete the stages of tasks if a task has no message (None): then Spark has not called ``commit``.

    If all tasks have one, a commit has been given these stages, and may have decided on them, or may be about to: Spark
    does not wait for the commit's process when a query is stopped. So a listing that shows the stages as not kept would
    prove nothing a moment later.
    """
    staged = _in_order(messages)
    pieces = _pieces(staged)
    if pieces and None in messages:
        with closing(writer_of(options, staged)) as writer:
            discard(writer, pieces, uuid.uuid4().hex)


def _in_order(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return sorted((each for each in messages if isinstance(each, Staged)), key=lambda each: each.task)


def _pieces(staged: Sequence[Staged]) -> list[Piece]:
    return [piece for each in staged for piece in each.pieces]
