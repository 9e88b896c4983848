"""What the demo refuses before it starts a cluster."""

from pathlib import Path

from click.testing import CliRunner, Result

from stockade.cli.commands.demo import demo


def run(folder: Path, records: int) -> Result:
    report = folder / "out" / "report"
    return CliRunner().invoke(demo, ["--data", str(folder), "--records", str(records), "--report", str(report)])


def test_a_folder_without_text_is_refused_in_one_line(tmp_path: Path) -> None:
    result = run(tmp_path, 12_000)
    assert result.exit_code == 2
    assert result.output.strip() == "the demo could not be carried out: there is no text file in the folder"


def test_too_few_records_are_refused_with_the_number_that_is_enough(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"line\n")
    refused = run(tmp_path, 100)
    assert refused.exit_code == 2
    assert "at least 2,927 records are needed for 1 files" in refused.output
    assert not (tmp_path / "out").exists()
