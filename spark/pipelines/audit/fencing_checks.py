"""Checkers of fencing: one writer at a time, each epoch granted once, nothing accepted under an epoch that is over.

As in chaos/checkers/fencing.py, three scopes have epochs: the slot of a partition, an owned resource, and a producer
id.
"""

from functools import reduce
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from .evidence import PLACE, Evidence
from .record_checks import records_of
from .violations import violations

EPOCH = [*PLACE, "writer_epoch"]
OWNER = [*PLACE, "resource"]
_SCOPES = (
    ("acquire", PLACE, "sent_epoch"),
    ("own", OWNER, "fence_epoch"),
    ("init", ["topic", "producer_id"], "producer_epoch"),
)
"""Operation that grants an epoch, the keys of its scope, and the column in which an append claims the epoch."""


def shared_epochs(evidence: Evidence) -> Any:
    """zombie: two writers with a token in one epoch, or a client without a token before a record of the epoch's owner.

    Epoch 0 is the open slot; a later epoch whose owner has left is open, too, until the next owner comes. A record of
    an owner is compared with all records before it in the epoch, not with the last one: one record of a stranger before
    it is enough. Epochs with one writer are left out, so that few claims need a join; a record there that its writer
    did not send is a phantom.
    """
    log = evidence.log.where("writer_epoch > 0").withColumn("writer", _writer("key"))
    mark = F.xxhash64("writer")
    each = log.groupBy(*EPOCH).agg(F.min(mark).alias("least"), F.max(mark).alias("most"))
    several = evidence.keep(each.where("least <> most").select(*EPOCH))
    rows = log.join(several, EPOCH, "left_semi").select(*EPOCH, "offset", F.col("key").alias("name"), "writer")
    claims = _claims(evidence, several.select(*PLACE).distinct()).withColumn("claimed", F.lit(1))
    marked = rows.join(claims, [*PLACE, "name"], "left")
    before = Window.partitionBy(*EPOCH).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    owners = marked.withColumns(
        {
            "owner": F.max(F.when(F.col("claimed") == 1, F.col("writer"))).over(before),
            "guest": F.max(F.when(F.col("claimed").isNull(), F.col("writer"))).over(before),
        }
    )
    intruded = owners.where("claimed = 1 and (owner <> writer or guest is not null)")
    found = intruded.groupBy(*EPOCH).agg(
        F.min("offset").alias("offset"), F.min(F.struct("offset", "writer", "owner", "guest")).alias("at")
    )
    what = "concat(at.writer, ' wrote in epoch ', writer_epoch, ' after ', coalesce(at.guest, at.owner))"
    return violations(found, "zombie", "true", what, "offset")


def identities(evidence: Evidence) -> Any:
    """zombie: two writers with one producer id in one epoch, and epochs of a producer id that decrease along a log."""
    log = evidence.log.where("producer_id is not null")
    writer = _writer("key")
    spans = log.groupBy(*PLACE, "producer_id", F.col("producer_epoch").alias("epoch")).agg(
        F.min(writer).alias("writer"), F.max(writer).alias("other"), *_span()
    )
    what = "concat(writer, ' and ', other, ' both wrote as producer ', producer_id, ', epoch ', epoch)"
    shared = violations(spans, "zombie", "writer <> other", what, "first")
    return shared.unionByName(_decreasing(spans, "producer_id", "producer"))


def owners(evidence: Evidence) -> Any:
    """zombie: fence_epochs of a resource that decrease along the log."""
    sent = evidence.operations.where("f = 'append' and type <> 'fail' and fence_epoch is not null")
    each = records_of(sent, "value", "count", "op", "resource", F.col("fence_epoch").alias("epoch"))
    claims = each.groupBy(*PLACE, "name").agg(F.max(F.struct("op", "resource", "epoch")).alias("claim"))
    stored = evidence.log.select(*PLACE, F.col("key").alias("name"), "offset").join(claims, [*PLACE, "name"])
    spans = stored.select(*PLACE, "offset", "claim.*").groupBy(*OWNER, "epoch").agg(*_span())
    return _decreasing(spans, "resource", "fence_epoch of")


def late_successes(evidence: Evidence) -> Any:
    """zombie: an append that succeeded, although it began after the grant of a higher epoch of its slot, resource or
    producer was answered, or the release of its own grant. position: likewise a commit or poll of a member, by the
    epoch of its resource.
    """
    appends = evidence.operations.where("f = 'append' and type = 'ok'")
    for f, scope, claimed in _SCOPES:
        appends = _overtaken(evidence, appends, f, scope, claimed)
    over = F.least(*(F.col(f"{claimed}_over_ns") for _, _, claimed in _SCOPES))
    what = "concat('append ', op, ' of ', process, ' began after an epoch above its own was granted')"
    late = violations(appends.withColumn("over_ns", over), "zombie", "begun_ns > over_ns", what, "answered")
    members = evidence.others.where("f in ('commit', 'poll') and type = 'ok' and sent_epoch is not null")
    members = members.withColumn("resource", F.expr("concat(topic, '/', partition)"))
    members = _overtaken(evidence, members, "own", OWNER, "sent_epoch")
    what = "concat(f, ' ', op, ' of ', process, ' under epoch ', sent_epoch, ' began after a higher one was granted')"
    late = late.unionByName(_after_release(evidence))
    return late.unionByName(violations(members, "position", "begun_ns > sent_epoch_over_ns", what, "asked"))


