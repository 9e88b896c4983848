"""What `stockade chaos` shows without breaking anything."""

import json
from pathlib import Path

from click.testing import CliRunner

from stockade.chaos.faults.catalogue import CATALOGUE
from stockade.cli.main import main


def test_faults_are_told_to_people_and_to_programs() -> None:
    shown = CliRunner().invoke(main, ["chaos", "faults"])
    told = json.loads(CliRunner().invoke(main, ["chaos", "faults", "--output", "json"]).stdout)
    assert [each["fault"] for each in told["faults"]] == list(CATALOGUE)
    assert all(each["fault"] in shown.stdout and each["needs"] for each in told["faults"])
    assert "toxiproxy" in told["setups"]


def test_a_history_that_cannot_be_judged_says_which_and_ends_with_2(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text("no history\n", encoding="utf-8")
    done = CliRunner().invoke(main, ["chaos", "check", str(history), "--output", "json"])
    assert done.exit_code == 2
    assert f"{history} cannot be judged" in done.stderr
