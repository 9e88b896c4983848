"""Checkers along the log: holes, sequences, epochs, and differences between replicas."""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from .evidence import PIECE, PLACE, RECORD, Evidence
from .violations import all_of, any_of, violations

SEQUENCES = 1 << 31
"""Sequence numbers wrap around at this number."""
PRODUCER = [*PLACE, "producer_id", "producer_epoch"]


_KINDS = (
    ("gap", "offset <> offset_before + 1", "concat('after ', offset_before, ' comes ', offset)"),
    ("zombie", "writer_epoch < epoch_before", "concat('epoch ', writer_epoch, ' comes after epoch ', epoch_before)"),
    (
        "sequence-order",
        "sequence is not null and sequence <> sequence_due",
        "concat('producer ', producer_id, '/', producer_epoch, ' has ', sequence, ', due was ', sequence_due)",
    ),
)
"""(checker, condition on a record and the one before it, violation in words)."""


def log_checks(evidence: Evidence) -> Any:
    """The checkers gap, zombie (epochs that decrease), sequence-order, and duplicate (of a sequence number): one pass
    along the log, and one more over the records of producers that are out of sequence.
    """
    odd = evidence.keep(_along(evidence.log).where(any_of(*_KINDS)))
    return all_of(odd, *_KINDS, offset="offset").unionByName(_repeated_stamps(evidence.log, odd))


def _along(log: Any) -> Any:
    """Each record with the last offset and the highest epoch before it, and the sequence number that is due."""
    along = Window.partitionBy(*PLACE).orderBy("offset")
    own = Window.partitionBy(*PRODUCER).orderBy("offset")
    return log.select(
        *PRODUCER,
        "offset",
        "writer_epoch",
        "sequence",
        F.lag("offset").over(along).alias("offset_before"),
        F.max("writer_epoch").over(along.rowsBetween(Window.unboundedPreceding, -1)).alias("epoch_before"),
        F.coalesce((F.lag("sequence").over(own) + 1) % SEQUENCES, F.lit(0)).alias("sequence_due"),
    )


def _repeated_stamps(log: Any, odd: Any) -> Any:
    """duplicate: one sequence number of a producer at two offsets. Only producers out of sequence can have that."""
    numbered = log.where("producer_id is not null").select(*PRODUCER, "offset", "sequence")
    doubtful = odd.where("producer_id is not null and sequence <> sequence_due").select(*PRODUCER).distinct()
    repeated = (
        numbered.join(doubtful, PRODUCER, "left_semi")
        .groupBy(*PRODUCER, "sequence")
        .agg(F.count("*").alias("times"), F.max("offset").alias("offset"))
    )
    what = "concat('producer ', producer_id, ' epoch ', producer_epoch, ' has ', sequence, ' ', times, ' times')"
    return violations(repeated, "duplicate", "times > 1", what, "offset")


def different_replicas(evidence: Evidence) -> Any:
    """inconsistent-offset: replicas of a partition that do not hold the same records at the same offsets, or hold none
    while others do. A run that lost a node did not read that node's replicas, so there the second case is not judged.
    """
    place = Window.partitionBy(*PLACE)
    replicas = F.size(F.collect_set("replica").over(place))
    prints = F.countDistinct(F.struct("records", "mixed", "total"))
    pieces = evidence.pieces.withColumn("replicas", replicas).groupBy(*PLACE, "piece", "replicas")
    odd = pieces.agg(prints.alias("prints"), F.count("*").alias("held")).where("prints > 1 or held < replicas")
    ends = odd.groupBy(*PLACE).agg(F.min("piece").alias("first"), F.max("piece").alias("last"))
    # A condition on columns of the file, so that Spark skips parts of the file.
    chosen = F.lit(False)
    for row in ends.collect():
        offsets = F.col("offset").between(row["first"] * PIECE, (row["last"] + 1) * PIECE - 1)
        chosen = chosen | (F.col("topic") == row["topic"]) & (F.col("partition") == row["partition"]) & offsets
    found = _differences(evidence.pieces, evidence.stored.where(chosen))
    has_read_all = evidence.marks.where("f = 'lost'").isEmpty()
    return found.unionByName(_empty(evidence.pieces)) if has_read_all else found


def _empty(pieces: Any) -> Any:
    """Partitions with records on fewer replicas than another partition of their topic. A replica without records has no
    row in the file, so it is found only by this comparison.
    """
    held = pieces.groupBy(*PLACE).agg(F.array_sort(F.collect_set("replica")).alias("replicas"))
    most = held.withColumn("most", F.max(F.size("replicas")).over(Window.partitionBy("topic")))
    what = "concat('only ', array_join(replicas, ', '), ' have records of it, of ', most, ' replicas')"
    return violations(most, "inconsistent-offset", "size(replicas) < most", what)


def _differences(pieces: Any, stored: Any) -> Any:
    """A violation for each replica that differs from the first one by name: at how many offsets, and from which on."""
    replicas = pieces.groupBy(*PLACE).agg(F.array_sort(F.collect_set("replica")).alias("replicas"))
    mark = F.struct("replica", F.xxhash64(*RECORD).alias("mark"))
    held = stored.select(*PLACE, "offset", mark.alias("mark")).groupBy(*PLACE, "offset")
    each = held.agg(F.collect_list("mark").alias("marks")).join(F.broadcast(replicas), PLACE)
    pairs = each.select(*PLACE, "offset", "marks", F.expr("replicas[0]").alias("a"), F.explode("replicas").alias("b"))
    ours, theirs = (f"array_sort(filter(marks, each -> each.replica = {name}).mark)" for name in "ab")
    found = pairs.where(f"{ours} <> {theirs}").groupBy(*PLACE, "b")
    found = found.agg(F.min("offset").alias("offset"), F.count("*").alias("rows"))
    what = "concat(b, ' differs in ', rows, ' records, from ', offset, ' on')"
    return violations(found, "inconsistent-offset", "true", what, "offset")
