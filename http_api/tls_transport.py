"""A transport that speaks TLS on the socket of a connection, by OpenSSL in memory.

It takes the place of uvloop's transport with TLS, which hands every byte through two buffers and several callbacks: for
a request and an answer of some hundred bytes TLS takes 20 us there and 6 to 9 us here, beside 7 us without it; and 256
KiB of memory for a connection.

OpenSSL is not given the socket itself: one read of it goes on for as long as records without data come (KeyUpdate, 27
bytes and 7 us each), so that one client could hold the event loop for minutes.
"""

import asyncio
import socket
import ssl
from collections import deque
from contextlib import suppress
from typing import cast

RECORD_BYTES = 1 << 14
"""Most bytes in a record of TLS (RFC 8446, 5.1)."""
READ_BYTES = 32 * 1024
"""Most bytes that are read in one turn of the event loop. OpenSSL keeps room for so many until the end."""
UNSENT_BYTES = 64 * 1024
"""Unsent bytes beyond which the protocol is to pause, unless it sets another limit: as in asyncio. And the most that
OpenSSL itself may have to say to a client that takes nothing.
"""


class TlsInMemory:
    """OpenSSL's end of one connection: it reads what came from ``incoming``, and writes what is to be sent to
    ``outgoing``.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        """A node's end, before the handshake."""
        self.incoming: ssl.MemoryBIO = ssl.MemoryBIO()
        self.outgoing: ssl.MemoryBIO = ssl.MemoryBIO()
        self.tls: ssl.SSLObject = context.wrap_bio(self.incoming, self.outgoing, server_side=True)


class TlsTransport(asyncio.Transport):
    """The transport of a connection after its handshake. ``wire`` does not block; the transport closes it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wire: socket.socket,
        session: TlsInMemory,
        protocol: asyncio.Protocol,
        address: object,
    ) -> None:
        """``address``: of the other end. The protocol is told of the connection now, and of its end later."""
        tls = session.tls
        super().__init__({"socket": wire, "ssl_object": tls, "sslcontext": tls.context, "peername": address})
        self._loop = loop
        self._socket = wire
        self._descriptor = wire.fileno()
        self._tls = tls
        self._incoming, self._outgoing = session.incoming, session.outgoing
        self._protocol = protocol
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._records = b""  # of OpenSSL, on their way to the socket
        self._is_waiting = False  # for the socket to take more
        self._is_reading = self._is_closing = self._has_left = self._is_over = self._has_paused = False
        self.set_write_buffer_limits()
        protocol.connection_made(self)
        self.resume_reading()
        if self._is_reading:  # the handshake's last bytes, and a request that came with those of the client
            self._flush()
            self._decrypt()

    # Reading.

    def is_reading(self) -> bool:
        """Whether what comes is given to the protocol."""
        return self._is_reading

    def pause_reading(self) -> None:
        """Read nothing until ``resume_reading``."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def resume_reading(self) -> None:
        """Read again."""
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._loop.add_reader(self._descriptor, self._read)

    def _read(self) -> None:
        try:
            came = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
            return
        if came:
            self._incoming.write(came)
            self._decrypt()
        else:
            self._take_end()

    def _decrypt(self) -> None:
        """Give the protocol all that came: no byte of a whole record remains in memory, where the event loop does not
        see it.
        """
        parts: list[bytes] = []
        has_ended, fault = False, None
        try:
            while self._incoming.pending and not has_ended:
                part = self._tls.read(RECORD_BYTES)
                has_ended = not part
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            fault = error
        if self._outgoing.pending:  # OpenSSL's own: an alert, or an answer to KeyUpdate
            self._flush()
        if parts:
            self._give(parts[0] if len(parts) == 1 else b"".join(parts))
        if fault is not None or self._outgoing.pending > UNSENT_BYTES:
            self._end(fault)
        elif has_ended:
            self._take_end()

    def _give(self, data: bytes) -> None:
        try:
            if data:
                self._protocol.data_received(data)
        except Exception:
            self._end(None)
            raise

    def _take_end(self) -> None:
        if not self._is_closing:
            self._protocol.eof_received()
            self.close()

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, now if the socket takes it. After ``close`` it is dropped."""
        if self._is_closing:
            return
        rest = self._send(memoryview(data))
        if not rest:
            return
        self._unsent.append(rest if isinstance(data, bytes) else memoryview(bytes(rest)))
        self._unsent_bytes += len(rest)
        if self._unsent_bytes > self._high and not self._has_paused:
            self._has_paused = True
            self._protocol.pause_writing()

    def _send(self, data: memoryview) -> memoryview:
        """Encrypt and send what the socket takes, record by record; returns the rest."""
        try:
            while data and not (self._is_waiting or self._is_over):
                data = data[self._tls.write(data[:RECORD_BYTES]) :]
                self._flush()
        except OSError as error:
            self._end(error)
        return memoryview(b"") if self._is_over else data

    def _flush(self) -> None:
        """Send the records that OpenSSL has made, as far as the socket takes them; wait for it if it does not."""
        try:
            while self._records or self._outgoing.pending:
                self._records = self._records or self._outgoing.read()
                self._records = self._records[self._socket.send(self._records) :]
        except (BlockingIOError, InterruptedError):
            if not self._is_waiting:
                self._is_waiting = True
                self._loop.add_writer(self._descriptor, self._send_on)
        except OSError as error:
            self._end(error)

    def _send_on(self) -> None:
        self._loop.remove_writer(self._descriptor)
        self._is_waiting = False
        self._flush()
        while self._unsent and not self._is_waiting:
            first = self._unsent.popleft()
            rest = self._send(first)
            if self._is_over:
                return
            self._unsent_bytes -= len(first) - len(rest)
            if rest:
                self._unsent.appendleft(rest)
        if self._is_over:
            return
        if self._has_paused and self._unsent_bytes <= self._low:
            self._has_paused = False
            self._protocol.resume_writing()
        if self._is_closing and not self._is_waiting:
            self._take_leave()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Pause the protocol beyond ``high`` unsent bytes, and let it go on at ``low`` (a quarter of it)."""
        self._high: int = high if high is not None else UNSENT_BYTES if low is None else 4 * low
        self._low: int = low if low is not None else self._high // 4

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Low and high limit."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to be sent."""
        return self._unsent_bytes + len(self._records)

    def can_write_eof(self) -> bool:
        """TLS has no half-closed connections."""
        return False

    # The end.

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give everything to another protocol from now on."""
        self._protocol = cast(asyncio.Protocol, protocol)

    def is_closing(self) -> bool:
        """Whether ``close`` or ``abort`` was called, or the other end is gone."""
        return self._is_closing

    def close(self) -> None:
        """Read nothing more, and close the connection when everything is sent."""
        if not self._is_closing:
            self.pause_reading()
            self._is_closing = True
            if not self._is_waiting:
                self._take_leave()

    def abort(self) -> None:
        """Close the connection now. What is not sent yet is dropped."""
        self._end(None)

    def _take_leave(self) -> None:
        """Send the alert close_notify, and end when the socket has taken it. The other end's own is not awaited."""
        if not self._has_left:
            self._has_left = True
            with suppress(OSError):
                self._tls.unwrap()
            self._flush()
        if not self._is_waiting:
            self._end(None)

    def _end(self, error: OSError | None) -> None:
        if self._is_over:
            return
        self.pause_reading()
        self._is_closing = self._is_over = True
        self._loop.remove_writer(self._descriptor)
        self._unsent.clear()
        self._unsent_bytes, self._records = 0, b""
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: OSError | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._socket.close()
