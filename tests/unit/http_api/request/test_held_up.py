"""When the time of a client is over that takes its answers slowly or not at all, and when its connection may go."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import pytest

from stockade.http_api.request.call import SLOWEST_BYTES_PER_S, STALL_S
from stockade.http_api.server import STUCK_S, HttpConnection, HttpRunner

from ..conversation import nodes

SECOND = SLOWEST_BYTES_PER_S
"""Bytes that a client has to take in a second."""


class Wire(asyncio.Transport):
    """A transport whose unsent bytes the test sets."""

    def __init__(self, own: socket.socket) -> None:
        super().__init__({"socket": own})
        self.unsent = 0
        self.ends = False
        self.end = ""

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.ends

    def close(self) -> None:
        self.ends = True

    def abort(self) -> None:
        self.end = "aborted"


def held(test: Callable[[HttpConnection, Wire, Callable[[float], None]], None]) -> None:
    """Run a test with a connection, its transport, and what sets the time."""

    async def main() -> None:
        async with nodes(1) as (node,):
            connection = cast(HttpRunner, node.server._runner).new_connection()
            with socket.socket() as own:
                wire = Wire(own)
                connection.connection_made(wire)
                clock = Clock(connection._loop)
                connection._loop = cast(asyncio.AbstractEventLoop, clock)
                test(connection, wire, clock.set)
                connection.connection_lost(None)

    asyncio.run(main())


class Clock:
    """A loop whose time the test sets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._now_s = 0.0

    def set(self, now_s: float) -> None:
        self._now_s = now_s

    def time(self) -> float:
        return self._now_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


def test_a_stalled_client_has_stall_s_and_the_time_for_its_unsent_bytes() -> None:
    def test(connection: HttpConnection, wire: Wire, at: Callable[[float], None]) -> None:
        wire.unsent = 3 * SECOND
        connection.pause_writing()
        assert connection.overdue(STALL_S + 2.9) is None
        assert connection.overdue(STALL_S + 3) == "stalled"
        connection.resume_writing()
        assert connection.overdue(STALL_S + 3) != "stalled"
        at(100.0)
        connection.pause_writing()
        assert connection.overdue(100 + STALL_S + 2.9) is None

    held(test)


def test_a_connection_may_go_when_its_client_has_taken_less_than_the_slowest_would() -> None:
    def test(connection: HttpConnection, wire: Wire, at: Callable[[float], None]) -> None:
        connection._request_in_progress, connection._is_fresh = True, False
        connection._waiter = None  # from Python 3.12 on, aiohttp waits for a request already
        wire.unsent = 100 * SECOND
        assert not connection.is_idle
        connection.pause_writing()
        at(STUCK_S - 0.1)
        assert not connection.is_idle
        at(STUCK_S)
        assert connection.is_idle
        wire.unsent -= int(STUCK_S * SECOND)
        assert not connection.is_idle
        wire.unsent += 1
        assert connection.is_idle

    held(test)


def test_a_connection_that_ends_has_the_time_of_a_stall_for_its_last_bytes() -> None:
    def test(connection: HttpConnection, wire: Wire, at: Callable[[float], None]) -> None:
        connection.force_close()
        wire.unsent = 10
        assert connection.overdue(7.0) is None
        assert connection.overdue(7 + STALL_S - 0.1) is None
        assert connection.overdue(7 + STALL_S) == "stalled"
        connection.evict()
        assert wire.end == "aborted"

    held(test)


@pytest.mark.parametrize("is_paused", [True, False])
def test_evict_resets_a_connection_with_unsent_bytes_and_closes_an_idle_one(is_paused: bool) -> None:
    def test(connection: HttpConnection, wire: Wire, at: Callable[[float], None]) -> None:
        if is_paused:
            connection.pause_writing()
        connection.evict()
        own = wire.get_extra_info("socket")
        lingers = own.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER)
        assert (wire.end, lingers) == ("aborted", 1 if is_paused else 0)

    held(test)
