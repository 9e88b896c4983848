"""Checkers about the order of answers: reads, sends, polls, positions, certificates, recovery."""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from .evidence import PLACE, WHOLE, Evidence
from .log_checks import SEQUENCES
from .record_checks import GIVEN
from .violations import all_of, behind, violations

RECOVERY_S = 60
"""Time after the healing in which an append must succeed, as in chaos/checkers/recovery.py."""
NS = 1_000_000_000
GROUP = [*PLACE, "resource"]


def stale_reads(evidence: Evidence) -> Any:
    """stale-read: a linearizable read that misses what was acknowledged, or shown by another read, before it began."""
    ended = F.col("ended_ns").alias("t")
    acked = evidence.operations.where("type = 'ok' and f = 'append'").select(
        *PLACE, ended, F.expr("answered + count").alias("high")
    )
    reads = evidence.others.where("type = 'ok' and f in ('fetch', 'poll')")
    end = F.expr("coalesce(if(f = 'poll', log_end, answered), 0)")
    known = acked.unionByName(reads.select(*PLACE, ended, end.alias("high")))
    asked = reads.select(*PLACE, "op", F.col("begun_ns").alias("t"), end.alias("seen"))
    what = "concat('read ', op, ' saw the end at ', seen, '; ', high, ' was acknowledged or read before it')"
    return violations(behind(known, asked, PLACE), "stale-read", "true", what, "seen")


def sends(evidence: Evidence) -> Any:
    """nonmonotonic-send: of two appends of a client to a partition, the later one is acknowledged at a lower offset."""
    own = Window.partitionBy(*PLACE, "client").orderBy("op").rowsBetween(Window.unboundedPreceding, -1)
    appends = evidence.operations.where("type = 'ok' and f = 'append' and answered is not null")
    each = appends.withColumn("before", F.max("answered").over(own))
    what = "concat('append ', op, ' of ', process, ' is at ', answered, ', an earlier one at ', before)"
    return violations(each, "nonmonotonic-send", "answered <= before", what, "answered")


def polls(evidence: Evidence) -> Any:
    """nonmonotonic-poll, skipped-poll: an answer that begins before, or behind, the offset asked for, or has a hole.

    The offset asked for is not judged: a consumer may read records again, or skip some.
    """
    seen = evidence.others.where("f = 'poll' and type = 'ok'").selectExpr(
        *PLACE, "op", "coalesce(asked, 0) as asked", f"coalesce(answered, 0) - {GIVEN} as given_from"
    )
    what = "concat('poll ', op, ' asked for ', asked, ' and was given records from ', given_from, ' on')"
    return all_of(
        seen,
        ("nonmonotonic-poll", "given_from < asked", what),
        ("skipped-poll", "given_from > asked", what),
        offset="asked",
    )


def positions(evidence: Evidence) -> Any:
    """position: a group's position that is read or committed below a position committed or read before, or that is read
    and no member had set.
    """
    ops = evidence.others.where("type = 'ok' and f in ('commit', 'position')")
    high, seen = F.expr("coalesce(if(f = 'commit', asked, answered), 0)"), F.coalesce("answered", F.lit(0))
    known = ops.select(*GROUP, F.col("ended_ns").alias("t"), high.alias("high"))
    asked = ops.select(*GROUP, "op", "f", F.col("begun_ns").alias("t"), seen.alias("seen"))
    what = "concat(f, ' ', op, ' of ', resource, ': ', seen, ' after ', high)"
    back = violations(behind(known, asked, GROUP), "position", "true", what, "seen")
    return back.unionByName(_never_set(evidence))


def _never_set(evidence: Evidence) -> Any:
    """position: one that was read and not set before. A refused commit sets nothing; one without an answer may."""
    commits = evidence.others.where("f = 'commit' and type <> 'fail'")
    sets = commits.groupBy(*GROUP, F.coalesce("asked", F.lit(0)).alias("answered")).agg(
        F.min("begun_ns").alias("first_ns")
    )
    reads = evidence.others.where("f = 'position' and type = 'ok' and answered <> 0")
    judged = reads.select(*GROUP, "op", "answered", "ended_ns").join(sets, [*GROUP, "answered"], "left")
    what = "concat('position ', op, ' of ', resource, ': ', answered, ', which no member had set')"
    return violations(judged, "position", "first_ns is null or first_ns >= ended_ns", what, "answered")


