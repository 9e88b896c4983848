"""Checkers about the order of answers: reads, sends, polls, grants, positions, certificates, recovery."""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from .evidence import PLACE, Evidence
from .log_checks import SEQUENCES
from .violations import all_of, behind, violations

RECOVERY_S = 30
"""After a fault is healed, an append to each partition that is written to must succeed within this time."""
NS = 1_000_000_000
GROUP = [*PLACE, "resource"]


def stale_reads(evidence: Evidence) -> Any:
    """stale-read: a linearizable read that misses what was acknowledged before it began."""
    acked = evidence.operations.where("type = 'ok' and f = 'append'").select(
        *PLACE, F.col("ended_ns").alias("t"), F.expr("answered + count").alias("high")
    )
    # A poll may give less than there is; only one that gives nothing claims that there is no more.
    reads = evidence.others.where("type = 'ok' and (f = 'fetch' or (f = 'poll' and answered = asked))")
    asked = reads.select(*PLACE, "op", F.col("begun_ns").alias("t"), F.col("answered").alias("seen"))
    what = "concat('read ', op, ' saw the end at ', seen, '; ', high, ' was acknowledged')"
    return violations(behind(acked, asked, PLACE), "stale-read", "true", what, "seen")


def sends(evidence: Evidence) -> Any:
    """nonmonotonic-send, and zombie: an append that began after a higher epoch was answered, and succeeded."""
    own = Window.partitionBy(*PLACE, "client").orderBy("op").rowsBetween(Window.unboundedPreceding, -1)
    later = Window.partitionBy(*PLACE).orderBy("epoch").rowsBetween(1, Window.unboundedFollowing)
    granted = (
        evidence.others.where("type = 'ok' and f = 'acquire'")
        .groupBy(*PLACE, F.col("given_epoch").alias("epoch"))
        .agg(F.min("ended_ns").alias("t"))
    )
    over = granted.withColumn("over_ns", F.min("t").over(later)).select(
        *PLACE, F.col("epoch").alias("sent_epoch"), "over_ns"
    )
    appends = evidence.operations.where("type = 'ok' and f = 'append' and answered is not null")
    return all_of(
        appends.withColumn("before", F.max("answered").over(own)).join(
            F.broadcast(over), [*PLACE, "sent_epoch"], "left"
        ),
        (
            "nonmonotonic-send",
            "answered <= before",
            "concat('append ', op, ' of ', process, ' is at ', answered, ', an earlier one at ', before)",
        ),
        (
            "zombie",
            "begun_ns > over_ns",
            "concat('append ', op, ' under epoch ', sent_epoch, ' began after a higher one was granted')",
        ),
        offset="answered",
    )


def polls(evidence: Evidence) -> Any:
    """nonmonotonic-poll, skipped-poll: a consumer that goes back, or passes over offsets."""
    own = Window.partitionBy(*PLACE, "process").orderBy("op")
    seen = evidence.others.where("f = 'poll' and type = 'ok'").select(
        *PLACE,
        *("op", "process", "asked", "answered"),
        F.lag("answered").over(own).alias("before"),
        F.expr("aggregate(coalesce(records, array()), 0L, (sum, each) -> sum + each.count)").alias("given"),
    )
    return all_of(
        seen,
        ("nonmonotonic-poll", "asked < before", "concat(process, ' went back from ', before, ' to ', asked)"),
        ("skipped-poll", "asked > before", "concat(process, ' went on from ', before, ' at ', asked)"),
        (
            "skipped-poll",
            "given <> answered - asked",
            "concat(process, ' was given ', given, ' records from ', asked, ' to ', answered)",
        ),
        offset="asked",
    )


def unseen(evidence: Evidence) -> Any:
    """unseen: acknowledged records behind all that was ever polled, where consumers polled at all, answered or not."""
    polls = evidence.others.where("f = 'poll'")
    ends = polls.groupBy(*PLACE).agg(F.max(F.expr("if(type = 'ok', answered, 0L)")).alias("end"))
    late = evidence.operations.where("type = 'ok' and f = 'append'").join(F.broadcast(ends), PLACE)
    what = "concat(value, ' was acknowledged at ', answered, ', and consumers came to ', end)"
    return violations(late, "unseen", "answered + count > end", what, "answered")


def epochs(evidence: Evidence) -> Any:
    """epoch-uniqueness: one epoch granted to two."""
    grants = evidence.others.where("type = 'ok' and f in ('acquire', 'own') and given_epoch is not null")
    holders = grants.groupBy(*PLACE, "resource", "given_epoch").agg(
        F.countDistinct("process").alias("holders"), F.min("process"), F.max("process")
    )
    what = "concat('epoch ', given_epoch, ' was granted to ', `min(process)`, ' and to ', `max(process)`)"
    return violations(holders, "epoch-uniqueness", "holders > 1", what)


