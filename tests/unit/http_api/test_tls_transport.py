"""The transport with TLS, by itself: what it promises a protocol, at an end that OpenSSL drives in a thread."""

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from waiting import until

from stockade.http_api.tls_transport import READ_BYTES, RECORD_BYTES, UNSENT_BYTES, TlsInMemory, TlsTransport

from .test_https import LOOPS, House, has_shaken, house, play

__all__ = ["house"]

MUCH = bytes(range(256)) * 16_384
"""4 MiB: more than sockets buffer."""
ADDRESS = ("192.0.2.1", 5)
Loop = Callable[[], asyncio.AbstractEventLoop]
Scenario = Callable[["Recorder", ssl.SSLSocket], Awaitable[None]]
Node = tuple[socket.socket, TlsInMemory]
"""A node's end of a connection."""


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
def pair(house: House, tmp_path: Path) -> Iterator[tuple[Node, ssl.SSLSocket]]:
    """The two ends of a connection after the handshake: a node's, and a client's, which blocks."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(house.section().certificate, house.section().key)
    one, other = socket.socketpair()
    other.settimeout(60)
    trusting = house.trusting_any_host()
    trusting.keylog_filename = str(tmp_path / "keys")
    client = trusting.wrap_socket(other, do_handshake_on_connect=False, suppress_ragged_eofs=False)
    shaking = threading.Thread(target=client.do_handshake)
    shaking.start()
    session = TlsInMemory(server)
    while not has_shaken(session.tls):
        one.sendall(session.outgoing.read())
        session.incoming.write(one.recv(1 << 16))
    shaking.join()
    one.setblocking(False)
    with one, client:
        yield (one, session), client


@pytest.fixture
def scene(loop: Loop, pair: tuple[Node, ssl.SSLSocket]) -> Callable[[Scenario], None]:
    """Runs a scenario with the protocol of the node's end, and the client's end."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            async with recorded(pair[0]) as protocol:
                await scenario(protocol, pair[1])

        play(main(), loop)

    return run


@asynccontextmanager
async def recorded(node: Node) -> AsyncIterator[Recorder]:
    protocol = Recorder()
    transport = TlsTransport(asyncio.get_running_loop(), *node, protocol, ADDRESS)
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


def test_bytes_that_are_no_tls_end_the_connection(loop: Loop, pair: tuple[Node, ssl.SSLSocket], tmp_path: Path) -> None:
    node, client = pair

    async def scenario() -> None:
        async with recorded(node) as protocol:
            with bare(client) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
                assert isinstance(await protocol.over(), ssl.SSLError)
                assert not protocol.came

    play(scenario(), loop)


def test_what_a_protocol_may_ask_of_its_connection(scene: Callable[[Scenario], None]) -> None:
    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        transport = protocol.transport
        found = {name: transport.get_extra_info(name) for name in ("peername", "ssl_object", "sslcontext", "socket")}
        assert found["peername"] == ADDRESS
        assert found["ssl_object"].version() == "TLSv1.3"
        assert found["sslcontext"] is found["ssl_object"].context
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


@pytest.mark.parametrize("of", ["data_received", "connection_lost"])
def test_a_bug_of_the_protocol_ends_its_connection(
    scene: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """With the exception told, and the descriptor closed: in a connection that has lost bytes nothing is right."""

    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context.get("exception")))
        bug, whole = LookupError("a bug"), getattr(protocol, of)

        def fail(*arguments: object) -> None:
            whole(*arguments)
            raise bug

        monkeypatch.setattr(protocol, of, fail)
        plain = protocol.transport.get_extra_info("socket")
        await asyncio.to_thread(client.sendall, b"a request")
        await until(lambda: protocol.came)
        if of == "connection_lost":
            protocol.transport.close()
        await protocol.over()
        await until(lambda: plain.fileno() == -1)
        assert told == [bug]

    scene(scenario)


class KeyUpdates:
    """Records of TLS 1.3 by which a client changes its keys (RFC 8446, 4.6.3), made of its secret as OpenSSL logs it:
    the module ssl sends none.
    """

    def __init__(self, keys: Path) -> None:
        lines = (line.split() for line in keys.read_text().splitlines() if not line.startswith("#"))
        self._secret = bytes.fromhex(next(secret for label, _, secret in lines if label == "CLIENT_TRAFFIC_SECRET_0"))

    def made(self, count: int, *, requested: bool) -> bytes:
        """The next records. ``requested``: the node is to change its keys, too."""
        return b"".join(self._made(requested) for _ in range(count))

    def _made(self, requested: bool) -> bytes:
        key, nonce = self._derived(b"key", 32), self._derived(b"iv", 12)  # each key encrypts one record, the first
        self._secret = self._derived(b"traffic upd", 48)
        header = bytes([23, 3, 3, 0, 22])
        return header + AESGCM(key).encrypt(nonce, bytes([24, 0, 0, 1, requested, 22]), header)

    def _derived(self, label: bytes, length: int) -> bytes:
        label = b"tls13 " + label
        info = struct.pack(">HB", length, len(label)) + label + b"\0"
        return HKDFExpand(hashes.SHA384(), length, info).derive(self._secret)


def test_a_client_that_changes_its_keys_on_and_on_does_not_hold_the_loop(
    scene: Callable[[Scenario], None], tmp_path: Path
) -> None:
    """OpenSSL with the socket in its hands read on as long as such records came: one client held the node for 7 us a
    record, in which it led nothing.
    """

    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        turns = 0

        def count() -> None:
            nonlocal turns
            turns += 1
            if "end" not in protocol.told:
                asyncio.get_running_loop().call_soon(count)

        protocol.transport.pause_reading()
        with bare(client) as plain:
            flood = KeyUpdates(tmp_path / "keys").made(3 * READ_BYTES // 27 + 1, requested=False)
            sending = asyncio.create_task(asyncio.to_thread(plain.sendall, flood))
            await asyncio.wait([sending], timeout=5)  # a socket that takes less makes it easier for the node
            protocol.transport.resume_reading()
            count()
            await sending
            plain.shutdown(socket.SHUT_WR)
            await protocol.over()
        assert turns > 3

    scene(scenario)


def test_a_client_that_takes_nothing_but_has_keys_changed_is_cut_off(
    scene: Callable[[Scenario], None], tmp_path: Path
) -> None:
    """The answers to its records filled the memory."""

    async def scenario(protocol: Recorder, client: ssl.SSLSocket) -> None:
        protocol.transport.write(MUCH)
        with bare(client) as plain:
            flood = KeyUpdates(tmp_path / "keys").made(UNSENT_BYTES // 22, requested=True)
            sending = asyncio.create_task(asyncio.to_thread(plain.sendall, flood))
            await protocol.over()
            with suppress(ConnectionError):
                await sending

    scene(scenario)


def bare(client: ssl.SSLSocket) -> socket.socket:
    return socket.socket(client.family, client.type, fileno=client.detach())