def _after_release(evidence: Evidence) -> Any:
    grant = [*PLACE, "process", "sent_epoch"]
    released = evidence.others.where("f = 'release' and type = 'ok'")
    released = released.groupBy(*grant).agg(F.min("ended_ns").alias("released_ns"))
    appends = evidence.operations.where("f = 'append' and type = 'ok'").join(F.broadcast(released), grant)
    what = "concat('append ', op, ' of ', process, ' began after its grant was released')"
    return violations(appends, "zombie", "begun_ns > released_ns", what, "answered")


def epochs(evidence: Evidence) -> Any:
    """epoch-uniqueness: one epoch of a slot, a resource or a producer id granted to two processes."""
    each = [_granted(evidence, f).withColumn("granted", F.lit(f)) for f, _, _ in _SCOPES]
    scope = [*OWNER, "producer_id", "granted", "epoch"]
    holders = reduce(lambda a, b: a.unionByName(b), each).groupBy(*scope)
    found = holders.agg(F.min("process").alias("one"), F.max("process").alias("other"))
    of = "coalesce(concat(' of ', resource), concat(' of producer ', producer_id), '')"
    what = f"concat('epoch ', epoch, {of}, ' was granted to ', one, ' and to ', other)"
    return violations(found, "epoch-uniqueness", "one <> other", what)


def _granted(evidence: Evidence, f: str) -> Any:
    """The epochs that answers to operation ``f`` granted, with the time of the answer and the process."""
    answered = evidence.others.where(f"f = '{f}' and type = 'ok'")
    pair = ("given_producer_id", "given_producer_epoch") if f == "init" else ("cast(null as long)", "given_epoch")
    found = answered.selectExpr(
        *PLACE, "resource", f"{pair[0]} as producer_id", f"cast({pair[1]} as long) as epoch", "ended_ns as t", "process"
    )
    return found.where("epoch is not null")


def _overtaken(evidence: Evidence, claims: Any, f: str, scope: list[str], claimed: str) -> Any:
    """The claims with a column ``CLAIMED_over_ns``: when an epoch above the claimed one was first granted, or null.

    Not each claim is compared with the grants, but each claimed epoch, of which there are few.
    """
    granted = _granted(evidence, f).select(*scope, F.col("epoch").alias(claimed), "t")
    named = claims.where(f"{claimed} is not null").select(*scope, claimed, F.lit(None).cast("long").alias("t"))
    each = granted.unionByName(named).groupBy(*scope, claimed).agg(F.min("t").alias("t"))
    higher = Window.partitionBy(*scope).orderBy(claimed).rowsBetween(1, Window.unboundedFollowing)
    over = each.withColumn(f"{claimed}_over_ns", F.min("t").over(higher)).drop("t")
    return claims.join(F.broadcast(over.where(f"{claimed}_over_ns is not null")), [*scope, claimed], "left")


def _span() -> tuple[Any, Any]:
    return F.min("offset").alias("first"), F.max("offset").alias("last")


def _decreasing(spans: Any, scope: str, what: str) -> Any:
    """zombie: epochs whose ``last`` offset is behind the ``first`` one of a higher epoch of the same scope."""
    higher = Window.partitionBy(*PLACE, scope).orderBy("epoch").rowsBetween(1, Window.unboundedFollowing)
    begun = spans.withColumn("higher", F.min("first").over(higher))
    said = f"concat('{what} ', {scope}, ': epoch ', epoch, ' comes after a higher one at ', higher)"
    return violations(begun, "zombie", "last > higher", said, "last")


def _claims(evidence: Evidence, places: Any) -> Any:
    """The names of records sent to ``places`` with a token, by processes that never had a Shared seat there."""
    seated = evidence.others.where("f = 'share' and type = 'ok'").select(*PLACE, "process").distinct()
    sent = evidence.operations.where("f = 'append' and type <> 'fail' and sent_epoch is not null")
    sent = sent.join(F.broadcast(places), PLACE, "left_semi")
    runs = sent.join(F.broadcast(seated), [*PLACE, "process"], "left_anti")
    return records_of(runs, "value", "count").distinct()


def _writer(name: str) -> Any:
    """The writer in a record's name: what is before ``/INDEX``, without the marks of partition (@) and attempt (+)."""
    stem = F.expr(f"left({name}, length({name}) - length(substring_index({name}, '/', -1)) - 1)")
    return F.substring_index(F.substring_index(stem, "@", 1), "+", 1)
