"""The scripts of examples/ under spark-submit, where nothing but pyspark, pyarrow and ``stockade.zip`` is."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from integration.api import Topic
from integration.usage import check_usage
from sources import ROOT

from stockade.spark.package import write_zip

from .surroundings import bare_python, environment, submit

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

EXAMPLES = ROOT / "examples"
ODD = {"a.log": b"one\r\ntwo\n\n\xff\x00", "b.log": b"\n"}


def test_files_that_the_scripts_load_and_export_come_back_byte_for_byte(url: str, tmp_path: Path) -> None:
    python, package = bare_python(tmp_path / "venv"), tmp_path / "stockade.zip"
    write_zip(package)
    topic = Topic(url, "scripts")
    topic.create(partitions=2)
    (tmp_path / "in").mkdir()
    for name, content in ODD.items():
        (tmp_path / "in" / name).write_bytes(content)

    # The last lines are the summary; spark-submit has progress there, too.
    def run(script: str, *words: object) -> list[list[str]]:
        given = ("--master", "local[2]", "--py-files", package, EXAMPLES / script, "--url", url, *words)
        lines = submit(*given, env=environment(python)).splitlines()
        return [line.split() for line in lines[-3:]]

    header, _, loaded = run("pipeline_load.py", tmp_path / "in", topic.name)
    assert header == ["topic", "name", "rows", "bytes", "seconds", "rows/s"]
    assert loaded[2] == "5"
    # A stream: its planning process is not given what --py-files brought.
    header, _, exported = run("pipeline_export.py", topic.name, tmp_path / "rows")
    assert exported[2:4] == ["5", "1"]
    header, _, restored = run("pipeline_export.py", "--format", "text", topic.name, tmp_path / "out")
    assert header == ["topic", "folder", "rows", "parts", "seconds", "rows/s"]
    assert restored[2:4] == ["5", "2"]
    assert {each.name: each.read_bytes() for each in (tmp_path / "out").iterdir()} == ODD


@pytest.mark.parametrize("script", ["pipeline_audit.py", "pipeline_export.py", "pipeline_load.py"])
def test_a_script_explains_itself_and_refuses_wrong_arguments(script: str) -> None:
    check_usage(EXAMPLES / script)


def test_the_notebook_runs_from_its_first_cell_to_its_last(
    spark: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STOCKADE_URL", url)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cells = runpy.run_path(str(EXAMPLES / "spark_notebook.py"))
    assert cells["spark"] is spark  # getOrCreate: a notebook's session is this one
    assert cells["records"].count() == 1000  # written twice under one name
    assert cells["large"].isStreaming
    shown = capsys.readouterr().out
    assert "large orders in" in shown
    assert "|customer-0|   100|" in shown
    assert "|0        |390   |" in shown
