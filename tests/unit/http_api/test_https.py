"""A node's HTTPS listener, attacked: who gets through, what a reload changes, and what handlers learn of a client."""

import asyncio
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop

from stockade.cli.node.authority import Authority, client_uri, node_files
from stockade.cluster.https import ClientCertificate, ClientCertificates, HttpTls, HttpTlsSection
from stockade.http_api.app import DEFAULT_BOUNDS, HttpServer, start_http
from stockade.http_api.fast_path import connection as connections
from stockade.http_api.fast_path.connection import FastConnection
from stockade.http_api.request.connections import ConnectionBounds
from stockade.raft.net.tls import TlsFault, TlsSession

from .conversation import RECORDS
from .fake_cluster import FakeCluster
from .fake_service import FakeService

LATER = datetime.now(UTC) + timedelta(days=1)
HOSTS = ("127.0.0.1",)
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


@dataclass
class House:
    """An authority, the certificate of node n1 and the one of the client ``app``, in a folder."""

    folder: Path
    authority: Authority

    @classmethod
    def make(cls, folder: Path) -> "House":
        folder.mkdir()
        house = cls(folder, Authority.make("c"))
        house.authority.save(folder)
        house.authority.issue(folder, "c", "n1", ["n1"], LATER, HOSTS)
        house.authority.issue_to_client(folder, "c", "app", LATER)
        return house

    def section(self, client_certificates: ClientCertificates | None = None) -> HttpTlsSection:
        certificate, key = map(str, node_files(self.folder, "n1"))
        if client_certificates is None:
            return HttpTlsSection(certificate, key)
        return HttpTlsSection(certificate, key, str(self.folder / "ca.crt"), client_certificates)

    def trusting(self, name: str | None = None) -> ssl.SSLContext:
        """The context of a client that trusts this authority and shows the certificate of ``name``."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        if name is not None:
            certificate, key = node_files(self.folder, name)
            context.load_cert_chain(certificate, key)
        return context

    def trusting_any_host(self) -> ssl.SSLContext:
        """The same, for TLS without a socket."""
        context = self.trusting()
        context.check_hostname = False
        return context

    def renew(self, until: datetime = LATER) -> None:
        """Put another certificate of n1 into its place, as an operator does."""
        fresh = self.folder / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        for path in self.authority.issue(fresh, "c", "n1", ["n1"], until, HOSTS):
            path.replace(self.folder / path.name)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House.make(tmp_path / "house")


@asynccontextmanager
async def listening(tls: HttpTls, bounds: ConnectionBounds = DEFAULT_BOUNDS) -> AsyncIterator[HttpServer]:
    cluster = FakeCluster()
    service = FakeService(cluster, "n1")
    server = await start_http(service, "127.0.0.1", 0, tls=tls, plain=("127.0.0.1", 0), bounds=bounds)
    cluster.urls["n1"] = f"https://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        await server.close()
        cluster.close()


def play(test: Awaitable[None], loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await test

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def has_shaken(tls: ssl.SSLObject) -> bool:
    """Take a handshake as far as what has come allows; returns whether it has ended."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


@asynccontextmanager
async def client_of(server: HttpServer, context: ssl.SSLContext | bool) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(f"https://127.0.0.1:{server.port}", connector=connector) as session:
        yield session


async def status(server: HttpServer, context: ssl.SSLContext | bool, path: str = "/healthz") -> int:
    async with client_of(server, context) as session, session.get(path) as answer:
        return answer.status


async def serial(server: HttpServer, house: House) -> str:
    """The serial number of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=house.trusting())
    try:
        return str(writer.get_extra_info("peercert")["serialNumber"])
    finally:
        writer.close()


async def asked_once_more(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The first line of the answer to a request on an open connection."""
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: n1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return head.partition(b"\r\n")[0]


