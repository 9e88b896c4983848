"""A dialled node is dialled again after every failure, of any kind."""

import asyncio

import pytest

from stockade.raft.net.dialer import Dialer, Dialled


def test_a_bug_in_one_dial_parts_no_two_nodes_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        again = asyncio.Event()
        dials: list[str] = []

        async def break_down(_: Dialer, peer: str) -> Dialled:
            dials.append(peer)
            if len(dials) > 1:
                again.set()
            raise RuntimeError("a bug")

        monkeypatch.setattr(Dialer, "_connect", break_down)
        dialler = Dialer(pytest.fail, 5.0, 0.0)
        dialler.dial("n2", ("127.0.0.1", 1))
        await asyncio.wait_for(again.wait(), 10)
        await dialler.stop()

    asyncio.run(scenario())
    assert "dialling n2 failed" in caplog.text
