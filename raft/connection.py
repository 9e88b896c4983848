"""One TCP connection between two nodes: bytes to messages, frames to bytes, signs of life.

Whose connection it is and what messages mean is decided by its owner; nothing here dials, accepts or retries.
"""

import asyncio
import socket
from typing import Protocol, cast

from .calls import PendingCalls
from .frames import FrameError, FrameReader, encode
from .messages import Message, Ping, Refusal
from .tls import NotTls, TlsFault, TlsSession, looks_like_tls

HELLO_BYTES_MAX = 4096
"""Longest frame of a peer that has not been admitted."""
_PING = encode(0, Ping())
_TLS_ONLY = encode(0, Refusal("it speaks TLS only, and this node's configuration has no [raft.tls]"))


class Owner(Protocol):
    """What a connection tells about itself, on the event loop."""

    def opened(self, connection: "Connection") -> None:
        """It exists; nothing was sent or received."""
        ...

    def received(self, connection: "Connection", group_id: int, message: Message) -> None:
        """A whole message arrived. None arrives after ``abort`` or ``close``."""
        ...

    def faulty(self, connection: "Connection", fault: str) -> None:
        """It is about to be dropped because of something that the other end did, or did not do."""
        ...

    def lost(self, connection: "Connection") -> None:
        """It is gone, for whatever reason."""
        ...


class Connection(asyncio.Protocol):
    """A connection; ``dialled`` is the id of the node this one dialled, None if the other one did.

    With ``tls``, nothing is sent or believed before the other end's certificate is verified.
    """

    def __init__(
        self, owner: Owner, dialled: str | None, buffer_bytes_max: int, calls_max: int, tls: TlsSession | None = None
    ) -> None:
        self.dialled = dialled
        self.peer: str | None = None
        self.gone: asyncio.Event = asyncio.Event()
        self.calls: PendingCalls = PendingCalls(self.send, calls_max)
        self._owner = owner
        self._buffer_bytes_max = buffer_bytes_max
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self.heard_at_s: float = self._loop.time()
        """When bytes of the other end arrived last."""
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._queue: list[bytes] = []
        self._queue_bytes = 0

    @property
    def other_end(self) -> str:
        """Who is, or claims to be, at the other end: for people."""
        host, *_ = self._transport.get_extra_info("peername") or ("unknown address",)
        return f"{self.peer or self.dialled or 'a stranger'} at {host}"

    @property
    def names(self) -> frozenset[str] | None:
        """URIs that the certificate of the other end names; None without TLS."""
        return None if self._tls is None else self._tls.names

    def admit(self, peer: str, frame_bytes_max: int) -> None:
        """The other end is ``peer``, and may send whole frames from its next message on."""
        self.peer = peer
        self.heard_at_s = self._loop.time()
        self._reader.frame_bytes_max = frame_bytes_max

    def send(self, frame: bytes) -> bool:
        """Queue a frame. False if it is dropped: too much waits already, or the connection is closing.

        Frames go out together at the end of this turn of the loop.
        """
        if self._transport.is_closing():
            return False
        waiting_bytes = self._queue_bytes + self._transport.get_write_buffer_size()
        if waiting_bytes + len(frame) > self._buffer_bytes_max:
            return False
        if not self._queue:
            self._loop.call_soon(self._flush)
        self._queue.append(frame)
        self._queue_bytes += len(frame)
        return True

    def keep_alive(self, dead_s: float, awake_at_s: float) -> None:
        """Give a sign of life; drop the connection if the other end gave none for ``dead_s``, or did not manage to
        introduce itself in that time, however busily it talked. Time before ``awake_at_s`` does not count.
        """
        silent_s = self._loop.time() - max(self.heard_at_s, awake_at_s)
        if silent_s >= dead_s:
            self._drop(f"silent for {silent_s:.1f} s" if self.peer else f"not introduced after {dead_s:g} s")
        elif self.peer is not None:
            self.send(_PING)

    def close(self) -> None:
        """Send what is queued, then close. A peer that does not read is dropped by keep_alive."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close now, whatever is queued."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection exists."""
        self._transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self.peer is not None:
            self.heard_at_s = self._loop.time()
        try:
            for group_id, message in self._reader.feed(self._decrypt(data)):
                if self._transport.is_closing():
                    return
                self._owner.received(self, group_id, message)
        except TlsFault as fault:
            self._refuse(fault)
        except FrameError as error:
            speaks_tls = self.peer is None and looks_like_tls(data)
            self._drop("it speaks TLS, and this node has no [raft.tls]" if speaks_tls else str(error))

    def eof_received(self) -> None:
        """The other end says no more: the connection closes."""
        if self._tls is not None and not self._tls.established and self.dialled is not None:
            self._owner.faulty(self, "it ended the connection before it was encrypted: has it no [raft.tls]?")

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; ``exc`` is None if it was closed in order."""
        if self.gone.is_set():
            return
        self._queue.clear()
        self._owner.lost(self)
        self.calls.lose("the connection was lost before the answer came")
        self.gone.set()

    def _flush(self) -> None:
        if self._tls is not None and not self._tls.established and not self._transport.is_closing():
            self._transport.write(self._tls.outgoing())
            return  # what is queued waits until the other end is verified
        if self._queue and not self._transport.is_closing():
            self._write(self._queue)
        self._queue, self._queue_bytes = [], 0

    def _write(self, frames: list[bytes]) -> None:
        if self._tls is None:
            self._transport.writelines(frames)
        else:
            self._transport.write(self._tls.seal(b"".join(frames)))

    def _decrypt(self, data: bytes) -> bytes:
        if self._tls is None:
            return data
        was_established = self._tls.established
        said = self._tls.receive(data)
        if not was_established:
            self._flush()  # this end's part of the handshake, then what waited for its end
        return said

    def _drop(self, fault: str) -> None:
        self._owner.faulty(self, fault)
        self.abort()

    def _refuse(self, fault: TlsFault) -> None:
        """Drop the connection, and tell the other end why in words that it understands."""
        assert self._tls is not None
        self._owner.faulty(self, str(fault))
        self._transport.write(_TLS_ONLY if isinstance(fault, NotTls) else self._tls.outgoing())
        self._transport.close()
