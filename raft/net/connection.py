"""One TCP connection between two nodes: frames, encryption, calls that wait for answers, heartbeats; or, once it
carries a stream (streams.py), that protocol's bytes.
"""

import asyncio
import socket
from collections.abc import Iterable
from itertools import count
from typing import Protocol, cast

from ..messages import Message, Ping, Refusal, Reply
from .codec import FrameReader, InvalidFrame, encode
from .dialer import Dialled
from .rpc import CallFailed, CallUnknown
from .streams import StreamTransport, StreamWanted
from .tls import NotTls, TlsFault, TlsSession, looks_like_tls

HELLO_BYTES_MAX = 4096
"""Longest frame of a peer that has not been admitted."""
_TLS_ONLY = encode(0, Refusal("it speaks TLS only, and this node's configuration has no [raft.tls]"))


class Owner(Protocol):
    """The owner of connections: decides which node is at the other end of each, and handles the messages."""

    def opened(self, connection: "Connection") -> None:
        """Handle a new connection."""
        ...

    def received(self, connection: "Connection", group_id: int, message: Message) -> None:
        """Handle a message that arrived."""
        ...

    def faulty(self, connection: "Connection", fault: str) -> None:
        """Log why a connection is being dropped."""
        ...

    def lost(self, connection: "Connection") -> None:
        """Handle that a connection is closed."""
        ...


