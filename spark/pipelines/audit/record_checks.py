"""Checkers of each record: was it sent, acknowledged and read as the log holds it? One pass."""

from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from .evidence import PLACE, Evidence
from .violations import all_of

_KINDS = (
    ("lost-write", "ok = 1 and copies = 0", "concat(name, ' was acknowledged, and is not in the log')"),
    ("lost-write", "seen = 1 and copies = 0", "concat(name, ' was read, and is not in the log')"),
    ("duplicate", "copies > 1", "concat(name, ' is at ', first_at, ' and at ', last_at)"),
    (
        "inconsistent-offset",
        "copies > 0 and (ack_min <> last_at or ack_max <> last_at)",
        "concat(name, ' is at ', last_at, ', acknowledged at ', if(ack_min <> last_at, ack_min, ack_max))",
    ),
    (
        "inconsistent-offset",
        "copies > 0 and (read_min <> last_at or read_max <> last_at)",
        "concat(name, ' is at ', last_at, ', and was read at ', if(read_min <> last_at, read_min, read_max))",
    ),
    (
        "aborted-read",
        "copies + seen > 0 and failed = 1 and ok = 0 and open = 0",
        "concat(name, ' was refused for certain, and is there')",
    ),
    ("phantom", "copies > 0 and sends = 0", "concat(name, ' was never sent')"),
    (
        "zombie",
        "copies > 0 and (epoch_min <> stored_epoch or epoch_max <> stored_epoch)",
        "concat(name, ' was sent under epoch ', epoch_min, ', and is stored under ', stored_epoch)",
    ),
    ("unseen", "ok = 1 and polled = 0 and has_readers", "concat(name, ' was acknowledged, and never read')"),
)
"""(checker, condition on a record's row in SQL, violation in words)."""

GIVEN = "aggregate(coalesce(records, array()), 0L, (sum, each) -> sum + each.count)"
"""SQL: the number of records in the answer of a poll."""
_BITS = {"ok": 1, "failed": 2, "open": 4, "polled": 8}
"""Bits that say how the appends of a record ended, and whether a poll has returned the record."""


def record_checks(evidence: Evidence) -> Any:
    """The checkers lost-write, duplicate, inconsistent-offset, aborted-read, phantom, unseen, and zombie (a record that
    is stored under another epoch than it was sent with).

    Records are first compared by a hash of their names and by few narrow columns, which is much faster. Only the
    suspects, for which that does not show that all is well, are then judged by their names.
    """
    each = _sent(evidence.operations)
    for more in (_read(evidence.others), _stored(evidence.log)):
        each = each.unionByName(more, allowMissingColumns=True)
    each = each.withColumn("id", F.xxhash64(*PLACE, "name"))
    # Cached, because there are usually few: Spark then knows their number, and broadcasts them to all tasks.
    suspects = evidence.keep(_suspects(each, _readers(evidence)))
    return all_of(_judged(each.join(suspects, "id")), *_KINDS, offset="first_at")


def _readers(evidence: Evidence) -> Any:
    """The partitions whose consumers had to read everything: they polled, answered or not, and the run was drained."""
    polled = evidence.others.where("f = 'poll'").select(*PLACE).distinct()
    is_drained = not evidence.marks.where("f = 'drained'").isEmpty()
    return F.broadcast(polled.where(F.lit(is_drained)).withColumn("has_readers", F.lit(True)))


def _suspects(each: Any, readers: Any) -> Any:
    """The ids of all records that are not plainly well. A record is well if it is neither stored nor read nor
    acknowledged; or if it is stored once, at the offset in all answers and reads, under the epoch it was sent with,
    by an append that was not refused, and was polled in case it was acknowledged and there are readers.
    """
    place = F.coalesce("stored_at", "acked_at", "read_at")
    narrow = each.select(
        *PLACE,
        "id",
        F.when(F.col("stored_at").isNotNull(), 1).otherwise(0).alias("copy"),
        F.expr(" + ".join(f"if({name} = 1, {bit}, 0)" for name, bit in _BITS.items())).alias("ended"),
        place.alias("at"),
        F.coalesce("sent_epoch", "writer_epoch").alias("epoch"),
    )
    seen = narrow.groupBy(*PLACE, "id").agg(
        F.sum("copy").alias("copies"),
        F.bit_or("ended").alias("ended"),
        *(side(name).alias(f"{name}_{side.__name__}") for name in ("at", "epoch") for side in (F.min, F.max)),
    )
    ok, maybe, polled = (f"ended & {bits} <> 0" for bits in (_BITS["ok"], _BITS["ok"] | _BITS["open"], _BITS["polled"]))
    epochs = "(epoch_min is null or epoch_min = epoch_max)"
    stored = f"copies = 1 and at_min = at_max and {epochs} and {maybe}"
    read = f"({polled} or not {ok} or not has_readers)"
    plain = f"{stored} and {read} or copies = 0 and at_min is null and not {ok}"
    judged = seen.join(readers, PLACE, "left").withColumn("has_readers", F.coalesce("has_readers", F.lit(False)))
    return judged.where(f"not ({plain})").select("id", "has_readers")


