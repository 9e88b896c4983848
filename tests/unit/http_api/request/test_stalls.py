"""The event loop that stands still, and the request that holds it."""

import asyncio
import inspect
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable
from types import FrameType

import pytest
from waiting import until

from stockade.http_api.request.call import request_of
from stockade.http_api.request.stalls import KEPT_MAX, LONG_WAIT_S, STALL_S, Asked, Stalls, _Seen

from ..conversation import Conversation, run
from ..fake_service import FakeService
from ..samples import GOOD

CPU_S = 20 * STALL_S
"""What holds the loop in these tests: long enough that its stack is looked at also on a busy machine."""


def compute() -> None:
    """Hold the loop."""
    end = time.thread_time() + CPU_S
    while time.thread_time() < end:
        pass


def named(frame: FrameType) -> Asked | None:
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


def test_a_request_that_holds_the_loop_is_counted_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stalls: Stalls) -> None:
        request = Asked("POST /v1/x", 7, "4f")
        assert request
        compute()
        await until(lambda: sum(stalls.held))

    with caplog.at_level(logging.WARNING):
        stalls = watched(scenario)
    assert stalls.held_s >= CPU_S - 2 * STALL_S
    (line,) = [record.getMessage() for record in caplog.records if "stood still" in record.getMessage()]
    assert "POST /v1/x, 7 bytes, request 4f" in line
    assert "compute (" in line
    (kept,) = stalls.latest(10)
    assert (kept.route, kept.body_bytes, kept.request) == ("POST /v1/x", 7, "4f")
    assert kept.held_ms >= (CPU_S - 2 * STALL_S) * 1000
    assert kept.stack[0].startswith("compute (")
    assert kept.at_ms > 1_700_000_000_000


def test_a_stack_that_cannot_be_read_ends_neither_the_watch_nor_the_count() -> None:
    def half_made(frame: FrameType) -> Asked | None:
        raise AttributeError("route")

    async def main() -> Stalls:
        stalls = Stalls(half_made)
        while sum(stalls.held) < 2:
            stalls.touch()  # a busy machine may take longer than AWAKE_S for one of them
            compute()
            await asyncio.sleep(0)
        assert stalls._thread is not None
        assert stalls._thread.is_alive()
        stalls.close()
        return stalls

    assert sum(asyncio.run(main()).held) >= 2


def test_a_loop_that_only_waits_blames_no_request(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockade.http_api.request.stalls.LONG_WAIT_S", math.inf)  # on a busy machine it waits for long

    async def scenario(stalls: Stalls) -> None:
        threading.Event().wait(CPU_S)  # as when the machine gives the process no processor
        await until(lambda: sum(stalls.waited))

    with caplog.at_level(logging.WARNING):
        stalls = watched(scenario)
    assert (sum(stalls.held), sum(stalls.waited) >= 1) == (0, True)
    assert stalls.latest(10) == []
    assert caplog.records == []


def test_stalls_are_logged_at_a_bounded_rate_with_the_number_left_out(caplog: pytest.LogCaptureFixture) -> None:
    stalls = Stalls(lambda _: None)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            stalls._note(1.0, 1.0)
        stalls._logged_at = float("-inf")
        stalls._note(1.0, 1.0)
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


def test_a_stall_counts_the_processor_time_of_the_loop_and_the_rest_as_a_wait() -> None:
    stalls = Stalls(lambda _: None)
    stalls._note(0.9, 0.03)
    assert [each.held_ms for each in stalls.latest(1)] == [30]
    stalls._note(0.9, 0.019)
    assert (sum(stalls.held), sum(stalls.waited)) == (1, 2)
    assert (round(stalls.held_s, 3), round(stalls.waited_s, 3)) == (0.03, 1.751)


def test_a_wait_that_costs_a_leader_its_groups_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    stalls = Stalls(lambda _: None)
    with caplog.at_level(logging.WARNING):
        stalls._note(LONG_WAIT_S - 0.01, 0.0)
        assert caplog.records == []
        stalls._note(1.3, 0.01)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "it computed for 10 ms and waited 1290 ms for a processor or a disk" in line


def test_the_latest_stalls_are_kept_the_last_one_first() -> None:
    async def scenario(stalls: Stalls) -> None:
        for number in range(KEPT_MAX + 1):
            stalls._note(1 + number, 1 + number)

    stalls = watched(scenario)
    assert [each.held_ms for each in stalls.latest(2)] == [1000 * (KEPT_MAX + 1), 1000 * KEPT_MAX]
    assert [each.held_ms for each in stalls.latest(KEPT_MAX + 1)][-1] == 2000
    assert stalls.latest(1)[0].stack == []


def test_stalls_of_a_node_are_listed_with_request_and_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stalls, "touch", lambda _: None)  # a busy machine adds no stalls of its own

    async def test(node: Conversation) -> None:
        assert (await node.call("GET", "/v1/stalls?n=1")).json == {"node_id": "n1", "stalls": []}
        stalls = node.server.stalls
        stalls._seen = _Seen(Asked("GET /v1/topics", 0, "5f"), ["dump (json_codec.py:109)"])
        stalls._note(0.041, 0.041)
        stalls._note(0.5, 0.5)
        listed = (await node.call("GET", "/v1/stalls")).json["stalls"]
        assert [each["held_ms"] for each in listed] == [500, 41]
        assert (listed[1]["route"], listed[1]["request"]) == ("GET /v1/topics", "5f")
        for bad in ("0", "101", "x"):
            assert (await node.call("GET", f"/v1/stalls?n={bad}")).status == 400

    run(test)


@pytest.mark.parametrize("name", ["close_session", "close_session_by_id"])
def test_a_stall_is_noted_by_the_route_and_without_the_id_of_a_session(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found: list[Asked] = []

    async def close_session(*_: object) -> None:
        frame = inspect.currentframe()
        while frame is not None:
            found.extend(filter(None, [request_of(frame)]))
            frame = frame.f_back

    async def test(node: Conversation) -> None:
        session = (await node.call("POST", "/v1/sessions", {"client_id": "c"})).json["session"]
        monkeypatch.setattr(FakeService, "close_session", close_session)
        asked = GOOD[name].filled({"session": session})
        assert (await node.call(asked.method, asked.path, None, asked.headers)).status == 204
        assert {each.route for each in found} == {"DELETE " + GOOD[name].path}

    run(test)


def test_the_metrics_of_a_node_have_its_stalls() -> None:
    async def test(node: Conversation) -> None:
        text = (await node.call("GET", "/metrics")).body.decode()
        for cause in ("held", "waited"):
            assert f'stockade_loop_stall_seconds_bucket{{cause="{cause}",le="+Inf"}}' in text

    run(test)
