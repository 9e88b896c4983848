"""A dialled node is dialled again after every failure, of any kind."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from socket import AF_INET, SOCK_STREAM, gaierror, socket
from typing import Any

import pytest

from stockade.raft.net.connection import Connection
from stockade.raft.net.dialer import Dialer, Dialled
from stockade.raft.net.liveness import LivenessTimeouts

from ..transports import UNSET, Node
from .test_streams import Caller, echoing


def test_a_node_dials_again_after_a_bug_in_one_dial(
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
        await asyncio.wait_for(again.wait(), 60)
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
        await asyncio.wait_for(done.wait(), 60)
        await dialer.stop()

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    whys = ["Connection refused", "Name or service not known", "no answer in 5 s", "Connection refused"]
    assert caplog.messages == [f"cannot reach n2 at n2.test:7201: {why}" for why in whys]


@contextmanager
def deaf(host: str, port: int = 0) -> Iterator[int]:
    """A port whose queue of connections is full: the kernel drops the packets of the next one that is opened."""
    with ExitStack() as open_ones:
        listener, *callers = [open_ones.enter_context(socket()) for _ in range(4)]
        listener.bind((host, port))
        listener.listen(0)
        for caller in callers:
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(listener.getsockname())
        yield listener.getsockname()[1]


def resolve_to(*hosts: str) -> Callable[..., list[Any]]:
    """A resolver for which the host n1.test has these addresses."""

    def resolve(host: str, port: int, *_: object, **__: object) -> list[Any]:
        return [(AF_INET, SOCK_STREAM, 6, "", (each, port)) for each in (hosts if host == "n1.test" else (host,))]

    return resolve


class Peer(Dialled):
    """Notes where it was reached."""

    def __init__(self, reached: "asyncio.Future[str]", peer: str | None = None) -> None:
        self.closed, self.is_to_be_dialled_again, self.peer = asyncio.Event(), False, peer
        self._reached = reached

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._reached.set_result(transport.get_extra_info("peername")[0])
        if self.peer is None:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


def test_a_host_whose_first_address_swallows_all_packets_is_reached_at_its_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where one family of addresses is broken between two nodes: each dial began, and ended, with that one."""

    async def scenario(port: int) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.2", port)
        reached: asyncio.Future[str] = loop.create_future()
        dialer = Dialer(lambda peer: Peer(reached), 0.5, 60.0)
        dialer.dial("n1", ("n1.test", port))
        assert await asyncio.wait_for(reached, 60) == "127.0.0.2"
        await dialer.stop()
        server.close()

    monkeypatch.setattr("socket.getaddrinfo", resolve_to("127.0.0.1", "127.0.0.2"))
    with deaf("127.0.0.1") as port:
        asyncio.run(scenario(port))


def test_a_former_address_that_swallows_all_packets_holds_up_the_other_one_for_a_quarter_of_the_time_at_most(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where a machine is gone: each restart of a node that had moved away from there would have taken 3 s longer."""

    async def scenario(port: int) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.2", 0)
        reached: asyncio.Future[str] = loop.create_future()
        dialer = Dialer(lambda peer: Peer(reached), 2.0, 0.0)
        dialer.look_also("n1", ("127.0.0.1", port))
        dialer.dial("n1", ("127.0.0.2", server.sockets[0].getsockname()[1]))
        dialer._to_former.add("n1")
        assert await asyncio.wait_for(reached, 20) == "127.0.0.2"
        await dialer.stop()
        server.close()

    with deaf("127.0.0.1") as port, caplog.at_level(logging.INFO):
        asyncio.run(scenario(port))
        assert f"cannot reach n1 at 127.0.0.1:{port}: no answer in 0.5 s" in caplog.messages


def test_a_stream_to_a_host_whose_first_address_swallows_all_packets_opens_at_its_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.getaddrinfo", resolve_to("127.0.0.3", "127.0.0.1"))

    async def scenario() -> None:
        addresses, times = {"n1": UNSET, "n2": UNSET}, LivenessTimeouts(dead_s=1.0)
        async with Node("n1", addresses, times) as n1, Node("n2", addresses, times) as n2:
            echoing(n1)
            port, caller = n1.transport.address[1], Caller()
            n2.transport.set_peer("n1", ("n1.test", port))
            with deaf("127.0.0.3", port):
                await n2.transport.open_stream("n1", caller)
            caller.transport.write(b"hello")
            await caller.until(5)

    asyncio.run(asyncio.wait_for(scenario(), 60))  # uvloop resolves names by itself


def test_the_late_end_of_a_first_dial_does_not_fail_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection of the first attempt came up as its time was over; its end refused the stream that then opened."""
    monkeypatch.setattr("socket.getaddrinfo", resolve_to("127.0.0.3", "127.0.0.1"))

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        addresses, times = {"n1": UNSET, "n2": UNSET}, LivenessTimeouts(dead_s=1.0)
        async with Node("n1", addresses, times) as n1, Node("n2", addresses, times) as n2:
            echoing(n1)
            caller, connect = Caller(), loop.create_connection
            late: list[Connection] = []

            async def connecting(make: Callable[[], Connection], host: str, port: int) -> Any:
                protocol = make()
                if protocol.wanted is None or late:
                    if protocol.wanted is not None:
                        loop.call_soon(late[0].connection_lost, None)
                    return await connect(lambda: protocol, host, port)
                transport, _ = await connect(lambda: protocol, "127.0.0.1", port)
                late.append(protocol)
                transport.pause_reading()
                try:
                    await asyncio.Event().wait()  # until the attempt's time is over
                finally:
                    transport.close()
                return transport, protocol

            monkeypatch.setattr(loop, "create_connection", connecting, raising=False)
            n2.transport.set_peer("n1", ("n1.test", n1.transport.address[1]))
            await n2.transport.open_stream("n1", caller)
            caller.transport.write(b"hello")
            await caller.until(5)
            assert late[0] not in n2.transport._open

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_connected_node_that_moves_is_dialled_at_its_new_address_first_once_the_connection_is_lost() -> None:
    """The former address came first: a machine that is gone swallows that dial."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(asyncio.Protocol, f"127.0.0.{host}", 0) for host in (1, 2)]
        here, there = (server.sockets[0].getsockname() for server in servers)
        reached: list[asyncio.Future[str]] = [loop.create_future() for _ in range(2)]
        peers = [Peer(future, "n1") for future in reached]
        left = iter(peers)
        dialer = Dialer(lambda _: next(left), 60.0, 0.0)
        dialer.dial("n1", here)
        assert await reached[0] == "127.0.0.1"
        dialer.reached("n1")
        dialer.look_also("n1", here)
        dialer.dial("n1", there)
        peers[0]._transport.close()
        assert await reached[1] == "127.0.0.2"
        await dialer.stop()
        peers[1]._transport.close()
        await peers[1].closed.wait()
        for server in servers:
            server.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
