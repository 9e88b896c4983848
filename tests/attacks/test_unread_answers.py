"""Clients that ask and read no answer: a stranger cannot keep a node's connections with what it does not read."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from unit.http_api.conversation import RECORDS, TEXT
from unit.http_api.test_https import LOOPS, House, client_of, listening, play
from unit.http_api.test_tls_site import counted

from stockade.cluster.https import HttpTls
from stockade.http_api import server as servers
from stockade.http_api.app import HttpServer
from stockade.http_api.codec import media
from stockade.http_api.handlers import system
from stockade.http_api.handlers.console import build
from stockade.http_api.records import sendfile
from stockade.http_api.request import connections
from stockade.http_api.request.connections import ConnectionBounds

RECEIVE_BYTES = 2048
PIPELINED = 200
"""Files of the console, 10 MB and so beyond what the kernel and the node hold of answers."""
ANSWER_BYTES = 10 << 20
ENDED = 'stockade_http_ended_connections_total{reason="%s"} %.1f'


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House.make(tmp_path / "house")


@pytest.fixture(autouse=True)
def no_other_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SWEEP_S", 0.01)
    monkeypatch.setattr(servers, "SLOWEST_BYTES_PER_S", 1 << 40)
    for name in ("FIRST_BYTE_S", "HEAD_S", "IDLE_S", "STALL_S", "STUCK_S"):
        monkeypatch.setattr(servers, name, 3600.0)


def question(more: bytes = b"") -> bytes:
    """Asks for the largest file of the console that aiohttp sends whole."""
    found = build()
    name = max(found.files, key=lambda name: (len(found.files[name].body) <= 1 << 16, len(found.files[name].body)))
    return f"GET /console/{found.name}/{name} HTTP/1.1\r\nHost: n1\r\n".encode() + more + b"\r\n"


@asynccontextmanager
async def unread(port: int, context: ssl.SSLContext | None, asked: bytes) -> AsyncIterator[asyncio.StreamWriter]:
    """A connection whose client asks this and reads nothing."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    own.setblocking(False)
    await asyncio.get_running_loop().sock_connect(own, ("127.0.0.1", port))
    host = None if context is None else "127.0.0.1"
    _, writer = await asyncio.open_connection(sock=own, ssl=context, server_hostname=host, limit=1)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(asked)
    try:
        yield writer
    finally:
        writer.transport.abort()


def way(server: HttpServer, house: House, *, https: bool) -> tuple[int, ssl.SSLContext | None]:
    """Port and TLS of a client."""
    return (server.port, house.trusting()) if https else (server.ports[1], None)


