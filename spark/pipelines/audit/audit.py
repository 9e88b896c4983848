"""``stockade pipeline audit``: judges a chaos history and every replica's log with all checkers, at any size.

As a script: examples/pipeline_audit.py. This module also counts operations over time, for the plot.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from ..reporting import print_line, table
from ..session import session
from . import fencing_checks, log_checks, order_checks, record_checks
from .evidence import Evidence, NoEvidence, read, settings
from .findings import Audited, Finding, Slot, Timeline, Violation
from .page import page

SLOTS = 120
MARKS_MAX = 200
"""Most events of the nemesis that are shown: the first ones."""
NS = 1_000_000_000


def timeline(evidence: Evidence) -> Timeline:
    """The operations in at most SLOTS slots of time, counted by how they ended, and the events of the nemesis."""
    ops = evidence.operations
    first, last = ops.select(F.min("begun_ns"), F.max("begun_ns")).first()
    if first is None:
        return Timeline(1.0, [], [])
    width = max(-(-(last - first + 1) // SLOTS), 1)
    counts: dict[tuple[int, str], int] = {}
    for slot, kind, count in _counted(ops, first, width):
        counts[slot, kind] = count
    slots = [
        Slot(*(counts.get((slot, kind), 0) for kind in Slot._fields)) for slot in range((last - first) // width + 1)
    ]
    return Timeline(width / NS, slots, _marks(evidence, first, last))


def _counted(ops: Any, first: int, width: int) -> list[Any]:
    slot = F.expr(f"(begun_ns - {first}L) div {width}L").alias("slot")
    found: list[Any] = ops.groupBy(slot, "type").count().collect()
    return found


def _marks(evidence: Evidence, first: int, last: int) -> list[tuple[float, str]]:
    within = evidence.marks.where(F.col("t_mono_ns").between(first, last)).orderBy("i").limit(MARKS_MAX)
    return [
        ((row["t_mono_ns"] - first) / NS, f"{row['f']}: {row['error'] or ''}".rstrip(": ")) for row in within.collect()
    ]


__all__ = ["CLAIMS", "PASSES", "NoEvidence", "audit", "main"]

EXAMPLES_MAX = 20
"""Most violations of each checker that are shown; all are counted."""

CLAIMS = {
    "lost-write": "Every acknowledged record, and every record that was read, is in the log",
    "inconsistent-offset": "One record at each offset: in answers, in reads, and on every replica",
    "duplicate": "No record, and no sequence number of a producer, is at two offsets",
    "phantom": "Every record in the log was sent",
    "aborted-read": "A record that was refused for certain is in no log and no read",
    "gap": "Offsets are dense",
    "sequence-order": "Sequence numbers of a producer follow each other without a hole, from 0",
    "nonmonotonic-send": "Of two appends of one client the later one has the higher offset",
    "nonmonotonic-poll": "No poll returns records from before the offset asked for",
    "skipped-poll": "The answer of a poll begins at the offset asked for, without a hole",
    "stale-read": "A read shows every record that was acknowledged, or shown by another read, before it began",
    "zombie": "Epochs never decrease in a log, each has one writer, no append succeeds after a newer one or a release",
    "epoch-uniqueness": "No epoch of a partition, a resource or a producer id is granted twice",
    "outcome-certificate": "The outcome certificate of a refusal agrees with the log",
    "position": "A group's position never goes back, a member set it, and a replaced member neither commits nor reads",
    "unseen": "Where consumers had the time, they were given every acknowledged record",
    "recovery": "No node is lost, and soon after every fault is healed, appends succeed",
}
"""Every checker and its claim. The checkers judge as those of chaos/checkers do, but see one replica of each partition,
and no ends of logs. Not here are byte-exact and order, which know how a workload makes its records, and slot-history,
which is a search.
"""

_RECORDS = ("lost-write", "inconsistent-offset", "duplicate", "phantom", "gap", "sequence-order", "zombie")
"""Checkers that examine every record of the logs."""
_ENDED = {
    ("append", "ok"): ("nonmonotonic-send", "unseen", "recovery"),
    ("append", "fail"): ("aborted-read",),
    ("poll", "ok"): ("nonmonotonic-poll", "skipped-poll", "stale-read", "position"),
    ("fetch", "ok"): ("stale-read",),
    ("acquire", "ok"): ("epoch-uniqueness",),
    ("own", "ok"): ("epoch-uniqueness",),
    ("init", "ok"): ("epoch-uniqueness",),
    ("commit", "ok"): ("position",),
    ("position", "ok"): ("position",),
}
"""Checkers that examine operations, by (operation, end)."""

PASSES: dict[str, Callable[[Evidence], Any]] = {
    "records": record_checks.record_checks,
    "logs": log_checks.log_checks,
    "replicas": log_checks.different_replicas,
    "writers": fencing_checks.shared_epochs,
    "identities": fencing_checks.identities,
    "owners": fencing_checks.owners,
    "late": fencing_checks.late_successes,
    "epochs": fencing_checks.epochs,
    "sends": order_checks.sends,
    "reads": order_checks.stale_reads,
    "polls": order_checks.polls,
    "positions": order_checks.positions,
    "certificates": order_checks.certificates,
    "recovery": order_checks.recovery,
}


def audit(spark: Any, history: str, logs: str, on_pass: Callable[[str], None] = lambda name: None) -> Audited:
    """Judge the evidence in two files. ``on_pass`` is called before each pass, with its name. Raises NoEvidence."""
    with settings(spark):
        return _audited(spark, history, logs, on_pass)


def _audited(spark: Any, history: str, logs: str, on_pass: Callable[[str], None]) -> Audited:
    found: list[Violation] = []
    counts_by_checker: dict[str, int] = dict.fromkeys(CLAIMS, 0)
    seconds = {}
    on_pass("evidence")
    started = time.monotonic()
    evidence = read(spark, history, logs)
    counts, checked = _counts(evidence)
    course = timeline(evidence)
    seconds["evidence"] = time.monotonic() - started
    for name, check in PASSES.items():
        on_pass(name)
        started = time.monotonic()
        take(check(evidence), found, counts_by_checker)
        seconds[name] = time.monotonic() - started
    evidence.forget()
    findings = [
        Finding(
            checker,
            claim,
            counts_by_checker[checker],
            [each for each in found if each.checker == checker],
            checked[checker],
        )
        for checker, claim in CLAIMS.items()
    ]
    return Audited(findings, counts, seconds, course)


def take(violations: Any, found: list[Violation], counts_by_checker: dict[str, int]) -> None:
    """Count the violations of a pass. Add the first ones of each checker, by topic, partition and offset, to ``found``
    as examples, until it has EXAMPLES_MAX of that checker.
    """
    first = Window.partitionBy("checker").orderBy("topic", "partition", "offset")
    ranked = violations.withColumn("rank", F.row_number().over(first)).where(F.col("rank") <= EXAMPLES_MAX)
    kept = ranked.drop("rank").collect()
    counts = Counter(row["checker"] for row in kept)
    if max(counts.values(), default=0) == EXAMPLES_MAX:
        counts = Counter({row["checker"]: row["count"] for row in violations.groupBy("checker").count().collect()})
    for row in kept:
        if sum(each.checker == row["checker"] for each in found) < EXAMPLES_MAX:
            found.append(Violation(*row))
    for checker, count in counts.items():
        counts_by_checker[checker] += count


def _counts(evidence: Evidence) -> tuple[dict[str, int], dict[str, int]]:
    """The sizes of the evidence by name, and the number of operations or records that each checker examines."""
    pieces = evidence.pieces.collect()
    certified, guarded = F.col("outcome").isNotNull().alias("certified"), F.col("sent_epoch").isNotNull()
    ends = evidence.operations.groupBy("f", "type", certified, guarded.alias("guarded")).count().collect()
    records = evidence.log.count()
    checked = dict.fromkeys(CLAIMS, 0) | dict.fromkeys(_RECORDS, records)
    for end in ends:
        for checker in _ENDED.get((end["f"], end["type"]), ()):
            of_a_member = end["f"] != "poll" or end["guarded"]
            checked[checker] += end["count"] * (checker != "position" or of_a_member)
        checked["outcome-certificate"] += end["count"] * end["certified"]
    counts = {
        "operations": sum(end["count"] for end in ends),
        "partitions": len({(row["topic"], row["partition"]) for row in pieces}),
        "replicas": len({(row["topic"], row["partition"], row["replica"]) for row in pieces}),
        "records in logs": records,
        "records in all replicas": sum(row["records"] for row in pieces),
    }
    return counts, checked


def main(arguments: list[str] | None = None) -> int:
    """Run the audit as a script; return its exit code, 1 after a violation."""
    parser = argparse.ArgumentParser(description="Judge a chaos history and every replica's log.")
    parser.add_argument("history", help="history.parquet, as docs/chaos.md describes it")
    parser.add_argument("logs", help="logs.parquet")
    parser.add_argument("--html", help="file for a summary page")
    given = parser.parse_args(arguments)
    audited = audit(session("stockade audit"), given.history, given.logs, lambda name: print_line(f"pass: {name}"))
    table(
        ["checker", "checked", "violations", "claim"],
        [[each.checker, each.checked_words, f"{each.violations:,}", each.claim] for each in audited.findings],
    )
    for finding in audited.findings:
        for violation in finding.examples:
            print_line(f"{finding.checker}: {violation.place}: {violation.what}")
    counts = ", ".join(f"{count:,} {name}" for name, count in audited.counts.items())
    print_line(f"{counts}; judged in {sum(audited.seconds.values()):.1f} s")
    if given.html:
        Path(given.html).write_text(page(audited, given.history, given.logs), encoding="utf-8")
    return 1 if audited.violations else 0
