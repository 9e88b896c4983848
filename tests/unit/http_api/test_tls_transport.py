"""The transport with TLS, by itself: what it promises a protocol, at an end that OpenSSL drives in a thread."""

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from waiting import until

from stockade.http_api.tls_transport import RECORD_BYTES, UNSENT_BYTES, TlsTransport

from .test_https import LOOPS, House, house, play

__all__ = ["house"]

MUCH = bytes(range(256)) * 16_384
"""4 MiB: more than sockets buffer."""
ADDRESS = ("192.0.2.1", 5)
Loop = Callable[[], asyncio.AbstractEventLoop]
Scenario = Callable[["Recorder", ssl.SSLSocket], Awaitable[None]]


class Recorder(asyncio.Protocol):
    """Notes what it is told."""

    transport: TlsTransport

    def __init__(self) -> None:
        self.came = bytearray()
        self.told: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.came += data

    def eof_received(self) -> None:
        self.told.append("end")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.told.append(exc)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    async def over(self) -> object:
        """How the connection ended."""
        await until(lambda: any(each is None or isinstance(each, Exception) for each in self.told))
        return self.told[-1]


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Loop:
    chosen: Loop = request.param
    return chosen


@pytest.fixture
def pair(house: House) -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """The two ends of a connection after the handshake: a node's, and a client's, which blocks."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(house.section().certificate, house.section().key)
    one, other = socket.socketpair()
    other.settimeout(60)
    client = house.trusting_any_host().wrap_socket(other, do_handshake_on_connect=False, suppress_ragged_eofs=False)
    shaking = threading.Thread(target=client.do_handshake)
    shaking.start()
    node = server.wrap_socket(one, server_side=True)
    shaking.join()
    node.setblocking(False)
    with node, client:
        yield node, client


@pytest.fixture
def scene(loop: Loop, pair: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> Callable[[Scenario], None]:
    """Runs a scenario with the protocol of the node's end, and the client's end."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            async with recorded(pair[0]) as protocol:
                await scenario(protocol, pair[1])

        play(main(), loop)

    return run


@asynccontextmanager
async def recorded(node: ssl.SSLSocket) -> AsyncIterator[Recorder]:
    protocol = Recorder()
    transport = TlsTransport(asyncio.get_running_loop(), node, protocol, ADDRESS)
    yield protocol
    transport.abort()
    await protocol.over()


def received(client: ssl.SSLSocket) -> bytes:
    """What comes until the other end says that it has ended (close_notify). Raises SSLEOFError if it does not."""
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_much_arrives_whole_while_the_protocol_is_paused_and_goes_on(scene: Callable[[Scenario], None]) -> None:
    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        transport = protocol.transport
        transport.write(MUCH)
        transport.write(memoryview(b"the end"))
        assert protocol.told == ["pause"]
        assert transport.get_write_buffer_size() > UNSENT_BYTES
        transport.close()
        transport.write(b"too late")
        assert await asyncio.to_thread(received, client) == MUCH + b"the end"
        assert await protocol.over() is None
        assert protocol.told == ["pause", "resume", None]

    scene(scenario)


def test_bytes_that_wait_do_not_change_with_the_callers_buffer(scene: Callable[[Scenario], None]) -> None:
    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        buffer = bytearray(MUCH)
        protocol.transport.write(buffer)
        buffer[:] = bytes(len(buffer))
        protocol.transport.close()
        assert await asyncio.to_thread(received, client) == MUCH

    scene(scenario)


@pytest.mark.parametrize("size", [1, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, len(MUCH)])
def test_everything_that_comes_is_given_on(scene: Callable[[Scenario], None], size: int) -> None:
    """No byte remains in OpenSSL, where the loop would not see it: the socket itself has nothing more to read."""

    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        await asyncio.to_thread(client.sendall, MUCH[:size])
        await until(lambda: len(protocol.came) >= size)
        assert protocol.came == MUCH[:size]

    scene(scenario)


def test_a_paused_protocol_is_given_nothing_until_it_resumes(scene: Callable[[Scenario], None]) -> None:
    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        protocol.transport.pause_reading()
        assert not protocol.transport.is_reading()
        sending = asyncio.create_task(asyncio.to_thread(client.sendall, MUCH))
        assert not (await asyncio.wait([sending], timeout=0.2))[0]
        assert not protocol.came
        protocol.transport.resume_reading()
        await sending
        await until(lambda: protocol.came == MUCH)

    scene(scenario)


def test_the_end_of_the_client_is_told_and_the_answer_is_sent(scene: Callable[[Scenario], None]) -> None:
    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        client.sendall(b"the last request")
        protocol.transport.write(b"the last answer")
        assert (await asyncio.to_thread(client.recv, 100)) == b"the last answer"
        await asyncio.to_thread(client.unwrap)
        assert await protocol.over() is None
        assert (bytes(protocol.came), protocol.told) == (b"the last request", ["end", None])
        assert protocol.transport.is_closing()

    scene(scenario)


def test_an_abort_drops_what_is_not_sent(scene: Callable[[Scenario], None]) -> None:
    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        protocol.transport.write(MUCH)
        protocol.transport.abort()
        assert protocol.transport.get_write_buffer_size() == 0
        assert await protocol.over() is None
        with pytest.raises((ssl.SSLEOFError, ConnectionError)):
            await asyncio.to_thread(received, client)

    scene(scenario)


@pytest.mark.parametrize("has_unsent", [False, True])
def test_a_client_that_is_gone_ends_the_connection_once(scene: Callable[[Scenario], None], has_unsent: bool) -> None:
    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        if has_unsent:
            protocol.transport.write(MUCH)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await protocol.over()
        protocol.transport.close()
        protocol.transport.abort()
        protocol.transport.write(b"more")
        assert [each for each in protocol.told if each is None or isinstance(each, Exception)] == protocol.told[-1:]

    scene(scenario)


def test_bytes_that_are_no_tls_end_the_connection(
    loop: Loop, pair: tuple[ssl.SSLSocket, ssl.SSLSocket], tmp_path: Path
) -> None:
    node, client = pair

    async def scenario() -> None:
        async with recorded(node) as protocol:
            with socket.socket(fileno=client.detach()) as bare:
                bare.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
                assert isinstance(await protocol.over(), ssl.SSLError)
                assert not protocol.came

    play(scenario(), loop)


def test_what_a_protocol_may_ask_of_its_connection(scene: Callable[[Scenario], None]) -> None:
    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        transport = protocol.transport
        found = {name: transport.get_extra_info(name) for name in ("peername", "ssl_object", "sslcontext", "socket")}
        assert found["peername"] == ADDRESS
        assert found["ssl_object"].version() == "TLSv1.3"
        assert found["sslcontext"] is found["socket"].context
        assert transport.get_write_buffer_limits() == (UNSENT_BYTES // 4, UNSENT_BYTES)
        transport.set_write_buffer_limits(high=100)
        assert transport.get_write_buffer_limits() == (25, 100)
        transport.set_write_buffer_limits(low=10)
        assert transport.get_write_buffer_limits() == (10, 40)
        assert not transport.can_write_eof()
        other = Recorder()
        transport.set_protocol(other)
        assert transport.get_protocol() is other
        client.sendall(b"for the other")
        await until(lambda: other.came == b"for the other")
        transport.set_protocol(protocol)

    scene(scenario)
