"""Connections between the nodes of a cluster: one TCP connection for each pair of nodes, for all groups.

The transport decides which node dials, which node is admitted and which connection of a pair is in use. It neither
queues frames for a peer that is not connected nor sends a frame twice: Raft repeats lost messages. It serves the calls
of other nodes and makes those of this one, outside Raft (rpc.py).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol, cast, get_args

from msgspec import structs

from ..messages import (
    AckMany,
    AppendMany,
    Call,
    Hello,
    Message,
    OpenStream,
    Ping,
    RaftMessage,
    Refusal,
    Reply,
    RolledBack,
    Software,
)
from .codec import FRAME_BYTES_MAX, LEVEL_PROTOCOLS, PROTOCOL_OLDEST, PROTOCOL_VERSION, SINCE, InvalidFrame, encode
from .connection import Connection, another_at
from .dialer import Address, Dialer, first_of
from .handshake import Accepted, RejectionLog, hello_fault, is_loopback, printable, stranger_to_drop, wants_older
from .liveness import DEFAULT_TIMES, Liveness, LivenessTimeouts
from .peer_positions import PeerPositions
from .rpc import CallFailed, CallRefused, CallUnknown
from .streams import STREAMS_MAX, AcceptStream, StreamWanted
from .tls import Tls, certificate_fault

__all__ = ["Address", "CallFailed", "CallUnknown", "Transport"]

_log = logging.getLogger(__name__)

STRANGERS_MAX = 64
"""Most accepted connections at a time whose hello has not arrived; beyond it, one is closed."""
FAILURE_CHARS_MAX = 1000
"""Most characters of a handler's failure that go back to the caller."""
NO_ROOM = 2
"""``Ping.disk`` of a node whose disk has room for small writes only."""
_OF_GROUPS = frozenset(get_args(RaftMessage))
"""The kinds of messages that go to a group."""


class ManyReceiver(Protocol):
    """Takes the frames that hold messages, or acks, of many groups."""

    def take(self, node_id: str, many: AppendMany) -> None: ...
    def acked(self, node_id: str, ack: AckMany) -> None: ...


class Receiver(Protocol):
    """Takes the messages of one group."""

    def receive(self, node_id: str, message: RaftMessage) -> None:
        """Handle a message of another node."""
        ...


