"""A transport that speaks TLS on the socket of a connection: OpenSSL itself reads and writes the descriptor.

It takes the place of uvloop's transport with TLS, which hands every byte through two buffers and several callbacks: for
a request and an answer of some hundred bytes TLS takes 20 us there and 6 us here, beside 7 us without it; and 256 KiB
of memory for a connection.
"""

import asyncio
import ssl
from collections import deque
from typing import cast

RECORD_BYTES = 1 << 14
"""Most bytes in a record of TLS (RFC 8446, 5.1). A read of so many takes the whole record, so that none of its bytes
remain in OpenSSL, where the event loop does not see them.
"""
RECORDS_A_TURN = 16
"""Most records that are read in one turn of the event loop."""
UNSENT_BYTES = 64 * 1024
"""Unsent bytes beyond which the protocol is to pause, unless it sets another limit: as in asyncio."""


class TlsTransport(asyncio.Transport):
    """The transport of a connection after its handshake. ``socket`` does not block; the transport closes it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, socket: ssl.SSLSocket, protocol: asyncio.Protocol, address: object
    ) -> None:
        """``address``: of the other end. The protocol is told of the connection now, and of its end later."""
        names = {"socket": socket, "ssl_object": socket, "sslcontext": socket.context, "peername": address}
        super().__init__(names)
        self._loop = loop
        self._socket = socket
        self._descriptor = socket.fileno()
        self._protocol = protocol
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._is_reading = self._is_closing = self._is_over = self._has_paused = False
        self.set_write_buffer_limits()
        protocol.connection_made(self)
        self.resume_reading()

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
        parts: list[bytes] = []
        has_ended, fault = False, None
        try:
            while len(parts) < RECORDS_A_TURN:
                part = self._socket.recv(RECORD_BYTES)
                if not part:
                    has_ended = True
                    break
                parts.append(part)
                if len(part) < RECORD_BYTES:  # another read would most likely end in an exception, which takes longer
                    break
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            fault = error
        if parts:
            self._protocol.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if fault is not None:
            self._end(fault)
        elif has_ended:
            self._protocol.eof_received()
            self.close()

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, now if the socket takes it. After ``close`` it is dropped."""
        if self._is_closing:
            return
        rest = memoryview(data)
        if not self._unsent:
            rest = self._send(rest)
        if not rest or self._is_over:
            return
        if not self._unsent:
            self._loop.add_writer(self._descriptor, self._send_on)
        self._unsent.append(rest if isinstance(data, bytes) else memoryview(bytes(rest)))
        self._unsent_bytes += len(rest)
        if self._unsent_bytes > self._high and not self._has_paused:
            self._has_paused = True
            self._protocol.pause_writing()

    def _send(self, data: memoryview) -> memoryview:
        """Send what the socket takes; returns the rest. OpenSSL takes one record at a time, and what it did not take it
        wants to be given again, at the same length at least.
        """
        try:
            while data:
                data = data[self._socket.send(data) :]
        except ssl.SSLWantWriteError:
            return data
        except OSError as error:
            self._end(error)
        return memoryview(b"")

    def _send_on(self) -> None:
        while self._unsent:
            first = self._unsent[0]
            rest = self._send(first)
            if self._is_over:
                return
            self._unsent_bytes -= len(first) - len(rest)
            if rest:
                self._unsent[0] = rest
                break
            self._unsent.popleft()
        if self._has_paused and self._unsent_bytes <= self._low:
            self._has_paused = False
            self._protocol.resume_writing()
        if not self._unsent and not self._is_over:
            self._loop.remove_writer(self._descriptor)
            if self._is_closing:
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
        return self._unsent_bytes

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
            if not self._unsent:
                self._take_leave()

    def abort(self) -> None:
        """Close the connection now. What is not sent yet is dropped."""
        self._end(None)

    def _take_leave(self) -> None:
        """Send the alert close_notify as soon as the socket takes it, and end. The other end's own is not awaited."""
        try:
            self._socket.unwrap()
        except ssl.SSLWantWriteError:
            self._loop.add_writer(self._descriptor, self._take_leave)
        except OSError:
            self._end(None)
        else:
            self._end(None)

    def _end(self, error: OSError | None) -> None:
        if self._is_over:
            return
        self.pause_reading()
        self._is_closing = self._is_over = True
        self._loop.remove_writer(self._descriptor)
        self._unsent.clear()
        self._unsent_bytes = 0
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: OSError | None) -> None:
        self._protocol.connection_lost(error)
        self._socket.close()
