"""Connections between the nodes of a cluster: one TCP connection for each pair of nodes, for all groups.

Decides who dials, who is admitted and which connection of a pair counts. Frames are never kept for a peer that is
not connected and never sent twice: Raft repeats what was lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from msgspec import structs

from .calls import CallFailed, CallServer, CallUnknown, refuse
from .connection import Connection
from .dialling import Address, Dialler
from .frames import FRAME_BYTES_MAX, PROTOCOL_VERSION, FrameError, encode
from .handshake import Complaints, fault_of, is_loopback, printable
from .messages import Call, Hello, Message, Ping, RaftMessage, Refusal, Reply
from .pulse import DEFAULT_TIMES, Pulses, Times
from .tls import Tls, certificate_fault

__all__ = ["Address", "CallFailed", "CallUnknown", "Transport"]

_log = logging.getLogger(__name__)

STRANGERS_MAX = 64
"""Connections at a time whose other end has not said who it is."""


class Transport:
    """This node's end of every connection between nodes.

    The node with the larger id dials. ``peers`` are the nodes known at first, perhaps this one too: ``set_peer`` and
    ``remove_peer`` change them. Host names are looked up at each dial.

    - ``tls``: encrypt every connection, and admit only nodes whose certificate names them. Without it nothing is
      encrypted or authenticated, and a ``listen`` address that is not loopback raises ValueError, unless
      ``plaintext`` allows it.
    - ``times``: after its ``silent_s`` without a sign of life a peer is silent, and calls to it end.
    - ``peer_buffer_bytes_max``: what may wait for one peer; frames beyond it are dropped.
    - ``calls_max``: unanswered calls to one peer, and calls of one peer served, at a time.
    """

    on_frame: Callable[[str, int, RaftMessage], None]
    """Called with (node id, group id, message)."""
    on_up: Callable[[str, int], None]
    """Called with the id of a node that frames can be sent to from now on, and its disk's incarnation. Alternates with
    ``on_down`` for each."""
    on_down: Callable[[str], None]
    """Called with the id of a node when its connection is lost."""
    on_silent: Callable[[str], None]
    """Called with the id of a connected node that is silent."""
    on_heard: Callable[[str], None]
    """Called with the id of a node that is not silent any more."""
    on_call: Callable[[str, bytes], Awaitable[bytes]]
    """Answers another node's call: (node id, payload) to answer. What it raises becomes the caller's CallFailed."""
    pulses: Pulses
    """Signs of life, once started: given, and missed."""
    incarnations: dict[str, int]
    """The connected nodes, each with the incarnation of its disk. Do not change it."""

    def __init__(
        self,
        node_id: str,
        cluster_id: str,
        listen: Address,
        peers: Mapping[str, Address],
        *,
        tls: Tls | None = None,
        plaintext: bool = False,
        times: Times = DEFAULT_TIMES,
        peer_buffer_bytes_max: int = 64 << 20,
        calls_max: int = 1024,
    ) -> None:
        if tls is None and not plaintext and not is_loopback(listen[0]):
            raise ValueError(f"listening in plaintext on {listen[0]}, which others can reach, takes plaintext=True")
        self._tls = tls
        self.incarnations = {}
        self.on_frame = lambda node_id, group_id, message: None
        self.on_up = lambda node_id, incarnation: None
        self.on_down = lambda node_id: None
        self.on_silent = lambda node_id: None
        self.on_heard = lambda node_id: None
        self.on_call = refuse
        self._listen = listen
        self._peers = dict(peers)
        self._times = times
        self._peer_buffer_bytes_max = peer_buffer_bytes_max
        self._calls_max = calls_max
        self._hello = Hello(PROTOCOL_VERSION, cluster_id, node_id, 0)
        self._hello_frame = encode(0, self._hello)
        self._server: asyncio.Server | None = None
        self._dialler = Dialler(self._connection, times.dead_s, times.reconnect_s)
        self._open: set[Connection] = set()
        self._admitted: dict[str, Connection] = {}
        self._served = CallServer(calls_max)
        self._complaints = Complaints()

    @property
    def address(self) -> Address:
        """Where this node listens, once started: the real port, if ``listen`` asked for port 0."""
        assert self._server is not None, "not started"
        host, port, *_ = self._server.sockets[0].getsockname()
        return host, port

    @property
    def connected(self) -> set[str]:
        """Ids of the nodes that frames can be sent to."""
        return set(self.incarnations)

    def set_peer(self, node_id: str, address: Address) -> None:
        """Know a node, or its new address: that counts from the next dial on, a live connection stays."""
        if self._peers.get(node_id) == address:
            return
        self._peers[node_id] = address
        if self._server is not None and self._server.is_serving() and node_id < self._hello.node_id:
            if node_id not in self._admitted:  # the dial under way may hang at the old address
                self._hang_up(node_id)
            self._dialler.dial(node_id, address)

    def remove_peer(self, node_id: str) -> None:
        """Know a node no more: its connection is closed, and it is refused when it dials. Unknown ids are ignored."""
        if self._peers.pop(node_id, None) is not None:
            self._hang_up(node_id)

    def _hang_up(self, node_id: str) -> None:
        self._dialler.leave(node_id)
        for connection in [each for each in self._open if node_id in {each.peer, each.dialled}]:
            connection.abort()

    async def start(self, incarnation: int) -> None:
        """Listen and dial, with a disk of this incarnation (u64).

        Returns when listening; peers come up later. Raises OSError if the port is taken.
        """
        self._hello = structs.replace(self._hello, incarnation=incarnation)
        self._hello_frame = encode(0, self._hello)
        loop = asyncio.get_running_loop()
        self.pulses = Pulses(self, loop.time, loop.call_at, self._times)
        self._server = await loop.create_server(lambda: self._connection(None), *self._listen, start_serving=False)
        await self._server.start_serving()  # not before ``opened`` can ask whether it is serving
        for peer, address in self._peers.items():
            if peer < self._hello.node_id:
                self._dialler.dial(peer, address)
        self.pulses.start()

    async def stop(self) -> None:
        """Close everything. Connected peers go down, unanswered calls end as CallUnknown."""
        if self._server is None:
            return
        self._server.close()
        self.pulses.stop()
        await self._dialler.stop()
        closing = list(self._open)
        for connection in closing:
            connection.abort()
        await asyncio.gather(*[connection.gone.wait() for connection in closing])
        await self._served.stop()
        await self._server.wait_closed()

    def send(self, node_id: str, frame: bytes) -> bool:
        """Queue a frame of ``frames.encode``. False if it is dropped: not connected, or too much waits already."""
        connection = self._admitted.get(node_id)
        return connection is not None and connection.send(frame)

    async def call(self, node_id: str, payload: bytes, timeout_s: float) -> bytes:
        """Ask another node's ``on_call``.

        Raises ConnectionError if the call was surely not sent (not connected, silent, too many calls or bytes under
        way), CallUnknown (a TimeoutError) if no answer came or the node fell silent, CallFailed if the handler failed,
        FrameError if the payload is too long.
        """
        connection = self._admitted.get(node_id)
        if connection is None:
            raise ConnectionError(f"node {node_id} is not connected")
        if node_id in self.pulses.silent:
            raise ConnectionError(f"node {node_id} gives no sign of life")
        return await connection.calls.ask(payload, timeout_s)

    # What connections tell

    def opened(self, connection: Connection) -> None:
        """A connection exists: whoever dialled introduces itself."""
        self._open.add(connection)
        assert self._server is not None
        if not self._server.is_serving():  # accepted just before stop
            connection.abort()
        elif connection.dialled is not None:
            connection.send(self._hello_frame)
        elif sum(stranger.peer is None for stranger in self._open) > STRANGERS_MAX:
            connection.abort()

    def received(self, connection: Connection, group_id: int, message: Message) -> None:
        """A message arrived: the first one decides whether its sender is admitted."""
        peer = connection.peer
        if peer is None:
            self._judge(connection, message)
            return
        match message:
            case Call():
                self._served.serve(peer, message, self.on_call, connection.send)
            case Reply():
                connection.calls.settle(message)
            case Ping():
                pass
            case Hello() | Refusal():
                raise FrameError("it introduced itself twice")
            case _:
                self.on_frame(peer, group_id, message)

    def faulty(self, connection: Connection, fault: str) -> None:
        """A connection is being dropped. Strangers come again and again: each fault of theirs is told once."""
        complaint = f"dropping the connection to {connection.other_end}: {fault}"
        if connection.peer is None:
            self._complaints.tell(complaint)
        else:
            _log.warning(complaint)

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""
        self._open.discard(connection)
        self._down(connection)

    # Who is admitted

    def _judge(self, connection: Connection, message: Message) -> None:
        if isinstance(message, Refusal):
            self._complaints.tell(f"{connection.other_end} refuses this node: {printable(message.reason)}")
            connection.abort()
            return
        if not isinstance(message, Hello):
            raise FrameError("it sent something else before its hello")
        fault = fault_of(message, self._hello, connection.dialled, self._peers)
        fault = fault or certificate_fault(connection.names, message.cluster_id, message.node_id)
        if fault is not None:
            self._complaints.tell(f"refusing {connection.other_end}: {fault}")
            connection.send(encode(0, Refusal(fault)))
            connection.close()
            return
        if connection.dialled is None:
            connection.send(self._hello_frame)
        self._up(connection, message.node_id, message.incarnation)

    # Which connection of a pair counts

    def _up(self, connection: Connection, peer: str, incarnation: int) -> None:
        older = self._admitted.get(peer)
        if older is not None:  # its other end is gone, or it would not have dialled again
            self._down(older)
            older.abort()
        connection.admit(peer, FRAME_BYTES_MAX)
        self._admitted[peer] = connection
        self.incarnations[peer] = incarnation
        self.pulses.up(peer)
        self._complaints.clear()
        _log.info("connected to %s", connection.other_end)
        self.on_up(peer, incarnation)

    def _down(self, connection: Connection) -> None:
        peer = connection.peer
        if peer is not None and self._admitted.get(peer) is connection:
            del self._admitted[peer]
            del self.incarnations[peer]
            self.pulses.down(peer)
            _log.info("no longer connected to %s", connection.other_end)
            self.on_down(peer)

    # What pulses tell

    def pulse(self, awake_at: float) -> None:
        """It is time for a sign of life to everybody."""
        for connection in list(self._open):
            connection.keep_alive(self._times.dead_s, awake_at)

    def last_heard(self, node_id: str) -> float:
        """When something arrived of a connected node."""
        return self._admitted[node_id].heard_at_s

    def silenced(self, node_id: str) -> None:
        """A connected node gives no sign of life: what was asked of it may never be answered."""
        _log.warning("no sign of life of %s", self._admitted[node_id].other_end)
        self._admitted[node_id].calls.lose("the node gives no sign of life")
        self.on_silent(node_id)

    def heard_again(self, node_id: str) -> None:
        """A node is not silent any more."""
        self.on_heard(node_id)

    def _connection(self, dialled: str | None) -> Connection:
        tls = None if self._tls is None else self._tls.session(dialled=dialled is not None)
        return Connection(self, dialled, self._peer_buffer_bytes_max, self._calls_max, tls)
