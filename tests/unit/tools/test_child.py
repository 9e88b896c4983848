"""Processes of tests end with them."""

import subprocess
import sys

import pytest
from child import ended


def test_a_process_is_killed_when_its_block_fails_and_waited_for_when_it_does_not() -> None:
    with (
        pytest.raises(KeyError),
        ended(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)) as child,
    ):
        raise KeyError
    assert child.returncode == -9
    with ended(subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])) as child:
        pass
    assert child.returncode == 3
