"""systemd accepts the unit, finds little to harden, and what the unit runs is what a node needs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sources import ROOT

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


def test_each_variable_of_the_unit_and_its_file_is_one_of_the_command() -> None:
    named = re.findall(
        r"^(?:Environment=)?(STOCKADE_\w+)=", UNIT.read_text() + (FOLDER / "stockade.env").read_text(), re.M
    )
    assert len(named) == 3
    assert all(is_setting(name) or name in OTHERS for name in named)
