"""The event loop that stands still, and the request that holds it."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from types import FrameType

import pytest

from stockade.http_api.request.stalls import STALL_S, Stalls

from ..conversation import Conversation, run

CPU_S = 20 * STALL_S
"""What holds the loop in these tests: long enough that its stack is looked at also on a busy machine."""


def compute() -> None:
    """Hold the loop."""
    end = time.thread_time() + CPU_S
    while time.thread_time() < end:
        pass


def named(frame: FrameType) -> str | None:
    return frame.f_locals.get("request")


def watched(scenario: Callable[[Stalls], Awaitable[None]]) -> Stalls:
    """The stalls of a loop of its own."""

    async def main() -> Stalls:
        stalls = Stalls(named)
        stalls.touch()
        await scenario(stalls)
        stalls.close()
        return stalls

    return asyncio.run(main())


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  # what it waits for has no event
        await asyncio.sleep(0.001)


def test_a_request_that_holds_the_loop_is_counted_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stalls: Stalls) -> None:
        request = "POST /v1/x, 7 bytes, request 4f"
        assert request
        compute()
        await until(lambda: sum(stalls.held))

    with caplog.at_level(logging.WARNING):
        stalls = watched(scenario)
    assert stalls.held_s >= CPU_S - 2 * STALL_S
    (line,) = [record.getMessage() for record in caplog.records if "stood still" in record.getMessage()]
    assert "POST /v1/x, 7 bytes, request 4f" in line
    assert "compute (" in line


def test_a_loop_that_only_waits_blames_no_request(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stalls: Stalls) -> None:
        threading.Event().wait(CPU_S)  # as when the machine gives the process no processor
        await until(lambda: sum(stalls.waited))

    with caplog.at_level(logging.WARNING):
        stalls = watched(scenario)
    assert (sum(stalls.held), sum(stalls.waited) >= 1) == (0, True)
    assert caplog.records == []


def test_lines_are_few_and_say_what_they_leave_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(stalls: Stalls) -> None:
        for _ in range(3):
            stalls._note(1.0, 1.0)
        stalls._logged_at = float("-inf")
        stalls._note(1.0, 1.0)

    with caplog.at_level(logging.WARNING):
        watched(scenario)
    assert [("2 stalls before" in record.getMessage()) for record in caplog.records] == [False, True]


def test_a_node_without_requests_is_not_watched_and_one_with_requests_is_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stockade.http_api.request.stalls.AWAKE_S", 0.03)

    async def scenario(stalls: Stalls) -> None:
        for _ in range(2):
            stalls.touch()
            assert stalls._is_awake
            await until(lambda: not stalls._is_awake)
            assert not [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]

    watched(scenario)
    assert "stalls" not in {thread.name for thread in threading.enumerate()}


def test_the_metrics_of_a_node_have_its_stalls() -> None:
    async def test(node: Conversation) -> None:
        text = (await node.call("GET", "/metrics")).body.decode()
        for cause in ("held", "waited"):
            assert f'stockade_loop_stall_seconds_bucket{{cause="{cause}",le="+Inf"}}' in text

    run(test)
