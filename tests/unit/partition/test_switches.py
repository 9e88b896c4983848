import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.partition.switches import (
    CONSENT,
    CONSENT_VARIABLE,
    DEFECTS_VARIABLE,
    STOPS_VARIABLE,
    has_defect,
    stop_at,
    warning,
)

STOPPING = "from stockade.partition.switches import stop_at; input(); stop_at('append-received'); print('went on')"


def run(code: str, **variables: str) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | variables
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def test_nothing_is_switched_on_by_itself() -> None:
    assert not has_defect("epoch-check")
    assert warning() is None
    stop_at("append-received")  # or this process stops


def test_a_process_stops_at_the_point_that_is_wanted_and_only_once(tmp_path: Path) -> None:
    process = run(STOPPING, **{STOPS_VARIABLE: str(tmp_path)})
    wanted = tmp_path / f"append-received.{process.pid}"
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


def test_other_points_do_not_stop_it(tmp_path: Path) -> None:
    process = run(STOPPING, **{STOPS_VARIABLE: str(tmp_path)})
    (tmp_path / f"append-applied.{process.pid}").touch()
    assert process.communicate("\n", timeout=60)[0] == "went on\n"


def test_a_defect_is_there_when_it_is_named_and_is_said() -> None:
    code = "from stockade.partition.switches import has_defect, warning; print(has_defect('fsync'), warning())"
    out, _ = run(code, **{DEFECTS_VARIABLE: "fsync,dedupe", CONSENT_VARIABLE: CONSENT}).communicate(timeout=60)
    assert out.startswith("True TEST SWITCHES ARE ON") and "dedupe, fsync" in out


@pytest.mark.parametrize("named", ["fsink", "fsync,"])
def test_a_defect_that_does_not_exist_is_refused(named: str) -> None:
    process = run("import stockade.partition.switches", **{DEFECTS_VARIABLE: named, CONSENT_VARIABLE: CONSENT})
    _, err = process.communicate(timeout=60)
    assert (process.returncode != 0) == ("fsink" in named)
    assert ("no such defect: fsink" in err) == ("fsink" in named)


def test_a_process_with_defects_does_not_start_by_mistake() -> None:
    process = run("import stockade.partition.switches", **{DEFECTS_VARIABLE: "fsync"})
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert CONSENT_VARIABLE in err
