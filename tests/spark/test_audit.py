"""The audit finds every kind of planted fault, once each, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from stockade.spark.pipelines.audit import log_checks, planted, rehearsal
from stockade.spark.pipelines.audit.audit import CLAIMS, EXAMPLES_MAX, NoEvidence, audit, take
from stockade.spark.pipelines.audit.evidence import Evidence, fingerprints
from stockade.spark.pipelines.audit.findings import Violation
from stockade.spark.pipelines.audit.page import page


@pytest.mark.timeout(600)
def test_every_planted_fault_is_found_and_nothing_else(spark: Any, tmp_path: Path) -> None:
    size = rehearsal.size_of(1)  # the smallest
    faults = planted.plant(size)
    history, logs = str(tmp_path / "history.parquet"), str(tmp_path / "logs.parquet")
    planted.with_events(spark, rehearsal.history(spark, size), faults).write.parquet(history)
    planted.with_rows(spark, rehearsal.logs(spark, size), faults).write.parquet(logs)

    audited = audit(spark, history, logs)

    found = {each.checker: each.violations for each in audited.findings}
    assert found == {checker: faults.expected[checker] for checker in CLAIMS}
    assert all(found.values()), "a checker that nothing is planted for"
    assert all(each.checked for each in audited.findings), "a checker that a rehearsal gives nothing to check"
    summary = page(audited, history, logs, faults.expected)
    assert all(each.what in summary.replace("&#x27;", "'") for one in audited.findings for each in one.examples)


@pytest.mark.parametrize("lost", [False, True])
def test_a_replica_of_a_lost_node_was_not_read_and_is_not_called_empty(spark: Any, lost: bool) -> None:
    held = [(0, "n1"), (0, "n2"), (0, "n3"), (1, "n1"), (1, "n2")]
    columns = "topic string, partition int, replica string, offset long, key binary, value binary"
    stamps = "writer_epoch long, producer_id long, producer_epoch long, sequence long"
    rows = [("t", number, node, 0, b"k", b"v", 0, 0, 0, 0) for number, node in held]
    stored = spark.createDataFrame(rows, f"{columns}, {stamps}")
    marks = [(1, 1, "lost", "n5 does not start")] if lost else []
    noted = spark.createDataFrame(marks, "i long, t_mono_ns long, f string, error string")
    evidence = Evidence(None, None, None, fingerprints(stored), stored, noted, [])
    found = [each["what"] for each in log_checks.different_replicas(evidence).collect()]
    assert found == ([] if lost else ["only n1, n2 have records of it, of 3 replicas"])


def test_each_checker_has_examples_though_another_one_of_its_pass_has_more_than_are_shown(spark: Any) -> None:
    rows = [*(("lost-write", "t", 0, n, "lost") for n in range(500)), ("phantom", "t", 1, 7, "strange")]
    found: list[Violation] = []
    counts = {"lost-write": 0, "phantom": 0}
    columns = "checker string, topic string, partition int, offset long, what string"
    take(spark.createDataFrame(rows, columns), found, counts)
    assert counts == {"lost-write": 500, "phantom": 1}
    assert [each.offset for each in found if each.checker == "lost-write"] == list(range(EXAMPLES_MAX))
    assert [each for each in found if each.checker == "phantom"] == [Violation("phantom", "t", 1, 7, "strange")]


def test_a_file_that_is_no_parquet_or_lacks_columns_is_refused_as_evidence(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not Parquet")
    spark.range(3).write.parquet(str(tmp_path / "other"))
    with pytest.raises(NoEvidence, match="cannot be read as Parquet"):
        audit(spark, str(tmp_path / "text"), str(tmp_path / "other"))
    with pytest.raises(NoEvidence, match="has no column i, t_mono_ns"):
        audit(spark, str(tmp_path / "other"), str(tmp_path / "other"))
