from pathlib import Path

import pytest

from stockade.chaos.proxies import INSTALL, ProxyError, find_server


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
