"""The HTTPS listener: it counts connections from accept on, before the TLS handshake.

The servers of asyncio and uvloop call a protocol only when the handshake has ended. A client that never begins the
handshake would hold a descriptor that no bound counts. So this listener accepts connections itself, counts them, and
shakes hands itself.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from aiohttp import web

from .request.connections import HANDSHAKE_S
from .server import HttpRunner
from .tls_transport import READ_BYTES, TlsInMemory, TlsTransport

BACKLOG = 128
"""Connections that the kernel completes before the node accepts them (the backlog of listen)."""
ACCEPTS_MAX = 100
"""Most connections that are accepted in one turn of the event loop."""
PAUSE_S = 1.0
"""Time for which a listener accepts nothing after the system had no descriptor or memory for a connection."""
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_log = logging.getLogger(__name__)


class TlsSite(web.BaseSite):
    """An HTTPS site of aiohttp. It listens on every address that the host's name resolves to."""

    def __init__(self, runner: HttpRunner, host: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(runner, ssl_context=context, backlog=BACKLOG)
        self._http = runner
        self._address = host, port
        self._context = context

    @property
    def name(self) -> str:
        """The URL of the listener."""
        host, port = self._address
        return f"https://{f'[{host}]' if ':' in host else host}:{port}"

    async def start(self) -> None:
        """Listen. Raises OSError."""
        await super().start()
        sockets = await _listening(*self._address)
        self._server = cast(asyncio.AbstractServer, _Listener(sockets, self._http, self._context))


async def _listening(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, one for each address of a host. Raises OSError, and then leaves none open."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            sockets.append(socket.create_server(address[:2], family=family, backlog=BACKLOG))
            sockets[-1].setblocking(False)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


class _Listener:
    """The listening sockets of a site, and the accepted connections that are still in their TLS handshake. Of a site's
    server aiohttp uses only ``sockets`` and ``close``.
    """

    def __init__(self, sockets: list[socket.socket], runner: HttpRunner, context: ssl.SSLContext) -> None:
        self.sockets: list[socket.socket] = sockets
        self._runner = runner
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[_Handshake] = set()
        for each in sockets:
            self._loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Stop accepting, and close the connections that are in their handshake."""
        for each in self.sockets:
            self._loop.remove_reader(each)
            each.close()
        self.sockets = []
        for handshake in list(self._handshakes):
            handshake.evict()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                _log.warning("no connection is accepted for %.0f s: %s", PAUSE_S, error)
                self._loop.remove_reader(listening)
                self._loop.call_later(PAUSE_S, self._go_on, listening)
                return
            connection.setblocking(False)
            self._enter(connection, address)

    def _go_on(self, listening: socket.socket) -> None:
        if listening in self.sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _enter(self, connection: socket.socket, address: tuple[str, int]) -> None:
        handshake = _Handshake(self._runner, connection, address, self._context, self._handshakes.discard)
        if self._runner.connections.opened(handshake, address[0], connection.fileno()):
            self._handshakes.add(handshake)
            handshake.shake_hands()
        else:
            connection.close()  # without a handshake there is no way to say 429


class _Handshake:
    """A connection in its TLS handshake, counted in Connections. After the handshake the HttpConnection takes its place
    (``Connections.replaced``).
    """

    has_asked = False
    is_idle = True

    def __init__(
        self,
        runner: HttpRunner,
        connection: socket.socket,
        address: tuple[str, int],
        context: ssl.SSLContext,
        forget: "Callable[[_Handshake], None]",
    ) -> None:
        self._runner = runner
        self._socket: socket.socket | None = connection  # None: it is the transport's
        self._address = address
        self._context = context
        self._forget = forget
        self._loop = asyncio.get_running_loop()
        self._since_s = self._loop.time()
        self._task: asyncio.Task[None] | None = None

    def shake_hands(self) -> None:
        """Begin the handshake, as a task."""
        self._task = asyncio.ensure_future(self._handshake())
        self._task.add_done_callback(self._ended)

    def overdue(self, now_s: float) -> str | None:
        """``handshake`` when the handshake takes longer than HANDSHAKE_S, otherwise None."""
        return "handshake" if now_s - self._since_s >= HANDSHAKE_S else None

    def evict(self) -> None:
        """Close the connection now."""
        assert self._task is not None, "only what shakes hands is counted for longer than its first turn"
        self._task.cancel()

    async def _handshake(self) -> None:
        # TLS begins with the client's first byte: for thousands of idle connections its state would fill the memory.
        wire = self._socket
        assert wire is not None
        await self._until(self._loop.add_reader, self._loop.remove_reader)
        # A failure here is the client's: it speaks no TLS, shows no certificate, or is gone.
        with suppress(OSError):
            session = TlsInMemory(self._context)
            while not self._has_shaken(wire, session):
                await self._send(wire, session.outgoing.read())
                await self._until(self._loop.add_reader, self._loop.remove_reader)
            connection = self._runner.new_connection()
            connection.handshake = self
            TlsTransport(self._loop, wire, session, connection, self._address)
            self._socket = None

    def _has_shaken(self, wire: socket.socket, session: TlsInMemory) -> bool:
        """Take the handshake as far as what has come allows; returns whether it has ended. The transport sends what is
        left to send then. Raises OSError.
        """
        came = wire.recv(READ_BYTES)
        if not came:
            raise ConnectionResetError("the client is gone")
        session.incoming.write(came)
        try:
            session.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            wire.send(session.outgoing.read())  # the alert says why
            raise
        return True

    async def _send(self, wire: socket.socket, data: bytes) -> None:
        while data:
            try:
                data = data[wire.send(data) :]
            except BlockingIOError:
                await self._until(self._loop.add_writer, self._loop.remove_writer)

    async def _until(self, add: Callable[..., None], remove: Callable[..., object]) -> None:
        """Wait until the socket may be read (with ``add_reader``) or written."""
        assert self._socket is not None
        descriptor, ready = self._socket.fileno(), asyncio.Event()
        add(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            remove(descriptor)

    def _ended(self, _: "asyncio.Task[None]") -> None:
        if self._socket is not None:
            self._socket.close()
        self._runner.connections.closed(self)
        self._forget(self)
