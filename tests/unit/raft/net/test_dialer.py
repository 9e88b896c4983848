"""Who is dialled is dialled for ever, whatever a dial ends with."""

import asyncio

import pytest

from stockade.raft.connection import Connection
from stockade.raft.dialling import Dialler


def test_a_bug_in_one_dial_parts_no_two_nodes_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        again = asyncio.Event()
        dials: list[str] = []

        async def break_down(_: Dialler, peer: str) -> Connection:
            dials.append(peer)
            if len(dials) > 1:
                again.set()
            raise RuntimeError("a bug")

        monkeypatch.setattr(Dialler, "_connect", break_down)
        dialler = Dialler(pytest.fail, 5.0, 0.0)
        dialler.dial("n2", ("127.0.0.1", 1))
        await asyncio.wait_for(again.wait(), 10)
        await dialler.stop()

    asyncio.run(scenario())
    assert "dialling n2 broke" in caplog.text
