"""A strike on processes that have ended is none; one on a client names it; followers of a divergent tail lack it."""

import asyncio
import os
import random
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.chaos.faults import divergence
from stockade.chaos.faults.divergence import DivergentTail
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


class Socketed:
    """Three nodes that run; n1 leads. ``log`` has what was done to them, in order."""

    def __init__(self, pids: dict[str, int]) -> None:
        self.nodes, self.topics, self.client = list(pids), ["t"], self
        self.log: list[str] = []
        self._pids: dict[str, int | None] = {**pids}

    async def topic(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(partitions=[SimpleNamespace(leader_node="n1")])

    def pid(self, node: str) -> int | None:
        return self._pids[node]

    def kill(self, node: str) -> None:
        self.log.append(f"kill {node}")
        self._pids[node] = None

    def start(self, node: str) -> None:
        self.log.append(f"start {node}")


def test_the_followers_of_a_divergent_tail_lose_what_waits_in_their_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that is stopped and resumed takes what the leader had sent it meanwhile: no tail is the leader's own.

    A leader that acknowledged entries which only it had passed four runs of five.
    """
    monkeypatch.setattr(divergence, "ALONE_S", (0.0, 0.0))
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as one,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as two,
    ):
        assert one.stdin is not None and two.stdin is not None
        arena: Any = Socketed({"n1": 1, "n2": one.pid, "n3": two.pid})

        async def struck() -> None:
            broken = await DivergentTail().strike(arena, random.Random(1))
            assert arena.log == ["kill n1", "kill n2", "kill n3", "start n2", "start n3"]
            await broken.heal()

        asyncio.run(struck())
        one.stdin.close()
        two.stdin.close()
    assert arena.log[5:] == ["start n1"]
