import ast
import os
import signal
import subprocess
from pathlib import Path

import pytest

from .broken_node import DEFECTS, program, stopping

ROOT = Path(__file__).parents[2]
WRITING = """
import asyncio
from unittest.mock import AsyncMock
from stockade.client.transport.http import _Body
input()
asyncio.run(_Body(b"batch", lambda: None).write(AsyncMock()))
print("went on")
"""


def start(change: str, *words: str) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [*program(change), *words]
    return subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "writing.py"
    path.write_text(WRITING)
    return str(path)


@pytest.mark.parametrize("folder", ["partition", "raft", "cluster", "http_api"])
def test_no_environment_variable_changes_what_a_node_does(folder: str) -> None:
    paths = list((ROOT / folder).rglob("*.py"))
    assert paths, folder
    for path in paths:
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not names & {"environ", "environb", "getenv"}, path


def test_a_process_stops_at_the_point_that_is_wanted_and_only_once(tmp_path: Path, script: str) -> None:
    process = start(stopping(tmp_path), script)
    wanted = tmp_path / f"produce-written.{process.pid}"
    wanted.touch()
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert not wanted.exists()
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert out == "went on\n", err


def test_a_node_goes_on_past_the_points_at_which_it_shall_not_stop(tmp_path: Path, script: str) -> None:
    process = start(stopping(tmp_path), script)
    (tmp_path / f"produce-begun.{process.pid}").touch()
    assert process.communicate("\n", timeout=60)[0] == "went on\n"


def test_a_defect_that_does_not_exist_is_refused() -> None:
    process = start("fsink", "serve", "--help")
    assert "fsink" in process.communicate(timeout=60)[1]
    assert process.returncode != 0


def test_a_broken_program_is_the_program() -> None:
    process = start("fsync", "serve", "--help")
    assert process.communicate(timeout=60)[0].startswith("Usage: stockade serve")
    assert process.returncode == 0


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_defect_still_fits_the_product(defect: str) -> None:
    """A function in place of the product's takes what that one takes; if not, no node of the checker's run starts."""
    process = start(defect, "--version")
    assert "stockade" in process.communicate()[0] and process.returncode == 0
