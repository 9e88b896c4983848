"""What a pipeline says as a script."""

import pytest

from stockade.spark.pipelines import reporting


def test_a_summary_is_a_table_with_rows_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    reporting.summary({"topic": "t", "rows": 3_000, "seconds": 2.0})
    header, rule, facts = capsys.readouterr().out.splitlines()
    assert header.split() == ["topic", "rows", "seconds", "rows/s"]
    assert set(rule) == {"-", " "}
    assert facts.split() == ["t", "3000", "2.0", "1,500"]


def test_a_run_that_took_no_time_has_no_rate() -> None:
    assert "rows/s" not in reporting.shown({"rows": 0, "seconds": 0.0})


def test_progress_is_told_when_it_is_time_and_has_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = reporting.Progress("tasks done")
    for later_s, done in ((0, 1), (reporting.PROGRESS_S, 0), (0, 2), (0.1, 3), (reporting.PROGRESS_S, 2), (0, 4)):
        now[0] += later_s
        progress(done, 4)
    now[0] += reporting.PROGRESS_S
    progress(1000)
    assert capsys.readouterr().err.splitlines() == ["2 of 4 tasks done", "4 of 4 tasks done", "1,000 tasks done"]