@pytest.mark.parametrize("loop", LOOPS)
def test_appends_and_whole_files_go_through_tls(house: House, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with listening(HttpTls(house.section())) as server, client_of(server, house.trusting()) as session:
            async with session.post("/v1/topics", json={"name": "orders", "partitions": 1}) as made:
                assert made.status == 201
            values = [f"{number:04}" * 500 for number in range(200)]
            for value in values:
                async with session.post(RECORDS, json={"records": [{"value": value}]}) as stored:
                    assert stored.status == 200
            async with session.get(RECORDS, headers={"Accept": "application/vnd.apache.arrow.stream"}) as fetched:
                body = await fetched.read()
            assert fetched.status == 200
            assert [value for value in values if value.encode() not in body] == []

    play(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_client_certificate_comes_from_tls_and_never_from_a_header(
    house: House, loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, ClientCertificate | None]] = []
    made = FastConnection.connection_made

    def watched(self: FastConnection, transport: asyncio.BaseTransport) -> None:
        made(self, transport)
        seen.append((self.is_encrypted, self.certificate))

    monkeypatch.setattr(FastConnection, "connection_made", watched)

    async def main() -> None:
        async with listening(HttpTls(house.section("optional"))) as server:
            assert await status(server, house.trusting("app")) == 200
            assert await status(server, house.trusting()) == 200

    play(main(), loop)
    (first, app), (second, none) = seen
    assert (first, second, none) == (True, True, None)
    assert app is not None
    assert (app.names, app.common_name, len(app.fingerprint)) == ((f"URI:{client_uri('c', 'app')}",), "app", 64)


def test_a_client_without_a_certificate_or_with_a_strangers_gets_no_answer(house: House, tmp_path: Path) -> None:
    stranger = House.make(tmp_path / "stranger")

    async def main() -> None:
        async with listening(HttpTls(house.section("required"))) as server:
            assert await status(server, house.trusting("app")) == 200
            context = house.trusting()
            with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
                await status(server, context)
            certificate, key = node_files(stranger.folder, "app")
            context.load_cert_chain(certificate, key)
            with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
                await status(server, context)

    play(main())


def test_an_expired_certificate_of_a_client_gets_no_answer(house: House) -> None:
    house.authority.issue_to_client(house.folder, "c", "late", datetime.now(UTC) - timedelta(minutes=1))

    async def main() -> None:
        async with listening(HttpTls(house.section("optional"))) as server:
            with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
                await status(server, house.trusting("late"))

    play(main())


class Clock:
    """Stands for the module ``time`` where certificates are judged: it may be a day later."""

    later_s = 0.0

    @classmethod
    def time(cls) -> float:
        return time.time() + cls.later_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(Clock, "later_s", 0.0)
    monkeypatch.setattr(connections, "time", Clock)
    return Clock


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "/v1/topics", None), ("POST", RECORDS, {"records": [{"value": "x"}]}), ("PUT", "/v1/sessions/s", None)],
    ids=["aiohttp", "fast append", "fast renewal"],
)
def test_a_certificate_that_expires_on_an_open_connection_lets_no_request_through(
    house: House, clock: type[Clock], method: str, path: str, body: Any, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        async with (
            listening(HttpTls(house.section("required"))) as server,
            client_of(server, house.trusting("app")) as session,
        ):
            async with session.post("/v1/topics", json={"name": "orders", "partitions": 1}) as made:
                assert made.status == 201
            clock.later_s = LATER.timestamp() - time.time() - 60
            async with session.request(method, path, json=body) as answer:
                assert answer.status != 401
            clock.later_s += 60
            async with session.request(method, path, json=body) as answer:
                problem = await answer.json()
                assert (answer.status, problem["code"]) == (401, "UNAUTHENTICATED")
                assert "has expired" in problem["detail"]
                assert answer.headers["Connection"] == "close"
            async with session.request(method, path, json=body) as answer:
                assert answer.status == 401, "the handshake was before that, by the clock of TLS"
            clock.later_s = 0.0
            async with session.request(method, path, json=body) as answer:
                assert answer.status != 401

    play(main(), loop)


def asked_twice(port: int, context: ssl.SSLContext, between: Callable[[], None]) -> tuple[bytes, bytes, bool | None]:
    """The statuses of two answers, and whether the second connection resumed the TLS session of the first."""
    with ExitStack() as stack:
        found: list[bytes] = []
        before, is_resumed = None, None
        for _ in range(2):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            encrypted = stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1", session=before))
            before, is_resumed = encrypted.session, encrypted.session_reused
            encrypted.sendall(b"GET /v1/topics HTTP/1.1\r\nHost: n1\r\n\r\n")
            found.append(encrypted.recv(1 << 16)[9:12])
            between()
        return found[0], found[1], is_resumed


@pytest.mark.parametrize("loop", LOOPS)
def test_a_session_of_tls_1_2_that_is_resumed_does_not_prolong_a_certificate(
    house: House, clock: type[Clock], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    context = house.trusting("app")
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def expire() -> None:
        clock.later_s = LATER.timestamp() - time.time()

    async def main() -> None:
        async with listening(HttpTls(house.section("required"))) as server:
            found = await asyncio.to_thread(asked_twice, server.port, context, expire)
            assert found == (b"200", b"401", True)

    play(main(), loop)


def test_a_client_that_does_not_know_the_authority_or_asks_for_another_host_sends_nothing(house: House) -> None:
    async def main() -> None:
        async with listening(HttpTls(house.section())) as server:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await status(server, True)
            connector = aiohttp.TCPConnector(ssl=house.trusting())
            async with aiohttp.ClientSession(connector=connector) as session:
                with pytest.raises(aiohttp.ClientConnectorCertificateError, match="localhost"):
                    await session.get(f"https://localhost:{server.port}/healthz")

    play(main())


@pytest.mark.parametrize(
    ("version", "accepted"),
    [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)],
)
def test_tls_1_2_is_the_oldest_that_is_spoken(house: House, version: ssl.TLSVersion, accepted: bool) -> None:
    context = house.trusting()
    context.set_ciphers("DEFAULT@SECLEVEL=0")  # this client would speak the old version
    with pytest.warns(DeprecationWarning) if not accepted else nullcontext():
        context.minimum_version = context.maximum_version = version

    async def main() -> None:
        async with listening(HttpTls(house.section())) as server:
            if accepted:
                assert await status(server, context) == 200
                return
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await status(server, context)

    play(main())


def test_alpn_selects_http_1_1(house: House) -> None:
    async def main() -> None:
        async with listening(HttpTls(house.section())) as server:
            context = house.trusting()
            context.set_alpn_protocols(["h2", "http/1.1"])
            _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
            writer.close()

    play(main())


def test_a_plain_client_gets_nothing_from_the_port_with_tls_and_the_plain_port_serves_it(house: House) -> None:
    async def main() -> None:
        async with listening(HttpTls(house.section())) as server, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://127.0.0.1:{server.port}/healthz")
            plain = server.ports[1]
            async with session.get(f"http://127.0.0.1:{plain}/") as page:
                assert (page.status, "Strict-Transport-Security" in page.headers) == (200, False)
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"https://127.0.0.1:{plain}/healthz", ssl=house.trusting())

    play(main())