def _judged(each: Any) -> Any:
    """A row for each record, with the columns that the conditions of _KINDS use."""
    return each.groupBy(*PLACE, "name", "has_readers").agg(
        F.count("sent").alias("sends"),
        *(F.coalesce(F.max(name), F.lit(0)).alias(name) for name in _BITS),
        F.min("acked_at").alias("ack_min"),
        F.max("acked_at").alias("ack_max"),
        F.min("sent_epoch").alias("epoch_min"),
        F.max("sent_epoch").alias("epoch_max"),
        F.when(F.count("read_at") > 0, 1).otherwise(0).alias("seen"),
        F.min("read_at").alias("read_min"),
        F.max("read_at").alias("read_max"),
        F.count("stored_at").alias("copies"),
        F.min("stored_at").alias("first_at"),
        F.max("stored_at").alias("last_at"),
        F.max_by("writer_epoch", "stored_at").alias("stored_epoch"),
    )


def _sent(operations: Any) -> Any:
    """A row for each record of each append."""
    runs = operations.where("f = 'append' and value is not null")
    return records_of(
        runs,
        "value",
        "count",
        F.lit(1).alias("sent"),
        *(
            F.when(F.col("type") == kind, 1).alias(name)
            for kind, name in (("ok", "ok"), ("fail", "failed"), ("info", "open"))
        ),
        F.when(F.col("type") == "ok", F.col("answered") + F.col("k")).alias("acked_at"),
        F.when(F.col("type") != "fail", F.col("sent_epoch")).alias("sent_epoch"),
    )


def _read(operations: Any) -> Any:
    """A row for each record in the answer of a poll, or that a fetch named as among the last before the log's end."""
    polls = operations.where("f = 'poll' and type = 'ok'").select(
        *PLACE,
        F.expr(f"answered - {GIVEN}").alias("base"),
        F.posexplode("records").alias("place", "run"),
        "records",
    )
    before = F.expr("aggregate(slice(records, 1, place), 0L, (sum, each) -> sum + each.count)")
    at, polled = (F.col("base") + before).alias("at"), F.lit(1).alias("polled")
    runs = polls.select(*PLACE, at, "run.value", "run.count", polled)
    ends = operations.where("f = 'fetch' and type = 'ok' and shown is not null").select(
        *PLACE,
        (F.col("answered") - F.col("shown_count")).alias("at"),
        F.col("shown").alias("value"),
        F.col("shown_count").alias("count"),
        F.lit(0).alias("polled"),
    )
    read_at = (F.col("at") + F.col("k")).alias("read_at")
    return records_of(runs.unionByName(ends), "value", "count", read_at, "polled")


def _stored(log: Any) -> Any:
    return log.select(*PLACE, F.col("key").alias("name"), F.col("offset").alias("stored_at"), "writer_epoch")


def records_of(runs: Any, value: str, count: str, *columns: Any) -> Any:
    """A row for each record of runs of records. ``value`` and ``count`` name the columns with the name of a run's first
    record, WRITER/FIRST, and with its length; ``columns`` may use ``k``, a record's place in its run, from 0 on.
    """
    index = f"substring_index({value}, '/', -1)"
    several = runs.where(f"{count} > 1").withColumns(
        {"first": F.expr(index).cast("long"), "stem": F.expr(f"left({value}, length({value}) - length({index}))")}
    )
    several = several.withColumn("k", F.explode(F.expr(f"sequence(0L, {count} - 1L)")))
    single = runs.where(f"{count} = 1").withColumn("k", F.lit(0).cast("long"))
    named = several.select(*PLACE, F.concat("stem", F.col("first") + F.col("k")).alias("name"), *columns)
    return single.select(*PLACE, F.col(value).alias("name"), *columns).unionByName(named)
