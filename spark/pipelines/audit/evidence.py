"""The input of the audit as DataFrames: operations (an invocation with its end) and the logs of replicas.

The columns of the two files are those of docs/chaos.md. All frames are partitioned by topic and partition once, so that
the windows and joins of checkers need no further shuffle.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

PLACE = ["topic", "partition"]
RECORD = ["offset", "key", "value", "writer_epoch", "producer_id", "producer_epoch", "sequence"]
EVENT = [
    *("i", "t_mono_ns", "process", "type", "f", "of", *PLACE, "epoch", "producer_id", "producer_epoch", "seq", "value"),
    *("count", "offset", "log_end", "records", "resource", "node", "error", "outcome"),
]
WHOLE = -1
"""The partition of operations on a topic as a whole (``init``), because null equals nothing in a join."""

PIECE = 1 << 16
"""Offsets in one piece of a log. Only pieces in which replicas differ are read again."""

SETTINGS = {
    # Rows that are clustered by some of the keys of a join or group need no shuffle by all of them.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.requireAllClusterKeysForDistribution": "false",
    "spark.sql.join.preferSortMergeJoin": "true",
    "spark.sql.session.timeZone": "UTC",
    # A hash join of invocations with ends needs no sort. It is chosen for ends of at most so many bytes on disk.
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "128m",
    # Choosing a compression for columns takes longer than all later work on them.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Violations are few: read all partitions of a frame at once, not first one, then four, then the others.
    "spark.sql.limit.initialNumPartitions": "10000",
}


@contextmanager
def settings(spark: Any) -> Iterator[None]:
    """Inside, the session has SETTINGS; then its former settings again."""
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


class Evidence(NamedTuple):
    """The input of the checkers, as DataFrames.

    ``operations`` has the columns of ``operations_of``; most rows are appends, and ``others`` has all other rows.
    ``stored`` is the whole file of logs. ``log`` has one replica's records of each partition, without the value.
    ``pieces`` has a row for each piece of each replica, with a fingerprint of its records. ``marks`` are the events of
    the nemesis. ``kept`` lists the frames in Spark's cache.
    """

    operations: Any
    others: Any
    log: Any
    pieces: Any
    stored: Any
    marks: Any
    kept: list[Any]

    def keep(self, frame: Any) -> Any:
        """Compute a frame now, cache it until ``forget``, and return it."""
        self.kept.append(_kept(frame))
        return frame

    def forget(self) -> None:
        """Remove all frames from the cache."""
        for frame in self.kept:
            frame.unpersist()


class NoEvidence(ValueError):
    """The files are not in the format that an audit needs."""


def read(spark: Any, history: str, logs: str) -> Evidence:
    """The evidence in two Parquet files, or folders of them. The session should have SETTINGS. Raises NoEvidence."""
    events, stored = _table(spark, history, EVENT), _table(spark, logs, [*PLACE, "replica", *RECORD])
    pieces = _kept(fingerprints(stored))
    log = _kept(representatives(stored, pieces))
    operations = _kept(operations_of(events))
    others = _kept(operations.where("f <> 'append'"))
    marks = _kept(_marks(events))
    return Evidence(operations, others, log, pieces, stored, marks, [operations, others, log, pieces, marks])


def _kept(frame: Any) -> Any:
    """Cache a frame now, so that Spark knows its size and partitioning."""
    frame.cache().count()
    return frame


def _table(spark: Any, path: str, columns: list[str]) -> Any:
    try:
        found = spark.read.parquet(path)
    except (PySparkException, Py4JJavaError) as error:
        why = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
        raise NoEvidence(f"{path} cannot be read as Parquet: {why.splitlines()[0]}") from error
    if missing := [name for name in columns if name not in found.columns]:
        raise NoEvidence(f"{path} has no column {', '.join(missing)}; docs/chaos.md has them all")
    return found


def operations_of(events: Any) -> Any:
    """A row for each invocation joined with its end. Without an end, ``type`` is ``info``: the outcome is unknown."""
    events = events.withColumn("partition", F.coalesce("partition", F.lit(WHOLE)))
    begun = events.where("type = 'invoke'").select(
        *PLACE,
        F.col("i").alias("op"),
        F.col("t_mono_ns").alias("begun_ns"),
        F.xxhash64("process").alias("client"),
        *("process", "f", "value", "count", "producer_id", "producer_epoch", "seq", "resource"),
        # An append by the owner of a resource carries the resource's epoch, which says nothing of the slot.
        F.when(F.expr("f <> 'append' or resource is null"), F.col("epoch")).alias("sent_epoch"),
        F.when(F.expr("f = 'append' and resource is not null"), F.col("epoch")).alias("fence_epoch"),
        F.col("offset").alias("asked"),
    )
    ended = events.where("of is not null").select(
        *PLACE,
        F.col("of").alias("op"),
        F.col("t_mono_ns").alias("ended_ns"),
        "type",
        F.col("epoch").alias("given_epoch"),
        F.col("producer_id").alias("given_producer_id"),
        F.col("producer_epoch").alias("given_producer_epoch"),
        F.col("offset").alias("answered"),
        # Ends of other operations repeat in these columns what was asked.
        F.when(F.col("f") == "fetch", F.col("value")).alias("shown"),
        F.when(F.col("f") == "fetch", F.col("count")).alias("shown_count"),
        *("log_end", "records", "outcome"),
    )
    both = _clustered(begun).join(_clustered(ended), [*PLACE, "op"], "left")
    return both.withColumn("type", F.coalesce("type", F.lit("info")))


def fingerprints(stored: Any) -> Any:
    """A row for each piece of each replica: the number of its records, and two checksums over them."""
    each = F.xxhash64(*RECORD)
    return stored.groupBy(*PLACE, "replica", F.expr(f"offset div {PIECE}").alias("piece")).agg(
        F.count("*").alias("records"),
        F.bit_xor(each).alias("mixed"),
        # Two equal differences cancel out in the xor, but not in the sum.
        F.sum(F.shiftright(each, 20)).alias("total"),
    )


def representatives(stored: Any, pieces: Any) -> Any:
    """The log of one replica of each partition: the first by name. The others are compared with it."""
    chosen = pieces.groupBy(*PLACE).agg(F.min("replica").alias("replica"))
    ours = stored.drop("value").join(F.broadcast(chosen), [*PLACE, "replica"], "left_semi")
    return _clustered(ours.drop("replica"))


def _clustered(frame: Any) -> Any:
    return frame.repartition(*PLACE)


def _marks(events: Any) -> Any:
    return events.where("process = 'nemesis'").select("i", "t_mono_ns", "f", "node", "error")
