"""What the demo refuses before it starts a cluster."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stockade.cli.chaos_commands.demo import demo


def run(folder: Path, records: int, *options: str, report: str = "out/report") -> Result:
    arguments = ["--data", str(folder), "--records", str(records), "--report", str(folder / report), *options]
    return CliRunner().invoke(demo, arguments)


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


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a text file, and with the listing of a cluster that does not run."""
    (tmp_path / "a.log").write_bytes(b"line\n")
    node = '{"name": "n1", "pid": 1, "http": "http://127.0.0.1:1", "raft": "127.0.0.1:2", "data": "n1"}'
    (tmp_path / "stopped.json").write_text(f'{{"nodes": [{node}]}}', encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("listing", ["no JSON", "[]", "{}", '{"nodes": []}'])
def test_a_file_that_lists_no_nodes_is_refused_in_one_line(data: Path, listing: str) -> None:
    path = data / "cluster.json"
    path.write_text(listing, encoding="utf-8")
    result = run(data, 12_000, "--cluster", str(path))
    assert (result.exit_code, len(result.output.splitlines())) == (2, 1), result.output
    assert f"could not be carried out: {path} is not the cluster.json of a cluster" in result.output


def test_a_cluster_that_does_not_run_is_refused_at_once(data: Path) -> None:
    result = run(data, 12_000, "--cluster", str(data / "stopped.json"))
    assert (result.exit_code, len(result.output.splitlines())) == (2, 1), result.output
    assert "http://127.0.0.1:1 (Connection refused)" in result.output


def test_a_report_that_cannot_be_written_is_refused_in_one_line(data: Path) -> None:
    result = run(data, 12_000, report="a.log/report")
    assert (result.exit_code, len(result.output.splitlines())) == (2, 1), result.output
    assert f"{data / 'a.log'}: " in result.output
    assert f"--report: {data} is a folder" in run(data, 12_000, report=".").output


@pytest.mark.parametrize(("report", "name"), [("run-1.5", "run-1.5"), ("run", "run"), ("run.md", "run")])
def test_a_report_has_the_name_that_was_given(data: Path, report: str, name: str) -> None:
    run(data, 12_000, "--cluster", str(data / "stopped.json"), report=report)
    assert [path.name for path in data.glob("run*")] == [f"{name}.history.jsonl"]
