import tomllib
from pathlib import Path, PurePosixPath

import pytest
from sources import text

from stockade.chaos.system import proxies
from stockade.chaos.system.proxies import INSTALL, LIBRARY, ProxyError, find_server


def test_a_missing_server_is_one_line_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProxyError) as caught:
        find_server(tmp_path)
    assert INSTALL in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_server_of_the_checkout_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    binary = tmp_path / "toxiproxy-server"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    assert find_server(tmp_path) == binary


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "find_spec", lambda name: None)
    assert LIBRARY in str(proxies.why_not())


def test_the_command_that_installs_the_library_names_an_extra_of_this_project() -> None:
    project = tomllib.loads(text(PurePosixPath("pyproject.toml")))["project"]
    assert f"pip install '{project['name']}[chaos]'" == LIBRARY
    assert [wanted for wanted in project["optional-dependencies"]["chaos"] if wanted.startswith("toxiproxy-python==")]
