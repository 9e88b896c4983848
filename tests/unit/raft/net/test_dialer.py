"""A dialled node is dialled again after every failure, of any kind."""

import asyncio
import logging
from socket import gaierror

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


def test_a_node_that_cannot_be_reached_is_in_the_log_with_its_address_once_for_each_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a name that did not resolve, or a wrong port, a node said nothing: only that it waits for the other."""
    errors: list[OSError] = [
        *(ConnectionRefusedError(111, "Connection refused"), ConnectionRefusedError(111, "Connection refused")),
        *(gaierror(-2, "Name or service not known"), TimeoutError(), ConnectionRefusedError(111, "Connection refused")),
    ]

    async def scenario() -> None:
        done, dials = asyncio.Event(), iter([*errors, *errors[:1]])

        async def fail(dialer: Dialer, peer: str) -> Dialled:
            if (error := next(dials, None)) is None:
                done.set()
                await asyncio.Event().wait()
                raise AssertionError
            if error is errors[0] and caplog.messages:
                dialer.reached(peer)
            raise error

        monkeypatch.setattr(Dialer, "_connect", fail)
        dialer = Dialer(pytest.fail, 5.0, 0.0)
        dialer.dial("n2", ("n2.test", 7201))
        await asyncio.wait_for(done.wait(), 10)
        await dialer.stop()

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    whys = ["Connection refused", "Name or service not known", "no answer in 5 s", "Connection refused"]
    assert caplog.messages == [f"cannot reach n2 at n2.test:7201: {why}" for why in whys]