def positions(evidence: Evidence) -> Any:
    """position: a group's committed position goes back, or a reader that was fenced sets it."""
    ops = evidence.others.where("type = 'ok' and f in ('commit', 'position')")
    value = F.coalesce("answered", "asked")
    commits = ops.where("f = 'commit'")
    known = commits.select(*GROUP, F.col("ended_ns").alias("t"), value.alias("high"))
    asked = ops.select(*GROUP, "op", "f", F.col("begun_ns").alias("t"), value.alias("seen"))
    back = violations(
        behind(known, asked, GROUP),
        "position",
        "true",
        "concat(f, ' ', op, ' of ', resource, ': ', seen, ' after ', high)",
        "seen",
    )
    guards = commits.where("sent_epoch is not null")
    known = guards.select(*GROUP, F.col("ended_ns").alias("t"), F.col("sent_epoch").alias("high"))
    asked = guards.select(*GROUP, "op", F.col("begun_ns").alias("t"), F.col("sent_epoch").alias("seen"))
    what = "concat('commit ', op, ' of ', resource, ' under epoch ', seen, ' came after epoch ', high)"
    return back.unionByName(violations(behind(known, asked, GROUP), "position", "true", what))


def certificates(evidence: Evidence) -> Any:
    """outcome-certificate: what a fencing refusal said of a batch is not what the log shows."""
    said = evidence.operations.where("f = 'append' and outcome is not null and seq is not null")
    stamps = said.select(
        *PLACE,
        *("op", "producer_id", "producer_epoch", "count", "outcome"),
        F.explode(F.expr(f"transform(sequence(0L, count - 1L), k -> cast((seq + k) % {SEQUENCES}L as int))")).alias(
            "sequence"
        ),
    )
    stamp = [*PLACE, "producer_id", "producer_epoch", "sequence"]
    held = (
        evidence.log.join(F.broadcast(stamps), stamp)
        .groupBy("op")
        .agg(F.count("*").alias("held"), F.min("offset").alias("first"), F.max("offset").alias("last"))
    )
    judged = said.join(F.broadcast(held), "op", "left").fillna(0, ["held"])
    return all_of(
        judged,
        (
            "outcome-certificate",
            "outcome.state = 'absent' and held > 0",
            "concat('append ', op, ' was certified absent')",
        ),
        (
            "outcome-certificate",
            "outcome.state = 'committed' and (held <> count or not (outcome.base_offset <=> first))",
            "concat('append ', op, ' was certified at ', outcome.base_offset, '; the log has ', held, ' at ', first)",
        ),
        offset="first",
    )


def recovery(evidence: Evidence) -> Any:
    """recovery: after a fault was healed, no append to a partition that is written to succeeds in time."""
    busy = _busy_seconds(evidence.operations.where("f = 'append'"))
    heals = F.broadcast(
        evidence.marks.where("f = 'heal'").select(F.expr(f"t_mono_ns div {NS}").alias("healed")).distinct()
    )
    near = busy.join(heals, F.expr(f"second between healed and healed + {RECOVERY_S}"))
    judged = near.groupBy(*PLACE, "healed").agg(
        F.count("won").alias("won"),
        F.min(F.when(F.col("tried") == 1, F.col("second"))).alias("first"),
        F.max("second").alias("last"),
    )
    # Judged only where it was tried soon enough to succeed within the time.
    condition = f"won = 0 and first <= healed + {RECOVERY_S // 3}"
    return violations(
        judged, "recovery", condition, f"concat('no append succeeded within {RECOVERY_S} s after ', healed, ' s')"
    )


def _busy_seconds(appends: Any) -> Any:
    """Seconds in which an append to a partition began (``tried``), or succeeded (``won``)."""
    begun, done = f"begun_ns div {NS} as begun", f"if(type = 'ok', ended_ns div {NS}, null) as done"
    # Most appends end in the second in which they began: few rows are left to be looked at twice.
    spans = appends.selectExpr(*PLACE, begun, done).distinct()
    each = spans.selectExpr(*PLACE, "stack(2, begun, 1, null, done, null, 1) as (second, tried, won)")
    seconds = each.where("second is not null").groupBy(*PLACE, "second")
    return seconds.agg(F.max("tried").alias("tried"), F.max("won").alias("won"))