def test_browsers_that_saw_a_page_by_https_stay_there(house: House) -> None:
    async def main() -> None:
        async with (
            listening(HttpTls(house.section())) as server,
            client_of(server, house.trusting()) as session,
            session.get("/") as page,
        ):
            assert page.headers["Strict-Transport-Security"] == "max-age=31536000"

    play(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_new_certificate_is_for_new_connections_and_open_ones_go_on(
    house: House, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        tls = HttpTls(house.section())
        async with listening(tls) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=house.trusting())
            assert await asked_once_more(reader, writer) == b"HTTP/1.1 200 OK"
            before = await serial(server, house)
            assert not tls.has_changed()
            house.renew()
            assert tls.has_changed()
            assert await serial(server, house) == before
            tls.reload()
            assert await serial(server, house) != before
            assert await asked_once_more(reader, writer) == b"HTTP/1.1 200 OK"
            writer.close()

    play(main(), loop)


def spoil(house: House, how: str) -> None:
    certificate, key = node_files(house.folder, "n1")
    match how:
        case "expired":
            house.renew(datetime.now(UTC) - timedelta(minutes=1))
        case "another key":
            shutil.copy(node_files(house.folder, "app")[1], key)
        case "no certificate":
            certificate.write_text("nonsense")
        case _:
            certificate.unlink()


@pytest.mark.parametrize("how", ["expired", "another key", "no certificate", "gone"])
def test_a_bad_new_certificate_is_refused_and_the_old_one_stays(house: House, how: str) -> None:
    async def main() -> None:
        tls = HttpTls(house.section())
        async with listening(tls) as server:
            before = await serial(server, house)
            spoil(house, how)
            assert tls.has_changed()
            with pytest.raises(TlsFault):
                tls.reload()
            assert not tls.has_changed()
            assert tls.is_refused
            assert await serial(server, house) == before
            assert await status(server, house.trusting()) == 200
            house.renew(datetime.now(UTC) + timedelta(days=1))
            tls.reload()
            assert not tls.is_refused

    play(main())


def test_a_client_of_a_removed_authority_is_refused_after_the_reload(house: House, tmp_path: Path) -> None:
    other = House.make(tmp_path / "other")

    async def main() -> None:
        section = house.section("required")
        assert section.client_ca is not None
        authorities = tmp_path / "clients.crt"
        shutil.copy(section.client_ca, authorities)
        tls = HttpTls(HttpTlsSection(section.certificate, section.key, str(authorities), "required"))
        async with listening(tls) as server:
            assert await status(server, house.trusting("app")) == 200
            shutil.copy(other.folder / "ca.crt", authorities)
            tls.reload()
            with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
                await status(server, house.trusting("app"))

    play(main())


async def shaken(server: HttpServer, house: House) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, TlsSession]:
    """A connection and its TLS, whose records the test sends itself."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    session = TlsSession(house.trusting_any_host(), dialled=True)
    while not session.established:
        writer.write(session.outgoing())
        session.receive(await reader.read(1 << 16))
    writer.write(session.outgoing())
    return reader, writer, session


REQUEST = b"GET /healthz HTTP/1.1\r\nHost: n1\r\n\r\n"


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("piece", [1, 7, 1000], ids=["bytes", "pieces", "at once"])
def test_records_in_any_pieces_are_one_request(
    house: House, piece: int, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        async with listening(HttpTls(house.section())) as server:
            reader, writer, session = await shaken(server, house)
            sent = session.seal(REQUEST[:5]) + session.seal(REQUEST[5:])
            for place in range(0, len(sent), piece):
                writer.write(sent[place : place + piece])
                await writer.drain()
            found = b""
            while not found.endswith(b"}"):
                found += session.receive(await reader.read(1 << 16))
            assert found.startswith(b"HTTP/1.1 200 ")
            writer.close()

    play(main(), loop)
