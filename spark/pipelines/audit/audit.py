"""``stockade pipeline audit``: judges a chaos history and every replica's log with all checkers, at any size.

As a script: examples/pipeline_audit.py.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import log_checks, order_checks, record_checks
from .evidence import Evidence, NoEvidence, read, settings
from .findings import Audited, Finding, Violation
from .page import page
from .session import session
from .telling import table, tell
from .timeline import timeline

__all__ = ["CLAIMS", "PASSES", "NoEvidence", "audit", "main"]

EXAMPLES_MAX = 20
"""Violations shown of each checker; all are counted."""

CLAIMS = {
    "lost-write": "Every acknowledged record, and every record that was read, is in the log",
    "inconsistent-offset": "One record at each offset: in answers, in reads, and on every replica",
    "duplicate": "No record, and no sequence number of a producer, is at two offsets",
    "phantom": "Nothing is in the log that nobody sent",
    "aborted-read": "What was refused for certain is nowhere",
    "gap": "Offsets are dense",
    "sequence-order": "Sequence numbers of a producer follow each other without a hole, from 0",
    "nonmonotonic-send": "Of two appends of one client the later one has the higher offset",
    "nonmonotonic-poll": "A consumer never goes back",
    "skipped-poll": "A consumer never passes over a record",
    "stale-read": "A read shows everything that was acknowledged before it began",
    "zombie": "Writer epochs never decrease along a log, each is one writer's, and no older one succeeds after a newer",
    "epoch-uniqueness": "No fencing epoch is granted twice",
    "outcome-certificate": "What a refusal certifies about a batch is what the log shows",
    "position": "A group's position never goes back, and only the owner sets it",
    "unseen": "Consumers come to see every acknowledged record",
    "recovery": "Soon after a fault is healed, appends succeed",
}
"""Every checker, and what it holds the cluster to."""

PASSES: dict[str, Callable[[Evidence], Any]] = {
    "records": record_checks.record_checks,
    "logs": log_checks.log_checks,
    "writers": log_checks.shared_epochs,
    "replicas": log_checks.different_replicas,
    "sends": order_checks.sends,
    "reads": order_checks.stale_reads,
    "polls": order_checks.polls,
    "unseen": order_checks.unseen,
    "epochs": order_checks.epochs,
    "positions": order_checks.positions,
    "certificates": order_checks.certificates,
    "recovery": order_checks.recovery,
}


def audit(spark: Any, history: str, logs: str, on_pass: Callable[[str], None] = lambda name: None) -> Audited:
    """Judge the evidence in these files. ``on_pass`` is told before each pass. Raises NoEvidence."""
    with settings(spark):
        return _audited(spark, history, logs, on_pass)


def _audited(spark: Any, history: str, logs: str, on_pass: Callable[[str], None]) -> Audited:
    found: list[Violation] = []
    tally: dict[str, int] = dict.fromkeys(CLAIMS, 0)
    seconds = {}
    on_pass("evidence")
    started = time.monotonic()
    evidence = read(spark, history, logs)
    counts = _counts(evidence)
    course = timeline(evidence)
    seconds["evidence"] = time.monotonic() - started
    for name, check in PASSES.items():
        on_pass(name)
        started = time.monotonic()
        _take(check(evidence), found, tally)
        seconds[name] = time.monotonic() - started
    evidence.forget()
    findings = [
        Finding(checker, claim, tally[checker], [each for each in found if each.checker == checker])
        for checker, claim in CLAIMS.items()
    ]
    return Audited(findings, counts, seconds, course)


def _take(violations: Any, found: list[Violation], tally: dict[str, int]) -> None:
    """Count the violations of a pass, and keep some."""
    kept = violations.limit(EXAMPLES_MAX * len(CLAIMS) + 1).collect()
    if len(kept) <= EXAMPLES_MAX:
        for row in kept:
            tally[row["checker"]] += 1
            found.append(Violation(*row))
        return
    for row in violations.groupBy("checker").count().collect():
        tally[row["checker"]] += row["count"]
    for row in kept:
        if sum(each.checker == row["checker"] for each in found) < EXAMPLES_MAX:
            found.append(Violation(*row))


def _counts(evidence: Evidence) -> dict[str, int]:
    pieces = evidence.pieces.collect()
    return {
        "operations": evidence.operations.count(),
        "partitions": len({(row["topic"], row["partition"]) for row in pieces}),
        "replicas": len({(row["topic"], row["partition"], row["replica"]) for row in pieces}),
        "records in logs": evidence.log.count(),
        "records in all replicas": sum(row["records"] for row in pieces),
    }


def main(arguments: list[str] | None = None) -> int:
    """As a script: exit code 1 after a violation."""
    parser = argparse.ArgumentParser(description="Judge a chaos history and every replica's log.")
    parser.add_argument("history", help="history.parquet, as docs/chaos.md describes it")
    parser.add_argument("logs", help="logs.parquet")
    parser.add_argument("--html", help="file for a summary page")
    given = parser.parse_args(arguments)
    audited = audit(session("stockade audit"), given.history, given.logs, lambda name: tell(f"pass: {name}"))
    table(
        ["checker", "violations", "claim"],
        [[each.checker, f"{each.violations:,}", each.claim] for each in audited.findings],
    )
    for finding in audited.findings:
        for violation in finding.examples:
            tell(f"{finding.checker}: {violation.topic}/{violation.partition}: {violation.what}")
    counts = ", ".join(f"{count:,} {name}" for name, count in audited.counts.items())
    tell(f"{counts}; judged in {sum(audited.seconds.values()):.1f} s")
    if given.html:
        Path(given.html).write_text(page(audited, given.history, given.logs), encoding="utf-8")
    return 1 if audited.violations else 0