class Transport:
    """This node's end of every connection between nodes.

    The node with the larger id dials. ``peers`` are the nodes known at first, perhaps this node too: ``set_peer`` and
    ``remove_peer`` change them. Host names are looked up at each dial, and their addresses tried in turn.

    - ``tls``: encrypt every connection, and admit only nodes whose certificate names them. Without it nothing is
      encrypted or authenticated, and a ``listen`` address that is not loopback raises ValueError, unless
      ``plaintext`` allows it.
    - ``times``: a peer of which nothing arrives for ``times.silent_s`` seconds is silent, and calls to it end.
    - ``peer_buffer_bytes_max``: bytes that may wait for one peer; frames beyond it are dropped.
    - ``calls_max``: unanswered calls to one peer, and calls of one peer being served, at a time.
    """

    groups: Mapping[int, Receiver]
    """The receivers of messages, by group id; messages for other groups are dropped. Empty until it is set."""
    many: ManyReceiver | None
    """The receiver of AppendMany and AckMany; without it they are dropped."""
    on_up: Callable[[str, int], None]
    """Called with the id of a node that is connected from now on, and its disk's incarnation. For each node, calls of
    ``on_up`` and ``on_down`` alternate.
    """
    on_down: Callable[[str], None]
    """Called with the id of a node when its connection is lost."""
    on_silent: Callable[[str], None]
    """Called with the id of a connected node that fell silent."""
    on_heard: Callable[[str], None]
    """Called with the id of a silent node that was heard again."""
    handlers: dict[bytes, Callable[[str, bytes], Awaitable[bytes]]]
    """The handlers of other nodes' calls, by kind (one byte): (node id, payload) to answer. An exception of a handler
    becomes the caller's CallFailed.
    """
    accept_stream: AcceptStream
    """Makes the protocol of each stream that another node opens to this one."""
    liveness: Liveness
    """Sends the heartbeats, and knows which nodes are silent. Exists once started."""
    peer_positions: PeerPositions
    """The positions up to which the peers' logs were on disk, as they reported them."""
    position: Callable[[], int]
    """Returns the position up to which this node's log is on disk, for its heartbeats."""
    on_rolled_back: Callable[[str, int], None]
    """Called with the id of a node and a position, when that node knows that this node's log was on disk up to the
    position, and this process began below it.
    """
    disk: int
    """How full this node's disk is, as in ``Ping.disk``. ``tell_disk`` changes it."""
    disks: dict[str, int]
    """The last ``Ping.disk`` of each connected node, if it is not 0, by node id. Do not change it."""
    full_disks: set[str]
    """The ids of the connected nodes whose last ``Ping.disk`` is NO_ROOM. Do not change it."""
    incarnations: dict[str, int]
    """The incarnation of the disk of each connected node, by node id. Do not change it."""
    hellos: dict[str, Hello]
    """The hello of each connected node, by node id. Do not change it."""
    software: Software = Software()
    """The software of this node, as its hello tells the others. To be set before ``start``."""
    accepted: Accepted
    """The oldest protocol and the feature level that this node accepts of others; ``raise_level`` changes it."""

    def __init__(
        self,
        node_id: str,
        cluster_id: str,
        listen: Address,
        peers: Mapping[str, Address],
        *,
        tls: Tls | None = None,
        plaintext: bool = False,
        times: LivenessTimeouts = DEFAULT_TIMES,
        peer_buffer_bytes_max: int = 64 << 20,
        calls_max: int = 1024,
    ) -> None:
        if tls is None and not plaintext and not is_loopback(listen[0]):
            raise ValueError(f"listening in plaintext on {listen[0]}, which others can reach, takes plaintext=True")
        self._tls = tls
        self.incarnations, self.groups, self.hellos, self.accepted = {}, {}, {}, Accepted()
        self.disk, self.disks, self.full_disks, self.many = 0, {}, set(), None
        self.peer_positions, self.position = PeerPositions(), lambda: 0
        self.on_up = self.on_rolled_back = lambda node_id, number: None
        self.on_down = self.on_silent = self.on_heard = lambda node_id: None
        self.handlers = {}
        self.accept_stream = lambda node_id: None
        self._listen, self._peers, self._times = listen, dict(peers), times
        self._peer_buffer_bytes_max, self._calls_max = peer_buffer_bytes_max, calls_max
        self._hello = Hello(PROTOCOL_VERSION, cluster_id, node_id, 0)
        encode(0, self._hello)  # raises InvalidFrame for a bad id here, rather than at each dial
        self._older: set[str] = set()  # nodes that do not know PROTOCOL_VERSION: the next dial says the older hello
        self._server: asyncio.Server | None = None
        self._dialer = Dialer(self._connection, times.dead_s, times.reconnect_s)
        self._open: dict[Connection, None] = {}  # in the order in which they were opened
        self._admitted: dict[str, Connection] = {}
        self._serving: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._answering: set[asyncio.Task[None]] = set()
        self._rejections = RejectionLog()
        # The last message of ``send``: its group id, the message, its frame.
        self._encoded: tuple[int, RaftMessage | AppendMany | AckMany, bytes] | None = None
        self._is_halted = False

    @property
    def address(self) -> Address:
        """Where this node listens, once started: the real port, if ``listen`` asked for port 0."""
        assert self._server is not None, "not started"
        host, port, *_ = self._server.sockets[0].getsockname()
        return host, port

    @property
    def connected(self) -> set[str]:
        """Ids of the connected nodes."""
        return set(self.incarnations)

    def set_peer(self, node_id: str, address: Address, former: Address | None = None) -> None:
        """Add a node, or change its address: the next dial goes there, or to ``former``. An open connection stays."""
        self._dialer.look_also(node_id, former)
        if self._peers.get(node_id) == address:
            return
        self._peers[node_id] = address
        if self._server is not None and self._server.is_serving() and node_id < self._hello.node_id:
            if node_id not in self._admitted:  # the dial under way may hang at the old address
                self._hang_up(node_id)
            self._dialer.dial(node_id, address)

    def remove_peer(self, node_id: str) -> None:
        """Remove a node: its connection is closed, and it is refused when it dials. Unknown ids are ignored."""
        if self._peers.pop(node_id, None) is not None:
            self._hang_up(node_id)

    def _hang_up(self, node_id: str) -> None:
        self._dialer.leave(node_id)
        for connection in [each for each in self._open if node_id in {each.peer, each.dialled}]:
            connection.abort()

    async def start(self, incarnation: int, session: int = 0, began: int = 0) -> None:
        """Listen and dial, with a disk of this incarnation (u64), whose log ends at position ``began``; ``session`` is
        a random number (u64), another one at each start.

        Returns when it listens; peers connect later. Raises OSError if the port is taken.
        """
        about = {"incarnation": incarnation, "session": session, "began": began, "software": self.software}
        self._hello = structs.replace(self._hello, **about)
        loop = asyncio.get_running_loop()
        self.liveness = Liveness(self, loop.time, loop.call_at, self._times)
        if self._tls is not None:
            self._tls.on_reload = self._cut_revoked
        self._server = await loop.create_server(lambda: self._connection(None), *self._listen, start_serving=False)
        await self._server.start_serving()  # not before ``opened`` can ask whether it is serving
        for peer, address in self._peers.items():
            if peer < self._hello.node_id:
                self._dialer.dial(peer, address)
        self.liveness.start()

    def raise_level(self, level: int) -> None:
        """Refuse nodes whose software is too old for the cluster's new feature level, and cut off connected ones."""
        known = max(each for each in LEVEL_PROTOCOLS if each <= level)
        self.accepted = Accepted(LEVEL_PROTOCOLS[known], level)
        for connection in list(self._open):
            if connection.peer is not None and connection.protocol < self.accepted.protocol:
                self.faulty(connection, f"its software is too old for feature level {level}")
                connection.abort()

    def speaks(self, node_id: str, version: int) -> bool:
        """Whether a node is connected, by a connection with this version of the protocol or a newer one."""
        connection = self._admitted.get(node_id)
        return connection is not None and connection.protocol >= version

    def halt(self) -> None:
        """Send no Raft message and no heartbeat any more: this node has failed."""
        self._is_halted = True
        self.liveness.stop()

    async def stop(self) -> None:
        """Close everything. Connected peers go down, unanswered calls end as CallUnknown."""
        if self._server is None:
            return
        self._server.close()
        self.liveness.stop()
        await self._dialer.stop()
        closing = list(self._open)
        for connection in closing:
            connection.abort()
        await asyncio.gather(*[connection.closed.wait() for connection in closing])
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await self._server.wait_closed()

    def send(self, group_id: int, node_id: str, message: RaftMessage | AppendMany | AckMany) -> bool:
        """Queue a message of a group; an AppendMany or AckMany has ``group_id`` 0. Returns False if it is dropped: the
        node is not connected, too many bytes wait for it, or ``halt`` was called.

        Raises InvalidFrame if it does not fit in a frame.
        """
        connection = self._admitted.get(node_id)
        if connection is None or self._is_halted:
            return False
        if SINCE.get(type(message), 0) > connection.protocol:
            _log.error("%s does not know a %s, which it was to be sent", connection.other_end, type(message).__name__)
            return False
        last = self._encoded
        if last is None or last[1] is not message or last[0] != group_id:
            last = self._encoded = group_id, message, encode(group_id, message)
        return connection.send(last[2])

    async def call(self, node_id: str, kind: bytes, payload: bytes, timeout_s: float) -> bytes:
        """Call another node's handler of this kind, one byte; returns its answer.

        Raises ConnectionError if the call was surely not sent (not connected, silent, too many calls or bytes in
        flight), CallUnknown (a TimeoutError) if no answer came or the node fell silent, CallFailed if the handler
        failed, InvalidFrame if the payload is too long.
        """
        connection = self._admitted.get(node_id)
        if connection is None:
            raise ConnectionError(f"node {node_id} is not connected")
        if node_id in self.liveness.silent:
            raise ConnectionError(f"node {node_id} is silent")
        if len(connection.answers) >= self._calls_max:
            raise ConnectionError(f"{self._calls_max} calls to this node wait for an answer already")
        call_id = next(connection.call_ids)
        if not connection.send(encode(0, Call(call_id, kind + payload))):
            raise ConnectionError("the connection is closing, or too many bytes wait for this node already")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        connection.answers[call_id] = answer
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except CallUnknown:
            raise
        except TimeoutError:
            raise CallUnknown(f"no answer within {timeout_s} s") from None
        finally:
            del connection.answers[call_id]

    async def open_stream(self, node_id: str, protocol: asyncio.Protocol) -> None:
        """Give ``protocol`` a connection of its own to another node. Raises OSError if that fails: then nothing was
        sent to the protocol at the other end.
        """
        if (address := self._peers.get(node_id)) is None:
            raise ConnectionError(f"node {node_id} is not known")
        connection = await first_of(address, self._times.dead_s, partial(self._dial_stream, node_id, protocol))
        try:
            await cast(StreamWanted, connection.wanted).opened
        except BaseException:
            self._give_up(connection)
            raise

    async def _dial_stream(self, node_id: str, protocol: asyncio.Protocol, to: Address) -> Connection:
        """A connection to one address of a node, of which only this attempt to open a stream hears that it is lost."""
        connection = self._connection(node_id, StreamWanted(protocol))
        try:
            await asyncio.get_running_loop().create_connection(lambda: connection, *to)
        except BaseException:
            self._give_up(connection)
            raise
        return connection

    def _give_up(self, connection: Connection) -> None:
        if connection.wanted is not None:
            connection.wanted.opened.cancel()
        if connection in self._open:
            connection.abort()
            connection.connection_lost(None)  # uvloop does not call it for a dial that is cancelled

    def _serve(self, connection: Connection, peer: str, call: Call) -> None:
        """Start the handler of a call. The reply is dropped if the connection is closed by then."""
        if self._serving[peer] >= self._calls_max:
            connection.send(_failure(call, f"not started: {self._calls_max} calls of this node are being served"))
            return
        self._serving[peer] += 1
        task = asyncio.get_running_loop().create_task(self._answer(connection, peer, call))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, connection: Connection, peer: str, call: Call) -> None:
        try:
            handler = self.handlers.get(call.payload[:1])
            if handler is None:
                raise CallRefused("this node answers no calls of this kind yet")
            reply = encode(0, Reply(call.call_id, await handler(peer, call.payload[1:]), True))
        except Exception as error:
            if not isinstance(error, CallRefused):
                _log.warning("a call of %s failed", peer, exc_info=True)
            reply = _failure(call, f"{type(error).__name__}: {error}")
        finally:
            self._serving[peer] -= 1
        connection.send(reply)

    # Events of connections

    def opened(self, connection: Connection) -> None:
        """Send the first hello on a new connection, if this node dialled; otherwise bound those without a hello."""
        self._open[connection] = None
        assert self._server is not None
        if not self._server.is_serving():  # accepted just before stop
            connection.abort()
        elif connection.dialled is None:
            self._bound_strangers()
        elif (other := another_at(connection, self._admitted.values())) is not None:
            self._rejected(connection, f"is not asked: {other} is connected at this address")
            connection.abort()
        else:
            hello = self._hello_for(connection)
            connection.send(encode(0, hello if connection.wanted is None else OpenStream(hello)))

    def _hello_for(self, connection: Connection) -> Hello:
        """The hello for a node that was dialled, in the newest version; once in the older version if the node refused
        the newest one, as it may be upgraded before the next dial.
        """
        peer = connection.dialled
        assert peer is not None
        connection.protocol = PROTOCOL_VERSION
        if connection.wanted is not None and peer in self._admitted:
            connection.protocol = self._admitted[peer].protocol
        elif peer in self._older:
            self._older.discard(peer)
            connection.protocol = PROTOCOL_OLDEST
        return structs.replace(self._hello, version=connection.protocol)

    def _bound_strangers(self) -> None:
        strangers = [each for each in self._open if each.peer is None and each.dialled is None and not each.is_closing]
        if len(strangers) > STRANGERS_MAX:
            peers = {host for host, _ in self._peers.values()}
            strangers[stranger_to_drop([stranger.host for stranger in strangers], peers)].abort()

    def received(self, connection: Connection, group_id: int, message: Message) -> None:
        """Handle a message that arrived: the first one of a connection decides whether its sender is admitted."""
        peer = connection.peer
        if peer is None:
            self._introduce(connection, message)
            return
        if type(message) in _OF_GROUPS:
            group = self.groups.get(group_id)
            if group is not None:
                group.receive(peer, cast(RaftMessage, message))
            return
        match message:
            case AppendMany():
                if self.many is not None:
                    self.many.take(peer, message)
            case AckMany():
                if self.many is not None:
                    self.many.acked(peer, message)
            case Call():
                self._serve(connection, peer, message)
            case Reply():
                connection.settle(message)
            case Ping():
                self._look_at_disk(peer, message.disk)
                self.peer_positions.note_position(peer, message.position)
                self.liveness.heartbeat_came()
            case RolledBack():
                self.on_rolled_back(peer, message.position)
            case _:
                raise InvalidFrame("it introduced itself twice")

    def _look_at_disk(self, peer: str, level: int) -> None:
        if level == self.disks.get(peer, 0):
            return
        was_full = peer in self.full_disks
        self._forget_disk(peer)
        if level:
            self.disks[peer] = level
        if level >= NO_ROOM:
            self.full_disks.add(peer)
        elif was_full:
            self.on_heard(peer)  # the entries that were held back from it can be sent now

    def _forget_disk(self, peer: str) -> None:
        self.disks.pop(peer, None)
        self.full_disks.discard(peer)

    def faulty(self, connection: Connection, fault: str) -> None:
        """Log why a connection is being dropped; a fault of a stranger, which dials again and again, only once."""
        rejection = f"dropping the connection to {connection.other_end}: {fault}"
        if connection.peer is None:
            self._rejections.add(rejection)
        else:
            _log.warning(rejection)

    def lost(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._open.pop(connection, None)
        if connection.stream is not None and connection.peer is not None and connection.wanted is None:
            self._streams[connection.peer] -= 1
        self._down(connection)

    # Which node is admitted

    def _introduce(self, connection: Connection, message: Message) -> None:
        if isinstance(message, Refusal):
            self._is_refused(connection, message.reason)
            return
        is_opening = isinstance(message, OpenStream) and connection.dialled is None
        hello = message.hello if isinstance(message, OpenStream) and is_opening else message
        if not isinstance(hello, Hello):
            raise InvalidFrame("it sent something else before its hello")
        fault = hello_fault(hello, self._hello, connection.dialled, self._peers, self.accepted, is_stream=is_opening)
        fault = fault or certificate_fault(connection.names, hello.cluster_id, hello.node_id)
        if self._is_revoked(connection, hello.node_id):
            fault = fault or f"{hello.node_id!r} or its certificate is revoked"
        stream = self._accepted(hello.node_id) if is_opening and fault is None else None
        if is_opening and stream is None:
            fault = fault or "it takes no streams now"
        if fault is not None:
            self._rejected(connection, f"is refused: {fault}")
            connection.send(encode(0, Refusal(fault)))
            connection.close()
            return
        connection.protocol = hello.version
        if connection.dialled is None:
            connection.send(encode(0, structs.replace(self._hello, version=hello.version)))
        if not is_opening and (lost := self.peer_positions.check(hello)) is not None:
            self._rejected(connection, "begins with a log that lacks what it had told: its disk was rolled back")
            connection.send(encode(0, RolledBack(lost)))
            connection.close()
            return
        self._admit(connection, hello, stream)

    def _is_refused(self, connection: Connection, reason: str) -> None:
        """Handle a refusal. If the node that was dialled only lacks the newest version, dial again in the older one."""
        peer, is_newest = connection.dialled, connection.protocol == PROTOCOL_VERSION
        if peer is not None and is_newest and self.accepted.protocol == PROTOCOL_OLDEST and wants_older(reason):
            self._older.add(peer)
            connection.is_to_be_dialled_again = True
            if connection.wanted is not None:
                connection.wanted.refuse("it does not know the newest version of the protocol")
        else:
            self._rejected(connection, f"refuses this node: {printable(reason)}")
        connection.abort()

    def _is_revoked(self, connection: Connection, node_id: str) -> bool:
        return self._tls is not None and self._tls.is_revoked(node_id, connection.fingerprint)

    def _cut_revoked(self) -> None:
        """Close the connections of nodes that are revoked now, after the TLS files were read again."""
        for connection in list(self._open):
            if connection.peer is not None and self._is_revoked(connection, connection.peer):
                self.faulty(connection, "it is revoked")
                connection.abort()

    def _rejected(self, connection: Connection, rejection: str) -> None:
        self._rejections.add(f"{connection.other_end} {rejection}")
        if connection.wanted is not None:
            connection.wanted.refuse(rejection)

    def _accepted(self, node_id: str) -> asyncio.Protocol | None:
        return self.accept_stream(node_id) if self._streams[node_id] < STREAMS_MAX else None

    def _admit(self, connection: Connection, hello: Hello, stream: asyncio.Protocol | None) -> None:
        if connection.wanted is not None:
            connection.carry(hello.node_id, connection.wanted.protocol)
            connection.wanted.open()
        elif stream is not None:
            self._streams[hello.node_id] += 1
            connection.carry(hello.node_id, stream)
        else:
            self.peer_positions.note_hello(hello)
            self._up(connection, hello)

    # Which connection of a pair is in use

    def _up(self, connection: Connection, hello: Hello) -> None:
        peer, incarnation = hello.node_id, hello.incarnation
        older = self._admitted.get(peer)
        if older is not None:  # its other end is gone, or it would not have dialled again
            self._down(older)
            older.abort()
        connection.admit(peer, FRAME_BYTES_MAX)
        self._admitted[peer] = connection
        self.incarnations[peer], self.hellos[peer] = incarnation, hello
        self.liveness.up(peer)
        self._rejections.clear()
        self._dialer.reached(peer)
        _log.info("connected to %s, protocol %d", connection.other_end, connection.protocol)
        self.on_up(peer, incarnation)

    def _down(self, connection: Connection) -> None:
        peer = connection.peer
        if peer is not None and self._admitted.get(peer) is connection:
            del self._admitted[peer]
            del self.incarnations[peer], self.hellos[peer]
            self.liveness.down(peer)
            self._forget_disk(peer)
            _log.info("no longer connected to %s", connection.other_end)
            for stream in [each for each in self._open if each.wanted is not None and each.dialled == peer]:
                stream.abort()  # a node that hangs, or is cut off, answers nothing on it, and does not close it
            self.on_down(peer)

    # Events of liveness

    def send_heartbeats(self, awake_at: float) -> None:
        """Send a heartbeat on every connection, and drop the dead ones."""
        beat = Ping(self.disk, self.position())
        ping = beat, encode(0, beat)
        for connection in list(self._open):
            connection.keep_alive(self._times.dead_s, awake_at, ping)

    def tell_disk(self, level: int) -> None:
        """Set how full this node's disk is. The other nodes are told of a change at once, ahead of all that is sent
        later: so a node to which this one transfers a leadership knows by then that it should send this one no entries.
        """
        if level != self.disk:
            self.disk = level
            self.send_heartbeats(awake_at=float("inf"))  # which drops no connection as dead: liveness does

    def last_heard(self, node_id: str) -> float:
        """When the last bytes of a connected node arrived."""
        return self._admitted[node_id].heard_at_s

    def is_amid_frame(self, node_id: str) -> bool:
        """Whether a part of a frame of a connected node has arrived, and its rest has not."""
        connection = self._admitted.get(node_id)
        return connection is not None and connection.is_amid_frame

    def fell_silent(self, node_id: str) -> None:
        """Handle that a connected node fell silent: calls to it end as CallUnknown, as they may never be answered."""
        _log.warning("%s is silent: no heartbeat for %g s", self._admitted[node_id].other_end, self._times.silent_s)
        self._admitted[node_id].abandon_calls("the node is silent")
        self.on_silent(node_id)

    def heard_again(self, node_id: str) -> None:
        """Handle that a silent node was heard again."""
        self.on_heard(node_id)

    def _connection(self, dialled: str | None, wanted: StreamWanted | None = None) -> Connection:
        is_plain = self._tls is None or (dialled is not None and self._tls.dials_plain)
        tls = None if self._tls is None or is_plain else self._tls.session(dialled=dialled is not None)
        return Connection(self, dialled, self._peer_buffer_bytes_max, tls, wanted)


def _failure(call: Call, text: str) -> bytes:
    return encode(0, Reply(call.call_id, text[:FAILURE_CHARS_MAX].encode(errors="replace"), False))