class Connection(Dialled):
    """One TCP connection between two nodes.

    ``dialled`` is the id of the node that this node dialled; None if the other node dialled.

    With ``tls``, nothing is sent or accepted before the other end's certificate is verified.
    """

    def __init__(
        self,
        owner: Owner,
        dialled: str | None,
        buffer_bytes_max: int,
        tls: TlsSession | None = None,
        wanted: StreamWanted | None = None,
    ) -> None:
        self.dialled = dialled
        self.wanted: StreamWanted | None = wanted
        """The stream for which this node dialled; None: it did not dial, or dialled for Raft."""
        self.stream: asyncio.Protocol | None = None
        """The protocol that gets every byte from now on; None while this connection carries no stream."""
        self.peer: str | None = None
        """The id of the other node, once it is admitted."""
        self.protocol: int = 0
        """The version of the protocol that both ends speak. On a connection that this node dialled it is the version of
        this node's hello until the other end's hello arrives.
        """
        self.is_to_be_dialled_again: bool = False
        self.closed: asyncio.Event = asyncio.Event()
        self.call_ids: count[int] = count(1)
        self.answers: dict[int, asyncio.Future[bytes]] = {}
        """The calls sent on this connection that wait for their answers, by id."""
        self._owner = owner
        self._buffer_bytes_max = buffer_bytes_max
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self.heard_at_s: float = self._loop.time()
        """When bytes of the other end arrived last, on the loop's clock."""
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._pinged: Ping | None = None
        self._queue: list[bytes] = []
        self._queue_bytes = 0

    @property
    def far_end(self) -> tuple[object, ...]:
        """The address of the other end, with its port."""
        return self._transport.get_extra_info("peername") or ("unknown address",)

    @property
    def host(self) -> str:
        """The host of the other end, for logs."""
        return str(self.far_end[0])

    @property
    def is_closing(self) -> bool:
        """Whether the connection is closed, or about to be."""
        return self._transport.is_closing()

    @property
    def is_amid_frame(self) -> bool:
        """Whether a part of a frame has arrived, and its rest has not."""
        return self._reader.has_rest

    @property
    def other_end(self) -> str:
        """The node that is, or claims to be, at the other end, and its host: for logs."""
        return f"{self.peer or self.dialled or 'a stranger'} at {self.host}"

    @property
    def names(self) -> frozenset[str] | None:
        """URIs in the certificate of the other end; None without TLS."""
        return None if self._tls is None else self._tls.names

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the certificate of the other end; None without TLS."""
        return None if self._tls is None else self._tls.fingerprint

    def admit(self, peer: str, frame_bytes_max: int) -> None:
        """Note that the other end is ``peer``, which may send frames of ``frame_bytes_max`` bytes from now on."""
        self.peer = peer
        self.heard_at_s = self._loop.time()
        self._reader.frame_bytes_max = frame_bytes_max

    def carry(self, peer: str, stream: asyncio.Protocol) -> None:
        """Note that the other end is ``peer``, and hand every further byte to ``stream``."""
        self.peer = peer
        self._flush()
        self.stream = stream
        stream.connection_made(StreamTransport(self._transport, None if self._tls is None else self._tls.seal))

    def send(self, frame: bytes) -> bool:
        """Queue a frame. Returns False if the frame is dropped: too many bytes wait already, or the connection is
        closing. All frames of a turn of the loop go out together at its end.
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

    def keep_alive(self, dead_s: float, awake_at_s: float, ping: tuple[Ping, bytes]) -> None:
        """Send a heartbeat, ``ping`` with its frame, unless other frames are queued and it says the same as the last
        one; drop the connection if no byte arrived for ``dead_s``, or, before the other end is admitted, no hello
        within ``dead_s``. Time before ``awake_at_s``, the end of this node's last pause, does not count.
        """
        if self.stream is not None:
            return
        silent_s = self._loop.time() - max(self.heard_at_s, awake_at_s)
        if silent_s >= dead_s:
            self._drop(f"silent for {silent_s:.1f} s" if self.peer else f"not introduced after {dead_s:g} s")
        elif self.peer is not None and (not self._queue or ping[0] != self._pinged) and self.send(ping[1]):
            self._pinged = ping[0]

    def settle(self, reply: Reply) -> None:
        """End the call that this reply answers. A reply is dropped if its call has ended already."""
        answer = self.answers.get(reply.call_id)
        if answer is None or answer.done():
            return
        if reply.ok:
            answer.set_result(reply.payload)
        else:
            answer.set_exception(CallFailed(reply.payload.decode(errors="replace")))

    def abandon_calls(self, why: str) -> None:
        """End all calls that wait as CallUnknown, since no answer will come, or none in time."""
        for answer in self.answers.values():
            if not answer.done():
                answer.set_exception(CallUnknown(why))

    def close(self) -> None:
        """Send the queued frames, then close. ``keep_alive`` drops a peer that does not read."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; queued frames are dropped."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None:
            self.heard_at_s = self._loop.time()
        try:
            plain = self._decrypt(data)
            if self.stream is not None:
                if plain:
                    self.stream.data_received(plain)
                return
            for group_id, message in self._reader.feed(plain):
                if self._transport.is_closing():
                    return
                if self.stream is not None:
                    raise InvalidFrame("it sent more before the stream was open")
                self._owner.received(self, group_id, message)
            if self.stream is not None and self._reader.has_rest:
                raise InvalidFrame("it sent more before the stream was open")
        except TlsFault as fault:
            self._refuse(fault)
        except InvalidFrame as error:
            speaks_tls = self.peer is None and looks_like_tls(data)
            self._drop("it speaks TLS, and this node has no [raft.tls]" if speaks_tls else str(error))

    def eof_received(self) -> None:
        if self._tls is not None and not self._tls.established and self.dialled is not None:
            self._owner.faulty(self, "it ended the connection before it was encrypted: has it no [raft.tls]?")

        if self.stream is not None:
            self.stream.eof_received()

    def pause_writing(self) -> None:
        if self.stream is not None:
            self.stream.pause_writing()

    def resume_writing(self) -> None:
        if self.stream is not None:
            self.stream.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed.is_set():
            return
        self._queue.clear()
        self._owner.lost(self)
        if self.wanted is not None:
            self.wanted.refuse("the connection was lost before the stream was open")
        if self.stream is not None:
            self.stream.connection_lost(exc)
        self.abandon_calls("the connection was lost before the answer came")
        self.closed.set()

    def _flush(self) -> None:
        if self._tls is not None and not self._tls.established and not self._transport.is_closing():
            self._transport.write(self._tls.outgoing())
            return  # queued frames wait until the other end is verified
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
        try:
            plain = self._tls.receive(data)
        except NotTls:
            if not self._tls.may_be_plain:
                raise
            self._tls = None
            return data
        if not was_established:
            self._flush()  # this end's part of the handshake, then the frames that waited for its end
        return plain

    def _drop(self, fault: str) -> None:
        self._owner.faulty(self, fault)
        self.abort()

    def _refuse(self, fault: TlsFault) -> None:
        """Close the connection after a refusal that the other end can read: unencrypted for a node without TLS."""
        assert self._tls is not None
        self._owner.faulty(self, str(fault))
        self._transport.write(_TLS_ONLY if isinstance(fault, NotTls) else self._tls.outgoing())
        self._transport.close()


def another_at(dialled: Connection, admitted: Iterable[Connection]) -> str | None:
    """The other node that is connected at the address that was dialled now; None: none is. It has come to an address of
    the node that was dialled, and would take a second hello for a sign that its own connection is gone, and drop that.
    """
    others = [each for each in admitted if each.dialled not in {None, dialled.dialled}]
    return next((each.dialled for each in others if each.far_end == dialled.far_end), None)
