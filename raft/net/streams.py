"""Streams: connections between nodes that carry the bytes of another protocol, after the same handshake as Raft's own.

The node that wants a stream dials and sends OpenStream; the other node answers with its hello. From then on both ends
hand every byte to an asyncio protocol; the bytes are encrypted where the nodes' other connections are.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

STREAMS_MAX = 4096
"""Streams that one other node may have open to this node at a time."""

AcceptStream = Callable[[str], asyncio.Protocol | None]
"""Returns the protocol for a stream that the node with this id has opened; None: this node takes no streams now."""


class StreamTransport(asyncio.Transport):
    """The transport to which a stream's protocol writes. ``seal`` encrypts; None: the bytes are sent as they are."""

    def __init__(self, below: asyncio.Transport, seal: Callable[[bytes], bytes] | None) -> None:
        super().__init__()
        self._below = below
        self._seal = seal

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Information on the TCP connection. Bytes written to its socket bypass the encryption."""
        return self._below.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes."""
        self._below.write(data if self._seal is None else self._seal(bytes(data)))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Queue bytes."""
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        """Whether the stream is closed or closing."""
        return self._below.is_closing()

    def close(self) -> None:
        """Send what is queued, then close."""
        self._below.close()

    def abort(self) -> None:
        """Close now."""
        self._below.abort()

    def can_write_eof(self) -> bool:
        """False, as connections with TLS cannot be half-closed."""
        return False

    def pause_reading(self) -> None:
        """Receive nothing for now."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        self._below.resume_reading()

    def is_reading(self) -> bool:
        """Whether bytes are received."""
        return self._below.is_reading()

    def get_write_buffer_size(self) -> int:
        """The number of queued bytes."""
        return self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the queued bytes at which the protocol is told to pause writing (``high``), and to resume (``low``)."""
        self._below.set_write_buffer_limits(high, low)


class StreamWanted:
    """A stream that this node opens: its protocol, and a future that is done when the stream is open or refused."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self.protocol: asyncio.Protocol = protocol
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open(self) -> None:
        """Report that the stream is open."""
        if not self.opened.done():
            self.opened.set_result(None)

    def refuse(self, why: str) -> None:
        """Report that the stream will not open, and ``why``."""
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(why))
