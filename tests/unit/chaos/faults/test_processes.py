"""A strike on processes that have ended is none."""

import os
import subprocess

import pytest

from stockade.chaos.faults.fault import NothingToBreak
from stockade.chaos.faults.processes import stopped


@pytest.mark.parametrize("is_reaped", [True, False])
def test_a_process_that_has_ended_cannot_be_stopped(is_reaped: bool) -> None:
    """Not as an entry of the process table that waits for its parent either."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as ended:
        assert ended.stdin is not None
        ended.stdin.close()
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        if is_reaped:
            ended.wait()
        with pytest.raises(NothingToBreak):
            stopped([ended.pid], "it stopped", [])
