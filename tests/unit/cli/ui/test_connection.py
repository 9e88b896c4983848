"""The file with a token: read again for a file, once for a pipe."""

import os
from pathlib import Path

import click
import pytest

from stockade.cli.ui.connection import configured

URL = "http://127.0.0.1:1"


def test_a_command_that_runs_on_uses_the_token_that_its_file_has_by_then(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    assert configured(URL, 30, str(path), {}).token_file == str(path)


def test_a_token_out_of_a_pipe_is_read_once() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\n")
    os.close(writing)
    found = configured(URL, 30, f"/dev/fd/{reading}", {})
    os.close(reading)
    assert (found.token, found.token_file) == ("one", None)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none", "^--token-file: .*/none: No such file or directory$"),
        ("empty", "^--token-file: .*/empty cannot be used: it is empty, or has characters that no header may have$"),
    ],
)
def test_a_file_without_a_token_is_wrong_usage(name: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(click.UsageError, match=told):
        configured(URL, 30, str(tmp_path / name), {})
