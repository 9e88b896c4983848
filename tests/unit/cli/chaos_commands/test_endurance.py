"""An endurance run keeps the rounds in which something was wrong, and says what."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from rich.console import Console

from stockade.chaos.checkers.verdicts import Verdict
from stockade.chaos.harness.campaign import Outcome
from stockade.chaos.harness.judging import Judgement
from stockade.chaos.harness.results import Summary
from stockade.chaos.harness.round import RoundOver
from stockade.cli.chaos_commands import endurance

WRONG = Verdict("lost-write", "Every acknowledged record is there.", 3, ["offset 7 is gone"])


class Arena:
    """A cluster of which nothing is asked."""

    nodes = ("n1", "n2", "n3")
    bootstrap = ("http://127.0.0.1:1",)
    client = SimpleNamespace()


def run(monkeypatch: pytest.MonkeyPatch, results: Path, outcome: Outcome) -> endurance.Course:
    """A run whose every round has this outcome."""

    async def campaign(*_: Any) -> Outcome:
        return outcome

    monkeypatch.setattr(endurance, "run_campaign", campaign)
    results.mkdir()

    async def main() -> endurance.Course:
        made = endurance.Run(cast(Any, Arena()), ["processes"], 60.0, 60.0, 10, 7, results, results)
        await made._rounds()
        return made._course

    return asyncio.run(main())


def test_a_round_with_violations_is_kept_with_what_check_and_report_need_and_lost_nodes_end_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    over = RoundOver(7, 0, 0.0, [], ["n2", "n1"])
    course = run(monkeypatch, results, Outcome(Judgement([WRONG], 10, 20), [over], [], 1.0))
    assert course.kept == [results / "round-7"]
    assert msgspec.json.decode((results / "round-7" / "run.json").read_bytes(), type=Summary).verdicts == [WRONG]
    assert course.failures == ["round 7: n1, n2 lost; there is no further round"]
    assert endurance._told(Console(), course, results) == 1
    told = capsys.readouterr().out
    assert "offset 7 is gone" in told
    assert f"stockade chaos report {results / 'round-7'}" in told