def certificates(evidence: Evidence) -> Any:
    """outcome-certificate: a fencing refusal whose certificate of the batch contradicts the log."""
    said = evidence.operations.where("f = 'append' and outcome is not null")
    stamps = said.select(
        *PLACE, "op", "producer_id", "producer_epoch", "seq", F.explode(F.expr("sequence(0L, count - 1L)")).alias("k")
    ).withColumn("sequence", F.expr(f"cast((seq + k) % {SEQUENCES}L as int)"))
    held = (
        evidence.log.join(F.broadcast(stamps), [*PLACE, "producer_id", "producer_epoch", "sequence"])
        .groupBy("op")
        .agg(
            F.countDistinct("k").alias("held"),
            F.expr("max_by(offset, struct(-k, offset))").alias("first"),
            F.expr("max_by(offset, struct(k, offset))").alias("last"),
        )
    )
    judged = said.join(F.broadcast(held), "op", "left").fillna(0, ["held"])
    said_at, held_at = "struct(outcome.base_offset, outcome.last_offset)", "struct(first, last)"
    elsewhere = f"outcome.base_offset is not null and not ({said_at} <=> {held_at})"
    certified = "coalesce(concat('at ', outcome.base_offset, ' to ', outcome.last_offset), 'committed')"
    return all_of(
        judged,
        (
            "outcome-certificate",
            "outcome.state = 'absent' and held > 0",
            "concat('append ', op, ' was certified absent')",
        ),
        (
            "outcome-certificate",
            f"outcome.state = 'committed' and (held <> count or {elsewhere})",
            f"concat('append ', op, ' was certified ', {certified}, '; the log has ', held, ' of ', count)",
        ),
        offset="first",
    )


def recovery(evidence: Evidence) -> Any:
    """recovery: a node that was lost; and a partition that was written to before every fault was healed, but which
    acknowledges no append within RECOVERY_S of the first append after the healing. If no client comes to append, but
    others use the partition for RECOVERY_S, the time runs from the healing.
    """
    appends = evidence.operations.where("f = 'append'")
    healed = _healed(evidence)
    begun = F.when(F.col("begun_ns") >= F.col("healed"), F.col("begun_ns"))
    done = F.when(F.expr("type = 'ok' and ended_ns >= healed"), F.col("ended_ns"))
    judged = appends.join(F.broadcast(healed), PLACE).groupBy(*PLACE, "healed", "over")
    judged = judged.agg(F.min(begun).alias("asked"), F.min(done).alias("answered"))
    judged = judged.withColumn("until", F.expr(f"coalesce(asked, healed) + {RECOVERY_S * NS}L"))
    condition = "(answered is null or answered > until) and (asked is not null or over >= until)"
    why = "if(asked is null, ': no client came to append', '')"
    what = f"concat('no append succeeded within {RECOVERY_S} s after the healing', {why})"
    return violations(judged, "recovery", condition, what).unionByName(_lost(evidence))


def _healed(evidence: Evidence) -> Any:
    """The times at which every fault was healed (``healed``) while a partition was in use, for each partition: after
    its first append, and before the last operation on it, or on its topic as a whole, ended (``over``).
    """
    is_append = F.col("f") == "append"
    used = evidence.operations.groupBy(*PLACE).agg(
        F.min(F.when(is_append, F.col("begun_ns"))).alias("first"),
        F.max(F.coalesce("ended_ns", "begun_ns")).alias("last"),
    )
    whole = F.max(F.when(F.col("partition") == WHOLE, F.col("last"))).over(Window.partitionBy("topic"))
    used = used.select(*PLACE, "first", F.greatest("last", whole).alias("over")).where("first is not null")
    times = evidence.marks.where("f = 'healed'").select(F.col("t_mono_ns").alias("healed"))
    return used.join(F.broadcast(times), F.expr("healed > first and healed <= over")).drop("first")


def _lost(evidence: Evidence) -> Any:
    """recovery: nodes that did not come back, once for each partition."""
    used = evidence.operations.where(f"partition <> {WHOLE}").select(*PLACE)
    places = used.union(evidence.pieces.select(*PLACE)).distinct()
    lost = evidence.marks.where("f = 'lost'")
    what = "concat_ws(': ', node, substring_index(error, '\\n', 1))"
    return violations(places.crossJoin(F.broadcast(lost)), "recovery", "true", what)
