"""The audit finds every kind of planted fault, once each, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from stockade.spark.pipelines.audit import planted, rehearsal
from stockade.spark.pipelines.audit.audit import CLAIMS, NoEvidence, audit
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


def test_what_is_no_history_is_refused_by_what_it_lacks(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not Parquet")
    spark.range(3).write.parquet(str(tmp_path / "other"))
    with pytest.raises(NoEvidence, match="cannot be read as Parquet"):
        audit(spark, str(tmp_path / "text"), str(tmp_path / "other"))
    with pytest.raises(NoEvidence, match="has no column i, t_mono_ns"):
        audit(spark, str(tmp_path / "other"), str(tmp_path / "other"))
