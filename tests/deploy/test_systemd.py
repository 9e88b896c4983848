"""systemd accepts the unit, finds little to harden, and what the unit runs is what a node needs."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sources import ROOT

from stockade.cli.local_cluster.cluster import READY_TIMEOUT_S
from stockade.cli.local_cluster.ports import free_ports
from stockade.cli.node.descriptors import DESCRIPTORS_MIN
from stockade.cli.node.supervisor import STOP_TIMEOUT_S
from stockade.cli.service.environment import OTHERS, is_setting

FOLDER = ROOT / "ops" / "systemd"
UNIT = FOLDER / "stockade.service"
EXPOSURE_MAX = 15
"""In tenths, as systemd-analyze counts: 10 is no protection at all, and below 2 it calls a service OK."""

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#") and "=" in line:
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists here: systemd looks for it."""
    path = tmp_path / UNIT.name
    path.write_text(re.sub(r"/opt/stockade/bin/stockade", "/bin/true", UNIT.read_text(encoding="utf-8")))
    return path


@needs_systemd
def test_systemd_finds_no_fault_in_the_unit(unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
def test_the_unit_gives_a_node_no_more_than_it_needs(unit: Path) -> None:
    words = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", str(unit)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_node_has_the_time_the_files_and_the_signals_that_it_needs() -> None:
    found = settings()
    assert found["Type"] == ["notify"]
    assert int(found["TimeoutStopSec"][0].removesuffix("s")) > STOP_TIMEOUT_S
    assert int(found["LimitNOFILE"][0]) > DESCRIPTORS_MIN
    assert found["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert found["ExecStart"] == ["/opt/stockade/bin/stockade serve"]


def test_the_page_makes_the_folders_that_systemd_does_not_bring() -> None:
    """Debian 12 has no /etc/sysusers.d: `install` without -D ended there, and no user was made."""
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    into = {Path(to).parent.name: options for options, to in re.findall(r"^install (.*) (/etc/[^ \n]+)", page, re.M)}
    assert {name for name, options in into.items() if "-D" not in options.split()} == {"systemd"}


NODE = """
node_id = "n1"
cluster_id = "house"
http = "127.0.0.1:{http}"
raft_listen = "127.0.0.1:{raft}"
[tiered]
place = "file/old"
[[members]]
node_id = "n1"
url = "http://127.0.0.1:{http}"
raft = "127.0.0.1:{raft}"
"""


def test_a_node_starts_while_its_tiered_store_is_away(tmp_path: Path) -> None:
    http, raft = free_ports(2)
    (tmp_path / "node.toml").write_text(NODE.format(http=http, raft=raft))
    (tmp_path / "file").write_text("no folder can be made here")
    environ = {**os.environ, "STOCKADE_CONFIG": str(tmp_path / "node.toml"), "STOCKADE_DATA_DIR": str(tmp_path / "n1")}
    found = settings()
    words = [sys.executable, "-m", "stockade"]
    *before, start = [words + each.split()[1:] for each in (*found.get("ExecStartPre", ()), *found["ExecStart"])]
    for each in before:
        subprocess.run(each, env=environ, check=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(READY_TIMEOUT_S)
        with subprocess.Popen(start, env={**environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}) as node:
            try:
                while b"READY=1" not in manager.recv(4096):
                    pass
            finally:
                node.terminate()
    assert node.returncode == 0


def test_each_variable_of_the_unit_and_its_file_is_one_of_the_command() -> None:
    named = re.findall(
        r"^(?:Environment=)?(STOCKADE_\w+)=", UNIT.read_text() + (FOLDER / "stockade.env").read_text(), re.M
    )
    assert len(named) == 3
    assert all(is_setting(name) or name in OTHERS for name in named)