def held_when_paused(monkeypatch: pytest.MonkeyPatch) -> asyncio.Future[int]:
    """How many bytes the node holds for the first client that is found to read too slowly, once there is one."""
    held: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    pause = servers.HttpConnection.pause_writing

    def tell(self: servers.HttpConnection) -> None:
        pause(self)
        self._loop.call_soon(look, self)

    def look(connection: servers.HttpConnection) -> None:
        if not held.done():
            held.set_result(connection._unsent())

    monkeypatch.setattr(servers.HttpConnection, "pause_writing", tell)
    return held


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("https", [False, True], ids=["http", "https"])
def test_a_client_that_reads_none_of_many_small_answers_is_cut_off(
    house: House, https: bool, loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "STALL_S", 0.1)

    async def main() -> None:
        async with (
            listening(HttpTls(house.section())) as server,
            unread(*way(server, house, https=https), question() * PIPELINED),
        ):
            await counted(server, house, ENDED % ("stalled", 1))

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("https", [False, True], ids=["http", "https"])
def test_a_client_that_reads_nothing_loses_its_connection_to_a_new_one_at_the_bound(
    house: House, https: bool, loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "STUCK_S", 0.0)

    async def main() -> None:
        held = held_when_paused(monkeypatch)
        async with (
            listening(HttpTls(house.section()), ConnectionBounds(1, 1, 1 << 20)) as server,
            unread(*way(server, house, https=https), question() * PIPELINED),
        ):
            await held
            await counted(server, house, ENDED % ("evicted_address", 1))

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_reads_no_long_answer_of_records_loses_its_connection_to_a_new_one_at_the_bound(
    house: House, loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel sends these from the files, and the connection passed for a busy one."""
    monkeypatch.setattr(servers, "STUCK_S", 0.0)
    began = asyncio.Event()
    send = sendfile._Sending._send

    def tell(self: sendfile._Sending) -> None:
        send(self)
        began.set()

    monkeypatch.setattr(sendfile._Sending, "_send", tell)

    async def main() -> None:
        async with listening(HttpTls(house.section()), ConnectionBounds(2, 2, 1 << 20)) as server:
            async with client_of(server, house.trusting()) as client:
                async with client.post("/v1/topics", json={"name": "orders"}) as made:
                    assert made.status == 201
                for _ in range(12):
                    async with client.post(RECORDS, data=bytes(1_000_000), headers=TEXT) as stored:
                        assert stored.status == 200
            head = f"GET {RECORDS}?max_bytes=60000000 HTTP/1.1\r\nHost: n1\r\nAccept: {media.ARROW}\r\n\r\n"
            async with (
                unread(server.ports[1], None, head.encode()) as one,
                unread(server.ports[1], None, head.encode()),
            ):
                await began.wait()
                await counted(server, house, ENDED % ("evicted_address", 1))
                assert one.transport is not None
            async with asyncio.timeout(60):
                while server.front.in_flight.requests.used:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("https", [False, True], ids=["http", "https"])
def test_of_a_large_answer_that_is_not_read_the_node_holds_a_few_pieces(
    house: House, https: bool, loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured before: 500 strangers that ask for the contract over TLS and read nothing take 250 MB of a node."""
    monkeypatch.setattr(system, "asset", lambda name: bytes(ANSWER_BYTES))

    async def main() -> None:
        held = held_when_paused(monkeypatch)
        asked = b"GET /openapi.json HTTP/1.1\r\nHost: n1\r\n\r\n"
        async with (
            listening(HttpTls(house.section())) as server,
            unread(*way(server, house, https=https), asked),
        ):
            assert await held < ANSWER_BYTES // 4

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("follow", ["", "&follow=true"])
def test_of_encrypted_records_that_are_not_read_the_node_holds_a_few_pieces(
    house: House, follow: str, loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may read one topic could ask for its records on 5,000 connections, and each held up to 2 MiB."""

    async def main() -> None:
        async with listening(HttpTls(house.section())) as server, client_of(server, house.trusting()) as client:
            async with client.post("/v1/topics", json={"name": "orders"}) as made:
                assert made.status == 201
            for _ in range(6):
                async with client.post(RECORDS, data=bytes(1_000_000), headers=TEXT) as stored:
                    assert stored.status == 200
            held = held_when_paused(monkeypatch)
            head = f"GET {RECORDS}?max_bytes=10000000{follow} HTTP/1.1\r\nHost: n1\r\nAccept: {media.ARROW}\r\n\r\n"
            async with unread(*way(server, house, https=True), head.encode()):
                assert await held < 512 * 1024

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_that_ends_with_an_answer_that_is_not_read_is_cut_off(
    house: House, loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "STALL_S", 0.1)
    made = servers.HttpConnection.connection_made

    def made_small(self: servers.HttpConnection, transport: asyncio.BaseTransport) -> None:
        """The kernel takes less than the answer, and the rest is too little to pause."""
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, RECEIVE_BYTES)
        made(self, transport)

    async def main() -> None:
        async with listening(HttpTls(house.section())) as server:
            port, _ = way(server, house, https=False)
            with monkeypatch.context() as small:
                small.setattr(servers.HttpConnection, "connection_made", made_small)
                async with unread(port, None, question(b"Connection: close\r\n")):
                    await counted(server, house, ENDED % ("stalled", 1))

    play(main(), loop)
