"""HTTPS connections that do not begin, or never end, their TLS handshake are bounded like any others."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

import aiohttp
import pytest
from waiting import until

from stockade.cluster.https import HttpTls
from stockade.http_api import tls_site
from stockade.http_api.app import HttpServer
from stockade.http_api.request.connections import ConnectionBounds

from .test_https import LOOPS, House, client_of, has_shaken, house, listening, play, status

__all__ = ["house"]

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ALL = 1 << 20
HELLO_BEGINS = b"\x16\x03\x01\x02\x00\x01\x00"


async def silent(server: HttpServer, first: bytes = b"") -> Connection:
    """A connection that never shakes hands."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(first)
    return reader, writer


async def is_cut(connection: Connection) -> bool:
    """Waits until the node ends a connection without a byte; the test's time is over where it does not."""
    reader, writer = connection
    found = b""
    with suppress(ConnectionError):
        found = await reader.read()
    writer.close()
    return found == b""


async def counted(server: HttpServer, house: House, text: str) -> None:
    """Wait until the metrics of a node say this."""
    async with client_of(server, house.trusting()) as session:
        while True:
            async with session.get("/metrics") as answer:
                if text in await answer.text():
                    return


def hang_up(*connections: Connection) -> None:
    for _, writer in connections:
        writer.transport.abort()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("first", [b"", HELLO_BEGINS], ids=["silent", "a hello begins"])
@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        (ConnectionBounds(8, 8, ALL), "evicted_address"),
        (ConnectionBounds(8, 9, ALL), "evicted_connections"),
    ],
)
def test_connections_without_a_handshake_make_room_for_a_client(
    house: House, bounds: ConnectionBounds, reason: str, first: bytes, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        async with listening(HttpTls(house.section()), bounds) as server:
            idle = [await silent(server, first) for _ in range(8)]
            async with client_of(server, house.trusting()) as session:
                async with session.get("/metrics") as answer:
                    text = await answer.text()
                assert f'stockade_http_ended_connections_total{{reason="{reason}"}} 1.0' in text
                assert "stockade_http_connections 8.0" in text
                assert await is_cut(idle[0])
                assert [reader.at_eof() for reader, _ in idle] == [True] + [False] * 7
            hang_up(*idle)
            await counted(server, house, "stockade_http_connections 1.0")

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_handshake_never_costs_a_descriptor_of_the_logs(
    house: House, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        with socket.socket() as lowest:
            bound = lowest.fileno()
        # Above all that the test itself opens: the ends of the clients have numbers between those of the node.
        async with listening(HttpTls(house.section()), ConnectionBounds(ALL, ALL, bound + 40)) as server:
            idle = [await silent(server) for _ in range(40)]
            await counted(server, house, 'reason="evicted_descriptors"')
            assert await is_cut(idle[0])
            hang_up(*idle)

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("first", [b"", HELLO_BEGINS], ids=["silent", "a hello begins"])
def test_a_handshake_has_a_time(
    house: House, first: bytes, loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_site, "HANDSHAKE_S", 0.2)

    async def main() -> None:
        async with listening(HttpTls(house.section())) as server:
            assert await is_cut(await silent(server, first))
            await counted(server, house, 'stockade_http_ended_connections_total{reason="handshake"} 1.0')

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_handshake_that_fails_is_counted_no_more(house: House, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with listening(HttpTls(house.section("required"))) as server:
            for _ in range(20):
                assert await is_cut(await silent(server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
            with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
                await status(server, house.trusting())
            async with client_of(server, house.trusting("app")) as session:
                while True:
                    async with session.get("/metrics") as answer:
                        if "stockade_http_connections 1.0" in await answer.text():
                            return

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_busy_node_refuses_a_connection_before_its_handshake(
    house: House, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        async with (
            listening(HttpTls(house.section()), ConnectionBounds(1, 1, ALL)) as server,
            client_of(server, house.trusting()) as session,
        ):
            async with session.post("/v1/topics", json={"name": "orders", "partitions": 1}) as made:
                assert made.status == 201
            waiting = asyncio.ensure_future(session.get("/v1/topics/orders/partitions/0/records?max_wait_ms=60000"))
            await until(lambda: server.front.in_flight.requests.used)
            assert await is_cut(await silent(server))
            assert not waiting.done()
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_that_closes_ends_its_handshakes(house: House, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with listening(HttpTls(house.section())) as server:
            idle = [await silent(server) for _ in range(3)]
            await counted(server, house, "stockade_http_connections 4.0")
        assert [await is_cut(each) for each in idle] == [True] * 3

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_listener_resumes_when_descriptors_are_free_again(
    house: House, loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_site, "PAUSE_S", 0.01)
    accept, faults = socket.socket.accept, [errno.EMFILE, errno.ENFILE]

    def poor(listening: socket.socket) -> tuple[socket.socket, object]:
        if faults:
            raise OSError(faults.pop(), "too many open files")
        return accept(listening)

    async def main() -> None:
        async with listening(HttpTls(house.section())) as server:
            monkeypatch.setattr(socket.socket, "accept", poor)
            assert await status(server, house.trusting()) == 200
            assert faults == []

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(
    house: House, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """The handshake reads its bytes, too: the socket itself has nothing more to read then."""

    async def main() -> None:
        async with listening(HttpTls(house.section())) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            came, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls, answer = house.trusting_any_host().wrap_bio(came, to_send), b""
            while not has_shaken(tls):
                writer.write(to_send.read())
                came.write(await reader.read(1 << 16))
            tls.write(b"GET /v1/cluster HTTP/1.1\r\nHost: x\r\n\r\n")
            writer.write(to_send.read())
            while b"\r\n\r\n" not in answer:
                came.write(await reader.read(1 << 16))
                with suppress(ssl.SSLWantReadError):
                    answer += tls.read(1 << 16)
            assert answer.startswith(b"HTTP/1.1 200 ")
            writer.close()

    play(main(), loop)
