"""A strike on processes that have ended is none; one on a client names it."""

import asyncio
import os
import random
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.chaos.faults.fault import Broken, NothingToBreak
from stockade.chaos.faults.processes import StallProducer, stopped


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


def test_a_stalled_client_is_named_as_in_the_history() -> None:
    """Figures then know whose answer was late because of it."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as client:
        assert client.stdin is not None
        there: Any = SimpleNamespace(clients={"slots-1": client.pid})

        async def struck() -> Broken:
            broken = await StallProducer().strike(there, random.Random(1))
            await broken.heal()
            return broken

        broken = asyncio.run(struck())
        client.stdin.close()
    assert (broken.what, broken.nodes) == ("client slots-1 stopped", ["slots-1"])
