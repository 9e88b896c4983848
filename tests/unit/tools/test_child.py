"""Processes of tests end with them."""

import subprocess
import sys

import pytest
from child import Child


def test_a_process_is_killed_when_its_block_fails_and_waited_for_when_it_does_not() -> None:
    with pytest.raises(KeyError), Child([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        raise KeyError
    assert child.returncode == -9
    with Child([sys.executable, "-c", "raise SystemExit(3)"]) as child:
        pass
    assert child.returncode == 3
