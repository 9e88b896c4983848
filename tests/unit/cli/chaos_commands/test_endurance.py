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
from stockade.chaos.history.observed import Strike
from stockade.chaos.history.timeline import NS
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


@pytest.mark.parametrize(
    ("made", "failed_at_s", "code", "told"),
    [
        (9, [], 0, ""),
        (9, [70], 0, ""),  # while a fault struck
        (9, [110], 0, ""),  # soon after it was healed
        (9, [70, 200], 2, "backups failed while no fault struck, 1 of 11: no room"),
        (0, [70], 2, "no backup was made, and 1 failed: no room"),
        (0, [], 0, ""),  # the run was too short for one
    ],
)
def test_a_run_whose_backups_fail_for_no_fault_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: int, failed_at_s: list[int], code: int, told: str
) -> None:
    """Each of them could fail: the page had the number, and the exit code was 0."""
    strike = Strike(1, "kill-one", "n1", ["n1"], 60 * NS, 100 * NS)
    failed = [endurance.FailedBackup(at * NS, (at + 1) * NS, "no room") for at in failed_at_s]
    course = endurance.Course(0, backups=made, failed_backups=failed, strikes=[strike])
    assert endurance._told(Console(soft_wrap=True), course, tmp_path) == code
    assert (told or "0 rounds") in capsys.readouterr().out
